"""The use of quotas by running jobs: the rest for a new job, and the larger part when another run ends. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bidbrain.eviction.hazard import family_of
from pricing_data.catalog import Catalog, InstanceType
from pricing_data.errors import UnknownInstanceType
from pricing_data.market import Market
from spotctl.home.quotas import Quota
from spotctl.planning.quota_groups import use_of

MachineCounts = Mapping[Market, int]
"""Spot or on-demand machines by market."""


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
