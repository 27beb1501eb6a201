"""Step 3 of a plan: the division of machines and quotas among the jobs. Pure."""

from collections.abc import Sequence
from dataclasses import replace
from math import inf

import numpy as np

from pricing_data.units import counted
from spotctl.planning.allocation import AllocatedJob, JobCandidates, KindColumns, PlanCandidates, QuotaShare
from spotctl.planning.job import Demand
from spotctl.planning.quota_use import QuotaGroup
from spotctl.planning.share import JobShare, shares_of
from spotctl.planning.turns import QuotaPart


def divide(fitting: PlanCandidates, startup_hours: float) -> list[AllocatedJob]:
    """Each job with its share of machines and quotas; raises NotInTime or OverBudget if a job gets none."""
    columns = fitting.columns
    demands = [candidate.demand for candidate in fitting.jobs]
    shares = shares_of(demands, columns.kinds, columns.usd_per_hour, columns.quotas, startup_hours)
    return [
        _allocated(candidate, share, _quota_shares(m, demands, shares, columns), columns)
        for m, (candidate, share) in enumerate(zip(fitting.jobs, shares, strict=True))
    ]


def _allocated(
    candidate: JobCandidates, share: JobShare, quotas: tuple[QuotaShare, ...], columns: KindColumns
) -> AllocatedJob:
    demand = candidate.demand
    if 0 < share.turn.begin < inf:
        demand = replace(demand, hours_left=demand.hours_left - share.turn.begin)
    share = replace(share, lacking=_lacking(demand, quotas, columns))
    return AllocatedJob(candidate.job, demand, candidate.rates, candidate.fitting, candidate.unusable, share, quotas)


def _quota_shares(
    m: int, demands: Sequence[Demand], shares: Sequence[JobShare], columns: KindColumns
) -> tuple[QuotaShare, ...]:
    """The quotas that the kinds of a plan count against, and the part of each that job number `m` gets."""
    every = []
    for g, group in enumerate(columns.quotas):
        parts = [
            QuotaPart(demand.name, share.quotas[g], share.turn, _least_use(demand, share, group))
            for demand, share in zip(demands, shares, strict=True)
        ]
        own = replace(group.quota, amount=parts[m].amount)
        in_order = tuple(sorted(parts, key=lambda part: part.turn.begin))
        every.append(QuotaShare(group.quota, own, in_order, is_enough=not shares[m].short[g]))
    return tuple(every)


def _least_use(demand: Demand, share: JobShare, group: QuotaGroup) -> int:
    """How much of a quota the job needs to begin: with a deadline, all of its part; otherwise what the fewest machines
    use, of whichever planned kind, as far as its part allows."""
    planned = int(group.per_machine @ share.turn.machines) if share.turn.machines else 0
    if demand.hurries:
        return planned
    uses = (each for each, held in zip(group.per_machine, share.turn.machines, strict=False) if held)
    return min(planned, int(max(demand.least, 1) * max(uses, default=0.0)))


def _lacking(demand: Demand, quotas: Sequence[QuotaShare], columns: KindColumns) -> dict[int, str]:
    """For each kind that a quota makes too small for the job, that quota."""
    least, reasons = max(demand.least, 1), dict[int, str]()
    for share, group in zip(quotas, columns.quotas, strict=True):
        for j in np.flatnonzero((demand.nu > 0) & (group.per_machine * least > share.part.amount)).tolist():
            used, quota = f"{least * group.per_machine[j]:g} {share.quota.unit}", share.quota
            reasons[j] = f"{counted(least, 'machine')} would use {used} of quota {quota.name}, which has {quota.amount}"
            if share.part.amount < quota.amount:
                reasons[j] += f"; this job's part is {share.part.amount}"
    return reasons
