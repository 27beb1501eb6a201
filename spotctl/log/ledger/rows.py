"""The values of the ledger: its rows, the on-demand cost of the same work, and the one rounding of
amounts.
"""

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import NamedTuple

from pricing_data.market import Market
from pricing_data.units import NANO_SECONDS_PER_DOLLAR, NANOS_PER_DOLLAR

_PER_MICRO_DOLLAR = NANO_SECONDS_PER_DOLLAR // 1_000_000


class ChargeKind(StrEnum):
    """The kind of a row's charge."""

    COMPUTE = "compute"
    REFUND = "refund"
    """Pays back COMPUTE rows of the same time."""
    DISK = "disk"
    ADDRESS = "address"
    EGRESS = "egress"
    CORRECTION = "correction"
    """Corrects earlier rows, which stay."""
    UNKNOWN = "unknown"
    """The rest of what a run is known to have cost, where rows of the log or prices are lost."""


class Use(StrEnum):
    """The use of a machine's time."""

    STARTING = "starting"
    """From the rental of the machine until it was first seen running."""
    LOADING = "loading"
    """From then until the machine first worked."""
    WORKING = "working"
    REDONE = "redone"
    """Work that was lost in an eviction and done again."""
    IDLE = "idle"
    """The machine ran without working: before other machines were ready, or after the job was
    done."""
    UNUSED = "unused"
    """Time that a rule bills beyond the machine's end: the rest of an hour, or a minimum."""


class LedgerRow(NamedTuple):
    """A part of a machine's life and its cost.

    Rows are settled when their run has ended and its prices are in the log; they never change
    afterwards, and corrections are new rows. `begin` and `end` are microseconds UTC on the
    provider's clock (a replayed market's is in the past), `price` is in nano-dollars per hour, by
    the billing rule. `amount` and `on_demand` are exact, in nano-dollar-seconds; `on_demand` is the
    on-demand price of the same time. Refunds have negative amounts. `listed` is the list price per
    hour (or GiB). `target` is where traffic went, `gcp/us-central1`, if that is known, and `sent`
    its bytes. `doubtful` is the part of the amount that only counts because the end of the machine
    is not known.
    """

    run: str
    job: str
    machine: str
    market: Market
    reliable: bool
    spot: bool
    begin: int
    end: int
    kind: ChargeKind
    use: Use
    price: int
    amount: int
    on_demand: int
    settled: bool
    listed: int = 0
    target: str = ""
    doubtful: int = 0
    sent: int = 0


@dataclass(frozen=True, slots=True)
class SameWork:
    """The on-demand cost of a run's work in nano-dollar-seconds, with its interval; where it is
    unknown, it is 0, and `unknown` says why.

    `useful` is the share of the time at work that undisturbed machines would have needed for it;
    the rest is waiting.
    """

    amount: int = 0
    low: int = 0
    high: int = 0
    useful: Fraction = Fraction(0)
    unknown: str = ""


@dataclass(frozen=True, slots=True)
class CostSoFar:
    """The cost of a run so far, in nano-dollar-seconds, and the least that this can be.

    The amount is also the most, unless a part is unknown (`is_least`): because of lost rows, of a
    missing price, or of an order whose outcome is not known.
    """

    amount: int
    low: int
    is_least: bool = False

    @property
    def high(self) -> int | None:
        """The most that the run can have cost so far; None if that is unknown."""
        return None if self.is_least else self.amount


def usd(amount: int) -> float:
    """An amount of the ledger, which counts nano-dollar-seconds, in dollars, rounded to the
    nano-dollar."""
    return nano_dollars(amount) / NANOS_PER_DOLLAR


def nano_dollars(amount: int) -> int:
    """Whole nano-dollars of nano-dollar-seconds, half to even."""
    whole, rest = divmod(amount, 3600)
    return whole + (rest > 1800 or (rest == 1800 and whole % 2 == 1))


def micro_dollars(amount: int) -> int:
    """Whole micro-dollars of nano-dollar-seconds, half to even.

    >>> micro_dollars(3600 * 1_500), micro_dollars(3600 * 2_500), micro_dollars(-3600 * 1_501)
    (2, 2, -2)
    """
    whole, rest = divmod(amount, _PER_MICRO_DOLLAR)
    twice = 2 * rest
    return whole + (twice > _PER_MICRO_DOLLAR or (twice == _PER_MICRO_DOLLAR and whole % 2 == 1))
