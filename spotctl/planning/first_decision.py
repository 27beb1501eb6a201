"""Step 5 of a plan: the first decision of a job's decision object. Pure."""

from collections.abc import Iterable
from dataclasses import replace
from math import inf

from bidbrain.decision.decider import Decider
from bidbrain.decision.mixture_strategy import Mixed
from bidbrain.eviction.path import PricePath
from bidbrain.strategies.base import Decision, Offer, Rent, Situation, Strategy
from bidbrain.strategies.deadline_spells import SpotSpell
from bidbrain.strategies.known_spells import spot_spell
from bidbrain.strategies.spot_spells import spell_of_prices
from pricing_data.units import counted, usd_text
from spotctl.planning.allocation import AllocatedJob
from spotctl.planning.checkpoint_interval import CheckpointInterval, checkpoints_of
from spotctl.planning.errors import NotInTime, OverBudget
from spotctl.planning.values import BuiltDecider, FirstDecision, PlannedMixture


def first_decision(built: BuiltDecider, now: int) -> FirstDecision:
    """The decision with which the job begins; raises NotInTime or OverBudget if nothing would be rented.

    The interval between checkpoints follows from the machines; a decider with a deadline then decides again, at the
    speed that checkpoints leave.
    """
    allocated, decider = built.allocated, built.decider
    situation = _situation(built, now)
    decision = _decision(allocated, decider, situation)
    mixture = _mixture(decider.strategy, situation)
    interval = _checkpoint_interval(built, _rents(decision))
    checkpoints = interval if allocated.saves else None
    if checkpoints is not None:
        decider = replace(decider, speed=checkpoints.useful_share)
        if decider.deadline is not None:
            decision = _decision(allocated, decider, situation)
    return FirstDecision(
        decider, decision, _rents(decision), interval, checkpoints, mixture, decider.outlooks(situation)
    )


def _situation(built: BuiltDecider, now: int) -> Situation:
    """The situation of the first decision: nothing is held, and the budget pays for the reliable machines first."""
    decider, fleet_plan, budget = built.decider, built.fleet_plan, built.allocated.job.budget_usd
    reliable, histories = decider.reliable, fleet_plan.market_history.histories
    reserved = 0.0 if reliable is None else reliable.machines * decider.committed_usd(reliable)
    return Situation(
        now,
        decider.offers,
        lambda offer: fleet_plan.prices[offer.market],
        (),
        decider.baseline,
        decider.most_nu,
        built.work_left,
        usd_left=inf if budget is None else budget - reserved,
        usd_reserved=reserved,
        deadline=decider.deadline,
        path=lambda market: PricePath(histories[market]),
        spell=lambda: _spell(built, now),
    )


def _spell(built: BuiltDecider, now: int) -> SpotSpell | None:
    """The present spell of spot capacity, as it was observed, or as prices have it where only the price evicts."""
    offers, history = built.decider.offers, built.market_history
    if all(history.hazards[offer.market] is None for offer in offers):
        return spell_of_prices(offers, lambda offer: history.histories[offer.market], now)
    known = (history.spells[offer.market] for offer in offers if offer.market in history.spells)
    return spot_spell(known, offered=bool(offers))


def _decision(allocated: AllocatedJob, decider: Decider, situation: Situation) -> Decision:
    demand, budget = allocated.demand, allocated.job.budget_usd
    decision = decider.decide(situation)
    if any(isinstance(action, Rent) for action in decision.actions):
        return decision
    unbound = decider.decide(replace(situation, usd_left=inf))
    each = max((decider.committed_usd(action) for action in unbound.actions if isinstance(action, Rent)), default=0.0)
    if not each and decider.deadline is not None and decider.fallback.machines:
        # The job may wait for spot machines in vain; on-demand machines are certain.
        return replace(decision, actions=(decider.fallback,), reason=f"{decision.reason}; at the latest on demand")
    if budget is None:
        raise NotInTime(f"{demand.name}: nothing would be rented: {decision.reason}")
    enough = budget - situation.usd_left + demand.least * each
    raise OverBudget(
        f"{demand.name}: a budget of {usd_text(budget)} does not cover the first lease of"
        f" {counted(demand.least, 'machine')} at the bid; raise the budget to {usd_text(enough)}, or let the job use"
        " fewer machines"
    )


def _rents(decision: Decision) -> tuple[Rent, ...]:
    """The purchases, with those in the same market at the same bid combined."""
    machines: dict[tuple[Offer, int | None], int] = {}
    for rent in decision.actions:
        if isinstance(rent, Rent):
            machines[rent.offer, rent.bid] = machines.get((rent.offer, rent.bid), 0) + rent.machines
    return tuple(Rent(offer, count, bid) for (offer, bid), count in machines.items())


def _mixture(strategy: Strategy, situation: Situation) -> PlannedMixture | None:
    """The mixture that the strategy begins with; None if the strategy itself chooses among kinds."""
    if not isinstance(strategy, Mixed):
        return None
    types, schedule = strategy.schedule(situation)
    return None if schedule is None else PlannedMixture(strategy.mixing.aim, tuple(types), schedule)


def _checkpoint_interval(built: BuiltDecider, rents: Iterable[Rent]) -> CheckpointInterval | None:
    prices = built.fleet_plan.prices
    priced = [(rent, prices[rent.offer.market]) for rent in rents]
    return checkpoints_of(built.allocated.job, priced, built.market_history)
