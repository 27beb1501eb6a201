"""A machine's life and the rows of its bill, and the price lookups that every billing rule
needs."""

from dataclasses import dataclass
from enum import Enum

import numpy as np

from bidbrain.errors import BidBrainError, TooLittleHistory
from pricing_data.series import PriceSeries
from pricing_data.units import HOUR, SECOND, format_time

Prices = PriceSeries | int
"""A market's history, or one price (nano-dollars per hour) that holds throughout, as on-demand
prices do."""


class ImpossibleLife(BidBrainError, ValueError):
    """A machine's life or planned future that contradicts itself."""


class End(Enum):
    """How a machine's life ended."""

    EVICTED = "evicted"
    """The provider evicted the machine."""
    LEFT = "left"
    """The user returned the machine, and pays for the started billing unit as the rule says."""
    HANDED_ON = "handed on"
    """The job that used it is over and other jobs keep using it: the job pays the seconds it used,
    pro rata, without rounding up to an hour, minute or minimum, and gets no later refund. Harlap
    4.5.2 compares jobs like this; no cloud bills it."""


@dataclass(frozen=True, slots=True)
class Life:
    """When a machine was granted and when it ended, in microseconds UTC."""

    start: int
    end: int
    ended: End

    def __post_init__(self) -> None:
        if self.end < self.start:
            raise ImpossibleLife(
                f"a life ends at {format_time(self.end)}, before its start "
                f"{format_time(self.start)}"
            )


@dataclass(frozen=True, slots=True)
class Charge:
    """One row of a bill: the part [begin, end) of a life, its price, and the seconds billed for it.

    Billed seconds differ from the length where a rule bills started hours, full minutes or a
    minimum. A refunded row shows what was charged and refunded.
    """

    begin: int
    end: int
    price: int
    seconds: int
    refunded: bool = False

    @property
    def amount(self) -> int:
        """Amount paid after refunds, in nano-dollar-seconds."""
        if self.refunded:
            return 0
        return self.price * self.seconds


@dataclass(frozen=True, slots=True)
class Bill:
    """The rows of one machine's life, in order; their intervals cover it without gap or overlap."""

    charges: tuple[Charge, ...]

    @property
    def amount(self) -> int:
        """Amount paid, in nano-dollar-seconds."""
        return sum(charge.amount for charge in self.charges)


def hourly_rates(life: Life, prices: Prices) -> tuple[list[int], list[int]]:
    """Start of each hour of a life, and the price at that moment."""
    begins = list(range(life.start, life.end, HOUR))
    if isinstance(prices, int):
        return begins, [_checked_price(prices)] * len(begins)
    _require_history(life, prices)
    in_force = prices.times.searchsorted(begins, side="right") - 1
    rates = prices.prices[in_force]
    return begins, rates.tolist()


def rate_changes(life: Life, prices: Prices) -> tuple[list[int], list[int]]:
    """Price changes within a life, its start included: the times, and the prices in force from then
    on.
    """
    if isinstance(prices, int):
        return [life.start], [_checked_price(prices)]

    _require_history(life, prices)
    first = int(prices.times.searchsorted(life.start, side="right")) - 1
    at_end = int(prices.times.searchsorted(life.end, side="left"))
    after = max(at_end, first + 1)
    rates = prices.prices[first:after]

    # An event that repeats the price is an observation, not another row of a bill.
    changed = np.flatnonzero(np.diff(rates, prepend=0))
    begins = prices.times[first:after][changed].tolist()
    begins[0] = life.start
    return begins, rates[changed].tolist()


def metered_bill(
    life: Life, begins: list[int], rates: list[int], seconds: int, *, refunded: bool
) -> Bill:
    """Rows of `seconds` billed seconds: each second costs the price in force when it began; the
    last price continues."""
    if life.start == life.end:
        return Bill(())

    marks = []
    for begin in begins:
        begun = started_units(begin - life.start, SECOND)
        marks.append(min(begun, seconds))
    ends = [*begins[1:], life.end]
    rows = zip(begins, ends, rates, marks, [*marks[1:], seconds], strict=True)
    charges = tuple(
        Charge(begin, end, rate, upto - since, refunded) for begin, end, rate, since, upto in rows
    )
    return Bill(charges)


def started_units(span: int, unit: int) -> int:
    """Number of units of a span that have started."""
    return -(-span // unit)


def _checked_price(price: int) -> int:
    # Machines of a reservation, and only these, may be paid for already. No unknown price is billed
    # as 0: offers of other machines, catalogs and price series refuse that.
    if price < 0:
        raise ImpossibleLife(f"a price of {price} nano-dollars per hour is below 0")
    return price


def _require_history(life: Life, prices: PriceSeries) -> None:
    if life.start < prices.first or life.end > prices.last:
        raise TooLittleHistory(
            f"{prices.market} has prices from {format_time(prices.first)} to "
            f"{format_time(prices.last)}, not for a life"
            f" from {format_time(life.start)} to {format_time(life.end)}; import a longer history"
        )
