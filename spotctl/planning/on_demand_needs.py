"""The on-demand machines that plans need or may need, and remarks on quotas that are too small for them. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence

from bidbrain.strategies.names import ON_DEMAND
from pricing_data.catalog import Catalog
from pricing_data.market import Market
from pricing_data.units import HOUR
from spotctl.home.quotas import Quota
from spotctl.planning.errors import NotInTime
from spotctl.planning.on_demand_limits import tightest
from spotctl.planning.quota_use import MachineCounts, left_of, used
from spotctl.planning.values import JobPlan


def on_demand_remarks(
    plans: Sequence[JobPlan], quotas: Sequence[Quota], held: Sequence[MachineCounts], catalog: Catalog
) -> tuple[str, ...]:
    """Remarks on quotas that are too small for all on-demand machines that the jobs may rent; `held` are the machines
    of running jobs. Raises NotInTime if a quota is too small for the machines that the jobs need in any case."""
    certain, most = _sum(map(_certain, plans)), _sum(map(possible, plans))
    remarks = [remark for plan in plans for remark in _limited(plan, catalog)]
    # Quotas for every region are stated for those of the plans, too.
    for quota in left_of(quotas, [*held, dict.fromkeys(most, 0)], catalog):
        names = ", ".join(plan.job.spec.name for plan in plans if used(quota, possible(plan), catalog) > 0)
        if (needed := used(quota, certain, catalog)) > quota.amount:
            raise NotInTime(
                f"{names}: the on-demand machines need {needed} {quota.unit} of quota {quota.name}, which has"
                f" {quota.amount} left; raise the quota ('spotctl doctor' says how), or choose fewer or smaller"
                " machines, or another region"
            )
        if (needed := used(quota, most, catalog)) > quota.amount:
            remarks.append(
                f"quota {quota.name} has {quota.amount} {quota.unit} left, but on-demand machines of {names} may need"
                f" {needed}: raise the quota ('spotctl doctor' says how), or the job may finish later than planned"
            )
    return tuple(remarks)


def _certain(plan: JobPlan) -> Counter[Market]:
    """The reliable machines, and the fewest machines of a job that wants on-demand machines only."""
    machines, least = _reliable(plan), plan.job.spec.resources.machines.least
    if plan.job.spec.strategy == ON_DEMAND and len(plan.choice) == 1:
        machines[plan.choice[0].rent.offer.market] += least
    return machines


def possible(plan: JobPlan) -> Counter[Market]:
    """The reliable machines, and the on-demand machines with which the job begins, or to which it may turn."""
    rents = [
        choice.rent for choice in plan.choice if choice.rent.bid is None and not choice.rent.offer.market.reservation
    ]
    begins = _sum([Counter({rent.offer.market: rent.machines}) for rent in rents])
    rent = plan.decider.fallback
    fallback = Counter({rent.offer.market: rent.machines if _may_turn(plan) else 0})
    return _reliable(plan) + (begins or fallback)


def _may_turn(plan: JobPlan) -> bool:
    """Whether a deadline, or spot that keeps failing a gang, may make the job turn to on-demand machines."""
    return plan.decider.deadline is not None or plan.decider.limits.together


def _limited(plan: JobPlan, catalog: Catalog) -> Iterable[str]:
    """A remark on a job that would turn to more on-demand machines than quotas allow."""
    wanted, most = plan.decider.baseline, plan.decider.fallback.machines
    if not _may_turn(plan) or most >= wanted.machines:
        return
    _, quota = tightest(plan.allocated.on_demand_quotas, wanted.offer.market, plan.decider.reliable, catalog)
    end = plan.at + round(plan.cost.fallback.hours * HOUR)
    late = plan.decider.deadline is not None and end > plan.decider.deadline
    if not most:
        means = "so the job can only wait for spot" + (", and may miss its deadline" if plan.decider.deadline else "")
    elif late:
        means = "so without spot the job would miss its deadline"
    else:
        means = "so the job switches to on-demand earlier"
    kind = wanted.offer.market.instance_type
    yield (
        f"{plan.job.spec.name}: quota {quota.name} allows {most or 'too few'} of the {wanted.machines} on-demand {kind}"
        f" that the job may switch to, {means}; raise the quota ('spotctl doctor' says how)"
    )


def _reliable(plan: JobPlan) -> Counter[Market]:
    rent = plan.decider.reliable
    return Counter() if rent is None else Counter({rent.offer.market: rent.machines})


def _sum(parts: Iterable[Counter[Market]]) -> Counter[Market]:
    return sum(parts, Counter[Market]())
