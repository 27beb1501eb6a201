"""Composition root: builds the adapters that the settings ask for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from pricing_data.market import is_region_of
from spotctl.clouds.parts import prices_of, provider_part
from spotctl.home.cloud import rented_clouds
from spotctl.home.errors import BadRequest

if TYPE_CHECKING:
    from pricing_data.library import Library
    from pricing_data.sources.base import Source
    from pricing_data.store import PriceStore
    from spotctl.clouds.base import CloudProvider
    from spotctl.clouds.local.provider import LocalProvider
    from spotctl.files.job.spec import JobSpec
    from spotctl.home.config import Settings


def price_store(settings: Settings, on_wait: Callable[[], None] = lambda: None) -> PriceStore:
    """The price store under the home; `on_wait` is called while another process writes to it."""
    from pricing_data.store import PriceStore

    return PriceStore(settings.price_store, on_wait, _remark_once)


@cache
def _remark_once(text: str) -> None:
    """Says once on stderr that the store was repaired; a command may open it several times."""
    sys.stderr.write(f"spotctl: {text}\n")


def library(settings: Settings) -> Library:
    """All stored market data."""
    from pricing_data.library import Library

    return Library(price_store(settings))


def sources(settings: Settings, clouds: Iterable[str] = ()) -> list[Source]:
    """The price sources of these clouds, or of all."""
    names = tuple(dict.fromkeys(clouds)) or rented_clouds()
    if unknown := [cloud for cloud in names if cloud not in rented_clouds()]:
        raise BadRequest(f"unknown cloud {unknown[0]!r}; prices can be fetched from {', '.join(rented_clouds())}")
    return [prices_of(cloud).source(settings) for cloud in names]


def provider_of(settings: Settings, spec: JobSpec) -> CloudProvider:
    """The clouds on which a job may rent as one provider, even if there are none; or the local market."""
    if spec.is_local:
        return local_provider(settings, spec)
    return cloud_provider(settings, spec.resources.clouds, spec.resources.regions)


def cloud_provider(settings: Settings, clouds: Iterable[str], regions: Sequence[str] = ()) -> CloudProvider:
    """Real clouds as one provider, in these regions or all; the provider signs in at its first use."""
    from spotctl.clouds.multi_cloud import SeveralClouds
    from spotctl.clouds.price_book import PriceBook
    from spotctl.clouds.remote.agents import RemoteAgents
    from spotctl.home.wall_clock import WallClock

    clock = WallClock()
    agents, prices = RemoteAgents(settings.home / "machines", clock), PriceBook(lambda: library(settings), clock.now)
    providers = {
        cloud: provider_part(cloud).provider(
            settings, tuple(region for region in regions if is_region_of(cloud, region)), agents, prices
        )
        for cloud in clouds
    }
    return next(iter(providers.values())) if len(providers) == 1 else SeveralClouds(providers)


def local_provider(settings: Settings, spec: JobSpec) -> LocalProvider:
    """The local market, with a job's settings."""
    from pricing_data.units import SECOND
    from spotctl.clouds.local.provider import LocalProvider, LocalSettings
    from spotctl.clouds.replayed import Replayed

    local, known = spec.local, library(settings)

    def market() -> Replayed:
        from pricing_data.library import Selection

        return Replayed.of(known.table(known.require(Selection(clouds=("local",)))))

    chosen = LocalSettings(local.warning / SECOND / local.speed, local.unwarned, local.seed)
    return LocalProvider(settings.home / "local", market, chosen)
