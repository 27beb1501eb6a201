"""Machine sizes of Azure: whether a size can be rented in a region, and the image for its machines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pricing_data.accelerators import AMD
from pricing_data.catalog import ARM, InstanceType, completed
from pricing_data.market import NO_ZONE, Market
from spotctl.clouds.azure.machine_types import obstacle
from spotctl.clouds.azure.names import zone_of
from spotctl.clouds.azure.prices.sizes import machine_of
from spotctl.clouds.errors import NoCapacity, NotFound, QuotaReached
from spotctl.home.errors import BadRequest

# Published by Canonical; `ubuntu-hpc` is Microsoft's, with the drivers of NVIDIA and CUDA, or of AMD and ROCm. All are
# Ubuntu 24.04, because spotctl needs Python 3.11.
_X64, _ARM64, _NVIDIA, _AMD = (
    "Canonical:ubuntu-24_04-lts:server:latest",
    "Canonical:ubuntu-24_04-lts:server-arm64:latest",
    "microsoft-dsvm:ubuntu-hpc:2404:latest",
    "microsoft-dsvm:ubuntu-hpc:2404-rocm:latest",
)
_OFFER_WITH_DRIVERS: Final = "ubuntu-hpc"
USUAL_DISK_GIB: Final = 128
"""The largest disk that spotctl chooses. Ubuntu's has 30 GiB; the image with drivers leaves little free on its own."""
_NOT_FOR_ACCOUNT: Final = "NotAvailableForSubscription"


@dataclass(frozen=True, slots=True)
class AzureSize:
    """Azure's description of a machine size in a region. `barred`: zones closed to the account (`-`: all). On-demand
    machines count against the quota of their `family`."""

    name: str
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    spot: bool = True
    barred: frozenset[str] = frozenset()
    family: str = ""

    @property
    def machine(self) -> InstanceType:
        """The size as the catalog describes it."""
        return next(completed([machine_of(self.name, self.capabilities)]))


def sizes_from(skus: Iterable[Any]) -> dict[str, AzureSize]:
    """The sizes of a region by their names in small letters: Azure does not distinguish them by case."""
    machines = (sku for sku in skus if sku.resource_type == "virtualMachines" and sku.name)
    return {sku.name.lower(): _size(sku) for sku in machines}


def _size(sku: Any) -> AzureSize:  # noqa: ANN401  # a model of the SDK, which only `pricing_data` imports
    capabilities = {capability.name: capability.value for capability in sku.capabilities or ()}
    barred: set[str] = set()
    for restriction in sku.restrictions or ():
        if restriction.reason_code == _NOT_FOR_ACCOUNT:
            zones = (restriction.restriction_info.zones if restriction.restriction_info else None) or ()
            barred |= {*zones} if restriction.type == "Zone" else {NO_ZONE}
    return AzureSize(
        sku.name,
        capabilities,
        capabilities.get("LowPriorityCapable", "True") == "True",
        frozenset(barred),
        sku.family or "",
    )


def require(sizes: dict[str, AzureSize], market: Market, *, spot: bool) -> AzureSize:
    """The size of a market. NotFound: the region does not have it. QuotaReached: the account may not use it."""
    size = sizes.get(market.instance_type.lower())
    if size is None:
        raise NotFound(f"{market}: Azure has no size {market.instance_type} in {market.region}")
    if size.barred & {NO_ZONE, zone_of(market)}:
        raise QuotaReached(f"{market}: the subscription may not use this size there; request access in the portal")
    if spot and not size.spot:
        raise NoCapacity(f"{market}: Azure does not offer this size as Spot; rent it on demand")
    return size


def families_of(names: Iterable[str], sizes: Mapping[str, AzureSize]) -> dict[str, list[str]]:
    """The names by the families of their sizes, whose quotas they count against."""
    families: dict[str, list[str]] = {}
    for name in sorted(names):
        size = sizes.get(name.lower())
        if size is not None and size.family:
            families.setdefault(size.family, []).append(name)
    return families


def disk_gib_of(image: Mapping[str, str], wanted: int | None) -> int | None:
    """The size of a machine's disk; None leaves it to the image."""
    return USUAL_DISK_GIB if wanted is None and image.get("offer") == _OFFER_WITH_DRIVERS else wanted


def _usual_image(machine: InstanceType) -> str:
    if machine.accelerators:
        return _AMD if machine.traits.driver == AMD else _NVIDIA
    return _ARM64 if machine.traits.architecture == ARM else _X64


def image_reference(size: AzureSize, image: str | None) -> dict[str, str]:
    """The image for a size: the requested one, or else Ubuntu. BadRequest: no image that spotctl knows runs on it."""
    if image is None:
        machine = size.machine
        if problem := obstacle(machine):
            raise BadRequest(f"{size.name}: {problem}; name an image that does (image: {{azure: ...}})")
    chosen = image or _usual_image(machine)
    if chosen.startswith("/"):
        return {"id": chosen}
    parts = chosen.split(":")
    if len(parts) != 4 or not all(parts):
        raise BadRequest(f"image {chosen!r} is neither publisher:offer:sku:version nor a resource id")
    return dict(zip(("publisher", "offer", "sku", "version"), parts, strict=True))
