"""Asks clouds for the quotas of the markets in which jobs are about to rent."""

from collections.abc import Collection
from contextlib import closing, nullcontext, suppress
from itertools import groupby

from bidbrain.eviction.hazard import family_of
from pricing_data.market import Market
from spotctl.clouds.capabilities import Closes, StatesQuotas
from spotctl.clouds.wiring import cloud_provider
from spotctl.home import account_quotas
from spotctl.home.config import Settings
from spotctl.home.errors import SpotctlError
from spotctl.home.wall_clock import wall_us


def unknown_quotas(markets: Collection[Market], settings: Settings) -> set[Market]:
    """The markets without a quota that was read in the last day; spot and on-demand quotas are read together."""
    stated = [entry.quota for entry in account_quotas.read_lately(settings, wall_us()) if entry.quota.spot]
    # A cloud with quotas by region may state one of all regions, too, which says nothing of a region's own.
    by_region = {quota.cloud for quota in stated if quota.region is not None}
    read = [quota for quota in stated if quota.region is not None or quota.cloud not in by_region]
    return {
        market
        for market in markets
        if not any(
            quota.covers(market.cloud, market.region, family_of(market.instance_type), market.instance_type)
            for quota in read
        )
    }


def ask_quotas(markets: Collection[Market], settings: Settings) -> None:
    """Asks the clouds that state quotas, and keeps the answers.

    A quota that cannot be read stays unknown: the cloud decides at the purchase.
    """
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
