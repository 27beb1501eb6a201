"""What AWS publishes about its markets, made up for the simulated one: price list, spot history,
scores, Spot Advisor.

The forms are those that `tests.servers.aws` serves; with them `spotctl prices fetch` works against
the simulated AWS.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, INSTANCE_TYPES

from tests.cloud.aws_market import AwsMarket
from tests.servers.aws import AwsCloud

_SCORE = 7
_BAND = 0
"""The Spot Advisor's range for less than 5 percent."""


def publish_prices(cloud: AwsCloud, market: AwsMarket, region: str, asked: Iterable[str]) -> None:
    """Updates the spot history of a region, for the requested types or for all."""
    globs = list(asked) or ["*"]
    for offer in INSTANCE_TYPE_OFFERINGS["availability-zone"].get(region, []):
        if any(fnmatchcase(offer["InstanceType"], glob) for glob in globs):
            market.spot_changes(offer["Location"], offer["InstanceType"])
    cloud.prices = market.price_rows(region)


def publish_products(cloud: AwsCloud, market: AwsMarket, asked: dict[str, str]) -> None:
    """Makes the Price List's entries that a request can match."""
    names = [asked["instanceType"]] if "instanceType" in asked else sorted(INSTANCE_TYPES)
    cloud.products = [
        _product(name, asked["regionCode"], market) for name in names if name in INSTANCE_TYPES
    ]


def publish_advisor(cloud: AwsCloud) -> None:
    """Makes the Spot Advisor's file."""
    cloud.advisor = {
        "ranges": [{"index": _BAND, "label": "<5%", "dots": 0, "max": 5}],
        "spot_advisor": {
            region: {"Linux": {offer["InstanceType"]: {"s": 65, "r": _BAND} for offer in offers}}
            for region, offers in INSTANCE_TYPE_OFFERINGS["region"].items()
        },
    }


# Moto's.
def publish_scores(cloud: AwsCloud, backend: Any, asked: Iterable[str]) -> None:  # noqa: ANN401
    """Makes the placement scores of types in a region."""
    zones = {zone.zone_id: _SCORE for zone in backend.describe_availability_zones()}
    cloud.scores.update({(backend.region_name, name): zones for name in asked})


def _product(name: str, region: str, market: AwsMarket) -> dict[str, Any]:
    usd = f"{market.on_demand(name):.10f}"
    rate = {"unit": "Hrs", "pricePerUnit": {"USD": usd}}
    return {
        "product": {
            "productFamily": "Compute Instance",
            "attributes": {
                "instanceType": name,
                "operatingSystem": "Linux",
                "regionCode": region,
                "tenancy": "Shared",
                "preInstalledSw": "NA",
                "capacitystatus": "Used",
                "marketoption": "OnDemand",
                "licenseModel": "No License required",
            },
        },
        "publicationDate": "2024-02-20T10:00:00Z",
        "terms": {
            "OnDemand": {
                f"{name}.JRTC": {
                    "effectiveDate": "2024-02-01T00:00:00Z",
                    "priceDimensions": {"a": rate},
                }
            }
        },
    }
