"""The billing rules, and how each cloud bills spot machines and takes them back, as the part
`terms` of its package says.

All rules share these conventions for edge cases:

- A life is half-open, [start, end): the moment of its end is not billed. A life of no length costs
  nothing.
- A second, or an hour, is billed once it has started; second number i costs the price in force when
  it started.
- An eviction exactly at the end of an hour (or of a free span) comes after it: that time is
  complete and is paid.
- A life must lie within the price history; costs outside it are unknown and never guessed.

A machine's future cost is linear in its survival: each stretch of future time is paid if the
machine still runs at one certain age, and is free or never billed otherwise. A rule lists those
ages and seconds (`Dues`); their product with any survival curve is the expectation.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from math import inf
from typing import cast

import numpy as np
from numpy.typing import ArrayLike

from bidbrain.arrays import Floats
from bidbrain.billing.bill import (
    Bill,
    Charge,
    End,
    ImpossibleLife,
    Life,
    Prices,
    hourly_rates,
    metered_bill,
    rate_changes,
    started_units,
)
from bidbrain.errors import BidBrainError, TooLittleHistory
from pricing_data.known_clouds import cloud_names, markets_of, part_of
from pricing_data.units import HOUR, MINUTE, SECOND


class UnknownBillingRule(BidBrainError, LookupError):
    """No billing rule has this name."""


Dues = tuple[Floats, Floats]
"""Ages in microseconds, and future billed seconds: `seconds[i]` are paid if the machine still runs
at `ages[i]`."""


@dataclass(frozen=True, slots=True)
class HourlyRefund:
    """AWS until 2017: each started hour costs the price at its start; the hour of an eviction is
    free.

    AWS still bills machines that run SUSE Linux this way.
    """

    name: str = "hourly-refund"

    def bill(self, life: Life, prices: Prices) -> Bill:
        """One row per hour."""
        begins, rates = hourly_rates(life, prices)
        ends = [*begins[1:], life.end]
        hours = zip(begins, ends, rates, strict=False)
        rows = [Charge(*row, HOUR // SECOND) for row in hours]
        if rows and rows[-1].end < rows[-1].begin + HOUR:
            hour = rows[-1]
            if life.ended is End.EVICTED:
                rows[-1] = Charge(hour.begin, hour.end, hour.price, hour.seconds, refunded=True)
            elif life.ended is End.HANDED_ON:
                seconds = started_units(hour.end - hour.begin, SECOND)
                rows[-1] = Charge(hour.begin, hour.end, hour.price, seconds)
        return Bill(tuple(rows))

    def dues(self, age: int, horizon: int, ended: End) -> Dues:
        """An hour is paid by machines that are not evicted in it."""
        end = _checked_end(age, horizon, ended)
        begins = np.arange(age // HOUR * HOUR, end, HOUR)
        ends = begins + HOUR
        billed_to = np.minimum(ends, end) if ended is End.HANDED_ON else ends
        covered = billed_to - np.maximum(begins, age)
        return _dues(np.minimum(ends, end), covered)


@dataclass(frozen=True, slots=True)
class PerSecond:
    """Each started second, at least `minimum`; nothing if the provider evicts before the age
    `free_until`.

    With `hourly_price` the price is fixed at the start of each hour of the life, otherwise it is
    the current one. Time missing to the minimum costs the last price. Spans are in microseconds.
    """

    name: str
    minimum: int = MINUTE
    free_until: int = 0
    hourly_price: bool = False

    def bill(self, life: Life, prices: Prices) -> Bill:
        """One row per price."""
        begins, rates = (
            hourly_rates(life, prices) if self.hourly_price else rate_changes(life, prices)
        )
        lived = life.end - life.start
        least = 0
        if life.ended is not End.HANDED_ON:
            least = self.minimum
        seconds = started_units(max(lived, least), SECOND)
        free = life.ended is End.EVICTED and lived < self.free_until
        return metered_bill(life, begins, rates, seconds, refunded=free)

    def dues(self, age: int, horizon: int, ended: End) -> Dues:
        """A machine that outlives the free span owes it, and the minimum; then time as it runs; the
        end settles the rest."""
        end = _checked_end(age, horizon, ended)
        if end == 0:
            return _dues([], [])

        paid_from = max(age, self.free_until)
        least = max(end, self.minimum)
        at_end = (end if ended is End.HANDED_ON else least) - age
        if paid_from >= end:
            return _dues([end], [at_end])

        sure_until = max(paid_from, self.minimum)
        ages, spans = np.zeros(0), np.zeros(0)
        if sure_until < end:
            # Time paid as it runs: ages on whole minutes, and the span that each stands for (the
            # trapezoidal rule). Survival only falls, so the error is at most half a minute times
            # the probability of an eviction in the span.
            inner = np.arange((sure_until // MINUTE + 1) * MINUTE, end, MINUTE)
            ages = np.concatenate(([sure_until], inner, [end])).astype(np.float64)
            halves = np.diff(ages) / 2
            spans = np.append(halves, 0) + np.insert(halves, 0, 0)

        after_least = at_end - (least - age)
        seconds_of_ages = [sure_until - age, *spans, after_least]
        return _dues([paid_from, *ages, end], seconds_of_ages)


@dataclass(frozen=True, slots=True)
class FullMinutes:
    """Each completed minute, at the prices of its seconds; a started minute is free. No refunds."""

    name: str

    def bill(self, life: Life, prices: Prices) -> Bill:
        """One row per price."""
        begins, rates = rate_changes(life, prices)
        lived = life.end - life.start
        seconds = (
            started_units(lived, SECOND) if life.ended is End.HANDED_ON else lived // MINUTE * 60
        )
        return metered_bill(life, begins, rates, seconds, refunded=False)

    def dues(self, age: int, horizon: int, ended: End) -> Dues:
        """A minute is paid by machines that live to its end."""
        end = _checked_end(age, horizon, ended)
        last = end if ended is End.HANDED_ON else end // MINUTE * MINUTE
        begins = np.arange(age // MINUTE * MINUTE, last, MINUTE)
        ends = np.minimum(begins + MINUTE, last)
        return _dues(ends, ends - np.maximum(begins, age))


BillingRule = HourlyRefund | PerSecond | FullMinutes
"""How a provider bills. Rules are stateless; one instance serves any number of machines. `name` is
the rule's name in scenarios and in `billing_rule`.

`bill` is the bill of one machine; it raises `TooLittleHistory` where the prices do not cover the
machine's life. `dues` are the dues from an age on, if the machine is kept for a horizon and then
ends as `ended` says: `LEFT` or `HANDED_ON`; earlier evictions come from the survival curve.
"""

FIRST_HOUR_FREE = PerSecond("per-second-first-hour-free", free_until=HOUR, hourly_price=True)
"""Free if interrupted in the first hour, else the seconds used, with a minimum of a minute."""

RULES: Mapping[str, BillingRule] = {
    rule.name: rule for rule in (HourlyRefund(), PerSecond("per-second"), FIRST_HOUR_FREE)
}
"""The general rules by name; clouds may have rules of their own."""


def _checked_end(age: int, horizon: int, ended: End) -> int:
    if age < 0 or horizon < 0:
        raise ImpossibleLife(
            f"an age of {age} and a horizon of {horizon} microseconds: neither can be below 0"
        )
    if ended is End.EVICTED:
        raise ImpossibleLife(
            "a plan ends by leaving or handing on; evictions come from the survival curve"
        )

    return age + horizon


def _dues(ages: ArrayLike, spans: ArrayLike) -> Dues:
    floats = np.asarray(ages, dtype=np.float64)
    seconds_of_spans = np.asarray(spans, dtype=np.float64) / SECOND
    return floats, seconds_of_spans


Survival = Callable[[Floats], Floats]
"""From ages (microseconds) to the probability of no eviction before them. A second axis of the
answer has one value per market."""


@dataclass(frozen=True, slots=True, eq=False)
class SampledSurvival:
    """A survival curve known at some ages (microseconds, from 0 on), linear between them.

    A query beyond the last age raises `TooLittleHistory`.
    """

    ages: Floats
    alive: Floats

    def __post_init__(self) -> None:
        if (
            self.ages.ndim != 1
            or self.ages.shape != self.alive.shape
            or self.ages.size == 0
            or self.ages[0] != 0
        ):
            raise ImpossibleLife(
                "a survival curve needs ages from 0 on, and one probability per age"
            )

        steps = np.diff(self.alive)
        grows = np.diff(self.ages)
        if np.any(grows <= 0) or np.any(steps > 0) or self.alive[0] > 1 or self.alive[-1] < 0:
            raise ImpossibleLife(
                "a survival curve's ages must increase and its probabilities fall, from at most 1 "
                "to at least 0"
            )

    def __call__(self, ages: Floats) -> Floats:
        """The probability of no eviction before each age."""
        if ages.size and float(ages.max()) > self.ages[-1]:
            raise TooLittleHistory(
                f"survival is known to an age of {self.ages[-1] / HOUR:.1f} hours, not to"
                f" {float(ages.max()) / HOUR:.1f}; use a shorter horizon or a longer curve"
            )
        return np.interp(ages, self.ages, self.alive)


def expected_seconds(
    rule: BillingRule, age: int, horizon: int, survival: Survival, ended: End = End.LEFT
) -> Floats:
    """Expected billed seconds, from `age` on, of a machine that runs at `age` and is kept for
    `horizon`.

    One number (an array without axes), or one per market if the survival curve covers several.
    """
    at_age = np.array([age], dtype=np.float64)
    alive = survival(at_age)[0]
    if not np.all(alive > 0):
        raise ImpossibleLife(
            f"no machine survives to an age of {age / HOUR:.1f} hours, so its future is undefined"
        )
    ages, seconds = rule.dues(age, horizon, ended)
    expected = seconds @ survival(ages) / alive
    return np.asarray(expected, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class CloudTerms:
    """A cloud's billing rule and evictions.

    `capacity_since` is the moment since which the cloud takes machines back at any bid; None: only
    the price evicts. Until `aged_until` every machine ended at an age of `longest_hours`. With
    `any_system`, published figures hold for all operating systems. Where a machine `pays_bid`, it
    costs what was bid, whatever the market's price.
    """

    billing: BillingRule
    capacity_since: int | None = 0
    aged_until: int = 0
    longest_hours: float = inf
    any_system: bool = False
    pays_bid: bool = False


@cache
def terms_of(cloud: str) -> CloudTerms:
    """A cloud's terms."""
    return cast("CloudTerms", part_of(cloud, "terms").TERMS)


def rule_of_cloud(cloud: str) -> BillingRule:
    """How a cloud bills spot machines today.

    >>> rule_of_cloud("local").name
    'hourly-refund'
    """
    return terms_of(cloud).billing


@cache
def billing_rules() -> Mapping[str, BillingRule]:
    """All known rules by name: the general ones, then those of clouds."""
    own = {rule.name: rule for rule in map(rule_of_cloud, cloud_names())}
    not_overruled = {name: rule for name, rule in own.items() if name not in RULES}
    return {**RULES, **not_overruled}


def billing_rule(name: str) -> BillingRule:
    """The rule with this name.

    >>> billing_rule("gcp").name
    'gcp'
    """
    try:
        return billing_rules()[name]
    except KeyError:
        known = ", ".join(billing_rules())
        raise UnknownBillingRule(f"billing rule {name!r} is unknown (known: {known})") from None


def fixed_price(cloud: str, bid: int | None, on_demand: int) -> int | None:
    """The cost of an hour of a machine, whatever its market's price is; None if it costs that
    price.

    >>> [fixed_price(cloud, 30, 100) for cloud in ("aws", "vast")], fixed_price("aws", None, 100)
    ([None, 30], 100)
    """
    if bid is None:
        return on_demand
    return bid if terms_of(cloud).pays_bid else None


def highest_price(cloud: str, bid: int | None, on_demand: int) -> int:
    """The most that an hour of a machine can cost: no price above a bid lets it live, except where
    there are no bids.

    >>> [highest_price(cloud, 30, 100) for cloud in ("aws", "gcp")]
    [30, 100]
    """
    if bid is None:
        return on_demand
    if markets_of(cloud).takes_bids:
        return bid
    return max(bid, on_demand)
