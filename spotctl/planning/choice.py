"""One job's plan, sized by one machine type: the first decision of its `Decider`, and its cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf, isfinite

from bidbrain.billing import BillingRule, rule_of_cloud
from bidbrain.cost import Application
from bidbrain.decision.decider import Decider
from bidbrain.decision.mixture_strategy import Mixed
from bidbrain.decision.mixture_terms import Mixing, TypeQuota
from bidbrain.decision.roaming import Roaming
from bidbrain.eviction.estimate import Estimate
from bidbrain.eviction.path import PricePath
from bidbrain.strategies.base import Decision, Offer, Rent, Situation, Strategy
from bidbrain.strategies.deadline import DeadlineStrategy
from bidbrain.strategies.deadline_job import DeadlineTerms
from bidbrain.strategies.names import REGIONS
from bidbrain.strategies.registry import set_up
from bidbrain.strategies.spot_spells import spell_of_prices
from pricing_data.list_prices import ListPrices
from pricing_data.market import Market
from pricing_data.units import DAY, HOUR, counted, usd_text
from spotctl.files.job.programs import Command
from spotctl.planning.checkpoint_interval import CheckpointInterval, checkpoints_of
from spotctl.planning.columns import usd_per_hour, useful_share
from spotctl.planning.errors import NotInTime, OverBudget
from spotctl.planning.expected import Conditions, PricedRent, Todo, beta_of, estimate, on_demand, usd_per_work
from spotctl.planning.fleet import FleetPlan, plan_fleet
from spotctl.planning.forecasting import RATE_HOURS, forecast_of
from spotctl.planning.machine_options import MachineOption
from spotctl.planning.market_history import MarketHistory, RentableFleet, strategy_for, strategy_inputs
from spotctl.planning.on_demand_limits import check_on_demand
from spotctl.planning.overheads import within_the_hour
from spotctl.planning.rejected import rejections
from spotctl.planning.roaming import roaming_of
from spotctl.planning.values import AllocatedJob, Choice, JobPlan, KindColumns, OnDemand, PlannedMixture, PlanningInputs

LEAST_IN_TIME = 0.5
"""A plan that keeps its deadline with a lower probability is refused."""

LONGEST_RUN = 366 * DAY
"""Limit for the expected length of a run: a longer one is a mistake in the job file, and its forecast would take
minutes."""


def plan_on(allocated: AllocatedJob, option: MachineOption, inputs: PlanningInputs, columns: KindColumns) -> JobPlan:
    """The plan for a job on some machines.

    Raises NotInTime or OverBudget if nothing can be rented, or nothing that makes progress.
    """
    fleet_plan = plan_fleet(allocated, option, inputs, columns)
    fleet = fleet_plan.fleet
    fallback = fleet_plan.limits.rentable(fleet.baseline)
    check_on_demand(allocated.job.spec, fallback, fleet, allocated.on_demand_quotas, inputs.snapshot.catalog)
    roams = allocated.demand.roams and fallback.machines > 0
    if roams and fallback.machines < fleet.baseline.machines:
        return plan_on(_staying(allocated, fallback, fleet.baseline), option, inputs, columns)
    named = strategy_for(allocated.job.spec, fleet_plan.fleet.baseline.offer.market.cloud, roams=roams)
    made_from = strategy_inputs(
        fleet_plan.market_history, fleet_plan.fleet, _hours(allocated, fleet_plan), allocated.job.value_of_time_usd
    )
    # Where `regions` decides, the deadline's net is all that is left to others.
    made = set_up("on-demand" if roams else named.name, made_from)
    named = replace(named, reason=f"{named.reason}; {made.note}") if made.note else named
    strategy = _mixed(allocated, option, fleet_plan, columns, made.strategy)
    lists = inputs.snapshot.catalog.lists
    roaming = _roaming(fleet_plan, lists) if roams else None
    decider = _decider(allocated, fleet_plan, strategy, made_from.billing, roaming)
    situation = _situation(allocated, decider, fleet_plan, inputs.snapshot.at)
    decision = _decision(allocated, decider, situation)
    rents = _together(action for action in decision.actions if isinstance(action, Rent))
    mixture = _mixture(strategy, situation)
    kept = _checkpoints(allocated, fleet_plan, rents)
    if kept is not None and _is_kept(allocated):
        decider = replace(decider, speed=kept.useful_share)
        if decider.deadline is not None:
            decision = _decision(allocated, decider, situation)
            rents = _together(action for action in decision.actions if isinstance(action, Rent))
    conditions, todo = _conditions(fleet_plan, kept), _todo(allocated)
    prices = [fleet_plan.prices[rent.offer.market] for rent in rents]
    betas = [beta_of(fleet_plan.market_history, rent, price) for rent, price in zip(rents, prices, strict=True)]
    parts = list(map(PricedRent.of, rents, prices, betas))
    job_estimate = estimate(parts, conditions, todo)
    if not isfinite(job_estimate.hours):
        raise NotInTime(
            f"{allocated.demand.name}: {named.name} would rent {rents[0].offer.market}, where machines are"
            " evicted too often to make progress; choose another strategy or other types"
        )
    if job_estimate.hours * HOUR > LONGEST_RUN and not allocated.demand.work.assumed:
        raise NotInTime(
            f"{allocated.demand.name}: would take {job_estimate.hours / 24:,.0f} days, but plans cover at most"
            f" {LONGEST_RUN // DAY}; check the job's length and throughputs, or allow more or faster machines"
        )
    choice = tuple(
        _choice(fleet_plan.market_history, part, beta, usd_per_work(share))
        for part, beta, share in zip(parts, betas, job_estimate.first.shares, strict=False)
    )
    instead = fallback if fallback.machines else fleet.baseline
    usd, hours = on_demand(instead, conditions, todo)
    rejected = rejections(allocated, fleet_plan, conditions, choice, (inputs.snapshot, columns))
    return JobPlan(
        job=allocated.job,
        at=inputs.snapshot.at,
        policy=allocated.share.policy,
        strategy=named,
        decider=decider,
        decision=decision,
        choice=choice,
        work=allocated.demand.work,
        work_left=_work_left(allocated, decider),
        rates={offer.market.instance_type: allocated.rates[offer.market.instance_type] for offer in decider.offers},
        estimate=job_estimate,
        on_demand=OnDemand(instead, usd, hours),
        rejected=rejected,
        unnamed=max(allocated.fitting - len({rent.offer.market for rent in rents}) - len(rejected), 0),
        market_history=fleet_plan.market_history,
        interval=kept,
        checkpoints=kept if _is_kept(allocated) else None,
        mixture=mixture,
        quotas=allocated.quotas,
        on_demand_quotas=allocated.on_demand_quotas,
        outlooks=decider.outlooks(situation),
    )


def _staying(allocated: AllocatedJob, held: Rent, needed: Rent) -> AllocatedJob:
    """The job without moves between regions: a job moves only if all of its nodes on demand can keep its deadline."""
    name, kind = allocated.demand.name, needed.offer.market.instance_type
    if allocated.job.spec.strategy == REGIONS:
        raise NotInTime(
            f"{name}: strategy regions needs {needed.machines} machines of {kind} on demand near the deadline, but"
            f" quotas allow {held.machines}; raise the quota ('spotctl doctor' says how), or write strategy: auto"
        )
    return replace(allocated, demand=replace(allocated.demand, roams=False))


def _mixed(
    allocated: AllocatedJob, option: MachineOption, fleet_plan: FleetPlan, columns: KindColumns, strategy: Strategy
) -> Strategy:
    """The strategy, made to follow the job's mixture if the job has one."""
    if option.schedule is None:
        return strategy
    demand, fleet, history = allocated.demand, fleet_plan.fleet, fleet_plan.market_history
    mixing = Mixing(
        aim=option.aim,
        least=demand.least,
        most=demand.most,
        most_of_type=fleet_plan.limits.by_type,
        useful={
            market: useful_share(series, history.hazards[market], _listed(fleet, market), fleet.overheads)
            for market, series in history.histories.items()
        },
        overheads=fleet.overheads,
        usd_per_hour=usd_per_hour(fleet.reliable) + (allocated.job.value_of_time_usd or 0.0),
        quotas=tuple(
            TypeQuota({columns.kinds[j].type: float(group.per_machine[j]) for j in option.columns}, part)
            for group, part in zip(columns.quotas, allocated.share.quotas, strict=True)
        ),
    )
    return Mixed(strategy, mixing)


def _listed(fleet: RentableFleet, market: Market) -> int:
    return next(offer.on_demand for offer in fleet.offers if offer.market == market)


def _mixture(strategy: Strategy, situation: Situation) -> PlannedMixture | None:
    """The mixture that the strategy begins with; None if the strategy itself chooses among kinds."""
    if not isinstance(strategy, Mixed):
        return None
    types, schedule = strategy.schedule(situation)
    return None if schedule is None else PlannedMixture(strategy.mixing.aim, tuple(types), schedule)


def _choice(history: MarketHistory, part: PricedRent, beta: Estimate, usd: float) -> Choice:
    rent = part.rent
    hazard = None if rent.bid is None else history.hazards[rent.offer.market]
    return Choice(rent, part.price, beta, usd, "price" if hazard is None else hazard.kind)


def violation(plan: JobPlan) -> OverBudget | NotInTime | None:
    """The job's budget or deadline that a plan is expected to violate, as an error."""
    budget, deadline, name = plan.job.budget_usd, plan.job.deadline, plan.job.spec.name
    # A job that can afford on-demand machines finishes on them in time.
    fallback = plan.decider.fallback
    in_time = deadline is not None and plan.at + round(plan.on_demand.hours * HOUR) <= deadline
    on_demand_keeps = in_time and fallback.machines > 0
    if plan.work.assumed or (budget is None and (deadline is None or on_demand_keeps)):
        return None
    forecast = forecast_of(plan)
    if budget is not None and forecast.usd.median > budget:
        low, high = forecast.usd.likely
        return OverBudget(
            f"{name}: expected cost {usd_text(forecast.usd.median)} ({usd_text(low)} to {usd_text(high)}) exceeds"
            f" the budget of {usd_text(budget)}; raise the budget, or reduce the job"
        )
    if deadline is None or (on_demand_keeps and plan.on_demand.usd <= (budget or inf)):
        return None
    if forecast.deadline_met((deadline - plan.at) / HOUR) >= LEAST_IN_TIME:
        return None
    hours = forecast.hours.quantile(LEAST_IN_TIME)
    cure = f"a budget of {usd_text(plan.on_demand.usd)} for on-demand machines"
    if fallback.machines < plan.decider.baseline.machines:
        cure = f"raise the quota of {fallback.offer.market.instance_type} on demand ('spotctl doctor' says how)"
    return NotInTime(
        f"{name}: expected to take {hours:.1f} hours, {hours - (deadline - plan.at) / HOUR:.1f} hours past"
        f" the deadline; allow more time, or {cure}"
    )


def _decider(
    allocated: AllocatedJob,
    fleet_plan: FleetPlan,
    strategy: Strategy,
    billing: BillingRule,
    roaming: Roaming | None,
) -> Decider:
    fleet = fleet_plan.fleet
    deadline = None if allocated.demand.work.assumed else allocated.job.deadline
    return Decider(
        offers=fleet.offers,
        baseline=fleet.baseline,
        reliable=fleet.reliable,
        most_nu=fleet.most_nu,
        limits=fleet_plan.limits,
        overheads=fleet.overheads,
        deadline=deadline,
        strategy=strategy,
        billing=billing,
        worth=None if deadline is None or roaming is not None else _worth(allocated, fleet_plan),
        roaming=None if deadline is None else roaming,
    )


def _roaming(fleet_plan: FleetPlan, lists: ListPrices) -> Roaming:
    history = fleet_plan.market_history
    return roaming_of(fleet_plan.fleet.offers, history.histories, history.hazards, history.at, lists)


def _worth(allocated: AllocatedJob, fleet_plan: FleetPlan) -> DeadlineStrategy | None:
    """The worth of slack, from the length on demand, the cost of changing machines, and how cheap spot is now; None
    without on-demand machines."""
    fleet, fallback = fleet_plan.fleet, fleet_plan.limits.rentable(fleet_plan.fleet.baseline)
    if not fallback.machines:
        return None
    rate = fallback.machines * fallback.offer.nu
    work = max(round(_work(allocated, fleet.most_nu) / rate), 1)
    spot = min(fleet_plan.prices[offer.market] / offer.nu for offer in fleet.offers)
    ratio = fallback.offer.on_demand / fallback.offer.nu / spot
    return DeadlineStrategy(DeadlineTerms(work, fleet.overheads.startup + fleet.overheads.eviction, ratio))


def _hours(allocated: AllocatedJob, fleet_plan: FleetPlan) -> float:
    """How long the job would take on demand; if its length is unknown, the time that its forecast covers."""
    baseline = fleet_plan.fleet.baseline
    if allocated.demand.work.assumed:
        return float(RATE_HOURS)
    return _work(allocated, fleet_plan.fleet.most_nu) / (baseline.machines * baseline.offer.nu) / HOUR


def _situation(allocated: AllocatedJob, decider: Decider, fleet_plan: FleetPlan, now: int) -> Situation:
    """The situation of the first decision: nothing is held, and the budget pays for the reliable machines first."""
    reliable, budget = decider.reliable, allocated.job.budget_usd
    reserved = 0.0 if reliable is None else reliable.machines * decider.committed_usd(reliable)
    return Situation(
        now,
        decider.offers,
        lambda offer: fleet_plan.prices[offer.market],
        (),
        decider.baseline,
        decider.most_nu,
        _work_left(allocated, decider),
        usd_left=inf if budget is None else budget - reserved,
        usd_reserved=reserved,
        deadline=decider.deadline,
        path=lambda market: PricePath(fleet_plan.market_history.histories[market]),
        spell=lambda: spell_of_prices(
            decider.offers, lambda offer: fleet_plan.market_history.histories[offer.market], now
        ),
    )


def _decision(allocated: AllocatedJob, decider: Decider, situation: Situation) -> Decision:
    """The first decision."""
    demand, budget = allocated.demand, allocated.job.budget_usd
    decision = decider.decide(situation)
    if any(isinstance(action, Rent) for action in decision.actions):
        return decision
    unbound = decider.decide(replace(situation, usd_left=inf))
    each = max((decider.committed_usd(action) for action in unbound.actions if isinstance(action, Rent)), default=0.0)
    if not each and decider.deadline is not None and decider.fallback.machines:
        # Spot, for which the job waits, is not certain; on-demand machines are.
        return replace(decision, actions=(decider.fallback,), reason=f"{decision.reason}; at the latest on demand")
    if budget is None:
        raise NotInTime(f"{demand.name}: nothing would be rented: {decision.reason}")
    enough = budget - situation.usd_left + demand.least * each
    raise OverBudget(
        f"{demand.name}: a budget of {usd_text(budget)} does not cover the first lease of"
        f" {counted(demand.least, 'machine')} at the bid; raise the budget to {usd_text(enough)}, or let the job use"
        " fewer machines"
    )


def _together(rents: Iterable[Rent]) -> list[Rent]:
    """The purchases, with those in the same market at the same bid combined."""
    machines: dict[tuple[Offer, int | None], int] = {}
    for rent in rents:
        machines[rent.offer, rent.bid] = machines.get((rent.offer, rent.bid), 0) + rent.machines
    return [Rent(offer, count, bid) for (offer, bid), count in machines.items()]


def _work_left(allocated: AllocatedJob, decider: Decider) -> float:
    """The work in microseconds times nu; infinite if the job's length is unknown."""
    return inf if allocated.demand.work.assumed else _work(allocated, decider.most_nu)


def _work(allocated: AllocatedJob, most_nu: float) -> float:
    work = allocated.demand.work
    return HOUR * (work.amount(most_nu) if work.timed else allocated.demand.amount)


def _todo(allocated: AllocatedJob) -> Todo:
    work = allocated.demand.work
    return Todo(None if work.timed else allocated.demand.amount, work.longest)


def _checkpoints(allocated: AllocatedJob, fleet_plan: FleetPlan, rents: Sequence[Rent]) -> CheckpointInterval | None:
    program = allocated.job.spec.program
    if not isinstance(program, Command):
        return None
    return checkpoints_of(
        program.checkpoint, [(rent, fleet_plan.prices[rent.offer.market]) for rent in rents], fleet_plan.market_history
    )


def _is_kept(allocated: AllocatedJob) -> bool:
    """Whether the program has a checkpoint path, without which spotctl cannot sync its checkpoints."""
    program = allocated.job.spec.program
    return isinstance(program, Command) and program.checkpoint is not None


def _conditions(fleet_plan: FleetPlan, kept: CheckpointInterval | None) -> Conditions:
    """A trainer pauses for an eviction. A command also writes checkpoints, and repeats the work since the last one: on
    average half an interval."""
    overheads = within_the_hour(fleet_plan.fleet.overheads)
    phi, lost = (1.0, 0) if kept is None else (kept.useful_share, round(kept.every / 2))
    application = Application(phi, overheads.resize, overheads.eviction + lost)
    cloud = fleet_plan.fleet.baseline.offer.market.cloud
    return Conditions(rule_of_cloud(cloud), application, overheads.startup, fleet_plan.fleet.reliable)
