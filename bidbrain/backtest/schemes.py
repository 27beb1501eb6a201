"""Schemes by name: a strategy together with how the job recovers from an eviction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bidbrain.backtest.engine import AGILE, Recovery
from bidbrain.backtest.scenario import BadScenario, Scenario
from bidbrain.strategies.base import Offer, Strategy
from bidbrain.strategies.fixed_bid import fixed_bid
from bidbrain.strategies.odds import Odds
from bidbrain.strategies.on_demand import OnDemand
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
    if kind not in _SCHEMES or (argument and kind != "fixed-bid"):
        raise BadScenario(f"schemes: {name!r} is none of {', '.join((*_SCHEMES, BOUND))}")
    return _SCHEMES[kind](name, argument, scenario, scenario.offers_in(zone))


def known(name: str) -> bool:
    """Whether a scheme has this name."""
    kind, _, argument = name.partition(":")
    return name == BOUND or (kind in _SCHEMES and bool(argument) == (kind == "fixed-bid"))


def _on_demand(name: str, _: str, __: Scenario, ___: tuple[Offer, ...]) -> Scheme:
    return Scheme(name, OnDemand(), AGILE, reliable=False)


def _standard_checkpoint(name: str, _: str, scenario: Scenario, __: tuple[Offer, ...]) -> Scheme:
    return Scheme(name, Standard(), scenario.checkpoint_recovery(), reliable=False)


def _standard_agileml(name: str, _: str, __: Scenario, ___: tuple[Offer, ...]) -> Scheme:
    return Scheme(name, Standard(), AGILE, reliable=True)


def _tierml(name: str, _: str, scenario: Scenario, offers: tuple[Offer, ...]) -> Scheme:
    mttf = {offer.market: Mttf.of(scenario.learnt(offer.market), offer.on_demand) for offer in offers}
    return Scheme(name, TierMl(mttf), AGILE, reliable=True)


def _proteus(name: str, _: str, scenario: Scenario, offers: tuple[Offer, ...]) -> Scheme:
    strategy = Proteus(offers, odds_of(scenario, offers), application_of(scenario))
    return Scheme(name, strategy, AGILE, reliable=True)


def _fixed_bid(name: str, argument: str, scenario: Scenario, offers: tuple[Offer, ...]) -> Scheme:
    try:
        delta = parse_usd(argument, "bid delta")
    except BadInput as error:
        raise BadScenario(f"schemes: {name!r}: {error} (write fixed-bid:0.0001)") from None
    strategy = fixed_bid(offers, odds_of(scenario, offers), application_of(scenario), delta)
    return Scheme(name, strategy, AGILE, reliable=True)


def odds_of(scenario: Scenario, offers: tuple[Offer, ...]) -> dict[Market, Odds]:
    """What the training span says about bids in each market."""
    return {offer.market: Odds.of(scenario.learnt(offer.market)) for offer in offers}


def application_of(scenario: Scenario) -> Application:
    """What a scenario's job costs by itself."""
    reliable = scenario.reliable
    held = reliable.machines * reliable.offer.on_demand / NANOS_PER_DOLLAR if reliable else 0.0
    overheads = scenario.overheads
    return Application(overheads.eviction / HOUR, overheads.resize / HOUR, overheads.startup / HOUR, held)


_SCHEMES: dict[str, Callable[[str, str, Scenario, tuple[Offer, ...]], Scheme]] = {
    "on-demand": _on_demand,
    "standard+checkpoint": _standard_checkpoint,
    "standard+agileml": _standard_agileml,
    "tierml": _tierml,
    "proteus": _proteus,
    "fixed-bid": _fixed_bid,
}
