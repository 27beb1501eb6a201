"""The parts of a cloud's package as the rooms above see them; `spotctl.home.cloud` lists all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

from pricing_data.known_clouds import cloud_names, has_part, part_of

if TYPE_CHECKING:
    from pricing_data.sources.base import Effort, Source, SourceNeeds
    from spotctl.clouds.base import CloudProvider
    from spotctl.clouds.bill_focus import FocusExport
    from spotctl.clouds.bills import ExportFormat
    from spotctl.clouds.findings import Finding
    from spotctl.clouds.remote.agents import RemoteAgents
    from spotctl.clouds.remote.prices import PriceLookup
    from spotctl.home.config import Settings


class PricesPart(Protocol):
    """Where a cloud's prices come from. Importing it imports no SDK."""

    @property
    def NEEDS(self) -> tuple[SourceNeeds, ...]:  # noqa: N802 - a constant of a module
        """The data of its sources, and the account that each needs."""
        ...

    @property
    def EFFORTS(self) -> Mapping[str, Effort]:  # noqa: N802
        """About how much each task of a fetch asks for."""
        ...

    def source(self, settings: Settings) -> Source:
        """The cloud's prices, fetched with these settings."""
        ...


class ProviderPart(Protocol):
    """Rents a cloud's machines."""

    def provider(
        self, settings: Settings, regions: tuple[str, ...], agents: RemoteAgents, prices: PriceLookup
    ) -> CloudProvider:
        """The cloud in these regions, or in all; it signs in at its first use."""
        ...


class DoctorPart(Protocol):
    """Checks whether a cloud is ready."""

    @property
    def SETUP(self) -> str:  # noqa: N802
        """How to configure the cloud on this computer."""
        ...

    @property
    def POLICIES(self) -> Mapping[str, Callable[[Settings], dict[str, Any]]]:  # noqa: N802
        """Documents of minimal permissions by name."""
        ...

    def is_configured(self, settings: Settings) -> bool:
        """Whether the cloud is configured, as far as this computer knows."""
        ...

    def findings(self, settings: Settings) -> Iterator[Finding]:
        """All checks. Raises `CloudError` if further checks are impossible."""
        ...


class BucketRegionPart(Protocol):
    """Asks a cloud's object store where a bucket is."""

    def region_of(self, name: str, who: Any) -> str:  # noqa: ANN401 - an identity at the cloud's own store
        """The region of a bucket; empty if it is in several, or the store does not say. StoreRefused: this identity may
        not ask."""
        ...


def prices_of(cloud: str) -> PricesPart:
    return cast("PricesPart", part_of(cloud, "prices"))


def provider_part(cloud: str) -> ProviderPart:
    return cast("ProviderPart", part_of(cloud, "provider"))


def doctor_of(cloud: str) -> DoctorPart:
    return cast("DoctorPart", part_of(cloud, "doctor"))


def bucket_region_of(cloud: str) -> BucketRegionPart | None:
    """The part of a cloud whose object store says where buckets are; None for other clouds."""
    return cast("BucketRegionPart", part_of(cloud, "bucket_region")) if has_part(cloud, "bucket_region") else None


def bill_clouds() -> tuple[str, ...]:
    """The clouds whose bills can be read."""
    return tuple(cloud for cloud in cloud_names() if has_part(cloud, "bills"))


def bill_formats() -> dict[str, ExportFormat]:
    """How the bills of each cloud are read."""
    return {cloud: part_of(cloud, "bills").FORMAT for cloud in bill_clouds()}


def focus_exports() -> tuple[FocusExport, ...]:
    """How the clouds that export FOCUS use its columns."""
    parts = (part_of(cloud, "bills") for cloud in bill_clouds())
    return tuple(part.FOCUS for part in parts if hasattr(part, "FOCUS"))
