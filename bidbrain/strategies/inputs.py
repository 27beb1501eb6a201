"""The inputs of a strategy: the offers of one place, what history says about them, the job's costs,
and how it recovers from an eviction: through an elastic parameter server, or from checkpoints.

A backtest fills this from its training span, live planning from the history up to now. The same
strategy therefore knows the same in both.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import sqrt

from bidbrain.billing import BillingRule
from bidbrain.eviction.hazard import Hazard
from bidbrain.outbid.hosts import HostMarket
from bidbrain.strategies.base import REQUEST_VCPUS, Offer, Overheads, Rent, Strategy
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import HOUR


@dataclass(frozen=True, slots=True)
class Recovery:
    """The cost of protecting the work, and the loss by an eviction.

    `speed` is the fraction of the job's speed that remains while it protects its work. With an
    `interval` (time between checkpoints in a market, in microseconds) an eviction loses the work
    since the last checkpoint. A job that does not `resume` starts from scratch on other machines.
    """

    speed: float = 1.0
    interval: Callable[[Offer], float] | None = None
    resumes: bool = True

    def lost_time(self, rent: Rent, since: int, evicted: int) -> float:
        """Run time in microseconds that an eviction loses, for machines that have worked since
        `since`.
        """
        if self.interval is None or evicted <= since:
            return 0.0
        return (evicted - since) % self.interval(rent.offer)


AGILE = Recovery()
"""Recovery through an elastic parameter server: no work is lost, and an eviction costs only the
pause."""


@dataclass(frozen=True, slots=True)
class Checkpointing:
    """Cost of checkpoints: the fraction of speed that remains, and the microseconds that writing
    one takes.

    The interval follows Young's rule, sqrt(2 x cost x mean time to failure), as in the papers'
    comparison.
    """

    speed: float
    write: int

    def interval(self, mean_time_to_failure: float) -> float:
        """Time between checkpoints, in microseconds: at least the time that writing one takes."""
        twice = 2 * self.write * mean_time_to_failure
        best = sqrt(twice)
        return max(best, float(self.write))


def mean_time_to_failure(series: PriceSeries, on_demand: int) -> float:
    """Time at or below the on-demand price per crossing above it, in microseconds; the total if it
    never crosses.
    """
    above = series.prices > on_demand
    spans = series.times[1:] - series.times[:-1]
    below_before = ~above[:-1]
    time_below = (spans * below_before).sum()
    below = float(time_below)
    was_below = ~above[:-1]
    crossed = above[1:] & was_below
    crossings = int(crossed.sum())
    return below / max(crossings, 1)


def with_hazard(mean_time: float, hazard: Hazard | None) -> float:
    """Mean time to a price crossing or a capacity eviction, whichever is first; both are taken as
    memoryless.
    """
    if hazard is None:
        return mean_time
    return mean_time / (1 + mean_time * hazard.rate[0] / HOUR)


@dataclass(frozen=True, slots=True)
class TimePrice:
    """The value of an hour of a job's time, in dollars, and how it is known; `note` says what a
    user must know.
    """

    usd_per_hour: float
    basis: str
    note: str = ""


PriceOfTime = Callable[["StrategyInputs", Callable[[float], Strategy], Strategy], TimePrice | None]
"""The price of time at which a strategy (made from dollars per hour) was as fast as a rival in past
jobs; None if that is unknown."""


@dataclass(frozen=True, slots=True)
class StrategyInputs:
    """Inputs of every registered strategy; `histories` and `hazards` have an entry for each offer's
    market.

    A hazard of None means that no capacity evictions are known. `reliable` machines run from start
    to end next to what the strategy rents. `value_of_time` is what an hour of the job is worth to
    its user, in dollars; if that is unknown (None), `price_of_time` finds one. `hosts` are the
    markets in which each host runs the highest bid. `request_nu` is the size of one request of
    `proteus`.
    """

    offers: tuple[Offer, ...]
    histories: Mapping[Market, PriceSeries]
    hazards: Mapping[Market, Hazard | None]
    baseline: Rent
    reliable: Rent | None
    billing: BillingRule
    overheads: Overheads
    checkpoints: Checkpointing
    price_of_time: PriceOfTime
    hosts: Mapping[Market, HostMarket] = field(default_factory=dict)
    value_of_time: float | None = None
    request_nu: float = REQUEST_VCPUS
