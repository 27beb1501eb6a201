"""Orders missing machines again, when fewer came than a strategy ordered, or some are gone. Pure."""

from collections.abc import Iterable
from dataclasses import replace
from math import floor

from bidbrain.strategies.base import Decision, Rent, Situation, Strategy, described
from bidbrain.strategies.on_demand import AlwaysOnDemand
from bidbrain.strategies.standard import Standard
from bidbrain.strategies.tierml import TierMl

_ORDERS_ONCE = (Standard, TierMl, AlwaysOnDemand)
"""Strategies that order nothing while they hold anything; the others reorder missing machines themselves."""
_ROUNDING = 1e-9


def refill(strategy: Strategy, situation: Situation) -> Decision | None:
    """Orders what is missing, from the job's own market if that sells; None if nothing is missing, or for sale."""
    if not isinstance(strategy, _ORDERS_ONCE) or not situation.holdings:
        return None
    held = [holding.rent for holding in situation.holdings]
    spot = bool(situation.on_spot)
    afresh = strategy.decide(replace(situation, holdings=())).actions
    wanted = [action for action in afresh if isinstance(action, Rent) and action.spot is spot]
    missing = _nu(wanted) - _nu(held)
    here = [rent for rent in held if rent.spot is spot and situation.sells(rent)]
    for like in (*here, *wanted):
        machines = floor(missing / like.offer.nu + _ROUNDING)
        if machines > 0:
            order = replace(like, machines=machines)
            return Decision((order,), reason=f"machines are missing: {described(order)}")
    return None


def _nu(rents: Iterable[Rent]) -> float:
    return sum(rent.machines * rent.offer.nu for rent in rents)
