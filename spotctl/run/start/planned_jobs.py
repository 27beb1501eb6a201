"""Plans of jobs that would be launched now, for `plan`, `launch` and the Python API; before a launch, with the quotas
of their clouds."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from bidbrain.eviction.hazard import family_of
from pricing_data.units import HOUR, parse_duration, parse_time
from spotctl.clouds.capabilities import Closes, StatesQuotas
from spotctl.clouds.wiring import cloud_provider, library
from spotctl.files.job.spec import check_names, check_rents
from spotctl.home import account_quotas
from spotctl.home.errors import SpotctlError
from spotctl.home.wall_clock import wall_us
from spotctl.planning.forecasting import forecast_of
from spotctl.run.start.local_market import market_now
from spotctl.run.start.planner import JobPlans, PlanMoment, plan_jobs

if TYPE_CHECKING:
    from pricing_data.market import Market
    from spotctl.files.job.spec import JobSpec
    from spotctl.home.config import Settings


def planned_jobs(specs: Sequence[JobSpec], settings: Settings, at: str = "", hours: str = "") -> JobPlans:
    """Plans jobs together, from stored prices. `at` replaces the present moment; `hours` is the length of jobs whose
    files do not say."""
    check_names(specs)
    check_rents(specs)
    when = PlanMoment(
        wall_us(),
        market_now(specs, settings),
        parse_time(at) if at else None,
        parse_duration(hours) / HOUR if hours else None,
    )
    return plan_jobs(specs, settings, library(settings), when)


def plans_to_launch(specs: Sequence[JobSpec], settings: Settings, max_cost: int | None = None) -> JobPlans:
    """Plans jobs within the quotas that their clouds state now.

    `max_cost` limits the jobs together: each gets a share in proportion to its cost without the limit.
    """
    if max_cost is None:
        return _within_account(specs, settings)
    shares = [max_cost] if len(specs) == 1 else _shares(max_cost, _within_account(specs, settings))
    return _within_account([_limited(spec, share) for spec, share in zip(specs, shares, strict=True)], settings)


def _shares(max_cost: int, plans: JobPlans) -> list[int]:
    costs = [forecast_of(plan).usd.median for plan in plans.plans]
    return [int(max_cost * cost / sum(costs)) for cost in costs]


def _limited(spec: JobSpec, most: int) -> JobSpec:
    """A job whose budget is at most this many nano-dollars."""
    return replace(spec, budget=most if spec.budget is None else min(spec.budget, most))


def _within_account(specs: Sequence[JobSpec], settings: Settings) -> JobPlans:
    asked: set[Market] = set()
    while True:
        plans = planned_jobs(specs, settings)
        rented = [plan for plan in plans.plans if not plan.job.spec.is_local]
        chosen = {choice.rent.offer.market for plan in rented for choice in plan.choice}
        chosen |= {plan.decider.reliable.offer.market for plan in rented if plan.decider.reliable is not None}
        chosen |= {plan.decider.baseline.offer.market for plan in rented}
        if not (unasked := _unknown(chosen, settings) - asked):
            return plans
        asked |= unasked
        _read(unasked, settings)


def _unknown(markets: Collection[Market], settings: Settings) -> set[Market]:
    """The markets without a quota that was read in the last day; spot and on-demand quotas are read together."""
    read = [stated.quota for stated in account_quotas.read_lately(settings, wall_us()) if stated.quota.spot]
    return {
        market
        for market in markets
        if not any(quota.covers(market.cloud, market.region, family_of(market.instance_type)) for quota in read)
    }


def _read(markets: Collection[Market], settings: Settings) -> None:
    """Reads quotas from the clouds that state them. An unknown quota stays so: the cloud decides at the purchase."""
    places = groupby(sorted(markets, key=str), key=lambda market: (market.cloud, market.region))
    for (cloud, region), there in places:
        provider = cloud_provider(settings, [cloud], [region])
        if not isinstance(provider, StatesQuotas):
            continue
        end = closing(provider) if isinstance(provider, Closes) else nullcontext()
        with end, suppress(SpotctlError):
            account_quotas.keep(
                settings, provider.quotas(region, {market.instance_type for market in there}), wall_us()
            )
