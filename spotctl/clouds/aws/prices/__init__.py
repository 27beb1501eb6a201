"""AWS: spot price history, instance types, on-demand prices, and published interruption figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pricing_data.sources.base import Effort, SourceNeeds
from pricing_data.sources.public_catalog import NAME
from spotctl.clouds.aws.cloud import AwsSettings
from spotctl.clouds.aws.prices.source import AwsSource
from spotctl.clouds.errors import with_given

if TYPE_CHECKING:
    from spotctl.home.config import Settings

__all__ = ["EFFORTS", "NEEDS", "AwsSource", "source"]

NEEDS = (
    SourceNeeds(
        "aws", "spot and on-demand prices, machine types", "", "SkyPilot catalog; 5 MB; Linux"
    ),
    SourceNeeds(
        "aws", "interruption buckets and savings", "", "Spot Advisor; estimates spot prices"
    ),
    SourceNeeds(
        "aws",
        "on-demand prices of larger regions",
        "",
        "price pages of the web site; about 2 MB in all",
    ),
    SourceNeeds(
        "aws",
        "on-demand prices of named regions",
        "",
        "public price list; several hundred MB per region",
    ),
    SourceNeeds(
        "aws",
        "spot prices of 90 days, instance types",
        "AWS_ACCESS_KEY_ID, a profile, or `aws sso login`",
    ),
)
EFFORTS = {
    NAME: Effort(5, 100_000, 5, is_whole=True),
    "interruption buckets": Effort(1, 30_000, 10),
    "on-demand price pages": Effort(16, 10_000, 2, is_whole=True),
    "public price list": Effort(1, 2_000, 300, is_whole=True),
    "spot prices": Effort(6, 6_000, 2, is_daily=True),
    "instance types": Effort(10, 1_000, 5),
    "on-demand prices": Effort(15, 1_500, 10),
}


def catalog_terms() -> tuple[bool, None]:
    """See `PricesPart`: AWS prices zones separately."""
    return True, None


def source(settings: Settings) -> AwsSource:
    """See `PricesPart`."""
    from spotctl.clouds.public_catalog import PublicCatalog

    given = {name: settings.text(f"aws_{name}") for name in ("price_list_url", "spot_advisor_url")}
    return AwsSource(with_given(AwsSettings(), **given), PublicCatalog.of(settings))
