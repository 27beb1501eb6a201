"""From the facts to a plan for each job, with reasons: the one way of `plan`, `launch`, `try`,
`nightly` and a resumed run. Pure.

Step 1 reads the facts (`spotctl.run.start.stored_facts`); steps 2 to 8 are `candidates`, `divide`,
`rentable_fleet`, `build_decider`, `first_decision`, `estimate_cost` and `rejections`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from math import ceil, floor, inf, isfinite
from operator import itemgetter

from bidbrain.decision.mixture_strategy import Aim
from bidbrain.forecast.forecast import (
    LIKELY,
    LONGEST_COMPARED,
    MORE_LIKELY_THAN_NOT,
    WAITING,
    PlanWithMerits,
    best_plan,
)
from bidbrain.strategies.base import ChosenStrategy
from bidbrain.strategies.names import DEADLINE, OF_JOBS, ON_DEMAND
from bidbrain.strategies.registry import RIVAL
from pricing_data.market import Market
from pricing_data.units import HOUR, MINUTE, NANOS_PER_DOLLAR, counted, usd_text
from spotctl.files.job.conversions import span_text
from spotctl.files.job.spec import AUTO
from spotctl.home.errors import SpotctlError
from spotctl.home.quotas import Quota
from spotctl.planning.candidates import KindColumns, candidates
from spotctl.planning.cost import estimate_cost
from spotctl.planning.decider import build_decider, first_decision, strategy_for
from spotctl.planning.errors import NotInTime, OverBudget
from spotctl.planning.explain import rejections
from spotctl.planning.facts import PlanningFacts
from spotctl.planning.fleet import best_mixes, quota_parts, rentable_fleet
from spotctl.planning.forecast import (
    best_of_both,
    clearly_over_budget,
    forecast_of,
    hours_allowed,
    is_beaten,
    merits_of,
    with_reliable,
)
from spotctl.planning.offers import is_sold_on_demand
from spotctl.planning.queue_claims import pace_of
from spotctl.planning.quotas import MachineCounts, on_demand_slices, possible
from spotctl.planning.share import divide
from spotctl.planning.values import AllocatedJob, Demand, Job, JobPlan, MachineMix

_MAX_COMPARED = 4
"""The most kinds of machines that forecasts compare, the best by Gavel's prices first."""
_MAX_TRIALS = 5
"""How many zones and types are left out in turn, each time to see whether that is cheaper."""
_MATTERS = 0.02
"""A zone or a type with a smaller share of the bill is not left out."""


def plan_jobs(facts: PlanningFacts) -> list[JobPlan]:
    """A plan for each job, from one allocation over all.

    A job that leaves its strategy open has any strategy with which it keeps its limits. Raises
    NotInTime or OverBudget if a job cannot be planned, with the nearest changes that were tried and
    would do.
    """
    try:
        return _shared_plans(facts)
    except (NotInTime, OverBudget) as error:
        refusal = error

    accepted = list[list[JobPlan]]()
    is_open = len(facts.jobs) == 1 and facts.jobs[0].spec.strategy == AUTO
    for name in OF_JOBS if is_open else ():
        named = replace(facts.jobs[0], spec=replace(facts.jobs[0].spec, strategy=name))
        with suppress(SpotctlError):
            accepted.append(_shared_plans(replace(facts, jobs=(named,))))
    if accepted:
        return min(accepted, key=lambda plans: merits_of(plans[0]))
    raise type(refusal)("; ".join((str(refusal), *_cures(facts))))


def _shared_plans(facts: PlanningFacts) -> list[JobPlan]:
    """The plans, with the reservations that several jobs name divided among them."""
    plans = _plans_within(facts)
    while (jobs := with_reserved_shares(facts.jobs, plans)) is not None:
        facts = replace(facts, jobs=jobs)
        try:
            plans = _plans_within(facts)
        except NotInTime as error:
            raise NotInTime(
                f"{error}; or plan the jobs that name the same reservation one after the other"
            ) from None

    return plans


def _plans_within(facts: PlanningFacts) -> list[JobPlan]:
    """The plans within quotas, with the reservations as they are divided."""
    jobs, columns = candidates(facts)
    planned = _planned(facts, jobs, columns)
    if any(any(plan.share.short) for _, plan in planned):
        # Parts change when the forecasts of jobs end.
        startup = facts.overheads.startup / HOUR
        lasting = []
        for (job, demand), (_, plan) in zip(jobs, planned, strict=True):
            pace = 1.0
            if not plan.demand.work.assumed:
                pace = pace_of(demand, plan.share.turn, forecast_of(plan).hours.median, startup)
            lasting.append((job, replace(demand, pace=pace)))
        planned = _planned(facts, lasting, columns, planned)

    return [plan for _, plan in planned]


def _planned(
    facts: PlanningFacts,
    jobs: Sequence[tuple[Job, Demand]],
    columns: KindColumns,
    before: Sequence[tuple[AllocatedJob, JobPlan]] = (),
) -> list[tuple[AllocatedJob, JobPlan]]:
    """Each job as it is in one division of machines and quotas, with its plan: the one that was
    made `before` if only the other jobs have changed."""
    planned = list[tuple[AllocatedJob, JobPlan]]()
    best = partial(_best_plan, facts=facts, columns=columns)
    for allocated, earlier in zip_longest(_allocated(facts, jobs, columns), before):
        plan = _kept(allocated, *earlier) if earlier else None
        if plan is None:
            leaves_open = allocated.job.spec.resources.reliable.machines is None
            plan = best_of_both(allocated, best) if leaves_open else best(allocated)
        known = AllocatedJob(plan.job, plan.demand, plan.share)
        why_not = rejections(
            known, plan.fleet, plan.decision.interval, plan.cost.choice, columns, facts.snapshot
        )
        planned.append((allocated, replace(plan, rejected=why_not)))

    return planned


def _allocated(
    facts: PlanningFacts, fitting: Sequence[tuple[Job, Demand]], columns: KindColumns
) -> list[AllocatedJob]:
    """Each job with its part of the division of machines, of quotas, and of quotas for on-demand
    machines.
    """
    quotas = facts.on_demand_quotas
    startup_hours = facts.overheads.startup / HOUR
    divided = divide(fitting, columns, startup_hours, facts.account.queue)
    jobs = [_with_quotas(job, quotas) for job in divided]
    if len(jobs) == 1 or not quotas:
        return jobs

    needs = [_needed_on_demand(job, facts, columns) for job in jobs]
    slices = on_demand_slices(quotas, needs, facts.snapshot.catalog)
    return list(map(_with_quotas, divided, slices))


def _with_quotas(job: AllocatedJob, quotas: Iterable[Quota]) -> AllocatedJob:
    """A job with the quotas for on-demand machines in its clouds."""
    clouds = job.job.spec.resources.clouds
    own = tuple(quota for quota in quotas if quota.cloud in clouds)
    return replace(job, share=replace(job.share, on_demand_quotas=own))


def _needed_on_demand(
    allocated: AllocatedJob, facts: PlanningFacts, columns: KindColumns
) -> MachineCounts:
    """The on-demand machines that a job would rent, or turn to, if it had the quotas for itself;
    none if it cannot be planned at all, which is for its plan to say."""
    if allocated.job.spec.resources.reliable.machines is None:
        allocated = with_reliable(allocated, 1)
    for option in best_mixes(allocated, facts, columns):
        try:
            return possible(_plan_on(allocated, option, facts, columns))
        except (OverBudget, NotInTime):
            continue
    return {}


def _kept(allocated: AllocatedJob, before: AllocatedJob, plan: JobPlan) -> JobPlan | None:
    """An earlier plan with the turns of a later division, if the job gets and does the same in
    both.
    """
    now = allocated.share
    then = before.share
    gets_the_same = (now.caps, now.amounts, now.on_demand_quotas) == (
        then.caps,
        then.amounts,
        then.on_demand_quotas,
    )

    machines = [[part.machines for part in share.parts] for share in (now, then)]
    if not gets_the_same or now.turn.begin != then.turn.begin or machines[0] != machines[1]:
        return None

    # A job with a budget may have been planned on fewer machines.
    plan = replace(
        plan, share=replace(plan.share, turn=now.turn, parts=now.parts, quotas=now.quotas)
    )
    if not plan.decision.parts:
        return plan

    begin = plan.at - plan.share.wait
    both = zip(plan.decision.parts, now.parts, strict=True)
    parts = tuple(replace(old, at=begin + round(new.begin * HOUR)) for old, new in both)

    # To `forecast_of`, this is another decision.
    return replace(plan, decision=replace(plan.decision, parts=parts))


def _best_plan(allocated: AllocatedJob, facts: PlanningFacts, columns: KindColumns) -> JobPlan:
    """The plan on the best machines that keep budget and deadline. Where the job leaves the choice
    open, the forecasts also compare the next best machines, and fewer zones and types."""
    refused = list[SpotctlError]()
    violating = list[tuple[tuple[float, ...], SpotctlError]]()
    best: JobPlan | None = None
    options = best_mixes(allocated, facts, columns)
    for number, option in enumerate(options):
        if best is not None and (not _is_open(best) or number >= _MAX_COMPARED):
            break
        try:
            plan = _affordable_plan(allocated, option, facts, columns)
        except (OverBudget, NotInTime) as error:
            refused.append(error)
            continue
        # The first refusal states a forecast; for the others, a few plays are usually enough.
        is_dearer = best is not None and is_beaten(plan, best)
        if is_dearer or (violating and clearly_over_budget(plan)):
            continue

        plan = _better_plan(plan, allocated, option, facts, columns) if _is_open(plan) else plan
        wrong = _violation(plan)
        if wrong is not None:
            violating.append((merits_of(plan), wrong))
        elif best is None or merits_of(plan) < merits_of(best):
            best = plan
            options = [option, *(other for other in options if other is not option)]

    if best is not None:
        return _on_fewer_markets(best, options[:_MAX_COMPARED], facts, columns)
    if violating or refused:
        raise min(violating, key=itemgetter(0))[1] if violating else refused[0]

    least = allocated.demand.least
    raise NotInTime(
        f"{allocated.job.spec.name}: no type keeps its deadline with {counted(least, 'machine')} "
        "or more within the quotas; raise a quota, or plan fewer jobs at a time"
    )


def _is_open(plan: JobPlan) -> bool:
    """Whether the job leaves its strategy open, and plans of its work can be compared."""
    return plan.job.spec.strategy in (AUTO, DEADLINE) and not plan.demand.work.assumed


def _on_fewer_markets(
    plan: JobPlan, options: Sequence[MachineMix], facts: PlanningFacts, columns: KindColumns
) -> JobPlan:
    """The plan, which has the first of the options, or one without some of the zones and types, if
    that is better: what a job is allowed must not make it more expensive. Each zone and type that
    matters to the bill is left out in turn, and stays out where that helps."""
    if not _is_open(plan) or plan.cost.estimate.hours > LONGEST_COMPARED:
        return plan

    # A plan that waits for several zones or types need not wait for the best of them.
    ways = (True, False) if plan.decider.usual_prices else (False,)
    allocated = [
        AllocatedJob(plan.job, plan.demand, plan.share, plan.decision.strategy, waits)
        for waits in ways
    ]
    best = plan
    tried = set[str]()
    while len(tried) < _MAX_TRIALS:
        names = _may_leave_out(best, options[0], columns)
        name = next((each for each in names if each not in tried), None)
        if name is None:
            break

        tried.add(name)
        left_out = options[0].left_out | {name}
        before = best
        for option in options:
            fewer = replace(option, left_out=left_out)
            for same in allocated:
                try:
                    rival = _affordable_plan(same, fewer, facts, columns)
                except (OverBudget, NotInTime):
                    continue
                if not is_beaten(rival, best) and merits_of(rival) < merits_of(best):
                    best = rival
                    first = fewer

            # Other kinds of machines are compared where this one is cheaper without.
            if best is before:
                break

        if best is not before:
            others = [replace(option, left_out=left_out) for option in options]
            options = [first, *(option for option in others if option.home != first.home)]

    return best


def _may_leave_out(plan: JobPlan, option: MachineMix, columns: KindColumns) -> list[str]:
    """The zones and types that a plan could do without, those first that cost most."""
    markets = {offer.market for offer in plan.fleet.offers}
    zones = {market.zone for market in markets}
    types = {market.instance_type for market in markets}
    needed = {columns.kinds[option.home].type} if option.schedule is None else types
    expected = forecast_of(plan)
    names = list[str]()
    for term in expected.terms:
        market = term.market
        if market not in markets or term.usd < _MATTERS * expected.usd.median:
            continue
        if len(zones) > 1:
            names.append(market.zone)
        if market.instance_type not in needed:
            names.append(market.instance_type)

    return names


def _better_plan(
    plan: JobPlan,
    allocated: AllocatedJob,
    option: MachineMix,
    facts: PlanningFacts,
    columns: KindColumns,
) -> JobPlan:
    """The plan, or that of another strategy, or that on demand, whichever the forecasts find best
    for the job's limits and aim."""
    chosen = plan.decision.strategy.name
    cloud = plan.fleet.baseline.offer.market.cloud
    usual = strategy_for(plan.job.spec, cloud).name
    demand = replace(allocated.demand, roams=False)
    stays = replace(allocated, demand=demand)
    why = f"by the forecasts, better than {chosen} at {usd_text(forecast_of(plan).usd.median)}"

    def plan_of(name: str, best: JobPlan) -> PlanWithMerits[JobPlan] | None:
        other, mix = stays, option
        is_usual = name in (usual, RIVAL, ON_DEMAND)
        if not is_usual and plan.cost.estimate.hours > LONGEST_COMPARED:
            return None
        if name == ON_DEMAND:
            mix = _mix_on_demand(plan, allocated, option, facts, columns)
        if name == WAITING:
            left = hours_allowed(plan, weighed=True)
            if len(facts.jobs) > 1 or not isfinite(left):
                return None
            name = usual
            other = replace(stays, waits=True)
            if plan.job.deadline is None:
                # As long as it may take.
                deadline = plan.at + round(left * HOUR)
                working = left - plan.fleet.overheads.startup / HOUR
                hurrying = replace(demand, hours_left=working, hurries=True)
                job = replace(allocated.job, deadline=deadline)
                other = replace(other, job=job, demand=hurrying)

        named = replace(other, strategy=ChosenStrategy(name, why))
        try:
            rival = _affordable_plan(named, mix, facts, columns)
        except (OverBudget, NotInTime):
            return None
        if not is_usual and is_beaten(rival, best):
            return None
        return merits_of(rival), rival

    return best_plan((merits_of(plan), plan), chosen, usual, plan_of)


def _mix_on_demand(
    plan: JobPlan,
    allocated: AllocatedJob,
    option: MachineMix,
    facts: PlanningFacts,
    columns: KindColumns,
) -> MachineMix:
    """The kind on demand that is best for what the job may take: the cheapest machines may be too
    slow, and faster ones worth more than they cost."""
    left, demand, caps = hours_allowed(plan), allocated.demand, allocated.share.caps
    if (worth := demand.value_of_time_usd) is not None:
        per_work = {}
        for j, (nu, most) in enumerate(zip(demand.nu, caps, strict=True)):
            if most >= demand.least and 0 < demand.amount <= float(nu) * most * left:
                listed = facts.snapshot.list_price(columns.numbers[j]) / NANOS_PER_DOLLAR
                per_work[j] = (listed + worth / most) / float(nu)
        if per_work:
            return MachineMix(min(per_work, key=per_work.__getitem__))

    costs = plan.cost.fallback, plan.cost.on_demand
    cheapest = min(costs, key=lambda on_demand: (on_demand.hours > left, on_demand.usd))
    market = cheapest.rent.offer.market
    place = market.cloud, market.region, market.instance_type
    kinds = enumerate(columns.kinds)
    homes = (j for j, kind in kinds if (kind.cloud, kind.region, kind.type) == place)
    return MachineMix(next(homes, option.home))


def _affordable_plan(
    allocated: AllocatedJob, option: MachineMix, facts: PlanningFacts, columns: KindColumns
) -> JobPlan:
    """The plan on some machines; of a job that ends after a fixed time, on as many as its budget
    pays for.
    """
    plan = _plan_on(allocated, option, facts, columns)
    if not allocated.demand.work.timed or allocated.demand.budget_usd is None:
        return plan

    # First the cost of the choice, which is known quickly; then its cost with evictions, and
    # without spot.
    by_estimate = _fewer_machines(allocated, plan, plan.cost.estimate.usd)
    if by_estimate is not None:
        plan = _plan_on(by_estimate, option, facts, columns)
    by_forecast = _fewer_machines(by_estimate or allocated, plan, forecast_of(plan).usd.median)
    if by_forecast is None:
        return plan
    return _plan_on(by_forecast, option, facts, columns)


def _plan_on(
    allocated: AllocatedJob, option: MachineMix, facts: PlanningFacts, columns: KindColumns
) -> JobPlan:
    """The plan on some machines.

    Raises NotInTime or OverBudget if nothing can be rented, or nothing that makes progress.
    """
    snapshot = facts.snapshot
    at = facts.snapshot.at + allocated.share.wait
    job, fleet = rentable_fleet(allocated, option, facts, columns)
    strategy, decider = build_decider(job, fleet, option, columns, snapshot, at)
    parts = quota_parts(job, fleet, columns, snapshot)
    decider = parts[0].keeps(decider) if parts else decider
    decider, decision = first_decision(job, fleet, strategy, decider, at)
    cost = estimate_cost(job, fleet, decision, snapshot, columns)

    with_parts = replace(decision, parts=parts)
    return JobPlan(at, job.job, job.demand, job.share, fleet, decider, with_parts, cost)


def _fewer_machines(allocated: AllocatedJob, job_plan: JobPlan, usd: float) -> AllocatedJob | None:
    """A job that ends after a fixed time and is expected to cost some dollars, limited to the
    machines that its budget pays for; None if it needs no limit, or if fewer machines would cost no
    less."""
    budget = allocated.demand.budget_usd
    after_choice = job_plan.cost.estimate.terms[len(job_plan.cost.choice) :]
    reliable = sum(after_choice)
    if budget is None or usd <= budget or usd <= reliable:
        return None

    counts = (choice.rent.machines for choice in job_plan.cost.choice)
    rented = sum(counts)
    affordable = rented * (budget - reliable)
    most = floor(affordable / (usd - reliable))
    if most < max(allocated.demand.least, 1):
        return None

    caps = tuple(min(cap, most) for cap in allocated.share.caps)
    share = replace(allocated.share, caps=caps)
    nu_of_most = allocated.demand.reference_nu * most
    demand = replace(allocated.demand, most=most, reference_nu=nu_of_most / allocated.demand.most)

    return replace(allocated, demand=demand, share=share)


def _violation(plan: JobPlan) -> OverBudget | NotInTime | None:
    """The job's budget or deadline that a plan is expected to violate, as an error."""
    budget = plan.budget_usd
    deadline = plan.job.deadline
    name = plan.job.spec.name
    if plan.demand.work.assumed or (budget is None and deadline is None):
        return None

    forecast = forecast_of(plan)
    if budget is not None and forecast.usd.median > budget:
        low, high = forecast.usd.likely
        traffic = plan.cost.traffic_usd
        besides = f", with {usd_text(traffic)} of traffic," if traffic else ""
        return OverBudget(
            f"{name}: expected cost {usd_text(forecast.usd.median)} ({usd_text(low)} to "
            f"{usd_text(high)}){besides} exceeds the budget of {usd_text(budget + traffic)}"
        )

    left = inf
    if deadline is not None:
        left = (deadline - plan.at) / HOUR
    if forecast.deadline_met(left) >= MORE_LIKELY_THAN_NOT:
        return None

    hours = forecast.hours.median
    quota = ""
    if plan.decider.fallback.machines < plan.decider.baseline.machines:
        market = plan.decider.fallback.offer.market
        machine = market.instance_type
        quota = f"; raise the quota of {machine} on demand ('spotctl doctor' says how)"
        if not is_sold_on_demand(market):
            quota = f"; {machine} is not sold on demand: allow a type that is, to fall back to"

    return NotInTime(
        f"{name}: expected to take {hours:.1f} hours, "
        f"{span_text(ceil((hours - left) * 60) * MINUTE)} past the"
        f" deadline{quota}"
    )


def _cures(facts: PlanningFacts) -> list[str]:
    """The nearest changes with which a refused job would be accepted, each of them tried; for
    several jobs a hint.
    """
    if len(facts.jobs) > 1:
        return ["allow more time or money, or plan fewer jobs at a time"]

    job = facts.jobs[0]
    cures = list[str]()
    spec = job.spec
    budget = job.spec.budget

    def plan_of(changed: Job) -> JobPlan | None:
        try:
            return _shared_plans(replace(facts, jobs=(changed,)))[0]
        except SpotctlError:
            return None

    if spec.strategy != AUTO and plan_of(replace(job, spec=replace(spec, strategy=AUTO))):
        cures.append("`strategy: auto`")
    if job.deadline is not None:
        # On demand is the fastest plan of `auto`, and is made fastest.
        on_demand = replace(job, spec=replace(spec, strategy=ON_DEMAND))
        more = _more_time(on_demand, plan_of) if spec.strategy == AUTO else None
        if more is None or plan_of(replace(job, deadline=job.deadline + more)) is None:
            more = _more_time(job, plan_of)
        cures += [] if more is None else [f"{span_text(more)} more time"]

    if (
        budget is not None
        and (free := plan_of(replace(job, spec=replace(spec, budget=None)))) is not None
    ):
        cent = NANOS_PER_DOLLAR // 100
        amounts = []
        for part in (1, 1.25, 2, 4, 8):
            part_usd = forecast_of(free).usd.median * part * 100
            amounts.append(ceil(part_usd) * cent)
        higher = [usd for usd in amounts if usd > budget]
        # Without a budget, the cheapest plan has its least cost, but the fastest one has not.
        least = None if free.demand.aim is Aim.LEAST_COST else budget
        usd = _nearest(
            higher,
            lambda usd: plan_of(replace(job, spec=replace(spec, budget=usd))) is not None,
            cent,
            least,
        )
        cures += [] if usd is None else [f"a budget of {usd_text(usd / NANOS_PER_DOLLAR)}"]

    if cures:
        return [f"it would be accepted with {', or with '.join(cures)}"]
    return []


def _more_time(job: Job, plan_of: Callable[[Job], JobPlan | None]) -> int | None:
    """The least time, in whole minutes, by which the job's deadline must be later for a plan; None
    if none is found.
    """
    deadline = job.deadline
    free = plan_of(replace(job, deadline=None))
    if deadline is None or free is None:
        return None

    likely_hours = forecast_of(free).hours.quantile(LIKELY)
    lasts = round(likely_hours * HOUR)
    short_by = deadline - free.at - lasts
    minutes = -(short_by // MINUTE)
    enough = max(minutes, 1) * MINUTE
    tries = [enough, 2 * enough, 4 * enough]
    return _nearest(
        tries,
        lambda more: plan_of(replace(job, deadline=deadline + more)) is not None,
        MINUTE,
        refused=0,
    )


def _nearest(
    tries: Iterable[int], accepts: Callable[[int], bool], step: int, refused: int | None = None
) -> int | None:
    """The least amount in steps, to about a fiftieth, that is accepted, between one that is
    `refused` and the first of some tries that is accepted; None if all of these are refused."""
    for accepted in tries:
        if accepts(accepted):
            break
        refused = accepted
    else:
        return None

    while refused is not None and accepted - refused > max(step, accepted // 50):
        middle = (refused + accepted) // 2 // step * step
        refused, accepted = (refused, middle) if accepts(middle) else (middle, accepted)
    return accepted


def with_reserved_shares(jobs: Sequence[Job], plans: Sequence[JobPlan]) -> tuple[Job, ...] | None:
    """The jobs with their parts of reservations, if they would rent more machines of one than it
    has; else None.

    `plans` are those of the jobs as they are, which may have parts already.
    """
    # The machines of each reservation, as the job files state them.
    totals = dict[Market, int]()
    for job in jobs:
        for named in job.spec.resources.reservations:
            so_far = totals.get(named.market, 0)
            totals[named.market] = max(so_far, named.machines)

    parts: dict[Market, dict[int, int]] = {}
    for market, total in totals.items():
        claims = _claims(market, plans)
        wanted_machines = (most for _, most in claims.values())
        if sum(wanted_machines) > total:
            parts[market] = _divided(total, claims)

    if not parts:
        return None

    sharing = []
    for m, job in enumerate(jobs):
        held = []
        for named in job.spec.resources.reservations if job.reserved is None else job.reserved:
            of_market = parts.get(named.market, {})
            part = of_market.get(m, named.machines)
            if part:
                machines = min(named.machines, part)
                held.append(replace(named, machines=machines))
        sharing.append(replace(job, reserved=tuple(held)))

    return tuple(sharing)


def _claims(market: Market, plans: Sequence[JobPlan]) -> dict[int, tuple[int, int]]:
    """By job, in the order in which they are served: the fewest machines of a reservation that are
    of use to it, and those that it would rent alone."""
    claims = dict[int, tuple[int, int]]()
    for m in sorted(range(len(plans)), key=lambda m: plans[m].job.deadline or inf):
        demand = plans[m].demand
        rents = [choice.rent for choice in plans[m].cost.choice]
        counts = (rent.machines for rent in rents if rent.offer.market == market)
        most = sum(counts)
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

    while machines and (
        more := [job for job, (_, most) in claims.items() if 0 < shares[job] < most]
    ):
        shares[min(more, key=lambda job: shares[job] / claims[job][1])] += 1
        machines -= 1

    return shares
