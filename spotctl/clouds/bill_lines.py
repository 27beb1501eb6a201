"""Lines of a provider's bill, independent of the provider."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum

from pricing_data.units import NANO_SECONDS_PER_DOLLAR
from spotctl.home.errors import BadRequest

DOLLARS = "USD"

_TRAFFIC = re.compile(r"data ?transfer|(out|in|regional)-bytes|bandwidth|egress", re.IGNORECASE)
"""In the usage types of AWS, the SKUs of Google Cloud, and the meter categories of Azure."""


class BadBill(BadRequest):
    """A bill that cannot be read; the message names the file, the line and the problem."""


class BillKind(Enum):
    """The kind of a line. The ledger has usage before credits and taxes, so only usage is compared."""

    USAGE = "usage"
    CREDIT = "credits"
    DISCOUNT = "discounts"
    TAX = "taxes"
    REFUND = "refunds"
    FEE = "fees"
    CORRECTION = "corrections of earlier bills"


@dataclass(frozen=True, slots=True)
class BillLine:
    """A charge for a resource in a period.

    `is_machine`: for machine time, not for a disk, an address or traffic. `where`: its place in the file. `what`:
    everything that distinguishes charges for the same resource and period. `run`: the tag with the run that rented the
    resource, empty if it has none, None if the export has no tags. `billed_in`: the bill's
    own currency; if the bill states its rate, `amount` is in dollars all the same. `line_id`: the provider's ID of the
    line, empty if the export has none; then `row` stands for all of its cells.
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
    kind: BillKind = BillKind.USAGE
    billed_in: str = DOLLARS
    line_id: str = ""
    row: int = 0

    @property
    def is_traffic(self) -> bool:
        """Whether the line charges for data that was sent."""
        return not self.is_machine and _TRAFFIC.search(self.what) is not None

    @property
    def nanos(self) -> int:
        """The amount in the unit of the ledger: nano-units of the currency x seconds."""
        return round(self.amount * NANO_SECONDS_PER_DOLLAR)


@dataclass(frozen=True, slots=True)
class ProviderBill:
    """The lines of an export and its billing period; None if the export does not state it."""

    provider: str
    lines: tuple[BillLine, ...]
    begin: int | None
    end: int | None

    @property
    def has_tags(self) -> bool:
        """Whether lines name the run that rented their resource."""
        return any(line.run is not None for line in self.lines)
