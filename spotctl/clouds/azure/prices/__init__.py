"""Azure: spot and on-demand prices, machine types, and published eviction rates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pricing_data.sources.base import Effort, SourceNeeds
from spotctl.clouds.azure.cloud import AzureSettings
from spotctl.clouds.azure.prices.source import AzureSource
from spotctl.clouds.errors import with_given

if TYPE_CHECKING:
    from spotctl.home.config import Settings

__all__ = ["EFFORTS", "NEEDS", "AzureSource", "source"]

NEEDS = (
    SourceNeeds("azure", "spot and on-demand prices", "", "retail price list; complete"),
    SourceNeeds(
        "azure",
        "spot prices of 90 days, eviction rates",
        "`az login` or AZURE_CLIENT_SECRET; AZURE_SUBSCRIPTION_ID",
    ),
)
EFFORTS = {
    "prices": Effort(12, 2_500, 6, is_whole=True),
    "spot history": Effort(3, 2_000, 2),
    "machine types": Effort(2, 1_000, 3),
}


def source(settings: Settings) -> AzureSource:
    """See `PricesPart`."""
    names = ("subscription", "management_endpoint", "retail_prices_url")
    given = {name: settings.text(f"azure_{name}") for name in names}
    access = AzureSettings(managed_identity=settings.flag("azure_managed_identity"))
    return AzureSource(with_given(access, **given))
