"""Clouds and their regions."""

from __future__ import annotations

from pricing_data.known_clouds import markets_of
from pricing_data.list_prices import (
    Location,
    address,
    area_of,
    disk,
    egress,
)
from pricing_data.samples import bundled_catalog


def test_every_region_of_the_catalog_has_every_price() -> None:
    places = {
        (price.cloud, price.region) for price in bundled_catalog().prices if price.cloud != "local"
    }
    for cloud, region in sorted(
        places | {("azure", region) for region in markets_of("azure").known_regions}
    ):
        here = Location(cloud, region)
        assert area_of(cloud, region), (cloud, region)
        others = {"aws": "us-west-2", "gcp": "asia-south1", "azure": "westeurope"}
        for target in (None, Location(cloud, others[cloud]), Location(cloud, others[cloud], "z")):
            price = egress(here, target)
            assert price.source.startswith("https://") or target is not None
        assert 0 < address(cloud, region, "spot") <= address(cloud, region, "on-demand")
        kind = {"aws": "gp3", "gcp": "pd-balanced", "azure": "StandardSSD_LRS"}[cloud]
        assert 0 < disk(cloud, region, kind, 100) < 0.1
