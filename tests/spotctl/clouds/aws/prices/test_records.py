"""Records of AWS: types, prices on demand, and bands of interruptions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pricing_data.errors import (
    BadInput,
)
from pricing_data.units import parse_time
from spotctl.clouds.aws.prices.records import (
    band_of,
    bands_of,
    instance_type,
    network_gbps,
    on_demand_price,
)
from tests.spotctl.clouds.aws.prices.test_source_catalog import EAST, product, term
from tests.spotctl.clouds.aws.prices.test_source_interruptions import BANDS, RANGES


@pytest.mark.parametrize(
    ("network", "gbps"),
    [
        ({"NetworkPerformance": "25 Gigabit"}, 25.0),
        ({"NetworkPerformance": "37.5 Gigabit"}, 37.5),
        ({"NetworkPerformance": "4x 100 Gigabit"}, 400.0),
        (
            {
                "NetworkPerformance": "3200 Gigabit",
                "NetworkCards": [{"BaselineBandwidthInGbps": 100.0}],
            },
            3200.0,
        ),
        (
            {
                "NetworkPerformance": "Up to 10 Gigabit",
                "NetworkCards": [{"BaselineBandwidthInGbps": 0.75}],
            },
            0.75,
        ),
        (
            {
                "NetworkPerformance": "Moderate",
                "NetworkCards": [{"BaselineBandwidthInGbps": 0.3}] * 2,
            },
            0.6,
        ),
        ({"NetworkPerformance": "Up to 10 Gigabit"}, None),
        ({"NetworkPerformance": "High", "NetworkCards": [{"NetworkCardIndex": 0}]}, None),
        ({}, None),
    ],
)
def test_network_speed_is_what_can_be_sustained(
    network: dict[str, Any], gbps: float | None
) -> None:
    assert network_gbps(network) == gbps


X1 = {
    "InstanceType": "x1.large",
    "VCpuInfo": {"DefaultVCpus": 2},
    "MemoryInfo": {"SizeInMiB": 1024},
}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"VCpuInfo": {"DefaultVCpus": 0}}, r"aws/x1\.large"),
        ({"VCpuInfo": {}}, "missing 'DefaultVCpus'"),
        ({"VCpuInfo": None}, "not subscriptable"),
        ({"MemoryInfo": {"SizeInMiB": 10**400}}, "too large"),
        ({"GpuInfo": ["?"]}, "no attribute 'get'"),
        ({"GpuInfo": {"Gpus": [{"GpuPartitionSize": "half"}]}}, "'half'"),
    ],
)
def test_an_impossible_type_is_rejected(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        instance_type(X1 | change)


def test_the_newest_term_gives_the_price_and_its_date() -> None:
    entry = product("c5.large", "0.09")
    entry["terms"]["OnDemand"]["SKU.NEW"] = term("0.08", "2024-02-10T00:00:00Z")
    price = on_demand_price(EAST, json.dumps(entry))
    assert price is not None
    assert (price.price, price.as_of) == (80_000_000, parse_time("2024-02-10T00:00:00Z"))


def test_a_term_without_a_date_is_dated_by_the_publication() -> None:
    price = on_demand_price(EAST, json.dumps(product("c5.large", "0.09", effective="")))
    assert price is not None
    assert price.as_of == parse_time("2024-02-20T10:00:00Z")


def test_a_reserved_only_entry_has_no_hourly_price() -> None:
    entry = product("c5.large", "0.09")
    entry["terms"] = {"Reserved": entry["terms"]["OnDemand"]}
    assert on_demand_price(EAST, json.dumps(entry)) is None


@pytest.mark.parametrize("document", [{"ranges": RANGES}, {"ranges": []}, {}])
def test_default_bands_are_those_that_aws_published(document: dict[str, Any]) -> None:
    assert bands_of(document) == BANDS


def test_the_bands_in_the_file_take_precedence() -> None:
    ranges = [
        {"index": 0, "label": "< 2%"},
        {"index": 1, "label": "2-30%"},
        {"index": 2, "label": ">30%"},
    ]
    assert bands_of({"ranges": ranges}) == {0: (0.0, 0.02), 1: (0.02, 0.3), 2: (0.3, 1.0)}


def test_an_invalid_band_is_rejected() -> None:
    with pytest.raises(BadInput, match="'often'"):
        band_of("often")
