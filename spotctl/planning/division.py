"""Step 3 of a plan: the division of machines and quotas among the jobs. Pure."""

from __future__ import annotations

from dataclasses import replace

from spotctl.planning.allocation import AllocatedJob, JobCandidates, KindColumns, PlanCandidates, QuotaShare
from spotctl.planning.share import JobShare, shares_of


def divide(fitting: PlanCandidates) -> list[AllocatedJob]:
    """Each job with its share of Gavel's allocation; raises NotInTime or OverBudget if a job gets none."""
    columns = fitting.columns
    demands = [candidate.demand for candidate in fitting.jobs]
    shares = shares_of(demands, columns.kinds, columns.usd_per_hour, columns.quotas)
    return [
        _allocated(candidate, share, _quota_shares(share, len(demands), columns))
        for candidate, share in zip(fitting.jobs, shares, strict=True)
    ]


def _allocated(candidate: JobCandidates, share: JobShare, quotas: tuple[QuotaShare, ...]) -> AllocatedJob:
    return AllocatedJob(
        candidate.job, candidate.demand, share, candidate.rates, candidate.fitting, candidate.unusable, quotas
    )


def _quota_shares(share: JobShare, jobs: int, columns: KindColumns) -> tuple[QuotaShare, ...]:
    """The quotas that the kinds of a plan count against, and the job's part of each."""
    return tuple(
        QuotaShare(group.quota, replace(group.quota, amount=int(part)), jobs)
        for group, part in zip(columns.quotas, share.quotas, strict=True)
    )
