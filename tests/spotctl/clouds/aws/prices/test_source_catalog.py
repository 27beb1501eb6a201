"""Instance types and on-demand prices of AWS."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from pricing_data.catalog import NO_TRAITS, InstanceType, MachineTraits, OnDemandPrice
from pricing_data.errors import (
    AccessDenied,
    IncompleteAnswer,
    MissingCredentials,
    NoAnswer,
    RateLimited,
)
from pricing_data.sources.base import FetchRequest
from pricing_data.units import DAY, parse_time
from tests.servers.aws import (
    AwsFault,
    AwsWorld,
    action_of,
    price_list_error,
    region_of,
    running_aws,
)
from tests.servers.loopback import Reply

EAST = "us-east-1"
NOW = parse_time("2024-03-01T00:00:00Z")


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[AwsWorld]:
    with running_aws(monkeypatch) as world:
        yield world


def asking_for(*types: str) -> FetchRequest:
    return FetchRequest(NOW - DAY, NOW, (EAST,), types)


def product(
    name: str,
    usd: str,
    system: str = "Linux",
    effective: str = "2024-02-01T00:00:00Z",
    **attributes: str,
) -> dict[str, Any]:
    """An entry of the Price List with the attributes that are read, and one hourly rate."""
    return {
        "product": {
            "productFamily": "Compute Instance",
            "attributes": {
                "instanceType": name,
                "operatingSystem": system,
                "regionCode": EAST,
                "tenancy": "Shared",
                "preInstalledSw": "NA",
                "capacitystatus": "Used",
                "marketoption": "OnDemand",
                "licenseModel": "No License required",
                **attributes,
            },
        },
        "publicationDate": "2024-02-20T10:00:00Z",
        "terms": {"OnDemand": {"SKU.JRTC": term(usd, effective)}},
    }


def term(usd: str, effective: str = "2024-02-01T00:00:00Z") -> dict[str, Any]:
    rate = {"unit": "Hrs", "pricePerUnit": {"USD": usd}}
    return {"effectiveDate": effective, "priceDimensions": {"SKU.JRTC.6YS6": rate}}


def test_instance_types_have_their_hardware(aws: AwsWorld) -> None:
    result = aws.pull(
        "instance types",
        asking_for("c4.xlarge", "p4d.*", "inf2.xlarge", "trn1.32xlarge", "g6f.large"),
    )
    assert result.error is None
    assert [replace(kind, traits=NO_TRAITS) for kind in sorted(result.all.types)] == [
        InstanceType("aws", "c4.xlarge", 4, 7.5, None, 0, 1.25),
        InstanceType("aws", "g6f.large", 2, 8.0, "L4 (1/8)", 1, 1.5),
        InstanceType("aws", "inf2.xlarge", 4, 16.0, "Inferentia2", 1, 2.083),
        InstanceType("aws", "p4d.24xlarge", 96, 1152.0, "A100", 8, 400.0),
        InstanceType("aws", "trn1.32xlarge", 128, 512.0, "Trainium", 16, 800.0),
    ]
    traits = {kind.name: kind.traits for kind in result.all.types}
    assert traits["c4.xlarge"] == MachineTraits(
        "x86_64", 1.0, "xen", "legacy-bios", True, None, None, 0.0
    )
    assert traits["p4d.24xlarge"] == MachineTraits(
        "x86_64", 1.0, "nitro", "legacy-bios", True, 40.0, "nvidia", 8000.0
    )


def test_every_instance_type_that_moto_knows_can_be_read(aws: AwsWorld) -> None:
    result = aws.pull("instance types", asking_for("[gip]*"))
    assert result.error is None
    assert len(result.all.types) > 100
    assert {kind.name[0] for kind in result.all.types} == {"g", "i", "p"}
    assert all(
        kind.accelerators > 0
        for kind in result.all.types
        if kind.name.startswith(("g5", "p4", "inf"))
    )


def test_on_demand_prices_are_read_for_every_system_with_a_spot_market(aws: AwsWorld) -> None:
    aws.cloud.page_limit = 2
    aws.cloud.products = [
        product("c5.large", "0.0850000000"),
        product("c5.large", "0.1770000000", "Windows"),
        product("c5.large", "0.0850000000", "Windows", licenseModel="Bring your own license"),
        product("c5.large", "0.1138000000", "RHEL"),
        product("c5.large", "0.1410000000", "SUSE"),
        product("c5.large", "0.0885000000", "Ubuntu Pro"),
        product("c5.xlarge", "0.1700000000"),
        product("c5.2xlarge", "0.3400000000"),
        product("c5.large", "0.0990000000", tenancy="Dedicated"),
        product("c5.large", "0.0980000000", preInstalledSw="SQL Web"),
        product("c5.large", "0.0970000000", capacitystatus="UnusedCapacityReservation"),
        product("c5.large", "0.0960000000", marketoption="CapacityBlock"),
        product("c5.large", "0.0950000000", regionCode="us-west-2"),
        product("p5.48xlarge", "0.0000000000"),
        product("m5.large", "0.0960000000"),
    ]
    result = aws.pull("on-demand prices", asking_for("c5.*", "p5.*"))
    assert result.error is None
    february = parse_time("2024-02-01T00:00:00Z")
    assert set(result.all.on_demand) == {
        OnDemandPrice("aws", EAST, name, system, february, nanos, "aws price list")
        for name, system, nanos in [
            ("c5.large", "linux", 85_000_000),
            ("c5.large", "windows", 177_000_000),
            ("c5.large", "rhel", 113_800_000),
            ("c5.large", "suse", 141_000_000),
            ("c5.xlarge", "linux", 170_000_000),
            ("c5.2xlarge", "linux", 340_000_000),
        ]
    }
    assert len(result.all.on_demand) == 6


def test_the_price_list_is_queried_in_its_region_and_by_name_for_a_few_types(aws: AwsWorld) -> None:
    aws.cloud.products = [product("c5.large", "0.0850000000"), product("m5.large", "0.0960000000")]
    request = FetchRequest(NOW - DAY, NOW, ("eu-west-1",), ("c5.large", "m5.large"))
    assert aws.pull("on-demand prices", request).all.on_demand == ()
    requests = [r for r in aws.server.requests if action_of(r) == "GetProducts"]
    wanted = [{f["Field"]: f["Value"] for f in r.json()["Filters"]} for r in requests]
    assert [region_of(r) for r in requests] == [EAST, EAST]
    assert [(f["regionCode"], f["instanceType"]) for f in wanted] == [
        ("eu-west-1", "c5.large"),
        ("eu-west-1", "m5.large"),
    ]


def test_unreadable_entries_are_counted_and_the_good_ones_kept(aws: AwsWorld) -> None:
    in_yuan, negative, two_rates = (product("c5.large", usd) for usd in ("0.1", "-0.1", "0.1"))
    in_yuan["terms"]["OnDemand"]["SKU.JRTC"]["priceDimensions"]["SKU.JRTC.6YS6"]["pricePerUnit"] = {
        "CNY": "0.6"
    }
    two_rates["terms"]["OnDemand"]["SKU.JRTC"]["priceDimensions"]["other"] = {
        "unit": "Hrs",
        "pricePerUnit": {"USD": "0.2"},
    }
    no_terms = product("c5.large", "0.1") | {"terms": ["?"]}
    aws.cloud.products = [in_yuan, negative, product("c5.large", "0.085"), two_rates, no_terms]
    result = aws.pull("on-demand prices", asking_for("c5.large"))
    assert isinstance(result.error, IncompleteAnswer)
    assert "aws/us-east-1: on-demand prices: 4 records left out, the others were kept" in str(
        result.error
    )
    assert "missing 'USD'" in str(result.error)
    assert [price.price for price in result.all.on_demand] == [85_000_000]


@pytest.mark.parametrize(
    ("reply", "kind", "reason"),
    [
        (
            price_list_error("AccessDeniedException", "no"),
            AccessDenied,
            "allow the IAM action pricing:GetProducts",
        ),
        (price_list_error("ThrottlingException", "slow down"), RateLimited, "ThrottlingException"),
        (price_list_error("ExpiredTokenException", "old"), MissingCredentials, "aws sso login"),
        (Reply(200, b"<<<"), NoAnswer, "the answer has no PriceList"),
    ],
)
def test_a_failed_price_list_reports_the_cause_and_keeps_the_pages_before_it(
    aws: AwsWorld, reply: Reply, kind: type[Exception], reason: str
) -> None:
    aws.cloud.products = [product("c5.large", "0.085"), product("m5.large", "0.096")]
    aws.breaks(AwsFault("/", reply, action="GetProducts", times=-1, skip=1))
    result = aws.pull("on-demand prices", asking_for("c5.large", "m5.large"))
    assert isinstance(result.error, kind)
    assert str(result.error).startswith("aws/us-east-1: pricing:GetProducts: ")
    assert reason in str(result.error)
    assert [price.instance_type for price in result.all.on_demand] == ["c5.large"]


def test_half_an_answer_of_the_price_list_is_requested_again(aws: AwsWorld) -> None:
    aws.cloud.products = [product("c5.large", "0.085")]
    aws.breaks(AwsFault("/", cut=30, action="GetProducts"))
    result = aws.pull("on-demand prices", asking_for("c5.large"))
    assert result.error is None
    assert [price.price for price in result.all.on_demand] == [85_000_000]
