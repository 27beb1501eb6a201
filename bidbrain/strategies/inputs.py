"""The inputs of a strategy: the offers of one place, what history says about them, and the job's costs.

A backtest fills this from its training span, live planning from the history up to now. The same strategy therefore
knows the same in both.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from bidbrain.billing import BillingRule
from bidbrain.eviction.hazard import Hazard
from bidbrain.strategies.base import REQUEST_VCPUS, Offer, Rent, Strategy
from bidbrain.strategies.recovery import Checkpointing
from bidbrain.values import Overheads
from pricing_data.market import Market
from pricing_data.series import PriceSeries


@dataclass(frozen=True, slots=True)
class TimePrice:
    """The value of an hour of a job's time, in dollars, and how it is known; `note` says what a user must know."""

    usd_per_hour: float
    basis: str
    note: str = ""


class Pace(Protocol):
    """Past jobs on which the speed of two strategies is compared."""

    def price_of_time(
        self, known: "StrategyInputs", make: Callable[[float], Strategy], rival: Strategy, /
    ) -> TimePrice | None:
        """The price of time at which a strategy (made from dollars per hour) is as fast as a rival; None if that is
        unknown."""


@dataclass(frozen=True, slots=True)
class StrategyInputs:
    """Inputs of every registered strategy; `histories` and `hazards` have an entry for each offer's market.

    A hazard of None means that no capacity evictions are known. `reliable` machines run from start to end next to what
    the strategy rents. `value_of_time` is what an hour of the job is worth to its user, in dollars; if that is unknown
    (None), `pace` finds a price. `request_nu` is the size of one request of `proteus`.
    """

    offers: tuple[Offer, ...]
    histories: Mapping[Market, PriceSeries]
    hazards: Mapping[Market, Hazard | None]
    baseline: Rent
    reliable: Rent | None
    billing: BillingRule
    overheads: Overheads
    checkpoints: Checkpointing
    pace: Pace
    value_of_time: float | None = None
    request_nu: float = REQUEST_VCPUS
