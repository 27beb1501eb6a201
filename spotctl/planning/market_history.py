"""`MarketHistory`: the known past of some markets up to a moment, and the strategies that learn from it.

Live strategies are built by the same registry as those of a backtest, from a history that ends now. A job's strategy
therefore knows what it would know in a backtest.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from bidbrain.billing import rule_of_cloud
from bidbrain.eviction.estimate import MEMORY
from bidbrain.eviction.hazard import Hazard
from bidbrain.eviction.regime import in_force
from bidbrain.replay.pace import MOST_STARTS, PastJobs
from bidbrain.strategies.base import Offer, Rent
from bidbrain.strategies.default import default_for
from bidbrain.strategies.inputs import StrategyInputs
from bidbrain.strategies.known_spells import KnownSpells
from bidbrain.strategies.names import DEADLINE, REGIONS, known
from bidbrain.strategies.recovery import Checkpointing
from bidbrain.values import Overheads
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import HOUR, MINUTE
from spotctl.files.job.spec import AUTO, JobSpec
from spotctl.home.errors import BadRequest
from spotctl.planning.overheads import within_the_hour

NOTHING_SEEN: Mapping[Market, KnownSpells] = MappingProxyType({})

HazardOf = Callable[[Market], Hazard | None]

CHECKPOINT = Checkpointing(speed=0.83, write=2 * MINUTE)
"""Checkpoint costs of the papers' comparison, assumed until a run has measured its own."""

# A shorter history cannot show how a bid fares in an hour; its first price is extended back to this length.
_LEAST_HISTORY = 4 * HOUR
# The past jobs that measure a pace take this many hours together: a plan should be there within a second.
_PACE_HOURS, _LEAST_STARTS = 240.0, 8


_ROAMING_REASON = (
    "the job may move, and in our backtests moving to where spot is available cost less than the best published policy"
    " (docs/decisions/0031-regions-strategy.md)"
)

_DEADLINE_REASON = (
    "`strategy: deadline` decides when to switch to on-demand (docs/decisions/0004-deadline-strategy.md), the default"
    " strategy the rest: "
)


@dataclass(frozen=True, slots=True)
class ChosenStrategy:
    """A strategy's name, and why it is used."""

    name: str
    reason: str


def strategy_for(spec: JobSpec, cloud: str, *, roams: bool = False) -> ChosenStrategy:
    """The strategy that a job's `strategy` means in a cloud; `roams` says that the job may move between regions."""
    if roams:
        why = "set in the job file" if spec.strategy == REGIONS else _ROAMING_REASON
        return ChosenStrategy(REGIONS, why)
    if spec.strategy == REGIONS:
        raise BadRequest(f"{spec.name}: strategy regions needs the job's length; set hours:, or pass --hours")
    if spec.strategy in (AUTO, DEADLINE):
        chosen = default_for(rule_of_cloud(cloud).name)
        return ChosenStrategy(chosen.name, f"{_DEADLINE_REASON if spec.strategy == DEADLINE else ''}{chosen.summary}")
    if not known(spec.strategy):
        raise BadRequest(f"{spec.name}: unknown strategy {spec.strategy!r} (spotctl schema lists them)")
    return ChosenStrategy(spec.strategy, "set in the job file")


@dataclass(frozen=True, slots=True)
class MarketHistory:
    """Price histories that end at `at`, the rates of evictions that prices do not explain, and what was seen of spells.

    An unrecorded rate is a prior, so that unknown never counts as safe; None where only the price evicts.
    """

    at: int
    histories: Mapping[Market, PriceSeries]
    hazards: Mapping[Market, Hazard | None]
    spells: Mapping[Market, KnownSpells] = field(default_factory=lambda: NOTHING_SEEN)

    @classmethod
    def of(
        cls,
        histories: Iterable[PriceSeries],
        hazard_of: HazardOf,
        at: int,
        spells: Mapping[Market, KnownSpells] = NOTHING_SEEN,
    ) -> "MarketHistory":
        """Histories up to a moment, cut to the last weeks: older prices do not predict the next hours."""
        remembered = {series.market: remembered_of(series, at) for series in histories}
        hazards = {market: in_force(market, hazard_of(market), at) for market in remembered}
        return cls(at, remembered, hazards, {market: spells[market] for market in remembered if market in spells})


def remembered_of(series: PriceSeries, at: int) -> PriceSeries:
    """The last weeks of a history up to a moment; the last price is extended to it."""
    times, prices = series.times, series.prices
    if times[-1] < at:
        times, prices = np.append(times, at), np.append(prices, prices[-1])
    if times[0] > at - _LEAST_HISTORY:
        times, prices = np.insert(times, 0, at - _LEAST_HISTORY), np.insert(prices, 0, prices[0])
    estimate = PriceSeries(series.market, times.astype(np.int64), prices.astype(np.int64))
    return estimate.window(max(estimate.first, at - MEMORY), at)


@dataclass(frozen=True, slots=True)
class RentableFleet:
    """The machines that a job's strategy may rent: offers of one region, the amounts to rent in one request and in all,
    and the reliable machines."""

    offers: tuple[Offer, ...]
    baseline: Rent
    reliable: Rent | None
    most_nu: float
    request_nu: float
    overheads: Overheads


def strategy_inputs(
    history: MarketHistory, fleet: RentableFleet, hours: float, value_of_time: float | None = None
) -> StrategyInputs:
    """A strategy's inputs: what is known now about the fleet's markets, how many hours the job would take on demand,
    and what an hour of it is worth in dollars."""
    starts = round(min(max(_PACE_HOURS / hours, _LEAST_STARTS), MOST_STARTS))
    return StrategyInputs(
        offers=fleet.offers,
        histories={offer.market: history.histories[offer.market] for offer in fleet.offers},
        hazards={offer.market: history.hazards[offer.market] for offer in fleet.offers},
        baseline=fleet.baseline,
        reliable=fleet.reliable,
        billing=rule_of_cloud(fleet.baseline.offer.market.cloud),
        overheads=within_the_hour(fleet.overheads),
        checkpoints=CHECKPOINT,
        pace=PastJobs((hours,), fleet.most_nu, starts),
        value_of_time=value_of_time,
        request_nu=fleet.request_nu,
    )
