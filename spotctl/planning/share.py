"""The machines that each job may hold: all that it could use, or its part of the quotas that are too small for all.

Parts are whole machines (`turns`). A job's strategy may use other kinds than those that its part was planned with, if
they finish in time and are not much more expensive: prices will move before the job is done.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf

import numpy as np

from bidbrain.decision.mixture_solver import KindOption, Mixture, MixtureTerms, SharedQuota, highest_rate
from bidbrain.gavel.arrays import FloatArray, IntArray
from pricing_data.units import usd_text
from spotctl.files.job.spec import Objective
from spotctl.home.errors import BadRequest
from spotctl.planning.errors import NotInTime, OverBudget
from spotctl.planning.job import Demand, places
from spotctl.planning.offers import MachineKind
from spotctl.planning.quota_use import QuotaGroup
from spotctl.planning.turns import Turn, turns_of

MOST_PRICE_RATIO = 2.0
"""Highest price per unit of work that a strategy may consider, as a multiple of the chosen kind's."""
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class JobShare:
    """A job's share: the most machines of each kind, its part of each quota, whether that quota is `short` of what all
    jobs could use, dollars per unit of work by kind, when it holds them, and the reason for each kind of which it may
    rent too few machines."""

    policy: str
    caps: tuple[int, ...]
    quotas: tuple[int, ...]
    short: tuple[bool, ...]
    usd_per_work: FloatArray
    turn: Turn
    lacking: Mapping[int, str] = field(default_factory=dict)


def shares_of(
    demand: Sequence[Demand],
    kinds: Sequence[MachineKind],
    usd_per_hour: FloatArray,
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
    short = tuple(sum(map(partial(_most_used, group), able, wanted)) > group.most for group in groups)
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
        held = tuple(np.maximum(_within_groups(caps, own), _reserved(job)).tolist())
        shares.append(JobShare(name, held, parts, short, _usd_per_work(job, usd_per_hour), turn))
    return shares


def _most_used(group: QuotaGroup, job: Demand, caps: IntArray) -> float:
    """The most that a job's machines could use of a quota."""
    uses = caps * group.per_machine
    return min(float(uses.sum()), job.most * float(group.per_machine[caps > 0].max(initial=0.0)), group.most)


def _require_affordable(job: Demand, policy: str, usd_per_hour: FloatArray) -> None:
    """Raises OverBudget if the work costs more than the budget even on the cheapest machines."""
    if policy != Objective.MAKESPAN_WITHIN_BUDGET or job.budget_usd is None or job.work.assumed:
        return
    least = float(_usd_per_work(job, usd_per_hour).min()) * job.amount
    if least > job.budget_usd * (1 + _ROUNDING):
        raise OverBudget(
            f"{job.name}: a budget of {usd_text(job.budget_usd)} is too low: even without a time limit, the work costs"
            f" at least {usd_text(least)}; raise the budget"
        )


def _caps(job: Demand, workers: FloatArray) -> IntArray:
    caps: IntArray = np.where(job.nu > 0, np.minimum(job.most, workers), 0.0).astype(np.int64)
    return np.maximum(caps, _reserved(job))


def _reserved(job: Demand) -> IntArray:
    """The machines of each kind that need no quota."""
    usable: IntArray = np.where(job.nu > 0, np.minimum(job.most, job.reserved or 0), 0).astype(np.int64)
    return usable


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
        return share.lacking.get(j) or f"quotas allow {cap} machines, and the job needs at least {job.least}"
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


def _usd_per_work(job: Demand, usd_per_hour: FloatArray) -> FloatArray:
    infinite = np.full(len(usd_per_hour), np.inf)
    np.divide(usd_per_hour, job.nu, out=infinite, where=job.nu > 0)
    return infinite


def _require_possible(
    job: Demand, kinds: Sequence[MachineKind], workers: FloatArray, groups: Sequence[QuotaGroup]
) -> None:
    caps = _caps(job, workers)
    by_quota = (_fastest(job, place, caps, groups) for place in places(kinds))
    possible = [mixture for mixture in (*by_quota, _fastest_reserved(job)) if mixture is not None]
    fastest = max(possible, key=lambda mixture: mixture.rate, default=None)
    if fastest is None or fastest.rate <= 0:
        most = int(np.where(job.nu > 0, caps, 0).max(initial=0))
        limits = "quotas and reservations" if any(job.reserved) else "quotas"
        raise NotInTime(
            f"{job.name}: needs at least {job.least} machines, and {limits} allow at most {most}"
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


def _fastest_reserved(job: Demand) -> Mixture | None:
    """The fastest machines of reservations of one kind, if they are enough for the job."""
    held = _reserved(job)
    rates = np.where(held >= job.least, held * job.nu, 0.0)
    best = int(np.argmax(rates))
    if rates[best] <= 0:
        return None
    machines = [int(held[best]) if kind == best else 0 for kind in range(len(held))]
    return Mixture(tuple(machines), float(rates[best]), 0.0)
