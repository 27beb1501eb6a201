"""Schemes by name: a strategy together with how the job recovers from an eviction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import expm1, inf, nan

from bidbrain.backtest.engine import AGILE, Recovery
from bidbrain.backtest.pace import price_of_time
from bidbrain.backtest.scenario import BadScenario, Scenario, sooner
from bidbrain.eviction.hazard import Hazard
from bidbrain.strategies.among_open import AmongOpen
from bidbrain.strategies.base import Offer, Strategy
from bidbrain.strategies.fixed_bid import fixed_bid
from bidbrain.strategies.lookahead import Lookahead
from bidbrain.strategies.lookahead_hour import NextHour
from bidbrain.strategies.odds import Odds
from bidbrain.strategies.on_demand import OnDemand
from bidbrain.strategies.price_capacity import POOLS, PriceCapacity, Prospects
from bidbrain.strategies.proteus import Application, Proteus
from bidbrain.strategies.standard import Standard
from bidbrain.strategies.tierml import Mttf, TierMl
from pricing_data.errors import BadInput
from pricing_data.market import Market
from pricing_data.units import HOUR, NANOS_PER_DOLLAR, parse_usd

BOUND = "bound"
"""The clairvoyant bound, which is no strategy: see `backtest.bound`."""


@dataclass(frozen=True, slots=True)
class Scheme:
    """What is compared. `reliable` schemes hold the scenario's reliable machines from start to end."""

    name: str
    strategy: Strategy
    recovery: Recovery
    reliable: bool


def scheme(name: str, scenario: Scenario, zone: str) -> Scheme:
    """A scheme for the offers of a zone, with what it may have learnt."""
    kind, _, argument = name.partition(":")
    if kind not in _SCHEMES or (argument and kind not in _WITH_ARGUMENT):
        raise BadScenario(f"schemes: {name!r} is none of {', '.join((*_SCHEMES, BOUND))}")
    return _SCHEMES[kind](name, argument, scenario, scenario.offers_in(zone))


def known(name: str) -> bool:
    """Whether a scheme has this name."""
    kind, colon, argument = name.partition(":")
    if colon or kind == "fixed-bid":
        return kind in _WITH_ARGUMENT and bool(argument)
    return name == BOUND or kind in _SCHEMES


def _on_demand(name: str, _: str, __: Scenario, ___: tuple[Offer, ...]) -> Scheme:
    return Scheme(name, OnDemand(), AGILE, reliable=False)


def _standard_checkpoint(name: str, _: str, scenario: Scenario, __: tuple[Offer, ...]) -> Scheme:
    return Scheme(name, Standard(), scenario.checkpoint_recovery(), reliable=False)


def _standard_agileml(name: str, _: str, __: Scenario, ___: tuple[Offer, ...]) -> Scheme:
    return Scheme(name, Standard(), AGILE, reliable=True)


def _tierml(name: str, _: str, scenario: Scenario, offers: tuple[Offer, ...]) -> Scheme:
    hazards = scenario.hazards(offer.market for offer in offers)
    mttf = {
        offer.market: _mttf(Mttf.of(scenario.learnt(offer.market), offer.on_demand), hazards[offer.market])
        for offer in offers
    }
    return Scheme(name, TierMl(mttf), AGILE, reliable=True)


def _mttf(crossing: Mttf, hazard: Hazard | None) -> Mttf:
    return crossing if hazard is None else Mttf(tuple(sooner(mean, hazard) for mean in crossing.by_tenth))


def _proteus(name: str, _: str, scenario: Scenario, offers: tuple[Offer, ...]) -> Scheme:
    odds, application = odds_of(scenario, offers), application_of(scenario)
    strategy = AmongOpen(lambda among: Proteus(among, odds, application), offers)
    return Scheme(name, strategy, AGILE, reliable=True)


def _fixed_bid(name: str, argument: str, scenario: Scenario, offers: tuple[Offer, ...]) -> Scheme:
    try:
        delta = parse_usd(argument, "bid delta")
    except BadInput as error:
        raise BadScenario(f"schemes: {name!r}: {error} (write fixed-bid:0.0001)") from None
    odds, application = odds_of(scenario, offers), application_of(scenario)
    strategy = AmongOpen(lambda among: fixed_bid(among, odds, application, delta), offers)
    return Scheme(name, strategy, AGILE, reliable=True)


def _lookahead(name: str, argument: str, scenario: Scenario, offers: tuple[Offer, ...]) -> Scheme:
    make = lookahead_of(scenario, offers, name)
    if argument:
        usd_per_hour = _usd_per_hour(name, argument)
    else:
        rival = Proteus(offers, odds_of(scenario, offers), application_of(scenario))
        usd_per_hour = price_of_time(scenario, offers, lambda usd: make(offers, usd), rival)
    strategy = AmongOpen(lambda among: make(among, usd_per_hour), offers)
    return Scheme(name, strategy, AGILE, reliable=True)


def _usd_per_hour(name: str, argument: str) -> float:
    try:
        usd_per_hour = float(argument)
    except ValueError:
        usd_per_hour = nan
    if not 0 <= usd_per_hour < inf:
        raise BadScenario(
            f"schemes: {name!r}: {argument!r} is no price of time in dollars per hour (write lookahead:12.5)"
        )
    return usd_per_hour


def lookahead_of(
    scenario: Scenario, offers: tuple[Offer, ...], name: str
) -> Callable[[tuple[Offer, ...], float], Lookahead]:
    """`lookahead` for some of the offers at a price of time, with what the training span says about the next hour."""
    hazards = scenario.hazards(offer.market for offer in offers)
    application = application_of(scenario)
    hours = {
        offer.market: NextHour.of(
            scenario.learnt(offer.market), scenario.billing, application.startup_hours, hazards[offer.market]
        )
        for offer in offers
    }
    return lambda among, usd_per_hour: Lookahead(among, hours, application, usd_per_hour, name)


def _price_capacity(name: str, argument: str, scenario: Scenario, offers: tuple[Offer, ...]) -> Scheme:
    hazards = scenario.hazards(offer.market for offer in offers)
    fresh, old = (
        {offer.market: Prospects.of(hazards[offer.market], scenario.billing, age) for offer in offers} for age in (0, 1)
    )
    if argument and not (argument.isdecimal() and int(argument)):
        raise BadScenario(f"schemes: {name!r}: {argument!r} is no number of pools (write price-capacity:3)")
    pools = int(argument) if argument else POOLS
    strategy = PriceCapacity(offers, fresh, old, application_of(scenario), pools, name=name)
    return Scheme(name, strategy, AGILE, reliable=True)


def odds_of(scenario: Scenario, offers: tuple[Offer, ...]) -> dict[Market, Odds]:
    """What the training span says about bids in each market, evictions by the hazard included."""
    hazards = scenario.hazards(offer.market for offer in offers)
    return {offer.market: _odds(Odds.of(scenario.learnt(offer.market)), hazards[offer.market]) for offer in offers}


def _odds(crossing: Odds, hazard: Hazard | None) -> Odds:
    """Survival is the product of both. Evictions by the hazard come halfway through the hour in the median."""
    if hazard is None:
        return crossing
    taken = -expm1(-hazard.cumulative(0, 1)[0])
    betas = tuple(1 - (1 - beta) * (1 - taken) for beta in crossing.betas)
    medians = tuple(
        (beta * median + taken / 2) / (beta + taken) if beta + taken else median
        for beta, median in zip(crossing.betas, crossing.medians, strict=True)
    )
    return Odds(crossing.distances, betas, medians)


def application_of(scenario: Scenario) -> Application:
    """What a scenario's job costs by itself."""
    reliable = scenario.reliable
    held = reliable.machines * reliable.offer.on_demand / NANOS_PER_DOLLAR if reliable else 0.0
    overheads = scenario.overheads
    return Application(overheads.eviction / HOUR, overheads.resize / HOUR, overheads.startup / HOUR, held)


_WITH_ARGUMENT = ("fixed-bid", "price-capacity", "lookahead")
"""A bid delta in dollars, which there must be; a number of pools, or a price of time, which there may be."""

_SCHEMES: dict[str, Callable[[str, str, Scenario, tuple[Offer, ...]], Scheme]] = {
    "on-demand": _on_demand,
    "standard+checkpoint": _standard_checkpoint,
    "standard+agileml": _standard_agileml,
    "tierml": _tierml,
    "proteus": _proteus,
    "fixed-bid": _fixed_bid,
    "price-capacity": _price_capacity,
    "lookahead": _lookahead,
}
