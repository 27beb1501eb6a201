"""On-demand quotas, and the on-demand machines of plans: what an account may not rent, and what it would lack. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from pricing_data.catalog import Catalog
from pricing_data.market import Market
from spotctl.planning.errors import NotInTime
from spotctl.planning.quota_use import Machines, left_of, used
from spotctl.planning.request import ON_DEMAND
from spotctl.planning.values import JobPlan
from spotctl.quotas import Quota


def lacking(
    plans: Sequence[JobPlan], quotas: Sequence[Quota], held: Sequence[Machines], catalog: Catalog
) -> tuple[str, ...]:
    """Remarks on quotas that cannot hold all on-demand machines that the jobs may come to rent; `held` are those of
    running jobs. Raises NotInTime if a quota cannot even hold those without which the jobs do not run."""
    certain, possible = _sum(map(_certain, plans)), _sum(map(_possible, plans))
    remarks = list[str]()
    # Quotas for every region are stated for those of the plans, too.
    for quota in left_of(quotas, [*held, dict.fromkeys(possible, 0)], catalog):
        names = ", ".join(plan.job.spec.name for plan in plans if used(quota, _possible(plan), catalog) > 0)
        if (needed := used(quota, certain, catalog)) > quota.amount:
            raise NotInTime(
                f"{names}: the on-demand machines that it needs use {needed} {quota.unit} of quota {quota.name}, which"
                f" has {quota.amount} left; raise it ('spotctl doctor' says how), or choose fewer or smaller machines,"
                " or another region"
            )
        if (needed := used(quota, possible, catalog)) > quota.amount:
            remarks.append(
                f"quota {quota.name} has {quota.amount} {quota.unit} left, and on-demand machines of {names} may need"
                f" {needed}: raise it ('spotctl doctor' says how), or the job may end later than planned"
            )
    return tuple(remarks)


def _certain(plan: JobPlan) -> Counter[Market]:
    """The reliable machines, and the fewest machines of a job that wants on-demand machines only."""
    found, least = _reliable(plan), plan.job.spec.resources.machines.least
    if plan.job.spec.strategy == ON_DEMAND and len(plan.choice) == 1:
        found[plan.choice[0].rent.offer.market] += least
    return found


def _possible(plan: JobPlan) -> Counter[Market]:
    """The reliable machines, and those on demand with which the job begins, or to which a deadline may make it turn."""
    begins = _sum([Counter({one.rent.offer.market: one.rent.machines}) for one in plan.choice if one.rent.bid is None])
    rent, hurries = plan.decider.baseline, plan.decider.deadline is not None
    fallback = Counter({rent.offer.market: rent.machines if hurries else 0})
    return _reliable(plan) + (begins or fallback)


def _reliable(plan: JobPlan) -> Counter[Market]:
    rent = plan.decider.reliable
    return Counter() if rent is None else Counter({rent.offer.market: rent.machines})


def _sum(parts: Iterable[Counter[Market]]) -> Counter[Market]:
    return sum(parts, Counter[Market]())
