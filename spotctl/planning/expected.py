"""Expected cost and length of a footprint: beta with an interval, cost per unit of work, and the whole job.

The first hour follows Eq. 4.1-4.4 (`bidbrain.cost`): machines start up, and the footprint changes. In every later hour
evicted machines have been replaced, and only the replacements start up.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np
from scipy.special import betaincinv

from bidbrain.billing import BillingRule, expected_seconds
from bidbrain.cost import Application, CostPerWork, CostShare, FootprintAllocation, evaluate
from bidbrain.cost.footprint import cumulative_hazard
from bidbrain.eviction.crossing import Crossing, CrossingHistory
from bidbrain.eviction.estimate import Estimate, together
from bidbrain.strategies.base import Rent
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import DAY, HOUR, SECOND
from spotctl.planning.market_history import MarketHistory

NEVER_EVICTED = Estimate(0.0, 0.0, 0.0, None, inf, "on-demand machines are never evicted")
_UNTIL_THE_END = replace(NEVER_EVICTED, basis="reserved machines are not evicted before their reservation ends")


def beta_of(market_history: MarketHistory, rent: Rent, price: int) -> Estimate:
    """The probability of losing machines within an hour: crossings of such a bid in the history, and the hazard, with a
    prior where evictions for capacity are possible, but unrecorded."""
    if rent.bid is None:
        return _UNTIL_THE_END if rent.offer.market.reservation else NEVER_EVICTED
    history = market_history.histories[rent.offer.market]
    return together(
        _share(crossing_of(history, rent.bid - price), history), market_history.hazards[rent.offer.market], HOUR
    )


def crossing_of(history: PriceSeries, distance: int) -> Crossing:
    """How often a bid at some distance above the price was crossed within an hour."""
    return CrossingHistory(history, HOUR).at_delta(max(distance, 0))


def _share(crossing: Crossing, history: PriceSeries) -> Estimate:
    """A share of start times with Jeffreys' interval for the number of non-overlapping windows."""
    hits, misses = crossing.share * crossing.windows, (1 - crossing.share) * crossing.windows
    low = float(betaincinv(hits + 0.5, misses + 0.5, 0.025)) if hits else 0.0
    high = float(betaincinv(hits + 0.5, misses + 0.5, 0.975)) if misses else 1.0
    median = None if crossing.median_time is None else crossing.median_time / SECOND
    days = (history.last - history.first) / DAY
    basis = f"in the last {days:.0f} days the price never rose above this bid"
    if crossing.share:
        basis = f"in the last {days:.0f} days the price rose above such a bid in {crossing.share:.2%} of all hours"
    return Estimate(
        crossing.share, min(low, crossing.share), max(high, crossing.share), median, crossing.windows, basis
    )


@dataclass(frozen=True, slots=True)
class Conditions:
    """Billing, overheads and reliable machines of a job."""

    billing: BillingRule
    application: Application
    startup: int
    reliable: Rent | None


@dataclass(frozen=True, slots=True)
class PricedRent:
    """An allocation with a fixed price and beta."""

    rent: Rent
    price: int
    beta: float
    seconds_to_eviction: float | None

    @classmethod
    def of(cls, rent: Rent, price: int, beta: Estimate) -> "PricedRent":
        """The allocation at its expected price and beta."""
        paid = rent.offer.on_demand if rent.bid is None else price
        return cls(rent, paid, beta.probability, beta.median_seconds_to_eviction)


def first_hour(parts: Sequence[PricedRent], conditions: Conditions) -> CostPerWork:
    """Cost and work of the first hour."""
    new = [_new(part, conditions) for part in parts]
    return evaluate([*new, *_reliable(conditions)], conditions.application)


def later_hour(parts: Sequence[PricedRent], conditions: Conditions) -> CostPerWork:
    """Cost and work of any later hour, with evicted machines replaced."""
    held = [_replaced(part, conditions) for part in parts]
    return evaluate([*held, *_reliable(conditions)], conditions.application)


def _new(part: PricedRent, conditions: Conditions) -> FootprintAllocation:
    return FootprintAllocation(
        market=part.rent.offer.market,
        machines=part.rent.machines,
        price=part.price,
        nu=part.rent.offer.nu,
        beta=part.beta,
        eviction_after=_after(part),
        paid_seconds=_paid(part, conditions, 0),
        startup=conditions.startup,
        planned=True,
    )


def _replaced(part: PricedRent, conditions: Conditions) -> FootprintAllocation:
    """An allocation whose evicted machines are replaced: a replacement is billed like a new machine, and starts up.

    If lives end at random with rate r and begin with a start-up s, the share exp(-r s) is work, as in
    `effective_price`.
    """
    rest = 1 - (_after(part) or HOUR) / HOUR
    paid = _paid(part, conditions, HOUR) + part.beta * rest * _paid(part, conditions, 0)
    starting = -np.expm1(-_per_hour(part) * conditions.startup / HOUR)
    after = HOUR if part.beta else None
    return replace(
        _new(part, conditions), paid_seconds=paid, startup=round(starting * HOUR), eviction_after=after, planned=False
    )


def _per_hour(part: PricedRent) -> float:
    """The eviction rate per hour, taken as constant within the hour."""
    return float(cumulative_hazard(np.float64(part.beta)))


def _after(part: PricedRent) -> float | None:
    if not part.beta:
        return None
    return HOUR / 2 if part.seconds_to_eviction is None else part.seconds_to_eviction * SECOND


def _paid(part: PricedRent, conditions: Conditions, age: int) -> float:
    """Billed seconds per hour."""
    if part.rent.bid is None or not part.beta:
        return 3600.0
    per_hour = _per_hour(part)
    return float(expected_seconds(conditions.billing, age, HOUR, lambda ages: np.exp(-per_hour * ages / HOUR)))


def _reliable(conditions: Conditions) -> list[FootprintAllocation]:
    rent = conditions.reliable
    return [] if rent is None else [FootprintAllocation(rent.offer.market, rent.machines, rent.offer.on_demand, nu=0.0)]


def usd_per_work(share: CostShare) -> float:
    """Dollars per unit of work; infinite if no work is done."""
    return share.cost_usd / share.work if share.work > 0 else inf


@dataclass(frozen=True, slots=True)
class Todo:
    """Work in machine-hours times nu, None for a job of fixed duration; and its longest duration."""

    amount: float | None
    longest_hours: float


@dataclass(frozen=True, slots=True)
class Term:
    """One allocation's part of the job's bill."""

    market: Market
    machines: int
    usd: float


@dataclass(frozen=True, slots=True)
class JobEstimate:
    """Expected length and bill of the whole job, with its first and later hours."""

    hours: float
    terms: tuple[Term, ...]
    first: CostPerWork
    later: CostPerWork

    @property
    def usd(self) -> float:
        """The expected bill."""
        return sum(term.usd for term in self.terms)


def estimate(parts: Sequence[PricedRent], conditions: Conditions, todo: Todo) -> JobEstimate:
    """The estimate if the footprint is kept to the end."""
    first, later = first_hour(parts, conditions), later_hour(parts, conditions)
    hours = _hours(first.work, later.work, conditions.startup / HOUR, todo)
    terms = tuple(
        Term(early.allocation.market, early.allocation.machines, _upto(early.cost_usd, late.cost_usd, hours))
        for early, late in zip(first.shares, later.shares, strict=True)
    )
    return JobEstimate(hours, terms, first, later)


def _hours(first: float, later: float, startup: float, todo: Todo) -> float:
    longest = startup + todo.longest_hours
    if todo.amount is None:
        return longest
    if todo.amount <= first:
        return min(startup + (1 - startup) * todo.amount / first, longest)
    return min(1 + (todo.amount - first) / later, longest) if later > 0 else longest


def _upto(first: float, later: float, hours: float) -> float:
    return first * hours if hours <= 1 else first + later * (hours - 1)
