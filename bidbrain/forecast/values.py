"""The inputs of a forecast, and its result."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import exp, inf

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.billing import BillingRule, End, Life, usd
from bidbrain.eviction.hazard import Hazard
from bidbrain.outbid.bid import HostMarket
from bidbrain.replay.market import Warnings
from bidbrain.replay.run import Run, Tenure, bill_of_machine
from bidbrain.strategies.base import AGILE, Offer, Overheads, Recovery, Rent, Strategy
from bidbrain.strategies.known_spells import KnownSpells
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import HOUR

LOW, HIGH = 0.1, 0.9
"""The quantiles of a stated interval: P10 to P90."""


@dataclass(frozen=True, slots=True)
class LaunchTimes:
    """Time in microseconds around the work of a run: until its first order, and from its last work
    until every machine is returned. `spread` is the standard deviation of their logarithm, and
    `startup_spread` that of the start-up of its machines."""

    order: int = 0
    ending: int = 0
    spread: float = 0.0
    startup_spread: float = 0.0

    def drawn(self, luck: float) -> "LaunchTimes":
        """The times of one launch; `luck` is from a standard normal distribution."""
        factor = exp(self.spread * luck)
        order = round(self.order * factor)
        ending = round(self.ending * factor)
        return LaunchTimes(order, ending)


@dataclass(frozen=True, slots=True)
class ForecastJob:
    """A job as its decision object plays it.

    `decider` makes that object for a start at a moment: a deadline moves with the start. `work` is
    in microseconds times nu, infinite if the job's length is unknown; the job is stopped after
    `longest` microseconds, which is its end if `timed`. `reliable` machines are held from the first
    order to the end. With `budget_usd` the decisions know how many dollars are left, after machines
    are committed for a `lease`. `nodes`, `most_nodes`, `scaling`, `warnings` and `saved_gb`: see
    `ReplayedJob`. `speed_spread` is the standard deviation of the logarithm of the machines' speed,
    which no decision knows before the job runs. `moving` is what taking the checkpoint from one
    market to another costs, in dollars. Machines that are held at the end of the job are returned,
    and billed for the hour that they began, unless `at_end` lets them count by the second. A job
    that decides often is played over fewer windows, so that all take `most_decisions`.
    """

    decider: Callable[[int], Strategy]
    offers: tuple[Offer, ...]
    baseline: Rent
    most_nu: float
    work: float
    longest: int
    billing: BillingRule
    overheads: Overheads
    reliable: Rent | None = None
    recovery: Recovery = AGILE
    timed: bool = False
    times: LaunchTimes = LaunchTimes()
    budget_usd: float | None = None
    lease: int = 0
    nodes: int = 0
    scaling: float = 0.0
    speed_spread: float = 0.0
    saved_gb: float | None = None
    moving: Callable[[Market, Market], float] | None = None
    at_end: End = End.LEFT
    most_decisions: int = 6000
    most_nodes: int = 0
    warnings: Warnings | None = None


@dataclass(frozen=True, slots=True)
class KnownPast:
    """The markets as known until `now`: prices, eviction rates that prices do not explain, spells
    of capacity, and the hosts of markets that sell to the highest bid."""

    now: int
    histories: Mapping[Market, PriceSeries]
    hazards: Mapping[Market, Hazard | None] = field(default_factory=dict)
    spells: Mapping[Market, KnownSpells] = field(default_factory=dict)
    hosts: Mapping[Market, HostMarket] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """A distribution: weighted values of plays, in ascending order, and beyond them the `ends`, the
    least and the most that a value can be, each with a share of `beyond`. The fewer windows there
    are to play in, the larger is that share.
    """

    values: Floats
    weights: Floats
    ends: tuple[float, float] = (0.0, inf)
    beyond: float = 0.0

    @classmethod
    def of(cls, values: Floats, weights: Floats) -> "Spread":
        order = np.argsort(values, kind="stable")
        return cls(values[order], weights[order] / weights.sum())

    def quantile(self, share: float) -> float:
        """The value below which a share of the weight lies, interpolated between the middles of the
        weights.
        """
        values = self.values
        weights = self.weights
        if self.beyond:
            within = weights * (1 - 2 * self.beyond)
            values = np.array([self.ends[0], *values, self.ends[1]])
            weights = np.array([self.beyond, *within, self.beyond])
        middles = np.cumsum(weights) - weights / 2
        return float(np.interp(share, middles, values))

    @property
    def median(self) -> float:
        """The value that is as likely too high as too low; unlike the mean, it is always a likely
        value.
        """
        return self.quantile(0.5)

    @property
    def likely(self) -> tuple[float, float]:
        """P10 and P90: four of five values lie between them."""
        return self.quantile(LOW), self.quantile(HIGH)

    def at_most(self, bound: float) -> float:
        """The probability of a value of at most `bound`, by the plays."""
        within = self.weights[self.values <= bound]
        # Divided by a sum that is 1 but for rounding, so that all of them are exactly 1.
        return float(within.sum() / self.weights.sum())

    def at_most_between(self, bound: float) -> tuple[float, float]:
        """Between which probabilities a value is at most `bound`: all that lies beyond the plays may
        be at one end, or at the other.
        """
        outside = 2 * self.beyond
        played = (1 - outside) * self.at_most(bound)
        low, high = (played + outside * (end <= bound) for end in reversed(self.ends))
        return low, high


@dataclass(frozen=True, slots=True)
class MarketBill:
    """One market's part of a bill, and the most machines that were bought there together."""

    market: Market
    machines: int
    usd: float


@dataclass(frozen=True, slots=True, eq=False)
class Forecast:
    """Cost in dollars and duration in hours of a job that begins now; `terms` add up to the median
    cost. `unfinished` is the share of past starts from which the job did not end in time, and
    `on_spot` that from which it rented spot machines."""

    usd: Spread
    hours: Spread
    usd_per_hour: Spread
    terms: tuple[MarketBill, ...]
    unfinished: float
    basis: str
    on_spot: float = 1.0

    def budget_kept(self, usd: float) -> float:
        """The probability that the job ends and costs at most `usd`."""
        return min(self.usd.at_most(usd), 1 - self.unfinished)

    def deadline_met(self, hours: float) -> float:
        """The probability that the job ends within this time."""
        return min(self.hours.at_most(hours), 1 - self.unfinished)


def bills_of(
    run: Run, job: ForecastJob, histories: Mapping[Market, PriceSeries]
) -> tuple[MarketBill, ...]:
    """The bill of each market by its cloud's rule, with moves of the checkpoint. No other job takes
    over what is left of an hour."""
    ended = (run.job.limit if run.end is None else run.end) + job.times.ending
    bills: dict[Market, MarketBill] = {}
    held = []
    for tenure in run.tenures:
        # Machines that are held at the end of the job end then.
        stays = tenure.ended is End.HANDED_ON
        held.append(
            (
                tenure.rent,
                Life(tenure.start, max(ended, tenure.end), job.at_end) if stays else tenure.life,
            )
        )

    if job.reliable is not None:
        life_of_reliable = Life(run.job.start, ended, job.at_end)
        held.append((job.reliable, life_of_reliable))

    for rent, life in held:
        market = rent.offer.market
        dollars = _bill(job, histories, rent, life)
        before = bills.get(market, MarketBill(market, 0, 0.0))
        machines = max(before.machines, rent.machines)
        dollars_in_all = before.usd + dollars
        bills[market] = MarketBill(market, machines, dollars_in_all)

    if job.moving is None:
        return tuple(bills.values())

    moving = (tenure for tenure in run.tenures if tenure.ready < tenure.end)
    worked = sorted(moving, key=lambda tenure: tenure.ready)

    markets = (tenure.rent.offer.market for tenure in worked)
    for origin, target in pairwise(markets):
        # The region that sends a checkpoint bills it.
        dollars = bills[origin].usd + job.moving(origin, target)
        bills[origin] = replace(bills[origin], usd=dollars)

    return tuple(bills.values())


def _bill(
    job: ForecastJob, histories: Mapping[Market, PriceSeries], rent: Rent, life: Life
) -> float:
    """The dollars that the machines of a purchase cost over a life."""
    bill = bill_of_machine(rent, life, job.billing, histories)
    return usd(bill.amount) * rent.machines


@dataclass(slots=True)
class CostsMore:
    """Whether a run has cost more than some dollars: once an hour, as if all its machines were
    evicted then.
    """

    job: ForecastJob
    histories: Mapping[Market, PriceSeries]
    usd: float
    _next: int = 0
    _counted: int = 0
    _paid: float = 0.0

    def __call__(self, now: int, ended: Sequence[Tenure], held: Iterable[Tenure]) -> bool:
        """Whether the run has cost more by now, with the machines that have ended and those that
        are held.
        """
        if now < self._next:
            return False
        self._next = now + HOUR
        newly_ended = ended[self._counted :]
        self._paid += sum(map(self._usd, newly_ended))
        self._counted = len(ended)
        still_paid = sum(map(self._usd, held))
        return self._paid + still_paid > self.usd

    def _usd(self, tenure: Tenure) -> float:
        return _bill(self.job, self.histories, tenure.rent, tenure.life)
