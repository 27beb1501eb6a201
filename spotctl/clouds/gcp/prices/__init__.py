"""Google Cloud: spot and on-demand prices, machine types, and published preemption rates."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pricing_data.sources.base import Effort, SourceNeeds
from pricing_data.sources.public_catalog import NAME, OwnGpus
from spotctl.clouds.errors import with_given
from spotctl.clouds.gcp.cloud import GcpSettings
from spotctl.clouds.gcp.machine_types import catalog_gpus
from spotctl.clouds.gcp.prices.source import GcpSource

if TYPE_CHECKING:
    from spotctl.home.config import Settings

__all__ = ["EFFORTS", "NEEDS", "GcpSource", "source"]

NEEDS = (
    SourceNeeds(
        "gcp",
        "spot and on-demand prices, machine types",
        "",
        "SkyPilot catalog; 3 MB; local SSDs of GPU machines are not priced",
    ),
    SourceNeeds(
        "gcp",
        "spot prices and preemption rates, on-demand prices",
        "`gcloud auth application-default login`; GOOGLE_CLOUD_PROJECT",
        "on-demand prices need the extra gcp-pricing",
    ),
    SourceNeeds(
        "gcp",
        "spot and on-demand prices of shipped machine types",
        "GOOGLE_API_KEY, a free key of any project",
        "public price list; needs the extra gcp-pricing",
    ),
    SourceNeeds(
        "gcp", "estimated spot prices", "", "shipped: list price less the published saving"
    ),
)
EFFORTS = {
    NAME: Effort(5, 10_000, 3, is_whole=True),
    "spot prices and preemption rates": Effort(150, 5_000, 3),
    "public price list": Effort(10, 3_000, 12, is_whole=True),
    "machine types": Effort(4, 200, 1),
    "on-demand prices": Effort(10, 200, 12),
}


def catalog_terms() -> tuple[bool, OwnGpus]:
    """See `PricesPart`: zones of a region share a price, and GPUs have rows of their own."""
    from pricing_data.samples import bundled_catalog

    counts = {machine.name: machine.accelerators for machine in bundled_catalog().types}
    return False, partial(catalog_gpus, counts)


def source(settings: Settings) -> GcpSource:
    """See `PricesPart`."""
    from pricing_data.samples import bundled_catalog
    from spotctl.clouds.public_catalog import PublicCatalog

    given = {
        name: settings.text(f"gcp_{name}")
        for name in ("project", "compute_endpoint", "billing_endpoint")
    }
    known = bundled_catalog().types
    return GcpSource(with_given(GcpSettings(), **given), known, PublicCatalog.of(settings))
