"""From the facts to a plan for each job, with reasons: the one way of `plan`, `launch`, `try`, `nightly` and a resumed
run. Pure.

Step 1 reads the facts (`spotctl.run.start.stored_facts`); steps 2 to 8 are `candidates`, `divide`, `rentable_fleet`,
`build_decider`, `first_decision`, `estimate_cost` and `rejections`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from math import floor, inf

from pricing_data.market import Market
from pricing_data.units import HOUR, counted, usd_text
from spotctl.home.errors import SpotctlError
from spotctl.home.quotas import Quota
from spotctl.planning.candidates import KindColumns, candidates
from spotctl.planning.cost import estimate_cost
from spotctl.planning.decider import build_decider, first_decision
from spotctl.planning.errors import NotInTime, OverBudget
from spotctl.planning.explain import rejections
from spotctl.planning.facts import PlanningFacts
from spotctl.planning.fleet import best_mixes, rentable_fleet
from spotctl.planning.forecast import best_of_both, better_plan, clearly_over_budget, forecast_of, with_reliable
from spotctl.planning.quotas import MachineCounts, on_demand_slices, possible
from spotctl.planning.share import divide
from spotctl.planning.values import AllocatedJob, ChosenStrategy, Demand, Job, JobPlan, MachineMix

MIN_IN_TIME = 0.5
"""A plan that keeps its deadline with a lower probability is refused."""


def plan_jobs(facts: PlanningFacts) -> list[JobPlan]:
    """A plan for each job, from one allocation over all.

    Raises NotInTime or OverBudget, naming what would help, if a job cannot be planned.
    """
    plans = _plans_within(facts)
    while (jobs := with_reserved_shares(facts.jobs, plans)) is not None:
        facts = replace(facts, jobs=jobs)
        try:
            plans = _plans_within(facts)
        except NotInTime as error:
            raise NotInTime(f"{error}; or plan the jobs that name the same reservation one after the other") from None
    return plans


def _plans_within(facts: PlanningFacts) -> list[JobPlan]:
    """The plans within quotas, with the reservations as they are divided."""
    jobs, columns = candidates(facts)
    planned = _planned(facts, jobs, columns)
    if any(plan.share.turn.begin for _, plan in planned):
        # Jobs that wait begin when the forecasts of the others end.
        lasting = []
        for (job, demand), (_, plan) in zip(jobs, planned, strict=True):
            hours = None if plan.demand.work.assumed else forecast_of(plan).hours.median
            lasting.append((job, replace(demand, lasts_hours=hours)))
        planned = _planned(facts, lasting, columns, planned)
    return [plan for _, plan in planned]


def _planned(
    facts: PlanningFacts,
    jobs: Sequence[tuple[Job, Demand]],
    columns: KindColumns,
    before: Sequence[tuple[AllocatedJob, JobPlan]] = (),
) -> list[tuple[AllocatedJob, JobPlan]]:
    """Each job as it is in one division of machines and quotas, with its plan: the one that was made `before` if only
    the other jobs have changed."""
    planned = list[tuple[AllocatedJob, JobPlan]]()
    best = partial(_best_plan, facts=facts, columns=columns)
    for allocated, earlier in zip_longest(_allocated(facts, jobs, columns), before):
        plan = _kept(allocated, *earlier) if earlier else None
        if plan is None:
            leaves_open = allocated.job.spec.resources.reliable.machines is None
            plan = best_of_both(allocated, best) if leaves_open else best(allocated)
        planned.append((allocated, plan))
    return planned


def _allocated(facts: PlanningFacts, fitting: Sequence[tuple[Job, Demand]], columns: KindColumns) -> list[AllocatedJob]:
    """Each job with its part of the division of machines, of quotas, and of quotas for on-demand machines."""
    quotas, divided = facts.on_demand_quotas, divide(fitting, columns, facts.overheads.startup / HOUR)
    jobs = [_with_quotas(job, quotas) for job in divided]
    if len(jobs) == 1 or not quotas:
        return jobs
    needs = [_needed_on_demand(job, facts, columns) for job in jobs]
    return list(map(_with_quotas, divided, on_demand_slices(quotas, needs, facts.snapshot.catalog)))


def _with_quotas(job: AllocatedJob, quotas: Iterable[Quota]) -> AllocatedJob:
    """A job with the quotas for on-demand machines in its clouds."""
    clouds = job.job.spec.resources.clouds
    own = tuple(quota for quota in quotas if quota.cloud in clouds)
    return replace(job, share=replace(job.share, on_demand_quotas=own))


def _needed_on_demand(allocated: AllocatedJob, facts: PlanningFacts, columns: KindColumns) -> MachineCounts:
    """The on-demand machines that a job would rent, or turn to, if it had the quotas for itself; none if it cannot be
    planned at all, which is for its plan to say."""
    if allocated.job.spec.resources.reliable.machines is None:
        allocated = with_reliable(allocated, 1)
    for option in best_mixes(allocated, facts, columns):
        try:
            return possible(_plan_on(allocated, option, facts, columns))
        except (OverBudget, NotInTime):
            continue
    return {}


def _kept(allocated: AllocatedJob, before: AllocatedJob, plan: JobPlan) -> JobPlan | None:
    """An earlier plan with the turns of a later division, if the job gets and does the same in both."""
    now, then = allocated.share, before.share
    gets_the_same = (now.caps, now.amounts, now.on_demand_quotas) == (then.caps, then.amounts, then.on_demand_quotas)
    if not gets_the_same or now.turn.begin != then.turn.begin:
        return None
    # A job with a budget may have been planned on fewer machines.
    return replace(plan, share=replace(plan.share, turn=now.turn, quotas=now.quotas))


def _best_plan(allocated: AllocatedJob, facts: PlanningFacts, columns: KindColumns) -> JobPlan:
    """The plan on the best machines that keep budget and deadline."""
    refused: list[SpotctlError] = []
    for option in best_mixes(allocated, facts, columns):
        try:
            plan = _affordable_plan(allocated, option, facts, columns)
        except (OverBudget, NotInTime) as error:
            refused.append(error)
            continue
        # The first refusal states a forecast; for the others, a few plays are usually enough.
        if refused and clearly_over_budget(plan):
            continue

        plan = better_plan(plan, partial(_rival, allocated, option, facts, columns))
        wrong = _violation(plan)
        if wrong is None:
            return plan
        refused.append(wrong)
    if refused:
        raise refused[0]
    least = allocated.demand.least
    raise NotInTime(
        f"{allocated.job.spec.name}: no type keeps its deadline with {counted(least, 'machine')} or more within the"
        " quotas; raise a quota, or plan fewer jobs at a time"
    )


def _rival(
    allocated: AllocatedJob, option: MachineMix, facts: PlanningFacts, columns: KindColumns, strategy: ChosenStrategy
) -> JobPlan | None:
    """The plan by another strategy; None if it rents nothing."""
    try:
        return _affordable_plan(replace(allocated, strategy=strategy), option, facts, columns)
    except (OverBudget, NotInTime):
        return None


def _affordable_plan(
    allocated: AllocatedJob, option: MachineMix, facts: PlanningFacts, columns: KindColumns
) -> JobPlan:
    """The plan on some machines; of a job that ends after a fixed time, on as many as its budget pays for."""
    plan = _plan_on(allocated, option, facts, columns)
    if not allocated.demand.work.timed or allocated.demand.budget_usd is None:
        return plan
    # First the cost of the choice, which is known quickly; then its cost with evictions, and without spot.
    by_estimate = _fewer_machines(allocated, plan, plan.cost.estimate.usd)
    if by_estimate is not None:
        plan = _plan_on(by_estimate, option, facts, columns)
    by_forecast = _fewer_machines(by_estimate or allocated, plan, forecast_of(plan).usd.median)
    return plan if by_forecast is None else _plan_on(by_forecast, option, facts, columns)


def _plan_on(allocated: AllocatedJob, option: MachineMix, facts: PlanningFacts, columns: KindColumns) -> JobPlan:
    """The plan on some machines.

    Raises NotInTime or OverBudget if nothing can be rented, or nothing that makes progress.
    """
    snapshot, at = facts.snapshot, facts.snapshot.at + allocated.share.wait
    job, fleet = rentable_fleet(allocated, option, facts, columns)
    strategy, decider = build_decider(job, fleet, option, columns, snapshot.catalog)
    decider, decision = first_decision(job, fleet, strategy, decider, at)
    cost = estimate_cost(job, fleet, decision, snapshot, columns)
    rejected = rejections(job, fleet, decision.interval, cost.choice, columns, snapshot)
    return JobPlan(at, job.job, job.demand, job.share, fleet, decider, decision, cost, rejected)


def _fewer_machines(allocated: AllocatedJob, job_plan: JobPlan, usd: float) -> AllocatedJob | None:
    """A job that ends after a fixed time and is expected to cost some dollars, limited to the machines that its budget
    pays for; None if it needs no limit, or if fewer machines would cost no less."""
    budget = allocated.demand.budget_usd
    reliable = sum(job_plan.cost.estimate.terms[len(job_plan.cost.choice) :])
    if budget is None or usd <= budget or usd <= reliable:
        return None
    rented = sum(choice.rent.machines for choice in job_plan.cost.choice)
    most = floor(rented * (budget - reliable) / (usd - reliable))
    if most < max(allocated.demand.least, 1):
        return None
    share = replace(allocated.share, caps=tuple(min(cap, most) for cap in allocated.share.caps))
    demand = replace(
        allocated.demand, most=most, reference_nu=allocated.demand.reference_nu * most / allocated.demand.most
    )
    return replace(allocated, demand=demand, share=share)


def _violation(plan: JobPlan) -> OverBudget | NotInTime | None:
    """The job's budget or deadline that a plan is expected to violate, as an error."""
    budget, deadline, name = plan.demand.budget_usd, plan.job.deadline, plan.job.spec.name
    # A job that can afford on-demand machines finishes on them in time.
    fallback = plan.decider.fallback
    in_time = deadline is not None and plan.at + round(plan.cost.fallback.hours * HOUR) <= deadline
    on_demand_keeps = in_time and fallback.machines > 0
    if plan.demand.work.assumed or (budget is None and (deadline is None or on_demand_keeps)):
        return None
    forecast = forecast_of(plan)
    if budget is not None and forecast.usd.median > budget:
        low, high = forecast.usd.likely
        return OverBudget(
            f"{name}: expected cost {usd_text(forecast.usd.median)} ({usd_text(low)} to {usd_text(high)}) exceeds"
            f" the budget of {usd_text(budget)}; raise the budget, or reduce the job"
        )
    if deadline is None or (on_demand_keeps and plan.cost.fallback.usd <= (budget or inf)):
        return None
    if forecast.deadline_met((deadline - plan.at) / HOUR) >= MIN_IN_TIME:
        return None
    hours = forecast.hours.quantile(MIN_IN_TIME)
    cure = f"a budget of {usd_text(plan.cost.fallback.usd)} for on-demand machines"
    if fallback.machines < plan.decider.baseline.machines:
        cure = f"raise the quota of {fallback.offer.market.instance_type} on demand ('spotctl doctor' says how)"
    return NotInTime(
        f"{name}: expected to take {hours:.1f} hours, {hours - (deadline - plan.at) / HOUR:.1f} hours past"
        f" the deadline; allow more time, or {cure}"
    )


def with_reserved_shares(jobs: Sequence[Job], plans: Sequence[JobPlan]) -> tuple[Job, ...] | None:
    """The jobs with their parts of reservations, if they would rent more machines of one than it has; else None.

    `plans` are those of the jobs as they are, which may have parts already.
    """
    # The machines of each reservation, as the job files state them.
    totals = dict[Market, int]()
    for job in jobs:
        for named in job.spec.resources.reservations:
            totals[named.market] = max(totals.get(named.market, 0), named.machines)

    parts: dict[Market, dict[int, int]] = {}
    for market, total in totals.items():
        claims = _claims(market, plans)
        if sum(most for _, most in claims.values()) > total:
            parts[market] = _divided(total, claims)
    if not parts:
        return None

    sharing = []
    for m, job in enumerate(jobs):
        held = []
        for named in job.spec.resources.reservations if job.reserved is None else job.reserved:
            part = parts.get(named.market, {}).get(m, named.machines)
            if part:
                held.append(replace(named, machines=min(named.machines, part)))
        sharing.append(replace(job, reserved=tuple(held)))
    return tuple(sharing)


def _claims(market: Market, plans: Sequence[JobPlan]) -> dict[int, tuple[int, int]]:
    """By job, in the order in which they are served: the fewest machines of a reservation that are of use to it, and
    those that it would rent alone."""
    claims = dict[int, tuple[int, int]]()
    for m in sorted(range(len(plans)), key=lambda m: plans[m].job.deadline or inf):
        demand, rents = plans[m].demand, [choice.rent for choice in plans[m].cost.choice]
        most = sum(rent.machines for rent in rents if rent.offer.market == market)
        if most:
            claims[m] = demand.least if demand.gang else 1, most
    return claims


def _divided(machines: int, claims: Mapping[int, tuple[int, int]]) -> dict[int, int]:
    """The machines of a reservation by job."""
    shares = dict.fromkeys(claims, 0)
    for job, (least, _) in claims.items():
        if least <= machines:
            shares[job] = least
            machines -= least
    while machines and (more := [job for job, (_, most) in claims.items() if 0 < shares[job] < most]):
        shares[min(more, key=lambda job: shares[job] / claims[job][1])] += 1
        machines -= 1
    return shares
