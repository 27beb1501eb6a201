"""The strategy of a run: the plan's decision object, given the work left, the budget left and the
evictions so far.
"""

from collections.abc import Callable, Collection
from dataclasses import replace
from math import inf, isfinite

import numpy as np

from bidbrain.strategies.base import (
    RECORD_WINDOW,
    Decision,
    Rent,
    Situation,
    SpotRecord,
    Strategy,
    terms_of as price_terms,
)
from bidbrain.strategies.known_spells import UNSEEN, spell_of_prices, spot_spell
from bidbrain.strategies.spells import SpotSpell
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import HOUR, NANO_SECONDS_PER_DOLLAR, SECOND, format_usd
from spotctl.files.job.programs import Training
from spotctl.files.job.spec import JobSpec
from spotctl.log import budget
from spotctl.log.budget import Tariff
from spotctl.log.events import OnDemandOffer, Planned
from spotctl.log.observed import availability_of
from spotctl.log.state import EVICTED, RunState
from spotctl.planning.cost import beta_of, first_hour, usd_per_work
from spotctl.planning.forecast import forecast_of, turns_to_spot
from spotctl.planning.values import Choice, JobPlan
from spotctl.run.environment import RunEnvironment
from spotctl.run.turn.bidding import LiveBids
from spotctl.run.turn.budget_check import PlayedRest
from spotctl.run.turn.ending import RunLimits
from spotctl.run.turn.execute import Journal
from spotctl.run.turn.reconcile import StrategyTerms, looks
from spotctl.run.turn.service import RunRules
from spotctl.run.work.gang import saved_of


class LiveStrategy:
    """Decides for a run, from its present `state`, prices, and budget: the dollars that are not
    committed, and those kept back for leases."""

    def __init__(
        self,
        plan: JobPlan,
        state: Callable[[], RunState],
        usd_left: Callable[[], tuple[float, float]],
        tariff: Tariff,
    ) -> None:
        self.name = plan.decider.name
        self._plan = plan
        self._state = state
        self._usd_left = usd_left
        self._tariff = tariff

    def decide(self, situation: Situation) -> Decision:
        """The decision for a situation, completed from the log."""
        state = self._state()
        now = situation.now
        usd_left, usd_reserved = self._usd_left()
        decider = self._plan.decider
        done = state.work.done(now)
        trains = isinstance(self._plan.job.spec.program, Training)

        # Whether a move would lose no work: a checkpoint counts once it was written, not when it
        # was declared.
        resumes = trains or state.work.checkpoint is not None or not done
        unsaved = 0.0
        if not trains and isfinite(self._plan.fleet.work):
            unsaved = max(done - state.work.safe, 0) * decider.most_nu * decider.speed
        current = replace(
            situation,
            work_left=work_left(self._plan, state, now),
            usd_left=usd_left,
            usd_reserved=usd_reserved,
            record=replace(record_of(state, now), resumes=resumes),
            unsaved=unsaved,
            spell=lambda: self._spell(state, now, offered=bool(situation.offers)),
            looks=lambda: looks(state),
            saved=saved_of(state, self._plan.job.spec),
            refused=refused_of(state, now),
        )

        decision = decider.decide(current)
        return replace(decision, reason=self._plan.demand.worded(decision.reason))

    def departure(self, rent: Rent, now: int) -> str:
        """How a purchase departs from what the plan begins with, with the plan's reason and the
        figures of now; empty if it does not."""
        plan = self._plan
        offer = rent.offer
        begins = list[str]()
        for choice in plan.cost.choice:
            planned = choice.rent
            if planned.offer.market == offer.market and planned.spot is rent.spot:
                return ""
            begins.append(f"{planned.offer.market}, {price_terms(planned)}")

        # Its plan announced that the run turns to spot machines.
        if rent.spot and turns_to_spot(plan):
            return ""

        instead = " and ".join(begins)
        text = f"{offer.market}, {price_terms(rent)}, where the plan has {instead}"
        if not rent.spot:
            return f"{text}: ${format_usd(offer.on_demand)}/h, never evicted"

        history = plan.fleet.market_history
        until = history_until(plan, self._tariff, offer.market, now)
        price = until.price_at(now)
        known = replace(history, histories={**history.histories, offer.market: until})
        choice = Choice(rent, price, beta_of(known, rent, price))
        cost = usd_per_work(first_hour([choice], plan.fleet, plan.decision.interval).shares[0])
        reasons = [rejected.why for rejected in plan.rejected if rejected.market == offer.market]
        then = f"; in the plan {plan.demand.worded(reasons[0])}" if reasons and reasons[0] else ""
        work = "too often to make progress"
        if isfinite(cost):
            work = f"${cost:.4g} per {plan.demand.unit}"

        evicted = f"{choice.beta.probability:.1%} evicted per hour"
        return f"{text}: now ${format_usd(price)}/h, {evicted}, {work}{then}"

    def _spell(self, state: RunState, now: int, *, offered: bool) -> SpotSpell | None:
        """The present spell of spot capacity: as this run and earlier ones met it, or where only
        the price evicts, as prices have it."""
        offers = self._plan.decider.offers
        history = self._plan.fleet.market_history
        capacity_decides = [
            offer.market for offer in offers if history.hazards.get(offer.market) is not None
        ]

        if not capacity_decides:
            return spell_of_prices(
                offers,
                lambda offer: history_until(self._plan, self._tariff, offer.market, now),
                now,
            )

        observed = availability_of(state, now)
        known = (
            history.spells.get(market, UNSEEN).continued(
                (span for span in observed if span.market == market), now - history.now, now
            )
            for market in capacity_decides
        )

        return spot_spell(known, offered=offered)


def history_until(plan: JobPlan, tariff: Tariff, market: Market, now: int) -> PriceSeries:
    """A market's prices as the plan knew them, and those since then."""
    before = plan.fleet.market_history.histories[market]
    since = tariff.prices(market, now)
    new = since.times > before.last
    return PriceSeries(
        market,
        np.append(before.times, since.times[new]),
        np.append(before.prices, since.prices[new]),
    )


def rules_of(
    spec: JobSpec, journal: Journal, environment: RunEnvironment, plan: Callable[[], JobPlan]
) -> RunRules:
    """The rules of a run of a planned job; `plan` is called when the first decision is due."""
    provider = environment.provider
    times = environment.lease_times
    stated = None if spec.budget is None else spec.budget * 3600
    tariff = budget.tariff_of(provider, journal.state.started)

    def usd_left() -> tuple[float, float]:
        limit = journal.state.limit(stated)
        if limit is None:
            return inf, 0.0
        now = journal.now()
        committed = budget.committed(journal.state, now, tariff, times.teardown)
        reserved = committed - budget.spent(journal.state, now, tariff)
        return (limit - committed) / NANO_SECONDS_PER_DOLLAR, reserved / NANO_SECONDS_PER_DOLLAR

    def strategy() -> tuple[Strategy, StrategyTerms]:
        planned = plan()
        if journal.state.planned is None:
            journal.write(expectation(planned))
        decider = replace(planned.decider, held_price=environment.held_price)
        live_plan = replace(planned, decider=decider)
        live = LiveStrategy(live_plan, lambda: journal.state, usd_left, tariff)
        return live, replace(terms_of(planned, provider.offers()), departure=live.departure)

    def share_left() -> float | None:
        planned = plan()
        left = work_left(planned, journal.state, journal.now())
        total = planned.fleet.work
        return left / total if isfinite(total) and total else None

    def rest(share_done: float) -> PlayedRest | None:
        planned = plan()
        now = journal.now()
        if planned.demand.work.assumed:
            return None
        left = measured_left(planned, journal.state, now)
        budget_left = usd_left()[0]
        markets = {offer.market for offer in planned.decider.offers}
        histories = {market: history_until(planned, tariff, market, now) for market in markets}
        return PlayedRest(planned, now, left, 1 - share_done, budget_left, histories)

    program = spec.program
    least = spec.resources.machines.least if isinstance(program, Training) else program.nodes.least
    shrinks = not isinstance(program, Training) and program.nodes.is_range
    limits = RunLimits(stated, max(HOUR, round(30 * SECOND * provider.speed)), least, shrinks)
    bids = LiveBids(plan, journal, environment, work_left)

    return RunRules(strategy, tariff, limits, share_left, rest, bids=bids)


def terms_of(plan: JobPlan, offered: Collection[Market]) -> StrategyTerms:
    """The terms of a plan's strategy: the work, and the planned offers that the provider has."""
    decider = plan.decider
    offers = tuple(offer for offer in decider.offers if offer.market in offered)
    return StrategyTerms(
        offers, decider.baseline, decider.most_nu, plan.fleet.work, decider.reliable
    )


def expectation(plan: JobPlan) -> Planned:
    """The forecast of a plan for the log, where reports compare it with the actual run; of one hour
    if the job's length is unknown."""
    forecast = forecast_of(plan)
    assumed = plan.demand.work.assumed
    cost = forecast.usd_per_hour if assumed else forecast.usd
    hours = 1.0 if assumed else forecast.hours.median
    rent = plan.cost.on_demand.rent
    offer = rent.offer
    rate = plan.fleet.rates.get(offer.market.instance_type)
    spread = rate.spread if rate is not None and rate.in_units else None
    work = plan.fleet.work if not assumed and isfinite(plan.fleet.work) else None
    unworked = plan.cost.on_demand.unworked
    terms = (offer.market, rent.machines, offer.on_demand, offer.nu)
    instead = OnDemandOffer(*terms, unworked, spread, work)

    turns = list[tuple[int, int]]()
    if plan.share.queue is not None:
        for part in plan.share.parts:
            later = round((part.begin - plan.share.turn.begin) * HOUR)
            turns.append((plan.at + later, sum(part.machines)))

    on_demand_usd = plan.cost.on_demand.usd
    return Planned(cost.median, *cost.likely, hours, on_demand_usd, assumed, instead, tuple(turns))


def work_left(plan: JobPlan, state: RunState, now: int) -> float:
    """The remaining work in microseconds times nu; infinite if unknown.

    A training has done its clocks, and one that ends by time, the time since its first one. A
    command has done the work in its checkpoints, and the work since the last one.
    """
    total = plan.fleet.work
    program = plan.job.spec.program
    if not isfinite(total):
        return total
    if not isinstance(program, Training):
        return max(total - state.work.done(now) * plan.decider.most_nu * plan.decider.speed, 0.0)

    stop = program.stop
    done = 0.0
    if stop.clocks is not None and state.progress is not None:
        done = state.progress.clock / stop.clocks
    if stop.span is not None and state.paces:
        done = max(done, (now - state.paces[0][0]) / stop.span)

    return total * max(1 - done, 0.0)


def measured_left(plan: JobPlan, state: RunState, now: int) -> float:
    """The remaining work, if the machines stay as fast as they were in this run so far; as
    `work_left`.

    A machine works after its start-up. The work of a command, and of a training that ends by time,
    is time itself, which passes as planned.
    """
    left = work_left(plan, state, now)
    done = plan.fleet.work - left
    program = plan.job.spec.program
    if (
        not isfinite(left)
        or not isinstance(program, Training)
        or plan.demand.work.timed
        or done <= 0
    ):
        return left

    startup = plan.decider.overheads.startup
    able = sum(
        max((now if held.ended is None else held.ended) - held.started - startup, 0)
        * state.allocations[held.allocation].nu
        for held in state.machines.values()
    )

    return left * able / done if able else left


def refused_of(state: RunState, now: int) -> dict[tuple[Market, bool], int]:
    """The size of the last order of spot or on-demand machines that each market refused; 0 where it
    does not exist.
    """
    missing = {key: 0 for key, back_off in state.back_offs.items() if not back_off.exists}
    # A quota that holds no machine is not larger after a while.
    return missing | {
        key: refusal.machines
        for key, refusal in state.refused.items()
        if key in state.denied or now - refusal.at <= RECORD_WINDOW
    }


def record_of(state: RunState, now: int) -> SpotRecord:
    """Evictions, on-demand purchases and useful time of a command so far, from the log."""
    transient = [allocation for allocation in state.allocations.values() if not allocation.reliable]
    since = now - RECORD_WINDOW
    evicted = list[int]()
    held_for = 0
    for allocation in transient:
        if allocation.bid is None:
            continue
        machines = [
            held for held in state.machines.values() if held.allocation == allocation.number
        ]
        # The first of an allocation's machines counts.
        evictions = [
            held.ended for held in machines if held.ended is not None and held.end_reason == EVICTED
        ]
        if evictions:
            evicted.append(min(evictions))
        ended = max(
            (now if held.ended is None else held.ended for held in machines),
            default=allocation.started,
        )
        held_for += max(ended - max(allocation.started, since), 0)

    # On-demand machines rented before any eviction were the strategy's own choice, not a fallback.
    first = min(evicted, default=inf)
    fallbacks = [
        allocation.started
        for allocation in transient
        if allocation.bid is None
        and allocation.started > first
        and not allocation.market.reservation
    ]

    useful = 0
    for spell in state.work.spells:
        useful += min(spell.lasting, max(spell.end - max(spell.begin, since), 0))

    return SpotRecord(tuple(sorted(evicted)), tuple(sorted(fallbacks)), held_for, useful)
