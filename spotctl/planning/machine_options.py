"""Machines on which a job could spend its share, best first: mixtures of kinds in one region, or single kinds. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from bidbrain.decision.mixture_solver import MixtureTerms, Schedule, frontier
from bidbrain.decision.mixture_terms import Aim, Mixing
from bidbrain.gavel.arrays import FloatArray, IntArray
from bidbrain.values import Overheads
from pricing_data.units import HOUR
from spotctl.files.job.spec import Objective
from spotctl.planning.job import Demand, places
from spotctl.planning.offers import MachineKind
from spotctl.planning.quota_use import QuotaGroup
from spotctl.planning.share import JobShare, mixture_terms

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class KindPrices:
    """By kind: dollars per hour in its best market, the share of the time that evictions leave there, and the standing
    cost per hour (reliable machines, the value of time). Further, how long changes of machines take."""

    usd_per_hour: FloatArray
    useful: FloatArray
    standing_usd_per_hour: FloatArray
    overheads: Overheads


@dataclass(frozen=True, slots=True, eq=False)
class MachineOption:
    """Machines that a job could be planned on.

    `home` is the kind (column) of most of the first machines. Without a schedule, the job's strategy chooses among
    `home` and kinds that are about as good. With a schedule, the strategy follows the best mixture of the kinds in
    `columns`: the first `used` of them are in the schedule, the others may join when time or money gets short.
    """

    home: int
    columns: tuple[int, ...] = ()
    used: int = 1
    aim: Aim = Aim.LEAST_COST
    schedule: Schedule | None = None


def machine_options(
    job: Demand, share: JobShare, kinds: Sequence[MachineKind], prices: KindPrices, groups: Sequence[QuotaGroup]
) -> list[MachineOption]:
    """The machines that a job could be planned on, best first; the last option is the cheapest kind that is fast
    enough."""
    own = [replace(group, most=limit) for group, limit in zip(groups, share.quotas, strict=True)]
    caps = np.array(share.caps)
    # Hours of work mean hours on the kind that they are counted in.
    in_hours = job.work.hours is not None and not job.work.assumed
    alone = job.gang or in_hours
    chosen = _single_kinds(job, share, caps) if alone else _mixtures(job, share, kinds, prices, own)
    fallback = _cheapest_kind(job, share, caps)
    return [*chosen, *(option for option in fallback if option.home not in {option.home for option in chosen})]


def aim_of(job: Demand) -> Aim:
    """The aim by which a job's machines are chosen. With a budget, the aim is the speed that the budget pays for."""
    if job.objective is Objective.MAKESPAN_WITHIN_BUDGET:
        return Aim.HIGHEST_RATE if job.work.assumed else Aim.SHORTEST_TIME
    if job.objective is Objective.MAX_THROUGHPUT:
        return Aim.HIGHEST_RATE
    return Aim.LEAST_COST


def _mixtures(
    job: Demand, share: JobShare, kinds: Sequence[MachineKind], prices: KindPrices, groups: Sequence[QuotaGroup]
) -> list[MachineOption]:
    """The best mixture of each region, in the order of the job's aim."""
    ranked: list[tuple[tuple[float, ...], MachineOption]] = []
    aim = aim_of(job)
    lasting = replace(job, nu=job.nu * prices.useful)
    for place in places(kinds):
        terms = mixture_terms(lasting, place, np.array(share.caps), groups, prices.usd_per_hour)
        mixing = Mixing(
            aim, job.least, job.most, {}, {}, prices.overheads, float(prices.standing_usd_per_hour[place[0]])
        )
        terms = replace(terms, usd_per_hour=mixing.usd_per_hour, change_hours=mixing.change_hours)
        schedule = _schedule(job, mixing, terms)
        if schedule is None:
            continue
        ranked.append((_rank(job, schedule, aim), _option(job, terms, schedule, aim, groups)))
    return [option for _, option in sorted(ranked, key=lambda pair: pair[0])]


def _schedule(job: Demand, mixing: Mixing, terms: MixtureTerms) -> Schedule | None:
    """The schedule that a run would begin with."""
    work = inf if job.work.assumed or job.work.timed else job.amount
    # `hours_left` begins when the first machines have started.
    hours_left = max(job.hours_left - mixing.margin / HOUR, 0.0)
    nothing = (0,) * len(terms.kinds)
    return mixing.schedule(terms, nothing, work, hours_left, inf if job.budget_usd is None else job.budget_usd)


def _rank(job: Demand, schedule: Schedule, aim: Aim) -> tuple[float, ...]:
    late = job.hurries and schedule.hours > job.hours_left * (1 + _ROUNDING)
    usd, hours = round(schedule.usd, 9), round(schedule.hours, 9)
    if aim is Aim.LEAST_COST:
        return (late, usd, hours)
    return (late, hours, usd) if aim is Aim.SHORTEST_TIME else (late, -schedule.phases[0].mixture.rate, usd)


def _option(
    job: Demand, terms: MixtureTerms, schedule: Schedule, aim: Aim, groups: Sequence[QuotaGroup]
) -> MachineOption:
    first = schedule.phases[0].mixture.machines
    home = max(range(len(first)), key=lambda j: (first[j] * float(job.nu[j]), -j))
    used = {j for phase in schedule.phases for j, count in enumerate(phase.mixture.machines) if count}
    limited = any(len(np.flatnonzero(group.per_machine * (job.nu > 0))) > 1 for group in groups)
    presses = not job.work.timed and (job.hurries or (aim is not Aim.LEAST_COST and job.budget_usd is not None))
    follows = len(used) > 1 or presses or limited
    if not follows:
        return MachineOption(home, aim=aim)
    corners = {j for corner in frontier(terms) for j, count in enumerate(corner.machines) if count}
    return MachineOption(home, (*sorted(used), *sorted(corners - used)), len(used), aim, schedule)


def _single_kinds(job: Demand, share: JobShare, caps: IntArray) -> list[MachineOption]:
    """The kinds that are fast enough by themselves, best first."""
    aim = aim_of(job)
    possible = [j for j in np.flatnonzero((job.nu > 0) & (caps >= job.least)).tolist() if _in_time(job, j, caps)]
    cheap, quick = share.usd_per_work, -job.nu * caps
    order = (lambda j: (cheap[j], quick[j])) if aim is Aim.LEAST_COST else (lambda j: (quick[j], cheap[j]))
    return [MachineOption(j, aim=aim) for j in sorted(possible, key=order)]


def _cheapest_kind(job: Demand, share: JobShare, caps: IntArray) -> list[MachineOption]:
    possible = [j for j in np.flatnonzero((job.nu > 0) & (caps >= job.least)).tolist() if _in_time(job, j, caps)]
    return [MachineOption(min(possible, key=lambda j: share.usd_per_work[j]), aim=aim_of(job))] if possible else []


def _in_time(job: Demand, j: int, caps: IntArray) -> bool:
    return not job.hurries or float(caps[j] * job.nu[j]) * job.hours_left >= job.amount


def outside_mixture(
    job: Demand, share: JobShare, option: MachineOption, kinds: Sequence[MachineKind]
) -> dict[int, str]:
    """For each kind that no mixture of the job uses, the reason."""
    chosen = kinds[option.home]
    reasons: dict[int, str] = {}
    for j in np.flatnonzero(job.nu > 0).tolist():
        if j in option.columns:
            continue
        price = f"${float(share.usd_per_work[j]):.4g} per unit of work"
        if (kinds[j].cloud, kinds[j].region) != (chosen.cloud, chosen.region):
            reasons[j] = f"in another region, where the best machines are no better: {price}"
        elif j in share.lacking:
            reasons[j] = share.lacking[j]
        else:
            reasons[j] = f"no mixture with it is better for {option.aim}: {price}"
    return reasons
