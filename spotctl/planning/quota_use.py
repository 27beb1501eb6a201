"""The use of quotas: what machines take of them, what running jobs leave for a new one, the parts of several jobs, and
the larger part when another run ends. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np

from bidbrain.eviction.hazard import family_of
from bidbrain.gavel.arrays import FloatArray
from pricing_data.catalog import Catalog, InstanceType
from pricing_data.errors import UnknownInstanceType
from pricing_data.market import Market
from spotctl.home.quotas import Quota, QuotaUnit
from spotctl.planning.offers import MachineKind

MachineCounts = Mapping[Market, int]
"""Spot or on-demand machines by market."""
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class AccountQuotas:
    """The known quotas of an account for spot and for on-demand machines, and what running jobs of the home hold of
    each, by job."""

    spot: tuple[Quota, ...] = ()
    on_demand: tuple[Quota, ...] = ()
    spot_held: Mapping[str, MachineCounts] = field(default_factory=dict)
    on_demand_held: Mapping[str, MachineCounts] = field(default_factory=dict)

    def left(self, catalog: Catalog) -> tuple[Quota, ...]:
        """The quotas without what running jobs hold."""
        spot = left_of(self.spot, list(self.spot_held.values()), catalog)
        return spot + left_of(self.on_demand, list(self.on_demand_held.values()), catalog)

    def remarks(self, catalog: Catalog) -> tuple[str, ...]:
        """Remarks on the spot machines that running jobs hold."""
        left = left_of(self.spot, list(self.spot_held.values()), catalog)
        return tuple(remark for quota in left if (remark := self._remark(quota, catalog)))

    def _remark(self, left: Quota, catalog: Catalog) -> str:
        by_job = {job: used(left, machines, catalog) for job, machines in self.spot_held.items()}
        names = ", ".join(job for job, amount in by_job.items() if amount)
        held = f"quota {left.name}: {sum(by_job.values())} {left.unit} are held by running jobs ({names})"
        return f"{held}, {left.amount} are left" if names else ""


def left_of(quotas: Iterable[Quota], held: Sequence[MachineCounts], catalog: Catalog) -> tuple[Quota, ...]:
    """The quotas without the machines of running jobs. A quota for every region is split into the regions where jobs
    hold machines."""
    every = _together(held)
    stated = _stated(quotas, every)
    return tuple(replace(quota, amount=max(quota.amount - used(quota, every, catalog), 0)) for quota in stated)


def grown_parts(
    parts: Iterable[Quota],
    quotas: Sequence[Quota],
    run: str,
    held: Mapping[str, MachineCounts],
    catalog: Catalog,
) -> tuple[Quota, ...]:
    """A run's parts after another run has ended, if they are larger: `held` are the machines by run.

    What is free is divided equally in machines like the run's own. If some remain, the runs that hold least get one
    more, in the order of their names.
    """

    def share(part: Quota) -> Quota:
        whole = max((quota.amount for quota in quotas if _whole_of(part, quota)), default=0)
        uses = {name: used(part, machines, catalog) for name, machines in held.items()}
        free = max(whole - sum(uses.values()), 0)
        each = min((use for market in held[run] if (use := used(part, {market: 1}, catalog))), default=1)
        equal, rest = divmod(free // each, len(held))
        rank = sorted(uses, key=lambda name: (uses[name], name)).index(run)
        return replace(part, amount=max(part.amount, uses[run] + each * (equal + (rank < rest))))

    return tuple(share(part) for part in parts)


def used(quota: Quota, machines: MachineCounts, catalog: Catalog) -> int:
    """How much of a quota machines use; 0 for a quota that holds in each region separately."""
    if quota.is_for_each_region:
        return 0
    return round(
        sum(
            count * use_of(_machine(market, catalog), quota.unit)
            for market, count in machines.items()
            if _counts(quota, market)
        )
    )


def most_machines(quota: Quota, market: Market, held: MachineCounts, catalog: Catalog) -> int | None:
    """How many machines of a market a quota allows besides others; None if such machines do not count against it."""
    here = quota.within(market.region)
    each = used(here, {market: 1}, catalog)
    return max(here.amount - used(here, held, catalog), 0) // each if each else None


def _counts(quota: Quota, market: Market) -> bool:
    """Whether machines of a market count against a quota."""
    return quota.covers(market.cloud, market.region, family_of(market.instance_type), market.instance_type)


def _stated(quotas: Iterable[Quota], held: MachineCounts) -> list[Quota]:
    stated: list[Quota] = []
    for quota in quotas:
        regions = sorted({market.region for market in held if quota.is_for_each_region and _counts(quota, market)})
        stated += [quota, *(quota.within(region) for region in regions)]
    return stated


def _whole_of(part: Quota, quota: Quota) -> bool:
    """Whether a part belongs to this quota, or to the quota's amount in one region."""
    within = quota if part.region is None else quota.within(part.region)
    return part.unit is quota.unit and part.name in (quota.name, within.name)


def _together(held: Iterable[MachineCounts]) -> Counter[Market]:
    every: Counter[Market] = Counter()
    for machines in held:
        every.update(machines)
    return every


def _machine(market: Market, catalog: Catalog) -> InstanceType | None:
    try:
        return catalog.instance_type(market.cloud, market.instance_type)
    except UnknownInstanceType:
        return None


def on_demand_parts(
    quotas: Iterable[Quota], needs: Sequence[MachineCounts], catalog: Catalog
) -> list[tuple[Quota, ...]]:
    """By job, its parts of quotas: what it needs, or an equal part of what the jobs that need less leave over."""
    stated = left_of(quotas, [dict.fromkeys(chain(*needs), 0)], catalog)
    amounts = [_amounts(quota, needs, catalog) for quota in stated]
    return [
        tuple(replace(quota, amount=by_job[job]) for quota, by_job in zip(stated, amounts, strict=True))
        for job in range(len(needs))
    ]


def _amounts(quota: Quota, needs: Sequence[MachineCounts], catalog: Catalog) -> list[int]:
    """A quota in whole machines, by job; the job that is named first gets more of what cannot be divided."""
    if quota.is_for_each_region:
        # Its regions are stated, too.
        return [quota.amount] * len(needs)
    uses, parts, left = [used(quota, need, catalog) for need in needs], [0] * len(needs), quota.amount
    for rank, job in enumerate(sorted(range(len(needs)), key=lambda job: (uses[job], -job))):
        parts[job] = min(uses[job], left // (len(needs) - rank))
        if parts[job] < uses[job]:
            parts[job] -= parts[job] % _smallest_use(quota, needs[job], catalog)
        left -= parts[job]
    return [part + left // len(needs) for part in parts]


def _smallest_use(quota: Quota, need: MachineCounts, catalog: Catalog) -> int:
    """How much of a quota the smallest machine of a job takes."""
    return min(use for market in need if (use := used(quota, {market: 1}, catalog)))


@dataclass(frozen=True, slots=True, eq=False)
class QuotaGroup:
    """An amount that several kinds share, and its use by one machine of each kind (0 for kinds that do not count)."""

    quota: Quota
    per_machine: FloatArray
    most: float

    def machines(self, unlimited: float) -> FloatArray:
        """The most machines of each kind, if it had the whole amount."""
        uses = self.per_machine
        return np.where(uses > 0, np.floor(self.most / np.where(uses > 0, uses, 1.0) + _ROUNDING), unlimited)


def quota_groups(
    kinds: Sequence[MachineKind], machines: Sequence[InstanceType | None], quotas: Sequence[Quota]
) -> list[QuotaGroup]:
    """The groups of kinds that share an amount, by quota and region."""
    used: dict[Quota, FloatArray] = {}
    for quota in quotas:
        for j, (kind, machine) in enumerate(zip(kinds, machines, strict=True)):
            if quota.covers(kind.cloud, kind.region, family_of(kind.type), kind.type):
                used.setdefault(quota.within(kind.region), np.zeros(len(kinds)))[j] = use_of(machine, quota.unit)
    return [QuotaGroup(quota, uses, float(quota.amount)) for quota, uses in used.items()]


def use_of(machine: InstanceType | None, unit: QuotaUnit) -> float:
    """How much of a quota one machine uses; a machine that the catalog does not know counts as one."""
    if unit is QuotaUnit.MACHINES or machine is None:
        return 1.0
    return float(machine.vcpus if unit is QuotaUnit.VCPUS else machine.accelerators)
