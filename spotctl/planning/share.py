"""Step 3 of a plan: the machines that each job may hold: all that it could use, or its part of
quotas that are too small for all.

Parts are whole machines, as the scheduler of a queue would give them to the jobs (`turns_of`). A
job's strategy may use other kinds than those that its part was planned with, if they finish in time
and are not much more expensive: prices will move before the job is done.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import inf

import numpy as np

from bidbrain.arrays import Floats, Ints
from bidbrain.decision.mixture_solver import Mixture, highest_rate
from bidbrain.decision.mixture_strategy import Aim
from bidbrain.queue.outlook import JobOutlook, outlook
from bidbrain.queue.scheduler import next_round
from bidbrain.queue.values import JobQueue, QueueJob, QueueTerms, merged
from pricing_data.units import HOUR, counted, usd_text
from spotctl.files.job.spec import Objective
from spotctl.home.errors import BadRequest
from spotctl.planning.candidates import KindColumns, mixture_terms
from spotctl.planning.errors import NotInTime, OverBudget
from spotctl.planning.offers import MachineKind, places
from spotctl.planning.queue_claims import queue_job, queue_quotas
from spotctl.planning.quotas import NO_QUEUE, QuotaGroup
from spotctl.planning.values import (
    AllocatedJob,
    Demand,
    Job,
    JobShare,
    QueueClaim,
    QuotaSlice,
    SlicedQuota,
    Turn,
)

_ROUNDING = 1e-6


def divide(
    jobs: Sequence[tuple[Job, Demand]],
    columns: KindColumns,
    startup_hours: float,
    queued: JobQueue = NO_QUEUE,
) -> list[AllocatedJob]:
    """Each job with its share of machines and quotas, next to jobs that are `queued`, and by the
    terms of their queue; raises NotInTime or OverBudget if a job gets none."""
    demands = [demand for _, demand in jobs]
    shares = shares_of(
        demands, columns.kinds, columns.usd_per_hour, columns.quotas, startup_hours, queued
    )
    divided = []

    pairs = zip(jobs, shares, strict=True)
    for m, ((job, demand), share) in enumerate(pairs):
        quotas = _sliced_quotas(m, demands, shares, columns)
        wait = 0.0
        if share.turn.begin < inf:
            wait = share.turn.begin
        waiting = replace(demand, hours_left=demand.hours_left - wait)
        lacking = _lacking(demand, quotas, columns)
        planned = None
        if share.queue is not None:
            planned = share.queue.jobs[m]
        # A job whose reservations are enough begins at once, whatever the queue has for it.
        waits = quotas and max(_reserved(demand), default=0) < max(demand.least, 1)
        claim = None
        if waits:
            claim = _claimed(demand, planned, columns, startup_hours, queued.terms)
        waiting_time = round(wait * HOUR)
        held = replace(share, wait=waiting_time, lacking=lacking, quotas=quotas, claim=claim)
        divided.append(AllocatedJob(job, waiting, held))

    return divided


def _claimed(
    demand: Demand,
    planned: QueueJob | None,
    columns: KindColumns,
    startup_hours: float,
    terms: QueueTerms,
) -> QueueClaim:
    """The claim that a job takes to the queue; its times count from the launch. One that hurries
    keeps the claim by which it was `planned` to be in time."""
    job = planned if demand.hurries else None
    if job is None:
        # Forecasts differ by chance, and would change the order of jobs that are equally long.
        usual = replace(demand, pace=1.0)
        plain = usual, columns.kinds, columns.usd_per_hour, columns.quotas
        job = queue_job(*plain, arrival=0.0, now=0.0, startup_hours=startup_hours)

    claims_on_quotas = queue_quotas(columns.kinds, columns.quotas)
    counting = (
        quota for quota in claims_on_quotas if not job.rates.keys().isdisjoint(quota.per_machine)
    )

    known_prices = _prices(columns.kinds, columns.usd_per_hour)
    prices = {kind: usd for kind, usd in known_prices.items() if kind in job.rates}

    return QueueClaim(job, tuple(counting), prices, terms)


def _prices(kinds: Sequence[MachineKind], usd_per_hour: Floats) -> dict[str, float]:
    pairs = zip(kinds, usd_per_hour.tolist(), strict=True)
    return {str(kind): usd for kind, usd in pairs}


def _sliced_quotas(
    m: int, demands: Sequence[Demand], shares: Sequence[JobShare], columns: KindColumns
) -> tuple[SlicedQuota, ...]:
    """The quotas that the kinds of a plan count against, and the part of each that job number `m`
    gets.
    """
    every = []
    for g, group in enumerate(columns.quotas):
        parts = []
        for demand, share in zip(demands, shares, strict=True):
            part = QuotaSlice(demand.name, int(group.most), share.turn)
            if share.short[g]:
                amounts = []
                for each in share.parts:
                    used = group.per_machine @ each.machines
                    amounts.append((each.begin, int(used)))
                changes = tuple(
                    after for before, after in pairwise(amounts) if after[1] != before[1]
                )
                first_amount = amounts[0][1]
                part = replace(part, amount=first_amount, later=changes)
            parts.append(part)

        own = replace(group.quota, amount=shares[m].amounts[g])
        by_turn = sorted(parts, key=lambda part: part.turn.begin)
        in_order = tuple(by_turn)
        every.append(SlicedQuota(group.quota, own, in_order, is_enough=not shares[m].short[g]))

    return tuple(every)


def _lacking(demand: Demand, quotas: Sequence[SlicedQuota], columns: KindColumns) -> dict[int, str]:
    """For each kind that a quota makes too small for the job, that quota."""
    least = max(demand.least, 1)
    reasons = dict[int, str]()
    for share, group in zip(quotas, columns.quotas, strict=True):
        wanted = group.per_machine * least
        is_lacking = (demand.nu > 0) & (wanted > share.slice.amount)
        for j in np.flatnonzero(is_lacking).tolist():
            used = f"{least * group.per_machine[j]:g} {share.quota.unit}"
            quota = share.quota
            reasons[j] = (
                f"{counted(least, 'machine')} would use {used} of quota {quota.name}, which has "
                f"{quota.amount}"
            )
            if share.slice.amount < quota.amount:
                reasons[j] += f"; this job's part is {share.slice.amount}"

    return reasons


def shares_of(
    demand: Sequence[Demand],
    kinds: Sequence[MachineKind],
    usd_per_hour: Floats,
    groups: Sequence[QuotaGroup],
    startup_hours: float = 0.0,
    queued: JobQueue = NO_QUEUE,
) -> list[JobShare]:
    """The share of each job; raises NotInTime or OverBudget if there is none."""
    # A kind without a quota has as many workers as all jobs together could hold.
    total = sum(job.most for job in demand)
    all_machines = np.full(len(kinds), float(total))
    by_quotas = (group.machines(total) for group in groups)
    workers = np.minimum.reduce([all_machines, *by_quotas])
    for job in demand:
        _require_possible(job, kinds, workers, groups)
    name = _policy_for(demand)
    for job in demand:
        _require_affordable(job, name, usd_per_hour)
    wanted = [_caps(job, workers) for job in demand]
    able = []
    for job, caps in zip(demand, wanted, strict=True):
        nu = np.where(caps > 0, job.nu, 0.0)
        able.append(replace(job, nu=nu))

    # Whether a quota holds less than the most that all jobs' machines could use of it.
    shortages = []
    for group in groups:
        could_use = []
        for job, caps in zip(able, wanted, strict=True):
            most_use = group.per_machine[caps > 0].max(initial=0.0)
            largest = float(most_use)
            uses = caps * group.per_machine
            whole = float(uses.sum())
            could_use.append(min(whole, job.most * largest, group.most))
        # The most that the jobs of the queue could use of it.
        same = (quota.per_machine for quota in queued.quotas if quota.name == group.quota.name)
        queue_uses = next(same, {})
        for waiting in queued.jobs:
            most_use = max((queue_uses.get(kind, 0.0) for kind in waiting.rates), default=0.0)
            could_use.append(waiting.most * most_use)
        shortages.append(sum(could_use) > group.most)

    short = tuple(shortages)

    turns = [Turn(0.0, inf)] * len(demand)
    queue = None
    courses = tuple[JobOutlook, ...]()
    if any(short):
        turns, queue, courses = turns_of(able, kinds, usd_per_hour, groups, startup_hours, queued)

    shares = []
    for job, caps, turn in zip(demand, wanted, turns, strict=True):
        followed = _followed(job, turn, kinds)
        shortages_by_quota = zip(groups, short, strict=True)
        parts = tuple(
            int(
                max(group.per_machine @ part.machines for part in followed)
                if is_short
                else group.most
            )
            for group, is_short in shortages_by_quota
        )
        with_parts = zip(groups, parts, strict=True)
        own = [replace(group, most=float(part)) for group, part in with_parts]
        allowed = caps
        for group in own:
            most_of_group = group.machines(np.inf)
            allowed = np.minimum(allowed, most_of_group).astype(np.int64)
        with_reserved = np.maximum(allowed, _reserved(job))
        held = tuple(with_reserved.tolist())
        usd_per_work = _usd_per_work(job, usd_per_hour)
        shares.append(
            JobShare(
                name, held, parts, short, usd_per_work, turn, followed, queue=queue, courses=courses
            )
        )

    return shares


def _followed(job: Demand, turn: Turn, kinds: Sequence[MachineKind]) -> tuple[Turn, ...]:
    """The parts of a turn. A part in another region, or of a gang on another kind, is one like the
    first instead.
    """

    def places_of(part: Turn) -> set[object]:
        counts = zip(kinds, part.machines, strict=True)
        used = [kind for kind, count in counts if count]
        return {kind if job.gang else (kind.cloud, kind.region) for kind in used}

    parts = turn.parts or (turn,)
    first = places_of(parts[0]) if parts[0].machines else set()
    return tuple(
        part
        if not part.machines or places_of(part) <= first
        else replace(part, machines=turn.machines)
        for part in parts
    )


def _require_affordable(job: Demand, policy: str, usd_per_hour: Floats) -> None:
    """Raises OverBudget if the work costs more than the budget even on the cheapest machines."""
    if policy != Objective.MAKESPAN_WITHIN_BUDGET or job.budget_usd is None or job.work.assumed:
        return
    usd_per_work = _usd_per_work(job, usd_per_hour)
    least = float(usd_per_work.min()) * job.amount
    if least > job.budget_usd * (1 + _ROUNDING):
        raise OverBudget(
            f"{job.name}: a budget of {usd_text(job.budget_usd)} is too low: even without a time "
            f"limit, the work costs at least {usd_text(least)}"
        )


def _caps(job: Demand, workers: Floats) -> Ints:
    most = np.minimum(job.most, workers)
    caps: Ints = np.where(job.nu > 0, most, 0.0).astype(np.int64)
    return np.maximum(caps, _reserved(job))


def _reserved(job: Demand) -> Ints:
    """The machines of each kind that need no quota."""
    most_held = np.minimum(job.most, job.reserved or 0)
    usable: Ints = np.where(job.nu > 0, most_held, 0).astype(np.int64)
    return usable


def _policy_for(demand: Sequence[Demand]) -> str:
    """The policy of the jobs' objective: min-cost becomes min-cost-slo as soon as one job has a
    deadline.
    """
    wanted = {_effective_objective(job) for job in demand}
    if wanted == {Objective.MIN_COST, Objective.MIN_COST_SLO}:
        return Objective.MIN_COST_SLO
    if len(wanted) > 1 and len({job.objective for job in demand}) == 1:
        # The lengths of only some jobs are known.
        return demand[0].objective
    if len(wanted) > 1:
        stated = (f"{job.name}: {job.objective}" for job in demand)
        objectives = ", ".join(stated)
        raise BadRequest(
            f"jobs in one allocation need one objective, not {objectives}; give all jobs the same, "
            "or plan them separately"
        )

    return wanted.pop()


def _effective_objective(job: Demand) -> Objective:
    cost = (Objective.MIN_COST, Objective.MIN_COST_SLO)
    if job.objective in cost:
        return Objective.MIN_COST_SLO if job.hurries else Objective.MIN_COST
    if job.objective is Objective.MAKESPAN_WITHIN_BUDGET and job.work.assumed:
        # The cost of unknown work cannot be planned: the budget ends the job, and until then speed
        # counts.
        return Objective.MAX_THROUGHPUT
    return job.objective


def _usd_per_work(job: Demand, usd_per_hour: Floats) -> Floats:
    infinite = np.full(len(usd_per_hour), np.inf)
    np.divide(usd_per_hour, job.nu, out=infinite, where=job.nu > 0)
    return infinite


def _require_possible(
    job: Demand, kinds: Sequence[MachineKind], workers: Floats, groups: Sequence[QuotaGroup]
) -> None:
    caps = _caps(job, workers)
    by_quota = (_fastest(job, place, caps, groups) for place in places(kinds))
    possible = [mixture for mixture in (*by_quota, _fastest_reserved(job)) if mixture is not None]
    fastest = max(possible, key=lambda mixture: mixture.rate, default=None)

    if fastest is None or fastest.rate <= 0:
        most_caps = np.where(job.nu > 0, caps, 0)
        most = int(most_caps.max(initial=0))
        limits = "quotas and reservations" if any(job.reserved) else "quotas"
        raise NotInTime(
            f"{job.name}: needs at least {counted(job.least, 'machine')}, and {limits} allow at "
            f"most {most}"
            f" ({', '.join(str(group.quota) for group in groups)}); raise a quota ('spotctl "
            "doctor' says how)"
        )
    if not job.hurries:
        return

    hours = job.amount / fastest.rate
    if hours > job.hours_left:
        counts = zip(fastest.machines, kinds, strict=True)
        used = [(count, kind) for count, kind in counts if count]
        texts = (
            f"{count:,} {'machine' if count == 1 else 'machines'} of {kind}" for count, kind in used
        )
        named = " and ".join(texts)
        needed = np.ceil(job.amount / max(job.hours_left, _ROUNDING) / float(job.nu.max()))
        more = ""
        if job.hours_left > 0:
            more = f"; about {needed:,.0f} machines would be fast enough"
        if sum(fastest.machines) < job.most or len(used) > 1:
            more = "; a higher quota would help"
        raise NotInTime(
            f"{job.name}: its deadline cannot be met: after start-up {max(job.hours_left, 0):.2g} "
            f"hours are left, and {named}, the fastest, need {hours:.3g}{more}"
        )


def _fastest(job: Demand, place: Ints, caps: Ints, groups: Sequence[QuotaGroup]) -> Mixture | None:
    """The fastest machines of a region; a gang's are of one kind."""
    if not job.gang:
        return highest_rate(mixture_terms(job, place, caps, groups))

    kinds = [j for j in place.tolist() if job.nu[j] > 0 and caps[j] >= job.least]
    if not kinds:
        return None

    best = max(kinds, key=lambda j: float(job.nu[j]))
    machines = [0] * len(job.nu)
    machines[best] = job.most
    nu = float(job.nu[best])
    total_nu = job.most * nu
    return Mixture(tuple(machines), total_nu, 0.0)


def _fastest_reserved(job: Demand) -> Mixture | None:
    """The fastest machines of reservations of one kind, if they are enough for the job."""
    held = _reserved(job)
    rates = np.where(held >= job.least, held * job.nu, 0.0)
    best = int(np.argmax(rates))
    if rates[best] <= 0:
        return None
    machines = [int(held[best]) if kind == best else 0 for kind in range(len(held))]
    return Mixture(tuple(machines), float(rates[best]), 0.0)


def turns_of(
    jobs: Sequence[Demand],
    kinds: Sequence[MachineKind],
    usd_per_hour: Floats,
    groups: Sequence[QuotaGroup],
    startup_hours: float,
    queued: JobQueue = NO_QUEUE,
) -> tuple[list[Turn], JobQueue, tuple[JobOutlook, ...]]:
    """The turn of each job, if the scheduler of the queue divides the quotas among these jobs and
    those `queued`, and this queue, with when all of its jobs run.

    Raises NotInTime if a job would end too late for its deadline.
    """
    own_quotas = queue_quotas(kinds, groups)
    quotas = merged((*queued.quotas, *own_quotas))
    later_jobs = (job.later(-queued.now) for job in queued.jobs)
    others = tuple(later_jobs)
    prices = {**queued.usd_per_hour, **_prices(kinds, usd_per_hour)}
    refusals = list[NotInTime]()

    # Deadlines that cannot be kept at the least cost may be kept at a higher one.
    hurrying = [replace(job, aim=Aim.HIGHEST_RATE) if job.hurries else job for job in jobs]
    for wanted in (jobs, hurrying):
        unhurried = [replace(job, pace=1.0) for job in wanted]
        claims, plain = (
            [
                queue_job(
                    job,
                    kinds,
                    usd_per_hour,
                    groups,
                    arrival=0.0,
                    now=0.0,
                    startup_hours=startup_hours,
                )
                for job in each
            ]
            for each in (wanted, unhurried)
        )
        queue = JobQueue(0.0, quotas, (*claims, *others), queued.terms, prices)
        # Forecasts, which differ by chance, change the order of jobs only if deadlines need that.
        plain_queue = replace(queue, jobs=(*plain, *others))
        next_of_plain = next_round(plain_queue)
        for first in (next_of_plain, None):
            courses = outlook(queue, first)
            planned = courses[: len(jobs)]
            pairs = zip(jobs, planned, strict=True)
            turns = [_turn(job, course, kinds) for job, course in pairs]
            timed = zip(jobs, claims, turns, strict=True)
            late = [
                (job, turn)
                for job, claim, turn in timed
                if turn.begin == inf or turn.end * 3600 > (claim.deadline or inf) * (1 + _ROUNDING)
            ]
            if not late:
                return turns, queue, courses
            refusals.append(_not_in_time(*late[0], groups, startup_hours))

    raise refusals[0]


def _turn(job: Demand, planned: JobOutlook, kinds: Sequence[MachineKind]) -> Turn:
    """The turn of a job from the outlook of its queue; it begins at infinity if it never gets
    machines.
    """
    if not planned.turns:
        # Its reservations may be enough for it.
        reserved = max(_reserved(job), default=0)
        least = max(job.least, 1)
        begin = 0.0 if reserved >= least else inf
        return Turn(begin, inf, (0,) * len(kinds))

    parts = list[Turn]()
    for each in planned.turns:
        begin = _hours(each.start)
        end = _hours(each.end)
        counts = (each.machines.get(str(kind), 0) for kind in kinds)
        machines = tuple(counts)
        if parts and parts[-1].end < begin:
            last = parts[-1]
            nothing = (0,) * len(kinds)
            parts.append(Turn(last.end, begin, nothing))
        parts.append(Turn(begin, end, machines))

    first = parts[0]
    end = inf
    if not job.work.assumed and planned.end is not None:
        end = _hours(planned.end)
    starts = _bounds(planned.earliest_start, planned.latest_start)
    ends = _bounds(planned.earliest_end, planned.latest_end)
    return Turn(first.begin, end, first.machines, tuple(parts), starts, ends)


def _bounds(earliest: float | None, latest: float | None) -> tuple[float, float] | None:
    """The earliest and the latest moment in hours; None if they are in the same second."""
    if earliest is not None and latest is not None and latest - earliest < 1:
        return None
    first = _hours(earliest or 0.0)
    return first, inf if latest is None else _hours(latest)


def _hours(seconds: float) -> float:
    """Seconds as hours, rounded to the microsecond: parts that follow each other begin and end at
    the same moment."""
    return round(seconds / 3600, 9)


def _not_in_time(
    job: Demand, turn: Turn, groups: Sequence[QuotaGroup], startup_hours: float
) -> NotInTime:
    used = []
    for group in groups:
        used_by_job = group.per_machine[job.nu > 0]
        if used_by_job.any():
            used.append(group)
    texts = []
    for group in used:
        shown = replace(group.quota, amount=int(group.most))
        texts.append(str(shown))
    quotas = ", ".join(texts)
    if turn.begin == inf:
        return NotInTime(
            f"{job.name}: no machines within the quotas ({quotas}) keep its budget; raise one of "
            "them"
        )

    due = (
        f"its deadline {job.hours_left:.2g} hours after start-up; raise a quota, or allow more time"
    )
    if turn.begin:
        until = f"until {turn.begin:.2g} hours from now"
        return NotInTime(
            f"{job.name}: other jobs use the quotas ({quotas}) {until}, too long for {due}"
        )

    late = turn.end - startup_hours
    return NotInTime(
        f"{job.name}: shares the quotas ({quotas}) with other jobs, and would end {late:.3g} hours "
        f"after start-up, too late for {due}"
    )
