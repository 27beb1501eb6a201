"""The result of a comparison of the ledger with a provider's bill."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from pricing_data.units import NANO_SECONDS_PER_DOLLAR
from spotctl.clouds.bill_lines import DOLLARS, BillKind

MICRO = NANO_SECONDS_PER_DOLLAR // 1_000_000
"""A micro-dollar: bills round each line, which does not count as a difference."""


class DifferenceKind(Enum):
    """How the ledger and the bill can differ."""

    MISSING_IN_BILL = "missing in the bill"
    MISSING_IN_LEDGER = "missing in the ledger"
    DUPLICATE = "doubled in the bill"
    OTHER_CURRENCY = "in another currency"
    DIFFERS = "differs"


@dataclass(frozen=True, slots=True)
class BillDifference:
    """A difference for a resource in a period, with the amounts of the ledger and the bill if there are any."""

    kind: DifferenceKind
    resource: str
    begin: int
    end: int
    ledger: int | None = None
    bill: int | None = None
    currency: str = DOLLARS
    where: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Adjustment:
    """Credits, discounts, taxes, refunds or fees: those for resources of spotctl, and all others of the bill."""

    kind: BillKind
    own: int
    others: int


@dataclass(frozen=True, slots=True)
class Agreement:
    """The result of a comparison. Amounts are in nano-dollar-seconds."""

    provider: str
    differences: tuple[BillDifference, ...]
    machines: int
    lines: int
    ledger: int
    bill: int
    others: int
    other_lines: int
    """`others` is the sum of the `other_lines` that are for resources not rented by spotctl; not compared."""
    unsettled: int
    unsettled_amount: int
    """Ledger rows of machines that are still running, and their amount in the billing period; not compared."""
    outside: int
    outside_amount: int
    """Ledger rows outside the billing period; not compared, and not in the share that was."""
    untagged: int
    """The ledger's amount for disks, addresses and traffic if the bill has no tags; not compared."""
    foreign: int = 0
    """The ledger's amount for time that is billed in a currency without a rate; not compared."""
    adjustments: tuple[Adjustment, ...] = ()
    unmeasured: int = 0
    """Traffic in the bill beyond that in the ledger; not compared."""
    converted: tuple[str, ...] = ()
    """The currencies that were converted with the bill's own rates."""

    @property
    def agrees(self) -> bool:
        """Whether there are no differences."""
        return not self.differences

    @property
    def not_compared(self) -> int:
        """The ledger's amount in the billing period that could not be compared."""
        return self.unsettled_amount + self.untagged + self.foreign

    @property
    def compared(self) -> float | None:
        """The share of the ledger's amount in the billing period that could be compared; None without an amount."""
        whole = self.ledger + self.not_compared
        return self.ledger / whole if whole > 0 else None

    @property
    def disputed(self) -> Mapping[DifferenceKind, int]:
        """The amounts of differences in dollars, by kind."""
        amounts: Counter[DifferenceKind] = Counter()
        for difference in self.differences:
            if difference.currency == DOLLARS:
                amounts[difference.kind] += abs((difference.bill or 0) - (difference.ledger or 0))
        return amounts

    @property
    def agreed(self) -> float | None:
        """The share of all compared amounts, of either side, that both have; None if there was nothing to compare."""
        disputed = self.disputed
        in_bill_only = disputed.get(DifferenceKind.MISSING_IN_LEDGER, 0) + disputed.get(DifferenceKind.DUPLICATE, 0)
        whole = max(abs(self.ledger) + in_bill_only, sum(disputed.values()))
        return 1 - sum(disputed.values()) / whole if whole else None
