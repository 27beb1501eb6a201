"""The part of each quota of on-demand machines that each of several jobs may use. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain

from pricing_data.catalog import Catalog
from spotctl.home.quotas import Quota
from spotctl.planning.quota_use import MachineCounts, left_of, used


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
