"""`MarketHistory`: what is known of some markets up to a moment, and the strategies that learn from it.

Strategies are made by the backtest's own `scheme`, from a scenario that ends now and replays nothing: so a job's
strategy knows of the past what it would know in a backtest, and what that foretells is what is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from bidbrain.backtest.default import default_for
from bidbrain.backtest.engine import Overheads
from bidbrain.backtest.evictions import Learnt, Spans
from bidbrain.backtest.scenario import Checkpointing, Scenario
from bidbrain.backtest.schemes import BOUND, Scheme, known, scheme
from bidbrain.eviction.estimate import MEMORY
from bidbrain.eviction.hazard import Hazard
from bidbrain.replay import MarketReplay
from bidbrain.strategies.base import Offer, Rent
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import HOUR, MINUTE, Span
from spotctl.errors import BadRequest
from spotctl.files.job.spec import AUTO, JobSpec, Kind
from spotctl.planning.regimes import billing_of

HazardOf = Callable[[Market], Hazard | None]

CHECKPOINT = Checkpointing(speed=0.83, write=2 * MINUTE)
"""What the papers' comparison took checkpoints to cost, until a run has measured its own."""

# Shorter histories say nothing of how a bid fares in an hour; the price is then taken to have stood for so long.
_LEAST_HISTORY = 4 * HOUR


@dataclass(frozen=True, slots=True)
class Named:
    """A scheme by name, and why it is used."""

    scheme: str
    reason: str


def strategy_for(spec: JobSpec, cloud: str) -> Named:
    """The scheme that a job's `strategy` means in a cloud."""
    if spec.strategy == AUTO:
        chosen = default_for(billing_of(cloud).name)
        return Named(chosen.scheme, chosen.reason)
    name = spec.strategy
    if name == "standard":
        name = "standard+agileml" if spec.kind is Kind.AGILEML else "standard+checkpoint"
    if name == BOUND or not known(name):
        raise BadRequest(f"{spec.name}: strategy {spec.strategy!r} is not known (spotctl schema lists them)")
    return Named(name, "as the job file says")


@dataclass(frozen=True, slots=True)
class MarketHistory:
    """Histories that end at `at`, and how often machines are taken whatever the price (None: nothing is known)."""

    at: int
    histories: Mapping[Market, PriceSeries]
    hazards: Mapping[Market, Hazard | None]

    @classmethod
    def of(cls, histories: Iterable[PriceSeries], hazard_of: HazardOf, at: int) -> MarketHistory:
        """What these histories say up to a moment; markets forget, so that only the last weeks count."""
        remembered = {series.market: remembered_of(series, at) for series in histories}
        return cls(at, remembered, {market: hazard_of(market) for market in remembered})


def remembered_of(series: PriceSeries, at: int) -> PriceSeries:
    """The last weeks of a history, to a moment at or after its beginning; the last price holds on to the end."""
    times, prices = series.times, series.prices
    if times[-1] < at:
        times, prices = np.append(times, at), np.append(prices, prices[-1])
    if times[0] > at - _LEAST_HISTORY:
        times, prices = np.insert(times, 0, at - _LEAST_HISTORY), np.insert(prices, 0, prices[0])
    whole = PriceSeries(series.market, times.astype(np.int64), prices.astype(np.int64))
    return whole.window(max(whole.first, at - MEMORY), at)


@dataclass(frozen=True, slots=True)
class _AsKnown(Learnt):
    hazards: Mapping[Market, Hazard | None] = field(default_factory=dict)

    def hazard(self, market: Market) -> Hazard | None:
        return self.hazards[market]


@dataclass(frozen=True, slots=True)
class _Known:
    """Evictions as they are known here; nothing of them is replayed but prices."""

    hazards: Mapping[Market, Hazard | None]

    def replay(self, histories: Iterable[PriceSeries], room: Mapping[Market, int], spans: Spans) -> MarketReplay:  # noqa: ARG002 - the protocol's question
        return MarketReplay(histories)

    def learnt(self, spans: Spans) -> Learnt:  # noqa: ARG002 - the protocol's question
        return _AsKnown(hazards=self.hazards)


@dataclass(frozen=True, slots=True)
class Fleet:
    """What a job's strategy is made for: offers of one region, how much of them, and what is held beside them."""

    offers: tuple[Offer, ...]
    baseline: Rent
    reliable: Rent | None
    most_nu: float
    overheads: Overheads


def scenario_of(past: MarketHistory, fleet: Fleet) -> Scenario:
    """A scenario whose training ends now."""
    return Scenario(
        histories=tuple(past.histories[offer.market] for offer in fleet.offers),
        offers=fleet.offers,
        train=Span(past.at - MEMORY, past.at),
        test=Span(past.at, past.at + 1),
        baseline=fleet.baseline,
        reliable=fleet.reliable,
        hours=(),
        most_nu=fleet.most_nu,
        billing=billing_of(fleet.baseline.offer.market.cloud),
        overheads=fleet.overheads,
        checkpoints=CHECKPOINT,
        starts=1,
        seed=0,
        evictions=_Known(past.hazards),
        zones_together=True,
    )


def scheme_of(name: str, scenario: Scenario) -> Scheme:
    """The scheme of a name over all of a scenario's offers, which are of one region."""
    return scheme(name, scenario, scenario.baseline.offer.market.region)
