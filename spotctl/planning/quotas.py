"""The use of quotas: what machines take of them, what running jobs leave for a new one, and the
parts of several jobs. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.decision.limits import CommonQuota
from bidbrain.eviction.hazard import family_of
from bidbrain.queue.values import JobQueue
from bidbrain.strategies.base import Offer, Rent
from bidbrain.strategies.names import ON_DEMAND
from pricing_data.catalog import Catalog, InstanceType
from pricing_data.market import Market
from pricing_data.units import HOUR
from spotctl.home.quotas import Quota, QuotaUnit
from spotctl.planning.errors import NotInTime
from spotctl.planning.offers import MachineKind, is_sold_on_demand
from spotctl.planning.values import JobPlan

MachineCounts = Mapping[Market, int]
"""Spot or on-demand machines by market."""
_ROUNDING = 1e-6


NO_QUEUE = JobQueue(0.0, (), ())


@dataclass(frozen=True, slots=True)
class AccountQuotas:
    """The known quotas of an account for spot and for on-demand machines, and what running jobs of
    the home hold of each, by job; what the jobs of the `queue`, maybe none, hold of spot machines
    is divided again."""

    spot: tuple[Quota, ...] = ()
    on_demand: tuple[Quota, ...] = ()
    spot_held: Mapping[str, MachineCounts] = field(default_factory=dict)
    on_demand_held: Mapping[str, MachineCounts] = field(default_factory=dict)
    queue: JobQueue = NO_QUEUE

    def left(self, catalog: Catalog) -> tuple[Quota, ...]:
        """The quotas without what running jobs hold."""
        spot = left_of(self.spot, list(self.spot_held.values()), catalog)
        on_demand_machines = self.on_demand_held.values()
        on_demand = left_of(self.on_demand, list(on_demand_machines), catalog)
        return spot + on_demand

    def remarks(self, catalog: Catalog) -> tuple[str, ...]:
        """Remarks on the spot machines that running jobs hold."""
        remarks = []
        spot_machines = self.spot_held.values()
        for left in left_of(self.spot, list(spot_machines), catalog):
            by_job = {
                job: used(left, machines, catalog) for job, machines in self.spot_held.items()
            }
            jobs_using = (job for job, amount in by_job.items() if amount)
            names = ", ".join(jobs_using)
            if names:
                held = f"{sum(by_job.values())} {left.unit} are held by running jobs ({names})"
                remarks.append(f"quota {left.name}: {held}, {left.amount} are left")

        return tuple(remarks)


@dataclass(frozen=True, slots=True, eq=False)
class QuotaGroup:
    """An amount that several kinds share, and its use by one machine of each kind (0 for kinds that
    do not count).
    """

    quota: Quota
    per_machine: Floats
    most: float

    def machines(self, unlimited: float) -> Floats:
        """The most machines of each kind, if it had the whole amount."""
        uses = self.per_machine
        each = np.where(uses > 0, uses, 1.0)
        whole = self.most / each + _ROUNDING
        return np.where(uses > 0, np.floor(whole), unlimited)


def left_of(
    quotas: Iterable[Quota], held: Sequence[MachineCounts], catalog: Catalog
) -> tuple[Quota, ...]:
    """The quotas without the machines of running jobs. A quota for every region is split into the
    regions where jobs hold machines."""
    every: Counter[Market] = Counter()
    for machines in held:
        every.update(machines)

    stated: list[Quota] = []
    for quota in quotas:
        regions = {
            market.region for market in every if quota.is_for_each_region and _counts(quota, market)
        }
        of_regions = (quota.within(region) for region in sorted(regions))
        stated += [quota, *of_regions]

    remaining = []
    for quota in stated:
        taken = used(quota, every, catalog)
        amount = max(quota.amount - taken, 0)
        remaining.append(replace(quota, amount=amount))
    return tuple(remaining)


def used(quota: Quota, machines: MachineCounts, catalog: Catalog) -> int:
    """How much of a quota machines use; 0 for a quota that holds in each region separately."""
    if quota.is_for_each_region:
        return 0

    amount = 0.0
    for market, count in machines.items():
        if not _counts(quota, market):
            continue
        cloud = market.cloud
        name = market.instance_type
        machine = None
        if catalog.knows(cloud, name):
            machine = catalog.instance_type(cloud, name)
        amount += count * use_of(machine, quota.unit)

    return round(amount)


def most_machines(
    quota: Quota, market: Market, held: MachineCounts, catalog: Catalog
) -> int | None:
    """How many machines of a market a quota allows besides others; None if such machines do not
    count against it.
    """
    here = quota.within(market.region)
    each = used(here, {market: 1}, catalog)
    if each:
        taken = used(here, held, catalog)
        return max(here.amount - taken, 0) // each
    return None


def _counts(quota: Quota, market: Market) -> bool:
    """Whether machines of a market count against a quota."""
    family = family_of(market.instance_type)
    return quota.covers(market.cloud, market.region, family, market.instance_type)


def on_demand_slices(
    quotas: Iterable[Quota], needs: Sequence[MachineCounts], catalog: Catalog
) -> list[tuple[Quota, ...]]:
    """By job, its parts of quotas: what it needs, or an equal part of what the jobs that need less
    leave over.
    """
    nothing_more = dict.fromkeys(chain(*needs), 0)
    stated = left_of(quotas, [nothing_more], catalog)
    amounts = [_amounts(quota, needs, catalog) for quota in stated]
    return [
        tuple(
            replace(quota, amount=by_job[job])
            for quota, by_job in zip(stated, amounts, strict=True)
        )
        for job in range(len(needs))
    ]


def _amounts(quota: Quota, needs: Sequence[MachineCounts], catalog: Catalog) -> list[int]:
    """A quota in whole machines, by job; the job that is named first gets more of what cannot be
    divided.
    """
    if quota.is_for_each_region:
        # Its regions are stated, too.
        return [quota.amount] * len(needs)

    uses = [used(quota, need, catalog) for need in needs]
    parts = [0] * len(needs)
    left = quota.amount

    numbers = range(len(needs))
    for rank, job in enumerate(sorted(numbers, key=lambda job: (uses[job], -job))):
        jobs_left = len(needs) - rank
        parts[job] = min(uses[job], left // jobs_left)
        if parts[job] < uses[job]:
            smallest = min(
                use for market in needs[job] if (use := used(quota, {market: 1}, catalog))
            )
            parts[job] -= parts[job] % smallest
        left -= parts[job]

    return [part + left // len(needs) for part in parts]


def quota_groups(
    kinds: Sequence[MachineKind], machines: Sequence[InstanceType | None], quotas: Sequence[Quota]
) -> list[QuotaGroup]:
    """The groups of kinds that share an amount, by quota and region."""
    used: dict[Quota, Floats] = {}
    for quota in quotas:
        for j, (kind, machine) in enumerate(zip(kinds, machines, strict=True)):
            if quota.covers(kind.cloud, kind.region, family_of(kind.type), kind.type):
                used.setdefault(quota.within(kind.region), np.zeros(len(kinds)))[j] = use_of(
                    machine, quota.unit
                )
    return [QuotaGroup(quota, uses, float(quota.amount)) for quota, uses in used.items()]


def use_of(machine: InstanceType | None, unit: QuotaUnit) -> float:
    """How much of a quota one machine uses; a machine that the catalog does not know counts as
    one."""
    if unit is QuotaUnit.MACHINES or machine is None:
        return 1.0
    return float(machine.vcpus if unit is QuotaUnit.VCPUS else machine.accelerators)


def on_demand_limits(
    offers: Iterable[Offer], reliable: Rent | None, quotas: Sequence[Quota], catalog: Catalog
) -> Mapping[Market, int]:
    """The most on-demand machines of each market that a quota limits, and none where the cloud
    sells none."""
    limits = {}
    for offer in offers:
        holding = _holding(quotas, offer.market, reliable, catalog)
        sold = [] if is_sold_on_demand(offer.market) else [0]
        limits[offer.market] = [most for most, _ in holding] + sold
    return {market: min(most) for market, most in limits.items() if most}


def shared_quotas(
    offers: Iterable[Offer], reliable: Rent | None, quotas: Sequence[Quota], catalog: Catalog
) -> tuple[CommonQuota[Market], ...]:
    """The rest of each quota that machines of several markets count against, without the reliable
    machines.
    """
    held = _held(reliable)
    uses = _uses(offers, quotas, catalog)
    common = []
    for quota, by_market in uses.items():
        if len(by_market) > 1:
            taken = used(quota, held, catalog)
            amount = max(quota.amount - taken, 0)
            common.append(CommonQuota(amount, by_market))
    return tuple(common)


def spot_quotas(
    offers: Iterable[Offer], parts: Sequence[Quota], catalog: Catalog
) -> tuple[CommonQuota[Market], ...]:
    """A job's parts of the quotas of spot machines that its markets count against."""
    uses = _uses(offers, parts, catalog)
    return tuple(CommonQuota(part.amount, by_market) for part, by_market in uses.items())


def _uses(
    offers: Iterable[Offer], quotas: Sequence[Quota], catalog: Catalog
) -> dict[Quota, dict[Market, int]]:
    """The part of each quota that one machine of each market takes."""
    uses: dict[Quota, dict[Market, int]] = {}
    for market in (offer.market for offer in offers):
        for quota in (quota.within(market.region) for quota in quotas):
            if each := used(quota, {market: 1}, catalog):
                uses.setdefault(quota, {})[market] = each
    return uses


def tightest(
    quotas: Sequence[Quota], market: Market, reliable: Rent | None, catalog: Catalog
) -> tuple[int, Quota]:
    """The quota that holds the fewest machines of a market, and how many."""
    holdings = _holding(quotas, market, reliable, catalog)
    return min(holdings, key=lambda pair: pair[0])


def _holding(
    quotas: Sequence[Quota], market: Market, reliable: Rent | None, catalog: Catalog
) -> Iterator[tuple[int, Quota]]:
    held = _held(reliable)
    for quota in quotas:
        if (most := most_machines(quota, market, held, catalog)) is not None:
            yield most, quota


def _held(reliable: Rent | None) -> Counter[Market]:
    if reliable is None:
        return Counter()
    return Counter({reliable.offer.market: reliable.machines})


def on_demand_remarks(
    plans: Sequence[JobPlan],
    quotas: Sequence[Quota],
    held: Sequence[MachineCounts],
    catalog: Catalog,
) -> tuple[str, ...]:
    """Remarks on quotas that are too small for all on-demand machines that the jobs may rent;
    `held` are the machines of running jobs. Raises NotInTime if a quota is too small for the
    machines that the jobs need in any case."""
    certain_of_plans = []
    for plan in plans:
        machines = _held(plan.decider.reliable)
        choice = plan.cost.choice
        if plan.job.spec.strategy == ON_DEMAND and len(choice) == 1:
            machines[choice[0].rent.offer.market] += plan.job.spec.resources.machines.least
        certain_of_plans.append(machines)

    certain = sum(certain_of_plans, Counter[Market]())
    most = sum(map(possible, plans), Counter[Market]())
    remarks = [remark for plan in plans for remark in _limited(plan, catalog)]
    # Quotas for every region are stated for those of the plans, too.
    nothing_more = dict.fromkeys(most, 0)
    for quota in left_of(quotas, [*held, nothing_more], catalog):
        names_of_jobs = (
            plan.job.spec.name for plan in plans if used(quota, possible(plan), catalog) > 0
        )
        names = ", ".join(names_of_jobs)
        if (needed := used(quota, certain, catalog)) > quota.amount:
            raise NotInTime(
                f"{names}: the on-demand machines need {needed} {quota.unit} of quota "
                f"{quota.name}, which has"
                f" {quota.amount} left; raise the quota ('spotctl doctor' says how), or choose "
                "fewer or smaller machines, or another region"
            )
        if (needed := used(quota, most, catalog)) > quota.amount:
            remarks.append(
                f"quota {quota.name} has {quota.amount} {quota.unit} left, but on-demand machines "
                f"of {names} may need"
                f" {needed}: raise the quota ('spotctl doctor' says how), or the job may finish "
                "later than planned"
            )

    return tuple(remarks)


def possible(plan: JobPlan) -> Counter[Market]:
    """The reliable machines, and the on-demand machines with which the job begins, or to which it
    may turn.
    """
    rents = [
        choice.rent
        for choice in plan.cost.choice
        if choice.rent.bid is None and not choice.rent.offer.market.reservation
    ]

    at_begin = [Counter({rent.offer.market: rent.machines}) for rent in rents]
    begins = sum(at_begin, Counter[Market]())
    rent = plan.decider.fallback
    on_fallback = rent.machines if _may_turn(plan) else 0
    fallback = Counter({rent.offer.market: on_fallback})
    return _held(plan.decider.reliable) + (begins or fallback)


def _may_turn(plan: JobPlan) -> bool:
    """Whether a deadline, or spot that keeps failing a gang, may make the job turn to on-demand
    machines.
    """
    return plan.decider.deadline is not None or plan.decider.limits.together


def _limited(plan: JobPlan, catalog: Catalog) -> Iterable[str]:
    """A remark on a job that would turn to more on-demand machines than quotas allow."""
    wanted = plan.decider.baseline
    most = plan.decider.fallback.machines
    if not _may_turn(plan) or most >= wanted.machines:
        return

    span = plan.cost.fallback.hours * HOUR
    end = plan.at + round(span)
    late = plan.decider.deadline is not None and end > plan.decider.deadline

    if not most:
        means = "so the job can only wait for spot" + (
            ", and may miss its deadline" if plan.decider.deadline else ""
        )
    elif late:
        means = "so without spot the job would miss its deadline"
    else:
        means = "so the job switches to on-demand earlier"

    kind = wanted.offer.market.instance_type
    if not is_sold_on_demand(wanted.offer.market):
        yield f"{plan.job.spec.name}: {kind} is not sold on demand, {means}; allow a type that is"
        return
    _, quota = tightest(
        plan.share.on_demand_quotas, wanted.offer.market, plan.decider.reliable, catalog
    )
    yield (
        f"{plan.job.spec.name}: quota {quota.name} allows {most or 'too few'} of the "
        f"{wanted.machines} on-demand {kind}"
        f" that the job may switch to, {means}; raise the quota ('spotctl doctor' says how)"
    )
