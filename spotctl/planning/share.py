"""Gavel's part: one allocation over all jobs, of kinds of machines at their effective prices.

A job is one row, scaled by the number of machines it may hold; a kind of machine is one column; T is the throughput of
all its machines there. The policy says on which kinds each job gets time. A job's strategy may still use other kinds
that finish in time and are not much more expensive: prices will move before the job is done.
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
from spotctl.planning.offers import MachineKind
from spotctl.planning.work import Work

MOST_EXPENSIVE = 2.0
"""Highest price per unit of work that a strategy may consider, as a multiple of the chosen kind's."""
_NOTHING = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """A job as Gavel sees it: nu by kind (0 where it may not run), fewest and most machines, and its limits.

    `hours_left` is the time to the deadline minus start-up. `reference_nu` is the work per hour of all machines on the
    kind that is cheapest per unit of work; it converts an amount given in hours.
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
        """The work in machine-hours times nu."""
        return self.work.amount(self.reference_nu)

    @property
    def hurries(self) -> bool:
        """Whether the deadline constrains the plan; it cannot if the job's length is unknown."""
        return np.isfinite(self.hours_left) and not self.work.assumed


@dataclass(frozen=True, slots=True, eq=False)
class Share:
    """A job's allocation by kind: share of its time, machines it may hold, and dollars per unit of work."""

    policy: str
    time: FloatArray
    caps: tuple[int, ...]
    usd_per_work: FloatArray

    @property
    def by_time(self) -> list[int]:
        """The kinds with time on them, most time first, cheaper first among equals."""
        used = np.flatnonzero(self.time > _NOTHING).tolist()
        return sorted(used, key=lambda j: (-round(float(self.time[j]), 6), float(self.usd_per_work[j])))


def divide(
    demand: Sequence[Demand], kinds: Sequence[MachineKind], usd_per_hour: FloatArray, quotas: Mapping[MachineKind, int]
) -> list[Share]:
    """The share of each job; raises NotInTime or OverBudget if there is none."""
    for job in demand:
        _require_possible(job, kinds, quotas)
    name = _policy_for(demand)
    # A kind without a quota has as many workers as all jobs together could hold.
    total = sum(job.most for job in demand)
    workers = np.array([min(quotas.get(kind, total), total) for kind in kinds], dtype=np.float64)
    problem = _problem(demand, kinds, workers, usd_per_hour, name)
    try:
        found = policy_named(name).allocate(problem)
    except CannotHold as error:
        raise OverBudget(f"{', '.join(job.name for job in demand)}: {error}; raise the budget") from error
    if found.infeasible:
        raise NotInTime("; ".join(found.infeasible))
    caps = _caps(demand, problem.jobs.scale[:, None] * found.shares, workers)
    return [
        Share(name, _time(found, m), tuple(caps[m].tolist()), _usd_per_work(job, usd_per_hour))
        for m, job in enumerate(demand)
    ]


def homes(job: Demand, share: Share) -> list[int]:
    """The kinds that a job's plan may be sized by, best first.

    First those with time on them, or an equally fast kind with as many machines that is cheaper; then the cheapest.
    """
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


def companions(job: Demand, share: Share, home: int, kinds: Sequence[MachineKind]) -> dict[int, str]:
    """For each kind that the job's strategy may not use in addition to `home`, the reason.

    All machines of a job are in one region because they communicate with each other.
    """
    others = (j for j in np.flatnonzero(job.nu > 0).tolist() if j != home)
    reasons = ((j, _too_dear(share, home, j, kinds) or _unfit(job, share, home, j, kinds)) for j in others)
    return {j: why for j, why in reasons if why}


def _too_dear(share: Share, home: int, j: int, kinds: Sequence[MachineKind]) -> str:
    usd, least, chosen, kind = float(share.usd_per_work[j]), float(share.usd_per_work[home]), kinds[home], kinds[j]
    told = f"${usd:.4g} per unit of work, against ${least:.4g} for {chosen}"
    if (kind.cloud, kind.region) != (chosen.cloud, chosen.region):
        return f"in another region: {told}"
    return f"too expensive: {told}" if usd > MOST_EXPENSIVE * least else ""


def _unfit(job: Demand, share: Share, home: int, j: int, kinds: Sequence[MachineKind]) -> str:
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


def _policy_for(demand: Sequence[Demand]) -> str:
    """The policy of the jobs' objective: min-cost becomes min-cost-slo as soon as one job has a deadline."""
    wanted = {_effective_objective(job) for job in demand}
    if wanted == {Objective.MIN_COST, Objective.MIN_COST_SLO}:
        return Objective.MIN_COST_SLO
    if len(wanted) > 1:
        told = ", ".join(f"{job.name}: {job.objective}" for job in demand)
        raise BadRequest(
            f"jobs in one allocation need one objective, not {told}; give all jobs the same, or plan them separately"
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


def _problem(
    demand: Sequence[Demand], kinds: Sequence[MachineKind], workers: FloatArray, usd_per_hour: FloatArray, policy: str
) -> AllocationProblem:
    scale = np.array([_scale(job, workers) for job in demand], dtype=np.int64)
    nu = np.stack([job.nu for job in demand])
    budget = None
    if policy == Objective.MAKESPAN_WITHIN_BUDGET:
        budget = sum(job.budget_usd or 0.0 for job in demand)
    count = len(demand)
    jobs = ClusterJobs(
        ids=tuple(job.name for job in demand),
        throughputs=nu * scale[:, None] / 3600,
        scale=scale,
        weight=np.ones(count),
        steps=np.array([job.amount for job in demand]),
        elapsed_seconds=np.zeros(count),
        slo_seconds=np.array([job.hours_left * 3600 if job.hurries else np.inf for job in demand]),
        arrival=np.zeros(count),
        entity=(None,) * count,
    )
    return AllocationProblem(Cluster(tuple(map(str, kinds)), workers, usd_per_hour), jobs, budget_usd=budget)


def _scale(job: Demand, workers: FloatArray) -> int:
    """The most machines that the job may hold and that any of its kinds has."""
    return min(job.most, int(workers[job.nu > 0].max(initial=0)))


def _time(found: ClusterAllocation, m: int) -> FloatArray:
    time: FloatArray = found.shares[m] if found.hours is None else found.hours[m]
    return time


def _caps(demand: Sequence[Demand], held: FloatArray, workers: FloatArray) -> IntArray:
    """Machines of each kind by job: its limit, or if a kind is contested a share in proportion to what each holds."""
    most = np.array([job.most for job in demand], dtype=np.float64)[:, None]
    wanted = np.where(np.stack([job.nu for job in demand]) > 0, np.minimum(most, workers), 0.0)
    weight = np.where(held.sum(axis=0) > _NOTHING, held, wanted)
    total = weight.sum(axis=0)
    part = np.divide(weight, total, out=np.zeros(weight.shape), where=total > 0)
    contested = wanted.sum(axis=0) > workers
    caps: IntArray = np.floor(np.where(contested, np.minimum(workers * part, wanted), wanted) + _NOTHING).astype(
        np.int64
    )
    return caps


def _usd_per_work(job: Demand, usd_per_hour: FloatArray) -> FloatArray:
    infinite = np.full(len(usd_per_hour), np.inf)
    np.divide(usd_per_hour, job.nu, out=infinite, where=job.nu > 0)
    return infinite


def _require_possible(job: Demand, kinds: Sequence[MachineKind], quotas: Mapping[MachineKind, int]) -> None:
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
