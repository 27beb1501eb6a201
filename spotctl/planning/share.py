"""Gavel's part: one allocation of kinds of machines, at their effective prices, over all jobs.

A job is one row, scaled by the number of machines it may hold; a kind of machine is one column; T is the throughput of
all its machines there. The policy says on which kinds each job gets time. A job's strategy may still use other kinds
that finish in time and are not much more expensive: prices will move before the job is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bidbrain.decision.mixture_solver import KindOption, Mixture, MixtureTerms, SharedQuota, cheapest, highest_rate
from bidbrain.gavel.lp import CannotHold, FloatArray, IntArray
from bidbrain.gavel.policies import policy_named
from bidbrain.gavel.policies.budget import BudgetTooLow
from bidbrain.gavel.problem import AllocationProblem, Cluster, ClusterJobs
from pricing_data.units import usd_text
from spotctl.files.job.spec import Objective
from spotctl.home.errors import BadRequest
from spotctl.planning.errors import NotInTime, OverBudget
from spotctl.planning.offers import MachineKind
from spotctl.planning.quota_groups import QuotaGroup, limits_of
from spotctl.planning.work import JobLength

MOST_PRICE_RATIO = 2.0
"""Highest price per unit of work that a strategy may consider, as a multiple of the chosen kind's."""
MOST_ROWS = 256
"""Rows of Gavel's problem for the machines of one job."""
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """A job as Gavel sees it: nu by kind (0 where it may not run), fewest and most machines, and its limits.

    `hours_left` is the time to the deadline minus start-up. `reference_nu` is the work per hour of all machines on the
    kind that is cheapest per unit of work, and converts an amount given in hours. A job that `roams` may move between
    regions.
    """

    name: str
    objective: Objective
    nu: FloatArray
    least: int
    most: int
    work: JobLength
    reference_nu: float
    hours_left: float
    budget_usd: float | None
    gang: bool = False
    roams: bool = False

    @property
    def amount(self) -> float:
        """The work in machine-hours times nu."""
        return self.work.amount(self.reference_nu)

    @property
    def hurries(self) -> bool:
        """Whether the deadline constrains the plan; never if the job's length is unknown."""
        return np.isfinite(self.hours_left) and not self.work.assumed


@dataclass(frozen=True, slots=True, eq=False)
class JobShare:
    """A job's share of the allocation: the most machines of each kind, its part of each quota, and dollars per unit of
    work by kind."""

    policy: str
    caps: tuple[int, ...]
    quotas: tuple[float, ...]
    usd_per_work: FloatArray


def shares_of(
    demand: Sequence[Demand], kinds: Sequence[MachineKind], usd_per_hour: FloatArray, groups: Sequence[QuotaGroup]
) -> list[JobShare]:
    """The share of each job; raises NotInTime or OverBudget if there is none."""
    # A kind without a quota has as many workers as all jobs together could hold.
    total = sum(job.most for job in demand)
    workers = np.minimum.reduce([np.full(len(kinds), float(total)), *(group.machines(total) for group in groups)])
    for job in demand:
        _require_possible(job, kinds, workers, groups)
    name = _policy_for(demand)
    wanted = np.stack([_caps(job, workers) for job in demand])
    least = np.array([job.least for job in demand])
    limits = limits_of(groups, least, wanted, _held(demand, kinds, workers, usd_per_hour, name))
    if not all(_in_time(job, kinds, wanted[m], _parts(groups, limits[m])) for m, job in enumerate(demand)):
        limits = _in_turn(demand, kinds, usd_per_hour, groups)
    return [
        JobShare(
            name,
            tuple(_within_groups(wanted[m], _parts(groups, limits[m])).tolist()),
            tuple(limits[m].tolist()),
            _usd_per_work(job, usd_per_hour),
        )
        for m, job in enumerate(demand)
    ]


def _caps(job: Demand, workers: FloatArray) -> IntArray:
    caps: IntArray = np.where(job.nu > 0, np.minimum(job.most, workers), 0.0).astype(np.int64)
    return caps


def _within_groups(caps: IntArray, groups: Sequence[QuotaGroup]) -> IntArray:
    """Caps that quotas allow."""
    for group in groups:
        caps = np.minimum(caps, group.machines(np.inf)).astype(np.int64)
    return caps


def companions(job: Demand, share: JobShare, home: int, kinds: Sequence[MachineKind]) -> dict[int, str]:
    """For each kind that the job's strategy may not use in addition to `home`, the reason.

    All machines of a job are in one region because they communicate with each other; a job that roams may use another
    region later.
    """
    others = (j for j in np.flatnonzero(job.nu > 0).tolist() if j != home)
    reasons = ((j, _too_dear(job, share, home, j, kinds) or _unfit(job, share, home, j, kinds)) for j in others)
    return {j: why for j, why in reasons if why}


def _too_dear(job: Demand, share: JobShare, home: int, j: int, kinds: Sequence[MachineKind]) -> str:
    usd, least, chosen, kind = float(share.usd_per_work[j]), float(share.usd_per_work[home]), kinds[home], kinds[j]
    prices = f"${usd:.4g} per unit of work, against ${least:.4g} for {chosen}"
    if (kind.cloud, kind.region) != (chosen.cloud, chosen.region) and not job.roams:
        return f"in another region: {prices}"
    return f"too expensive: {prices}" if usd > MOST_PRICE_RATIO * least else ""


def _unfit(job: Demand, share: JobShare, home: int, j: int, kinds: Sequence[MachineKind]) -> str:
    cap, rate, chosen = share.caps[j], share.caps[j] * float(job.nu[j]), kinds[home]
    if cap < job.least:
        return f"its quota allows {cap} machines, and the job needs at least {job.least}"
    if job.hurries and rate * job.hours_left < job.amount:
        return f"{cap} machines need {job.amount / rate:.1f} hours, and {job.hours_left:.1f} are left"
    if job.least * float(job.nu[j]) > share.caps[home] * float(job.nu[home]):
        return f"too large: {job.least} machines do more than the {share.caps[home]} planned machines of {chosen.type}"
    if job.roams and float(job.nu[j]) < float(job.nu[home]) * (1 - _ROUNDING):
        return f"slower than {chosen.type}, whose speed the deadline is planned with"
    if job.objective in _SPEED_COUNTS and float(job.nu[j]) < float(job.nu[home]) * _LEAST_SPEED_RATIO:
        return f"slower than {chosen.type}, and the objective is {job.objective}"
    return ""


_SPEED_COUNTS = (Objective.MAX_THROUGHPUT, Objective.MAKESPAN_WITHIN_BUDGET)
_LEAST_SPEED_RATIO = 0.9


def _policy_for(demand: Sequence[Demand]) -> str:
    """The policy of the jobs' objective: min-cost becomes min-cost-slo as soon as one job has a deadline."""
    wanted = {_effective_objective(job) for job in demand}
    if wanted == {Objective.MIN_COST, Objective.MIN_COST_SLO}:
        return Objective.MIN_COST_SLO
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


def _held(
    demand: Sequence[Demand], kinds: Sequence[MachineKind], workers: FloatArray, usd_per_hour: FloatArray, policy: str
) -> FloatArray:
    """Machines, or machine-hours, of each kind (columns) that the policy gives each job (rows).

    Each machine that a job may hold is one row of Gavel's problem, because the machines of a job may be of different
    kinds. If a job may hold very many machines, each row stands for a few of them.
    """
    owner, size = _rows(demand)
    rows = [demand[m] for m in owner.tolist()]
    count = len(rows)
    jobs = ClusterJobs(
        ids=tuple(f"{job.name}[{i}]" for i, job in enumerate(rows)),
        throughputs=size[:, None] * np.stack([job.nu for job in rows]) / 3600,
        scale=size,
        weight=np.ones(count),
        steps=size * np.array([job.amount / job.most for job in rows]),
        elapsed_seconds=np.zeros(count),
        slo_seconds=np.array([job.hours_left * 3600 if job.hurries else np.inf for job in rows]),
        arrival=np.zeros(count),
        entity=(None,) * count,
    )
    budget = sum(job.budget_usd or 0.0 for job in demand) if policy == Objective.MAKESPAN_WITHIN_BUDGET else None
    problem = AllocationProblem(Cluster(tuple(map(str, kinds)), workers, usd_per_hour), jobs, budget_usd=budget)
    names = ", ".join(job.name for job in demand)
    try:
        allocation = policy_named(policy).allocate(problem)
    except BudgetTooLow as error:
        raise OverBudget(
            f"{names}: a budget of {usd_text(budget or 0)} is too low: even without a time limit, the work costs at"
            f" least {usd_text(error.least_usd)}; raise the budget"
        ) from error
    except CannotHold as error:
        raise OverBudget(f"{names}: {error}; raise the budget") from error
    if allocation.infeasible:
        raise NotInTime(
            f"{names}: the quotas do not allow machines for all deadlines; raise a quota, or allow more time"
        )
    held = np.zeros((len(demand), len(kinds)))
    np.add.at(held, owner, size[:, None] * (allocation.shares if allocation.hours is None else allocation.hours))
    return held


def _rows(demand: Sequence[Demand]) -> tuple[IntArray, IntArray]:
    """For each row of Gavel's problem, the job and how many of its machines the row stands for."""
    counts = [min(job.most, MOST_ROWS) for job in demand]
    sizes = [
        job.most // max(rows, 1) + (np.arange(rows) < job.most % max(rows, 1))
        for job, rows in zip(demand, counts, strict=True)
    ]
    return np.repeat(np.arange(len(demand)), counts), np.concatenate(sizes)


def _usd_per_work(job: Demand, usd_per_hour: FloatArray) -> FloatArray:
    infinite = np.full(len(usd_per_hour), np.inf)
    np.divide(usd_per_hour, job.nu, out=infinite, where=job.nu > 0)
    return infinite


def _require_possible(
    job: Demand, kinds: Sequence[MachineKind], workers: FloatArray, groups: Sequence[QuotaGroup]
) -> None:
    caps = _caps(job, workers)
    fastest = max(
        (rate for place in places(kinds) if (rate := _fastest(job, place, caps, groups)) is not None),
        key=lambda rate: rate.rate,
        default=None,
    )
    if fastest is None or fastest.rate <= 0:
        most = int(np.where(job.nu > 0, caps, 0).max(initial=0))
        raise NotInTime(
            f"{job.name}: needs at least {job.least} machines, and quotas allow at most {most}"
            f" ({', '.join(str(group.quota) for group in groups)}); raise a quota ('spotctl doctor' says how)"
        )
    if not job.hurries:
        return
    hours = job.amount / fastest.rate
    if hours > job.hours_left:
        used = [(count, kind) for count, kind in zip(fastest.machines, kinds, strict=True) if count]
        named = " and ".join(f"{count:,} {'machine' if count == 1 else 'machines'} of {kind}" for count, kind in used)
        needed = np.ceil(job.amount / max(job.hours_left, _ROUNDING) / float(job.nu.max()))
        more = f", or {needed:,.0f} machines" if job.hours_left > 0 else ""
        if sum(fastest.machines) < job.most or len(used) > 1:
            more = ", or raise a quota"
        raise NotInTime(
            f"{job.name}: its deadline cannot be met: after start-up {max(job.hours_left, 0):.2g} hours are left, and"
            f" {named}, the fastest, need {hours:.3g}; allow {hours - job.hours_left:.2g} hours more{more}"
        )


def _parts(groups: Sequence[QuotaGroup], limits: FloatArray) -> list[QuotaGroup]:
    return [replace(group, most=limit) for group, limit in zip(groups, limits.tolist(), strict=True)]


def _in_time(job: Demand, kinds: Sequence[MachineKind], caps: IntArray, groups: Sequence[QuotaGroup]) -> bool:
    rates = (_fastest(job, place, _within_groups(caps, groups), groups) for place in places(kinds))
    fastest = max((rate.rate for rate in rates if rate is not None), default=0.0)
    return not job.hurries or fastest * job.hours_left >= job.amount


def _in_turn(
    demand: Sequence[Demand], kinds: Sequence[MachineKind], usd_per_hour: FloatArray, groups: Sequence[QuotaGroup]
) -> FloatArray:
    """Parts of the quotas for whole machines that keep every deadline: each job takes the cheapest mixture that is in
    time, the most urgent job first, and the rest is divided equally."""
    left, parts = list(groups), np.zeros((len(demand), len(groups)))
    hurried = [m for m, job in enumerate(demand) if job.hurries]
    for m in sorted(hurried, key=lambda m: -demand[m].amount / max(demand[m].hours_left, _ROUNDING)):
        job = demand[m]
        caps = _within_groups(np.where(job.nu > 0, job.most, 0), left)
        schedules = (
            cheapest(mixture_terms(job, place, caps, left, usd_per_hour), job.amount, job.hours_left)
            for place in places(kinds)
        )
        best = min(filter(None, schedules), key=lambda schedule: schedule.usd, default=None)
        if best is None:
            names = ", ".join(job.name for job in demand)
            raise NotInTime(
                f"{names}: the quotas do not hold machines for all deadlines at the"
                f" same time, and none are left for {job.name}; raise a quota, or run the jobs one after the other"
            )
        machines = np.max([phase.mixture.machines for phase in best.phases], axis=0)
        used = np.array([float(group.per_machine @ machines) for group in left])
        parts[m] = used
        left = [replace(group, most=group.most - use) for group, use in zip(left, used.tolist(), strict=True)]
    return parts + np.array([group.most for group in left]) / len(demand)


def places(kinds: Sequence[MachineKind]) -> list[IntArray]:
    """The columns of each region; all machines of a job are in one, because they communicate with each other."""
    grouped: dict[tuple[str, str], list[int]] = {}
    for j, kind in enumerate(kinds):
        grouped.setdefault((kind.cloud, kind.region), []).append(j)
    return [np.array(columns) for columns in grouped.values()]


def mixture_terms(
    job: Demand, place: IntArray, caps: IntArray, groups: Sequence[QuotaGroup], usd_per_hour: FloatArray | None = None
) -> MixtureTerms:
    """The terms of mixtures of all columns; only those of one region can be rented together."""
    here = np.isin(np.arange(len(job.nu)), place) & (job.nu > 0)
    price = np.zeros(len(job.nu)) if usd_per_hour is None else usd_per_hour
    options = tuple(
        KindOption(float(nu), float(usd), int(cap) if usable else 0)
        for nu, usd, cap, usable in zip(job.nu, price, caps, here, strict=True)
    )
    quotas = tuple(SharedQuota(tuple(group.per_machine.tolist()), group.most) for group in groups)
    return MixtureTerms(options, job.least, job.most, quotas=quotas)


def _fastest(job: Demand, place: IntArray, caps: IntArray, groups: Sequence[QuotaGroup]) -> Mixture | None:
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
