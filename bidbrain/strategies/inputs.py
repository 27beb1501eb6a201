"""What a strategy is built from: the offers of one place, what history says about them, and the job's costs.

A backtest fills this from its training span, live planning from the history up to now. The same strategy therefore
knows the same in both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bidbrain.billing import BillingRule
from bidbrain.eviction.hazard import Hazard
from bidbrain.strategies.base import Offer, Rent, Strategy
from bidbrain.strategies.recovery import Checkpointing
from bidbrain.values import Overheads
from pricing_data.market import Market
from pricing_data.series import PriceSeries


@dataclass(frozen=True, slots=True)
class TimePrice:
    """What an hour of a job's time is worth, in dollars, and how that is known; `note` says what a user must know."""

    usd_per_hour: float
    basis: str
    note: str = ""


PriceOfTime = Callable[[Callable[[float], Strategy], Strategy], TimePrice | None]
"""The price of time at which a strategy (made from dollars per hour) is as fast as a rival; None if that is unknown."""


def _no_price_of_time(_: Callable[[float], Strategy], __: Strategy) -> None:
    return None


@dataclass(frozen=True, slots=True)
class StrategyInputs:
    """Inputs of every registered strategy; `histories` and `hazards` have an entry for each offer's market.

    A hazard of None means that no capacity evictions are known. `reliable` machines run from start to end next to what
    the strategy rents. `value_of_time` is what an hour of the job is worth to its user, in dollars; None if unknown.
    """

    offers: tuple[Offer, ...]
    histories: Mapping[Market, PriceSeries]
    hazards: Mapping[Market, Hazard | None]
    baseline: Rent
    reliable: Rent | None
    billing: BillingRule
    overheads: Overheads
    checkpoints: Checkpointing
    price_of_time: PriceOfTime = _no_price_of_time
    value_of_time: float | None = None
