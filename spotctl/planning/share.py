"""Gavel's part: one allocation over all jobs, of kinds of machines at their effective prices.

A job is one row whose scale is the machines it may hold at once, a kind of machine one column: T is what all of its
machines do there. The policy says where each job gets time. A kind that it passes over stays open to the job's strategy
while it does the work in time and is not much dearer: prices will have moved before the job is done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bidbrain.gavel.lp import CannotHold, FloatArray, IntArray
from bidbrain.gavel.policies import policy_named
from bidbrain.gavel.problem import AllocationProblem, Cluster, ClusterAllocation, ClusterJobs
from spotctl.errors import BadRequest
from spotctl.files.job.spec import Objective
from spotctl.planning.errors import NotInTime, OverBudget
from spotctl.planning.offers import Kind
from spotctl.planning.work import Work

DEARER_AT_MOST = 2.0
"""What costs more than so many times the chosen kind's price of work is not left to a strategy."""
_NOTHING = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """What a job asks of Gavel: nu by kind (0 where it may not run), machines at least and at most, and its limits.

    `hours_left` is to the deadline, less the start-up of machines. `reference_nu` is what all machines do in an hour of
    the kind that is cheapest for the work, which an amount told in hours is measured in.
    """

    name: str
    objective: Objective
    nu: FloatArray
    least: int
    most: int
    work: Work
    reference_nu: float
    hours_left: float
    budget_usd: float | None

    @property
    def amount(self) -> float:
        """Machine-hours times nu."""
        return self.work.amount(self.reference_nu)

    @property
    def hurries(self) -> bool:
        """Whether a deadline has to be planned for."""
        return np.isfinite(self.hours_left) and not self.work.assumed


@dataclass(frozen=True, slots=True, eq=False)
class Share:
    """What Gavel gives a job: by kind the share of its time, the machines it may hold, and dollars per unit of work."""

    policy: str
    time: FloatArray
    caps: tuple[int, ...]
    usd_per_work: FloatArray

    @property
    def by_time(self) -> list[int]:
        """The kinds that the job gets time on, the most first; of equal ones the cheaper."""
        used = np.flatnonzero(self.time > _NOTHING).tolist()
        return sorted(used, key=lambda j: (-round(float(self.time[j]), 6), float(self.usd_per_work[j])))


def divide(
    asked: Sequence[Asked], kinds: Sequence[Kind], usd_per_hour: FloatArray, quotas: Mapping[Kind, int]
) -> list[Share]:
    """The share of each job. A job that cannot be done is refused with what it would take."""
    for job in asked:
        _require_possible(job, kinds, quotas)
    name = _policy_for(asked)
    # Without a quota there are as many workers as all jobs could hold.
    everybody = sum(job.most for job in asked)
    workers = np.array([min(quotas.get(kind, everybody), everybody) for kind in kinds], dtype=np.float64)
    problem = _problem(asked, kinds, workers, usd_per_hour, name)
    try:
        found = policy_named(name).allocate(problem)
    except CannotHold as error:
        raise OverBudget(f"{', '.join(job.name for job in asked)}: {error}; raise the budget") from error
    if found.infeasible:
        raise NotInTime("; ".join(found.infeasible))
    caps = _caps(asked, problem.jobs.scale[:, None] * found.shares, workers)
    return [
        Share(name, _time(found, m), tuple(caps[m].tolist()), _usd_per_work(job, usd_per_hour))
        for m, job in enumerate(asked)
    ]


def homes(job: Asked, share: Share) -> list[int]:
    """The kinds that a job's plan may be built on, the best first: those with time on them, or what is as fast and has
    as many machines for less; after them the cheapest."""
    caps = np.array(share.caps)
    rate = caps * job.nu
    found = []
    for j in share.by_time:
        as_good = (caps >= job.least) & (rate >= rate[j] * (1 - _NOTHING)) & (job.nu >= job.nu[j] * (1 - _NOTHING))
        if as_good.any():
            found.append(int(np.argmin(np.where(as_good, share.usd_per_work, np.inf))))
    in_time = rate * job.hours_left >= job.amount if job.hurries else np.ones(rate.shape, dtype=np.bool_)
    possible = np.flatnonzero((job.nu > 0) & (caps >= job.least) & in_time)
    cheapest = possible[np.argsort(share.usd_per_work[possible], kind="stable")].tolist()
    return list(dict.fromkeys([*found, *cheapest[:1]]))


def companions(job: Asked, share: Share, home: int, kinds: Sequence[Kind]) -> dict[int, str]:
    """For each kind that the job's strategy is not offered beside `home`, why.

    A job's machines talk to each other, so that all are in one region.
    """
    others = (j for j in np.flatnonzero(job.nu > 0).tolist() if j != home)
    reasons = ((j, _too_dear(share, home, j, kinds) or _unfit(job, share, home, j, kinds)) for j in others)
    return {j: why for j, why in reasons if why}


def _too_dear(share: Share, home: int, j: int, kinds: Sequence[Kind]) -> str:
    usd, least, chosen, kind = float(share.usd_per_work[j]), float(share.usd_per_work[home]), kinds[home], kinds[j]
    told = f"${usd:.4g} per unit of work, against ${least:.4g} for {chosen}"
    if (kind.cloud, kind.region) != (chosen.cloud, chosen.region):
        return f"in another region: {told}"
    return f"too expensive: {told}" if usd > DEARER_AT_MOST * least else ""


def _unfit(job: Asked, share: Share, home: int, j: int, kinds: Sequence[Kind]) -> str:
    cap, rate, chosen = share.caps[j], share.caps[j] * float(job.nu[j]), kinds[home]
    if cap < job.least:
        return f"its quota allows {cap} machines, and the job needs at least {job.least}"
    if job.hurries and rate * job.hours_left < job.amount:
        return f"{cap} machines need {job.amount / rate:.1f} hours, and {job.hours_left:.1f} are left"
    if job.least * float(job.nu[j]) > share.caps[home] * float(job.nu[home]):
        return f"too large: {job.least} machines do more than the {share.caps[home]} planned machines of {chosen.type}"
    if job.objective in _SPEED_COUNTS and float(job.nu[j]) < float(job.nu[home]) * _AS_FAST:
        return f"slower than {chosen.type}, and the objective is {job.objective}"
    return ""


_SPEED_COUNTS = (Objective.MAX_THROUGHPUT, Objective.MAKESPAN_WITHIN_BUDGET)
_AS_FAST = 0.9


def _policy_for(asked: Sequence[Asked]) -> str:
    """The policy of the jobs' objective; where deadlines have to be kept beside least cost, the one that keeps them."""
    wanted = {_effective_objective(job) for job in asked}
    if wanted == {Objective.MIN_COST, Objective.MIN_COST_SLO}:
        return Objective.MIN_COST_SLO
    if len(wanted) > 1:
        told = ", ".join(f"{job.name}: {job.objective}" for job in asked)
        raise BadRequest(
            f"jobs in one allocation need one objective, not {told}; give all jobs the same, or plan them separately"
        )
    return wanted.pop()


def _effective_objective(job: Asked) -> Objective:
    cost = (Objective.MIN_COST, Objective.MIN_COST_SLO)
    if job.objective in cost:
        return Objective.MIN_COST_SLO if job.hurries else Objective.MIN_COST
    if job.objective is Objective.MAKESPAN_WITHIN_BUDGET and job.work.assumed:
        # Nobody knows what the work costs: the budget ends it, and until then speed is what is wanted.
        return Objective.MAX_THROUGHPUT
    return job.objective


def _problem(
    asked: Sequence[Asked], kinds: Sequence[Kind], workers: FloatArray, usd_per_hour: FloatArray, policy: str
) -> AllocationProblem:
    scale = np.array([_scale(job, workers) for job in asked], dtype=np.int64)
    nu = np.stack([job.nu for job in asked])
    budget = None
    if policy == Objective.MAKESPAN_WITHIN_BUDGET:
        budget = sum(job.budget_usd or 0.0 for job in asked)
    count = len(asked)
    jobs = ClusterJobs(
        ids=tuple(job.name for job in asked),
        throughputs=nu * scale[:, None] / 3600,
        scale=scale,
        weight=np.ones(count),
        steps=np.array([job.amount for job in asked]),
        elapsed_seconds=np.zeros(count),
        slo_seconds=np.array([job.hours_left * 3600 if job.hurries else np.inf for job in asked]),
        arrival=np.zeros(count),
        entity=(None,) * count,
    )
    return AllocationProblem(Cluster(tuple(map(str, kinds)), workers, usd_per_hour), jobs, budget_usd=budget)


def _scale(job: Asked, workers: FloatArray) -> int:
    """As many machines as the job may hold and any of its kinds has."""
    return min(job.most, int(workers[job.nu > 0].max(initial=0)))


def _time(found: ClusterAllocation, m: int) -> FloatArray:
    time: FloatArray = found.shares[m] if found.hours is None else found.hours[m]
    return time


def _caps(asked: Sequence[Asked], held: FloatArray, workers: FloatArray) -> IntArray:
    """Machines of each kind by job: as many as it may have, where all can; else in proportion to what each holds."""
    most = np.array([job.most for job in asked], dtype=np.float64)[:, None]
    wanted = np.where(np.stack([job.nu for job in asked]) > 0, np.minimum(most, workers), 0.0)
    weight = np.where(held.sum(axis=0) > _NOTHING, held, wanted)
    total = weight.sum(axis=0)
    part = np.divide(weight, total, out=np.zeros(weight.shape), where=total > 0)
    contested = wanted.sum(axis=0) > workers
    caps: IntArray = np.floor(np.where(contested, np.minimum(workers * part, wanted), wanted) + _NOTHING).astype(
        np.int64
    )
    return caps


def _usd_per_work(job: Asked, usd_per_hour: FloatArray) -> FloatArray:
    infinite = np.full(len(usd_per_hour), np.inf)
    np.divide(usd_per_hour, job.nu, out=infinite, where=job.nu > 0)
    return infinite


def _require_possible(job: Asked, kinds: Sequence[Kind], quotas: Mapping[Kind, int]) -> None:
    machines = np.array([min(quotas.get(kind, job.most), job.most) for kind in kinds])
    runs = np.flatnonzero((job.nu > 0) & (machines >= job.least))
    if not runs.size:
        most = max((int(n) for n, nu in zip(machines, job.nu, strict=True) if nu > 0), default=0)
        raise NotInTime(
            f"{job.name}: needs at least {job.least} machines, and quotas allow at most {most}; raise a quota"
        )
    if not job.hurries:
        return
    rate = machines * job.nu
    fastest = int(runs[np.argmax(rate[runs])])
    hours = job.amount / rate[fastest]
    if hours > job.hours_left:
        needed = np.ceil(job.amount / max(job.hours_left, _NOTHING) / job.nu[fastest])
        more = f", or {needed:,.0f} machines" if job.hours_left > 0 else ""
        raise NotInTime(
            f"{job.name}: its deadline cannot be met: after start-up {max(job.hours_left, 0):.2g} hours are left, and"
            f" {machines[fastest]:,} machines of {kinds[fastest]}, the fastest, need {hours:.3g}; allow"
            f" {hours - job.hours_left:.2g} hours more{more}"
        )
