"""Composition root: builds the adapters that the settings ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from pricing_data.market import is_region_of
from spotctl.home.errors import BadRequest

if TYPE_CHECKING:
    from pricing_data.library import Library
    from pricing_data.sources.base import Source
    from pricing_data.store import PriceStore
    from spotctl.clouds.base import CloudProvider
    from spotctl.clouds.capabilities import RentingProvider
    from spotctl.clouds.local import LocalProvider
    from spotctl.clouds.remote.agents import RemoteAgents
    from spotctl.clouds.remote.prices import PriceLookup
    from spotctl.files.job.spec import JobSpec
    from spotctl.home.config import Settings


def price_store(settings: Settings, on_wait: Callable[[], None] = lambda: None) -> PriceStore:
    """The price store under the home; `on_wait` is called while another process writes to it."""
    from pricing_data.store import PriceStore

    return PriceStore(settings.price_store, on_wait)


def library(settings: Settings) -> Library:
    """All stored market data."""
    from pricing_data.library import Library

    return Library(price_store(settings))


def sources(settings: Settings, clouds: Iterable[str] = ()) -> list[Source]:
    """The price sources of these clouds, or of all."""
    names = tuple(dict.fromkeys(clouds)) or tuple(_SOURCES)
    unknown = [cloud for cloud in names if cloud not in _SOURCES]
    if unknown:
        raise BadRequest(f"unknown cloud {unknown[0]!r}; prices can be fetched from {', '.join(_SOURCES)}")
    return [_SOURCES[cloud](settings) for cloud in names]


def provider_of(settings: Settings, spec: JobSpec) -> CloudProvider:
    """The clouds on which a job may rent as one provider, even if there are none; or the local market."""
    if spec.is_local:
        return local_provider(settings, spec)
    return cloud_provider(settings, spec.resources.clouds, spec.resources.regions)


def cloud_provider(settings: Settings, clouds: Iterable[str], regions: Sequence[str] = ()) -> CloudProvider:
    """Real clouds as one provider, in these regions or all; the provider signs in at its first use."""
    from spotctl.clouds.price_book import PriceBook
    from spotctl.clouds.remote.agents import RemoteAgents
    from spotctl.clouds.several import SeveralClouds
    from spotctl.home.wall_clock import WallClock

    clock = WallClock()
    agents, prices = RemoteAgents(settings.home / "machines", clock), PriceBook(lambda: library(settings), clock.now)
    providers = {
        cloud: _MACHINES[cloud](
            settings, tuple(region for region in regions if is_region_of(cloud, region)), agents, prices
        )
        for cloud in clouds
    }
    return next(iter(providers.values())) if len(providers) == 1 else SeveralClouds(providers)


def local_provider(settings: Settings, spec: JobSpec) -> LocalProvider:
    """The local market, with a job's settings."""
    from pricing_data.units import SECOND
    from spotctl.clouds.local import LocalProvider, LocalSettings
    from spotctl.clouds.replayed import Replayed

    local, known = spec.local, library(settings)

    def market() -> Replayed:
        from pricing_data.library import Selection

        return Replayed.of(known.table(known.require(Selection(clouds=("local",)))))

    chosen = LocalSettings(local.warning / SECOND / local.speed, local.unwarned, local.seed)
    return LocalProvider(settings.home / "local", market, chosen)


def _aws(settings: Settings) -> Source:
    from spotctl.clouds.access import AwsSettings
    from spotctl.clouds.aws.prices import AwsSource

    return AwsSource(
        _set(AwsSettings(), price_list_url=settings.aws_price_list_url, spot_advisor_url=settings.aws_spot_advisor_url)
    )


def _gcp(settings: Settings) -> Source:
    from pricing_data.samples import bundled_catalog
    from spotctl.clouds.access import GcpSettings
    from spotctl.clouds.gcp.prices import GcpSource

    chosen = _set(
        GcpSettings(),
        project=settings.gcp_project,
        compute_endpoint=settings.gcp_compute_endpoint,
        billing_endpoint=settings.gcp_billing_endpoint,
    )
    return GcpSource(chosen, bundled_catalog().types)


def _azure(settings: Settings) -> Source:
    from spotctl.clouds.access import AzureSettings
    from spotctl.clouds.azure.prices import AzureSource

    return AzureSource(
        _set(
            AzureSettings(managed_identity=settings.azure_managed_identity),
            subscription=settings.azure_subscription,
            management_endpoint=settings.azure_management_endpoint,
            retail_prices_url=settings.azure_retail_prices_url,
        )
    )


T = TypeVar("T")


def _set(defaults: T, **chosen: str | None) -> T:
    """A source's settings with the user's values; None keeps the default."""
    return replace(defaults, **{name: value for name, value in chosen.items() if value is not None})  # type: ignore[type-var]


_SOURCES: dict[str, Callable[[Settings], Source]] = {"aws": _aws, "gcp": _gcp, "azure": _azure}


def _aws_machines(
    settings: Settings, regions: tuple[str, ...], agents: RemoteAgents, prices: PriceLookup
) -> RentingProvider:
    from spotctl.clouds.aws.provider import ACCESS, AwsProvider
    from spotctl.clouds.aws.session import AwsSession

    chosen = replace(settings.aws, regions=regions or settings.aws.regions)
    return AwsProvider(AwsSession(ACCESS), chosen, agents, prices)


def _gcp_machines(
    settings: Settings,
    regions: tuple[str, ...],  # noqa: ARG001  # machines are listed in all regions at once
    agents: RemoteAgents,
    prices: PriceLookup,
) -> RentingProvider:
    from spotctl.clouds.access import GcpSettings
    from spotctl.clouds.gcp.provider import GcpProvider
    from spotctl.clouds.gcp.session import GcpSession

    access = GcpSettings(project=settings.gcp_project, compute_endpoint=settings.gcp_compute_endpoint)
    # Google holds a question for the end of an operation for up to two minutes, and the run's loop has other work.
    brief = replace(access, call_timeout_seconds=60.0, retry_deadline_seconds=20.0)
    return GcpProvider(GcpSession(brief), settings.gcp, agents, prices)


def _azure_machines(
    settings: Settings, _: tuple[str, ...], agents: RemoteAgents, prices: PriceLookup
) -> RentingProvider:
    from spotctl.clouds.access import AzureSettings
    from spotctl.clouds.azure.provider import AzureProvider
    from spotctl.clouds.azure.session import AzureSession

    # A run repeats its calls itself; it must not wait here for as long as a throttled call asks for.
    access = AzureSettings(
        subscription=settings.azure_subscription,
        management_endpoint=settings.azure_management_endpoint,
        managed_identity=settings.azure_managed_identity,
        retries=0,
    )
    return AzureProvider(lambda: AzureSession.sign_in(access), settings.azure, agents, prices)


_MACHINES: dict[str, Callable[[Settings, tuple[str, ...], RemoteAgents, PriceLookup], RentingProvider]] = {
    "aws": _aws_machines,
    "gcp": _gcp_machines,
    "azure": _azure_machines,
}
