from __future__ import annotations

import csv
import gzip
import json
from collections import defaultdict
from importlib.resources import files
from itertools import pairwise

import pytest

from pricing_data.catalog import Catalog, InstanceType, OnDemandPrice
from pricing_data.errors import BadInput, UnknownInstanceType, UnknownPrice
from pricing_data.known_clouds import cloud_names
from pricing_data.market import LINUX, Market, api_region
from pricing_data.samples import bundled_catalog
from pricing_data.units import DAY, parse_time, parse_usd

JULY = parse_time("2023-07-01")
MARKET = Market.parse("aws/us-east-1/us-east-1a/m5.large")


def listed(day: int, usd: str, *, source: str = "a list", os: str = LINUX) -> OnDemandPrice:
    return OnDemandPrice(
        "aws", "us-east-1", "m5.large", os, JULY + day * DAY, parse_usd(usd), source
    )


class TestCatalog:
    def test_an_unknown_type_is_an_error_that_names_the_cure(self) -> None:
        with pytest.raises(
            UnknownInstanceType, match=r"gcp/n9-standard-4 .*spotctl prices fetch --cloud gcp"
        ):
            Catalog().instance_type("gcp", "n9-standard-4")

    def test_a_type_is_known_in_its_own_cloud_only(self) -> None:
        catalog = Catalog((InstanceType("aws", "c4.xlarge", 4, 7.5),))
        assert catalog.instance_type("aws", "c4.xlarge").memory_gib == 7.5
        assert catalog.knows("aws", "c4.xlarge")
        assert not catalog.knows("local", "c4.xlarge")

    def test_an_unknown_price_is_an_error_that_names_the_cure(self) -> None:
        with pytest.raises(
            UnknownPrice, match=r"m5\.large \(linux\) in aws/us-east-1 .*import FILE --on-demand"
        ):
            Catalog().on_demand(MARKET)

    @pytest.mark.parametrize(
        "other",
        [
            "aws/us-west-2/us-west-2a/m5.large",
            "aws/us-east-1/us-east-1a/m5.xlarge",
            f"{MARKET}/windows",
        ],
        ids=["region", "type", "operating system"],
    )
    def test_the_price_of_another_product_is_not_used(self, other: str) -> None:
        with pytest.raises(UnknownPrice):
            Catalog(prices=(listed(0, "0.1"),)).on_demand(Market.parse(other))

    def test_every_zone_of_a_region_has_the_region_s_price(self) -> None:
        catalog = Catalog(prices=(listed(0, "0.1"),))
        zones = ["us-east-1a", "us-east-1f", "-"]
        prices = {
            catalog.on_demand(Market.parse(f"aws/us-east-1/{zone}/m5.large")).price
            for zone in zones
        }
        assert prices == {parse_usd("0.1")}

    @pytest.mark.parametrize(
        ("day", "usd"),
        [
            (-900, "0.1"),
            (0, "0.1"),
            (40, "0.1"),
            (60, "0.2"),
            (100, "0.2"),
            (290, "0.2"),
            (310, "0.3"),
            (9000, "0.3"),
        ],
    )
    def test_the_list_nearest_in_time_is_used(self, day: int, usd: str) -> None:
        catalog = Catalog(prices=(listed(500, "0.3"), listed(0, "0.1"), listed(100, "0.2")))
        assert catalog.on_demand(MARKET, JULY + day * DAY).price == parse_usd(usd)

    def test_without_a_time_the_newest_list_is_used(self) -> None:
        catalog = Catalog(prices=(listed(500, "0.3"), listed(0, "0.1"), listed(100, "0.2")))
        assert catalog.on_demand(MARKET) == listed(500, "0.3")

    def test_the_entry_merged_later_wins(self) -> None:
        shipped = Catalog(
            (InstanceType("aws", "m5.large", 2, 8),), (listed(0, "0.1", source="shipped"),)
        )
        fetched = Catalog(
            (InstanceType("aws", "m5.large", 2, 8, None, 0, 10.0),),
            (listed(0, "0.2", source="fetched"),),
        )
        merged = shipped.merged(fetched)
        assert merged.instance_type("aws", "m5.large").network_gbps == 10.0
        assert merged.on_demand(MARKET).source == "fetched"
        assert fetched.merged(shipped).on_demand(MARKET).source == "shipped"

    def test_merging_keeps_entries_of_either_side(self) -> None:
        newer, older = Catalog(prices=(listed(100, "0.2"),)), Catalog(prices=(listed(0, "0.1"),))
        merged = newer.merged(older)
        assert merged.on_demand(MARKET).price == parse_usd("0.2")
        assert merged.on_demand(MARKET, JULY).price == parse_usd("0.1")

    def test_merging_changes_neither_side(self) -> None:
        newer, older = Catalog(prices=(listed(100, "0.2"),)), Catalog(prices=(listed(0, "0.1"),))
        newer.merged(older)
        assert newer.on_demand(MARKET, JULY).price == parse_usd("0.2")
        assert older.on_demand(MARKET).price == parse_usd("0.1")


@pytest.mark.parametrize(("vcpus", "memory"), [(0, 8.0), (-2, 8.0), (2, 0.0)])
def test_a_machine_without_processor_or_memory_is_rejected(vcpus: int, memory: float) -> None:
    with pytest.raises(BadInput, match=r"aws/m5\.large"):
        InstanceType("aws", "m5.large", vcpus, memory)


@pytest.mark.parametrize(("name", "count"), [("V100", 0), (None, 1)])
def test_accelerators_have_a_name_and_a_count_or_neither(name: str | None, count: int) -> None:
    with pytest.raises(BadInput, match=r"aws/p3\.2xlarge"):
        InstanceType("aws", "p3.2xlarge", 8, 61, name, count)


@pytest.mark.parametrize("price", [0, -1])
def test_a_price_is_above_zero(price: int) -> None:
    with pytest.raises(BadInput, match=r"aws/us-east-1/m5\.large is -?\d; it must be above 0"):
        OnDemandPrice("aws", "us-east-1", "m5.large", LINUX, JULY, price, "a list")


def shipped_rows(name: str) -> list[dict[str, str]]:
    text = (files("pricing_data.samples") / name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


class TestShippedCatalog:
    def test_types_and_prices_are_unique(self) -> None:
        types = [(row["cloud"], row["instance_type"]) for row in shipped_rows("catalog.csv")]
        prices = [tuple(row.values())[:-1] for row in shipped_rows("on_demand.csv")]
        assert len(set(types)) == len(types)
        assert len(set(prices)) == len(prices)

    def test_it_covers_every_cloud(self) -> None:
        catalog = bundled_catalog()
        # The hosts of Vast.ai and the stock of RunPod come and go, and each cluster has nodes of its own.
        assert {kind.cloud for kind in catalog.types} == set(cloud_names()) - {
            "vast",
            "runpod",
            "slurm",
        }
        assert len(catalog.types) >= 250

    def test_each_price_has_a_type_and_all_but_the_newest_types_a_price(self) -> None:
        catalog = bundled_catalog()
        described = {(kind.cloud, kind.name) for kind in catalog.types}
        priced = {(price.cloud, price.instance_type) for price in catalog.prices}
        assert priced <= described
        newest = max(kind.as_of or 0 for kind in catalog.types)
        assert {(kind.cloud, kind.name) for kind in catalog.types if kind.as_of != newest} <= priced

    def test_regions_have_the_spelling_of_the_api(self) -> None:
        for price in bundled_catalog().prices:
            assert price.region == api_region(price.cloud, price.region)
            assert price.os == LINUX

    def test_machines_are_plausible(self) -> None:
        for kind in bundled_catalog().types:
            assert 0.6 <= kind.memory_gib / kind.vcpus <= 20, kind
            assert kind.vcpus >= 2 * kind.accelerators, kind
            assert kind.network_gbps is None or 10 <= kind.network_gbps <= 3600, kind

    def test_prices_are_plausible_for_their_machine(self) -> None:
        catalog = bundled_catalog()
        for price in catalog.prices:
            kind = catalog.instance_type(price.cloud, price.instance_type)
            per_vcpu = price.price / kind.vcpus / 1e9
            low, high = (0.02, 0.24) if kind.accelerator is None else (0.04, 1.05)
            assert low <= per_vcpu <= high, price

    def test_within_a_family_a_larger_machine_costs_more(self) -> None:
        catalog = bundled_catalog()
        families: dict[tuple[object, ...], list[tuple[int, float, int]]] = defaultdict(list)
        for price in catalog.prices:
            kind = catalog.instance_type(price.cloud, price.instance_type)
            if price.cloud == "azure" or kind.accelerator is not None:
                continue
            family = price.instance_type.replace(".", "-").rpartition("-")[0]
            families[price.cloud, price.region, price.as_of, family].append(
                (kind.vcpus, kind.memory_gib, price.price)
            )
        for offer, machines in families.items():
            for (_, _, smaller), (_, _, larger) in pairwise(sorted(machines)):
                assert smaller < larger, offer

    def test_a_price_has_the_date_of_its_list(self) -> None:
        price = bundled_catalog().on_demand(MARKET)
        assert price.as_of == parse_time("2026-01-01")
        assert price.source == "spotctl sample catalog, public list prices as of 2026-01-01"

    def test_synthetic_prices_are_labeled(self) -> None:
        synthetic = [price for price in bundled_catalog().prices if price.cloud == "local"]
        assert synthetic
        assert all(
            "synthetic" in price.source and "public" not in price.source for price in synthetic
        )

    @pytest.mark.parametrize(
        ("cloud", "name", "vcpus", "memory_gib", "accelerator", "accelerators"),
        [
            ("aws", "c4.xlarge", 4, 7.5, None, 0),
            ("aws", "m4.10xlarge", 40, 160, None, 0),
            ("aws", "c5.9xlarge", 36, 72, None, 0),
            ("aws", "m5.24xlarge", 96, 384, None, 0),
            ("aws", "r6i.32xlarge", 128, 1024, None, 0),
            ("aws", "cr1.8xlarge", 32, 244, None, 0),
            ("aws", "g2.8xlarge", 32, 60, "K520", 4),
            ("aws", "p2.16xlarge", 64, 732, "K80", 16),
            ("aws", "p3.8xlarge", 32, 244, "V100", 4),
            ("aws", "g4dn.12xlarge", 48, 192, "T4", 4),
            ("aws", "g5.16xlarge", 64, 256, "A10G", 1),
            ("aws", "p4d.24xlarge", 96, 1152, "A100", 8),
            ("aws", "p5.48xlarge", 192, 2048, "H100", 8),
            ("gcp", "n1-standard-8", 8, 30, None, 0),
            ("gcp", "e2-standard-16", 16, 64, None, 0),
            ("gcp", "c2-standard-60", 60, 240, None, 0),
            ("gcp", "a2-highgpu-8g", 96, 680, "A100", 8),
            ("gcp", "g2-standard-24", 24, 96, "L4", 2),
            ("azure", "Standard_D8s_v5", 8, 32, None, 0),
            ("azure", "Standard_F72s_v2", 72, 144, None, 0),
            ("azure", "Standard_NC6s_v3", 6, 112, "V100", 1),
            ("azure", "Standard_NC96ads_A100_v4", 96, 880, "A100-80GB", 4),
        ],
    )
    def test_well_known_machines(
        self,
        cloud: str,
        name: str,
        vcpus: int,
        memory_gib: float,
        accelerator: str | None,
        accelerators: int,
    ) -> None:
        kind = bundled_catalog().instance_type(cloud, name)
        assert (kind.vcpus, kind.memory_gib) == (vcpus, memory_gib)
        assert (kind.accelerator, kind.accelerators) == (accelerator, accelerators)

    @pytest.mark.parametrize(
        ("market", "day", "usd"),
        [
            ("aws/us-east-1/us-east-1a/m4.xlarge", "2016-03-01", "0.239"),
            ("aws/us-east-1/us-east-1a/m4.xlarge", "2025-12-01", "0.2"),
            ("aws/eu-west-1/eu-west-1b/c4.8xlarge", "2016-03-01", "1.906"),
            ("aws/us-east-1/us-east-1b/cg1.4xlarge", "2016-03-01", "2.1"),
            ("aws/us-east-1/us-east-1a/g2.8xlarge", "2016-03-01", "2.6"),
            ("aws/us-west-2/us-west-2a/p3.2xlarge", "2020-01-01", "3.06"),
            ("aws/us-east-1/us-east-1a/p5.48xlarge", "2024-06-01", "98.32"),
            ("aws/us-east-1/us-east-1a/p5.48xlarge", "2025-12-01", "55.04"),
            ("aws/us-west-2/us-west-2b/g5.xlarge", "2025-12-01", "1.006"),
            ("gcp/us-central1/us-central1-a/n1-standard-4", "2024-01-01", "0.189999"),
            ("gcp/europe-west4/europe-west4-a/n2-standard-4", "2024-01-01", "0.213832"),
            ("gcp/us-central1/us-central1-a/a2-highgpu-1g", "2024-01-01", "3.673385"),
            ("gcp/europe-west4/europe-west4-b/a2-highgpu-8g", "2024-01-01", "29.983776"),
            ("gcp/us-east1/us-east1-d/g2-standard-4", "2024-01-01", "0.706832"),
            ("azure/eastus/-/Standard_D4s_v3", "2024-01-01", "0.192"),
            ("azure/westus2/-/Standard_NC24ads_A100_v4", "2024-01-01", "3.673"),
            ("azure/eastus/-/Standard_NC6", "2020-03-01", "0.9"),
        ],
    )
    def test_well_known_prices(self, market: str, day: str, usd: str) -> None:
        assert bundled_catalog().on_demand(
            Market.parse(market), parse_time(day)
        ).price == parse_usd(usd)

    def test_aws_machines_are_what_the_api_says(self) -> None:
        """moto ships the answers of `describe_instance_types`. It has no types that AWS retired."""
        resource = files("moto.ec2") / "resources" / "instance_types.json.gz"
        answers = json.loads(gzip.decompress(resource.read_bytes()))
        # Here the API's MiB differ from the GiB that AWS publishes.
        published = {"m1.medium", "r3.large"}
        compared = 0
        for kind in bundled_catalog().types:
            answer = answers.get(kind.name)
            if kind.cloud != "aws" or answer is None:
                continue
            gpus = answer.get("GpuInfo", {}).get("Gpus", [])
            count = sum(gpu["Count"] for gpu in gpus)
            name = (kind.accelerator or "").removesuffix("-80GB").removesuffix("-32GB")
            assert kind.vcpus == answer["VCpuInfo"]["DefaultVCpus"], kind
            assert kind.name in published or kind.memory_gib == pytest.approx(
                answer["MemoryInfo"]["SizeInMiB"] / 1024, abs=0.01
            ), kind
            assert (name, kind.accelerators) == (gpus[0]["Name"] if gpus else "", count), kind
            compared += 1
        assert compared > 100
