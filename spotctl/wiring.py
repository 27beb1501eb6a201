"""Composition root: builds the adapters that the settings ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from spotctl.errors import BadRequest

if TYPE_CHECKING:
    from pricing_data.library import Library
    from pricing_data.sources.base import Source
    from pricing_data.store import PriceStore
    from spotctl.config import Settings
    from spotctl.files.job.spec import JobSpec
    from spotctl.machines.local import LocalProvider


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


def local_provider(settings: Settings, spec: JobSpec) -> LocalProvider:
    """The local market, with a job's settings."""
    from pricing_data.units import SECOND
    from spotctl.machines.local import LocalProvider, LocalSettings
    from spotctl.machines.replayed import Replayed

    local, known = spec.local, library(settings)

    def market() -> Replayed:
        from pricing_data.library import Selection

        return Replayed.of(known.table(known.require(Selection(clouds=("local",)))))

    chosen = LocalSettings(local.warning / SECOND / local.speed, local.unwarned, local.seed)
    return LocalProvider(settings.home / "local", market, chosen)


def _aws(settings: Settings) -> Source:
    from pricing_data.clouds.settings import AwsSettings
    from pricing_data.sources.aws import AwsSource

    return AwsSource(_set(AwsSettings(), spot_advisor_url=settings.aws_spot_advisor_url))


def _gcp(settings: Settings) -> Source:
    from pricing_data.clouds.settings import GcpSettings
    from pricing_data.sources.gcp import GcpSource

    return GcpSource(
        _set(
            GcpSettings(),
            project=settings.gcp_project,
            compute_endpoint=settings.gcp_compute_endpoint,
            billing_endpoint=settings.gcp_billing_endpoint,
        )
    )


def _azure(settings: Settings) -> Source:
    from pricing_data.clouds.settings import AzureSettings
    from pricing_data.sources.azure import AzureSource

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
