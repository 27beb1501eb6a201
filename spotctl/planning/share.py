"""Step 3 of a plan: the machines that each job may hold: all that it could use, or its part of quotas that are too
small for all.

Parts are whole machines (`turns`). A job's strategy may use other kinds than those that its part was planned with, if
they finish in time and are not much more expensive: prices will move before the job is done.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice, permutations
from math import inf

import numpy as np

from bidbrain.arrays import Floats, Ints
from bidbrain.decision.mixture_solver import Mixture, SharedQuota, highest_rate
from bidbrain.decision.mixture_strategy import Aim
from bidbrain.decision.whole_machines import MachineClaim, fairest, possible
from pricing_data.units import HOUR, counted, usd_text
from spotctl.files.job.spec import Objective
from spotctl.home.errors import BadRequest
from spotctl.planning.candidates import KindColumns, mixture_terms
from spotctl.planning.errors import NotInTime, OverBudget
from spotctl.planning.offers import MachineKind, places
from spotctl.planning.quotas import QuotaGroup
from spotctl.planning.values import AllocatedJob, Demand, Job, JobShare, QuotaSlice, SlicedQuota, Turn

_ROUNDING = 1e-6
_MAX_ORDERS = 12
"""All that three jobs with deadlines could have: each order takes several integer programs."""


class _TooLate(Exception):
    """From this moment on, no machines keep the limits of a job, even if no other job runs."""

    def __init__(self, job: int, at: float) -> None:
        super().__init__(job, at)
        self.job, self.at = job, at


def divide(jobs: Sequence[tuple[Job, Demand]], columns: KindColumns, startup_hours: float) -> list[AllocatedJob]:
    """Each job with its share of machines and quotas; raises NotInTime or OverBudget if a job gets none."""
    demands = [demand for _, demand in jobs]
    shares = shares_of(demands, columns.kinds, columns.usd_per_hour, columns.quotas, startup_hours)
    divided = []
    for m, ((job, demand), share) in enumerate(zip(jobs, shares, strict=True)):
        quotas = _sliced_quotas(m, demands, shares, columns)
        wait = share.turn.begin if share.turn.begin < inf else 0.0
        waiting = replace(demand, hours_left=demand.hours_left - wait)
        lacking = _lacking(demand, quotas, columns)
        held = replace(share, wait=round(wait * HOUR), lacking=lacking, quotas=quotas)
        divided.append(AllocatedJob(job, waiting, held))
    return divided


def _sliced_quotas(
    m: int, demands: Sequence[Demand], shares: Sequence[JobShare], columns: KindColumns
) -> tuple[SlicedQuota, ...]:
    """The quotas that the kinds of a plan count against, and the part of each that job number `m` gets."""
    every = []
    for g, group in enumerate(columns.quotas):
        parts = [
            QuotaSlice(demand.name, share.amounts[g], share.turn, _least_use(demand, share, group))
            for demand, share in zip(demands, shares, strict=True)
        ]
        own = replace(group.quota, amount=parts[m].amount)
        in_order = tuple(sorted(parts, key=lambda part: part.turn.begin))
        every.append(SlicedQuota(group.quota, own, in_order, is_enough=not shares[m].short[g]))
    return tuple(every)


def _least_use(demand: Demand, share: JobShare, group: QuotaGroup) -> int:
    """How much of a quota the job needs to begin: with a deadline, all of its part; otherwise what the fewest machines
    use, of whichever planned kind, as far as its part allows."""
    planned = int(group.per_machine @ share.turn.machines) if share.turn.machines else 0
    if demand.hurries:
        return planned
    uses = (each for each, held in zip(group.per_machine, share.turn.machines, strict=False) if held)
    return min(planned, int(max(demand.least, 1) * max(uses, default=0.0)))


def _lacking(demand: Demand, quotas: Sequence[SlicedQuota], columns: KindColumns) -> dict[int, str]:
    """For each kind that a quota makes too small for the job, that quota."""
    least, reasons = max(demand.least, 1), dict[int, str]()
    for share, group in zip(quotas, columns.quotas, strict=True):
        for j in np.flatnonzero((demand.nu > 0) & (group.per_machine * least > share.slice.amount)).tolist():
            used, quota = f"{least * group.per_machine[j]:g} {share.quota.unit}", share.quota
            reasons[j] = f"{counted(least, 'machine')} would use {used} of quota {quota.name}, which has {quota.amount}"
            if share.slice.amount < quota.amount:
                reasons[j] += f"; this job's part is {share.slice.amount}"
    return reasons


def shares_of(
    demand: Sequence[Demand],
    kinds: Sequence[MachineKind],
    usd_per_hour: Floats,
    groups: Sequence[QuotaGroup],
    startup_hours: float = 0.0,
) -> list[JobShare]:
    """The share of each job; raises NotInTime or OverBudget if there is none."""
    # A kind without a quota has as many workers as all jobs together could hold.
    total = sum(job.most for job in demand)
    workers = np.minimum.reduce([np.full(len(kinds), float(total)), *(group.machines(total) for group in groups)])
    for job in demand:
        _require_possible(job, kinds, workers, groups)
    name = _policy_for(demand)
    for job in demand:
        _require_affordable(job, name, usd_per_hour)
    wanted = [_caps(job, workers) for job in demand]
    able = [replace(job, nu=np.where(caps > 0, job.nu, 0.0)) for job, caps in zip(demand, wanted, strict=True)]
    # Whether a quota holds less than the most that all jobs' machines could use of it.
    shortages = []
    for group in groups:
        could_use = []
        for job, caps in zip(able, wanted, strict=True):
            largest = float(group.per_machine[caps > 0].max(initial=0.0))
            could_use.append(min(float((caps * group.per_machine).sum()), job.most * largest, group.most))
        shortages.append(sum(could_use) > group.most)
    short = tuple(shortages)

    by_price = name in (Objective.MIN_COST, Objective.MIN_COST_SLO)
    turns = [Turn(0.0, inf)] * len(demand)
    if any(short):
        turns = turns_of(able, kinds, usd_per_hour, groups, startup_hours=startup_hours, by_price=by_price)

    shares = []
    for job, caps, turn in zip(demand, wanted, turns, strict=True):
        parts = tuple(
            int(group.per_machine @ turn.machines if is_short else group.most)
            for group, is_short in zip(groups, short, strict=True)
        )
        own = [replace(group, most=float(part)) for group, part in zip(groups, parts, strict=True)]
        allowed = caps
        for group in own:
            allowed = np.minimum(allowed, group.machines(np.inf)).astype(np.int64)
        held = tuple(np.maximum(allowed, _reserved(job)).tolist())
        shares.append(JobShare(name, held, parts, short, _usd_per_work(job, usd_per_hour), turn))
    return shares


def _require_affordable(job: Demand, policy: str, usd_per_hour: Floats) -> None:
    """Raises OverBudget if the work costs more than the budget even on the cheapest machines."""
    if policy != Objective.MAKESPAN_WITHIN_BUDGET or job.budget_usd is None or job.work.assumed:
        return
    least = float(_usd_per_work(job, usd_per_hour).min()) * job.amount
    if least > job.budget_usd * (1 + _ROUNDING):
        raise OverBudget(
            f"{job.name}: a budget of {usd_text(job.budget_usd)} is too low: even without a time limit, the work costs"
            f" at least {usd_text(least)}"
        )


def _caps(job: Demand, workers: Floats) -> Ints:
    caps: Ints = np.where(job.nu > 0, np.minimum(job.most, workers), 0.0).astype(np.int64)
    return np.maximum(caps, _reserved(job))


def _reserved(job: Demand) -> Ints:
    """The machines of each kind that need no quota."""
    usable: Ints = np.where(job.nu > 0, np.minimum(job.most, job.reserved or 0), 0).astype(np.int64)
    return usable


def _policy_for(demand: Sequence[Demand]) -> str:
    """The policy of the jobs' objective: min-cost becomes min-cost-slo as soon as one job has a deadline."""
    wanted = {_effective_objective(job) for job in demand}
    if wanted == {Objective.MIN_COST, Objective.MIN_COST_SLO}:
        return Objective.MIN_COST_SLO
    if len(wanted) > 1 and len({job.objective for job in demand}) == 1:
        # The lengths of only some jobs are known.
        return demand[0].objective
    if len(wanted) > 1:
        objectives = ", ".join(f"{job.name}: {job.objective}" for job in demand)
        raise BadRequest(
            f"jobs in one allocation need one objective, not {objectives}; give all jobs the same, or plan them"
            " separately"
        )
    return wanted.pop()


def _effective_objective(job: Demand) -> Objective:
    cost = (Objective.MIN_COST, Objective.MIN_COST_SLO)
    if job.objective in cost:
        return Objective.MIN_COST_SLO if job.hurries else Objective.MIN_COST
    if job.objective is Objective.MAKESPAN_WITHIN_BUDGET and job.work.assumed:
        # The cost of unknown work cannot be planned: the budget ends the job, and until then speed counts.
        return Objective.MAX_THROUGHPUT
    return job.objective


def _usd_per_work(job: Demand, usd_per_hour: Floats) -> Floats:
    infinite = np.full(len(usd_per_hour), np.inf)
    np.divide(usd_per_hour, job.nu, out=infinite, where=job.nu > 0)
    return infinite


def _require_possible(job: Demand, kinds: Sequence[MachineKind], workers: Floats, groups: Sequence[QuotaGroup]) -> None:
    caps = _caps(job, workers)
    by_quota = (_fastest(job, place, caps, groups) for place in places(kinds))
    possible = [mixture for mixture in (*by_quota, _fastest_reserved(job)) if mixture is not None]
    fastest = max(possible, key=lambda mixture: mixture.rate, default=None)
    if fastest is None or fastest.rate <= 0:
        most = int(np.where(job.nu > 0, caps, 0).max(initial=0))
        limits = "quotas and reservations" if any(job.reserved) else "quotas"
        raise NotInTime(
            f"{job.name}: needs at least {counted(job.least, 'machine')}, and {limits} allow at most {most}"
            f" ({', '.join(str(group.quota) for group in groups)}); raise a quota ('spotctl doctor' says how)"
        )
    if not job.hurries:
        return
    hours = job.amount / fastest.rate
    if hours > job.hours_left:
        used = [(count, kind) for count, kind in zip(fastest.machines, kinds, strict=True) if count]
        named = " and ".join(f"{count:,} {'machine' if count == 1 else 'machines'} of {kind}" for count, kind in used)
        needed = np.ceil(job.amount / max(job.hours_left, _ROUNDING) / float(job.nu.max()))
        more = f"; about {needed:,.0f} machines would be fast enough" if job.hours_left > 0 else ""
        if sum(fastest.machines) < job.most or len(used) > 1:
            more = "; a higher quota would help"
        raise NotInTime(
            f"{job.name}: its deadline cannot be met: after start-up {max(job.hours_left, 0):.2g} hours are left, and"
            f" {named}, the fastest, need {hours:.3g}{more}"
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
    return Mixture(tuple(machines), job.most * float(job.nu[best]), 0.0)


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
    *,
    startup_hours: float,
    by_price: bool,
) -> list[Turn]:
    """The turn of each job. `by_price` says that machines are worth the work that they do per dollar, not per hour.

    Raises NotInTime if a job would begin too late for its deadline, in whichever order they begin.
    """
    refusals = list[NotInTime]()
    for order, overtakes in islice(_orders(jobs), _MAX_ORDERS):
        try:
            turns = _turns_in(
                order,
                lambda m, at: _claim(jobs[m], at, kinds, usd_per_hour, by_price=by_price),
                lambda m, held: jobs[m].lasts_hours or startup_hours + _hours(jobs[m], held),
                groups,
                overtakes=overtakes,
            )
        except _TooLate as late:
            refusals.append(_not_in_time(jobs[late.job], late.at, groups))
        else:
            return [turns[m] for m in range(len(jobs))]
    raise refusals[0]


def _orders(jobs: Sequence[Demand]) -> Iterator[tuple[list[int], bool]]:
    """The orders to try, and whether a job that fits overtakes one that does not.

    Of jobs with deadlines, the earliest go first; then, those that must begin first; then, one is moved behind the
    others. The shortest of the other jobs go first, so that jobs end as early as possible in the mean; those of unknown
    length go last.
    """
    # How long each job takes at least, apart from quotas.
    fastest = [np.where(np.arange(len(job.nu)) == job.nu.argmax(), float(job.most), 0.0) for job in jobs]
    hours = [job.lasts_hours or _hours(job, machines) for job, machines in zip(jobs, fastest, strict=True)]
    hurried = sorted((m for m, job in enumerate(jobs) if job.hurries), key=lambda m: jobs[m].hours_left)
    others = sorted((m for m, job in enumerate(jobs) if not job.hurries), key=lambda m: hours[m])
    urgent = sorted(hurried, key=lambda m: jobs[m].hours_left - hours[m])
    moved = ((*hurried[:i], *hurried[i + 1 :], m) for i, m in enumerate(hurried))
    every = islice(permutations(hurried), _MAX_ORDERS)
    for order in dict.fromkeys(chain([tuple(hurried), tuple(urgent)], moved, every)):
        yield [*order, *others], True
        if hurried:
            yield [*order, *others], False


def _turns_in(
    order: Sequence[int],
    claim: Callable[[int, float], MachineClaim],
    lasts: Callable[[int, Floats], float],
    groups: Sequence[QuotaGroup],
    *,
    overtakes: bool,
) -> dict[int, Turn]:
    """The turns by job, if the jobs begin in some order."""
    turns: dict[int, Turn] = {}
    running: dict[int, Turn] = {}
    waiting, at = list(order), 0.0
    while waiting:
        free = []
        for group in groups:
            used = sum(float(group.per_machine @ turn.machines) for turn in running.values())
            free.append(SharedQuota(tuple(group.per_machine.tolist()), group.most - used))
        claims = {m: claim(m, at) for m in waiting}
        if begun := _beginning(claims, free, overtakes=overtakes):
            machines = fairest(tuple(claims[m] for m in begun), tuple(free))
            assert machines is not None, "the quotas hold them"
            for m, held in zip(begun, machines, strict=True):
                running[m] = turns[m] = Turn(at, at + lasts(m, held), tuple(held.tolist()))
            waiting = [m for m in waiting if m not in begun]
        if waiting and not running:
            raise _TooLate(waiting[0], at)
        if waiting:
            at = min(turn.end for turn in running.values())
            ended = [m for m in running if running[m].end == at]
            # Which of several jobs of unknown length ends first is not known.
            for m in ended if at < inf else ended[:1]:
                del running[m]
    return turns


def _beginning(claims: dict[int, MachineClaim], free: Sequence[SharedQuota], *, overtakes: bool) -> list[int]:
    """The jobs that begin at the same time, in the order in which they are named."""
    begun: list[int] = []
    for m in claims:
        if possible(tuple(claims[other] for other in (*begun, m)), tuple(free)):
            begun.append(m)
        elif not overtakes:
            break
    return sorted(begun)


def _claim(
    job: Demand, at: float, kinds: Sequence[MachineKind], usd_per_hour: Floats, *, by_price: bool
) -> MachineClaim:
    usable = np.flatnonzero(job.nu > 0)
    value = job.nu / np.maximum(usd_per_hour, 1e-9) if by_price and np.isfinite(usd_per_hour[usable]).any() else job.nu
    groups = [(j,) for j in usable.tolist()] if job.gang else [tuple(place.tolist()) for place in places(kinds)]
    needs = []
    if job.hurries:
        # The machines do all the work in the time that is left; none can if it is over.
        needs.append((tuple((job.nu * max(job.hours_left - at, 0.0) / max(job.amount, 1e-9)).tolist()), 1.0))
    if job.aim is Aim.SHORTEST_TIME and job.budget_usd is not None and not job.work.timed:
        # The budget decides how fast the machines may be.
        dollars = usd_per_hour * job.amount
        spare = np.where(job.nu > 0, job.nu - dollars / max(job.budget_usd, 1e-9), 0.0)
        needs.append((tuple(np.maximum(spare / job.nu.max(), -1e6).tolist()), 0.0))
    least = max(job.least, 1)
    return MachineClaim(tuple((value / value.max()).tolist()), least, max(job.most, least), tuple(groups), tuple(needs))


def _hours(job: Demand, held: Floats) -> float:
    """How long the work takes on some machines; infinite if its length is unknown."""
    rate = float(job.nu @ held)
    if job.work.assumed or rate <= 0:
        return inf
    return job.work.longest if job.work.timed else min(job.amount / rate, job.work.longest)


def _not_in_time(job: Demand, at: float, groups: Sequence[QuotaGroup]) -> NotInTime:
    used = [group for group in groups if group.per_machine[job.nu > 0].any()]
    quotas = ", ".join(str(replace(group.quota, amount=int(group.most))) for group in used)
    if not at:
        return NotInTime(
            f"{job.name}: no machines within the quotas ({quotas}) keep its budget and its deadline; raise one of them"
        )
    until = f"until {at:.2g} hours from now" if at < inf else "for an unknown time"
    return NotInTime(
        f"{job.name}: other jobs use the quotas ({quotas}) {until}, too long for its deadline"
        f" {job.hours_left:.2g} hours after start-up; raise a quota, or allow more time"
    )
