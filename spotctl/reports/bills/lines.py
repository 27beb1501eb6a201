"""A line of a provider's bill, whoever wrote it."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from spotctl.errors import BadRequest
from spotctl.ledger.rows import NANO_SECONDS_PER_DOLLAR

DOLLARS = "USD"


class BadBill(BadRequest):
    """A bill that cannot be read; the message names the file, the line and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class BillLine:
    """What a bill charges for a resource in a period.

    `is_machine` says that it is for a machine's time, and not for a disk, an address or traffic. `where` is its place
    in the file, `what` all by which the provider tells charges of one resource and period apart. `run` is the tag that
    says which run rented it: empty where there is none, None in an export that tells no tags.
    """

    where: str
    resource: str
    is_machine: bool
    begin: int
    end: int
    amount: Decimal
    currency: str
    what: str
    run: str | None

    @property
    def nanos(self) -> int:
        """The amount in nano-units-of-currency-seconds, as the ledger has it."""
        return round(self.amount * NANO_SECONDS_PER_DOLLAR)


@dataclass(frozen=True, slots=True)
class Bill:
    """The lines of an export, and the billing periods that it covers where it says so."""

    provider: str
    lines: tuple[BillLine, ...]
    begin: int | None
    end: int | None

    @property
    def tells_tags(self) -> bool:
        """Whether lines say which run rented their machine."""
        return any(line.run is not None for line in self.lines)
