"""Prices computed from the price list's rates."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction

import pytest
from google.cloud import billing_v1
from hypothesis import given, strategies as st

from pricing_data.errors import UnknownPrice
from pricing_data.fetched_rows import PriceEvent
from pricing_data.market import NO_ZONE, Market
from pricing_data.sources.base import Rejects
from pricing_data.units import to_micros
from spotctl.clouds.gcp.prices.records import (
    GcpMachine,
    PricePart,
    Rates,
    compose,
    part_of,
    quotes,
    rates_of,
    recipe,
)
from tests.servers.gcp import sku

REGION = "us-central1"
HERE = ("us-central1", "us-east1")
PUBLISHED = datetime(2026, 9, 1, 6, tzinfo=UTC)
AS_OF = to_micros(PUBLISHED)

# Rates of us-central1 as Google published them, in nano-dollars.
PRICE_LIST = [
    sku("N1 Predefined Instance Core running in Americas", 31_611_000, HERE),
    sku("N1 Predefined Instance Ram running in Americas", 4_237_000, HERE, "GiBy.h"),
    sku("E2 Instance Core running in Americas", 21_811_590, HERE),
    sku("E2 Instance Ram running in Americas", 2_923_530, HERE, "GiBy.h"),
    sku("G2 Instance Core running in Americas", 24_988_440, HERE),
    sku("G2 Instance Ram running in Americas", 2_927_260, HERE, "GiBy.h"),
    sku("A2 Instance Core running in Americas", 31_611_000, HERE),
    sku("A2 Instance Ram running in Americas", 4_237_000, HERE, "GiBy.h"),
    sku("Nvidia L4 GPU running in Americas", 560_040_000, HERE),
    sku("Nvidia Tesla A100 GPU running in Americas", 2_933_908_000, HERE),
    sku("Nvidia Tesla A100 80GB GPU running in Americas", 3_928_080_000, HERE),
    sku("SSD backed Local Storage", 80_000_000, HERE, "GiBy.mo"),
]
# What Google's pricing pages give for the whole machine, rounded as shown there.
PUBLISHED_MACHINES = [
    (GcpMachine("n1-standard-4", 4, 15 * 1024), 0.189999),
    (GcpMachine("e2-standard-4", 4, 16 * 1024), 0.134023),
    (GcpMachine("e2-micro", 2, 1024), 0.008376),
    (GcpMachine("e2-small", 2, 2048), 0.016753),
    (GcpMachine("e2-medium", 2, 4096), 0.033506),
    (GcpMachine("g2-standard-4", 4, 16 * 1024, "nvidia-l4", 1), 0.706830),
    (GcpMachine("a2-highgpu-1g", 12, 85 * 1024, "nvidia-tesla-a100", 1), 3.673385),
    (GcpMachine("a2-ultragpu-1g", 12, 170 * 1024, "nvidia-a100-80gb", 1, 1), 5.068798),
]


@pytest.mark.parametrize(
    ("machine", "usd"), PUBLISHED_MACHINES, ids=[m.name for m, _ in PUBLISHED_MACHINES]
)
def test_the_parts_add_up_to_the_published_price(machine: GcpMachine, usd: float) -> None:
    parts = recipe(machine)
    assert parts is not None
    assert float(compose(parts, REGION, "on-demand", rates_of(PRICE_LIST))[0]) == pytest.approx(
        usd * 1e9, abs=1000
    )


@given(
    st.integers(1, 416),
    st.integers(1, 12 * 2**20),
    st.integers(0, 16),
    st.integers(0, 32),
    st.tuples(*[st.integers(1, 10**11)] * 4),
)
def test_a_composition_is_exact_and_rounded_once(
    vcpus: int, memory_mib: int, gpus: int, ssds: int, nanos: tuple[int, int, int, int]
) -> None:
    core, ram, gpu, ssd = nanos
    machine = GcpMachine(
        "a2-any", vcpus, memory_mib, "nvidia-tesla-a100" if gpus else None, gpus, ssds
    )
    parts = recipe(machine)
    assert parts is not None
    rates = rates_of(
        [
            sku("A2 Instance Core running in Americas", core, HERE),
            sku("A2 Instance Ram running in Americas", ram, HERE, "GiBy.h"),
            sku("Nvidia Tesla A100 GPU running in Americas", gpu, HERE),
            sku("SSD backed Local Storage", ssd, HERE, "GiBy.mo"),
        ]
    )
    exact = (
        vcpus * core
        + Fraction(memory_mib * ram, 1024)
        + gpus * gpu
        + Fraction(ssds * 375 * ssd, 730)
    )
    assert compose(parts, REGION, "on-demand", rates)[0] == exact
    (quote,) = quotes([machine], REGION, "on-demand", rates, Rejects("prices"))
    assert quote.price == round(exact)


SERIES = {
    "a2-highgpu-1g": "A2 Instance",
    "a3-highgpu-8g": "A3 Instance",
    "a3-megagpu-8g": "A3Plus Instance",
    "a3-ultragpu-8g": "A3Ultra Instance",
    "c2-standard-60": "Compute optimized",
    "c2d-highcpu-112": "C2D AMD Instance",
    "c3-standard-44": "C3 Instance",
    "c3d-standard-360": "C3D Instance",
    "c4-highmem-2": "C4 Instance",
    "c4a-standard-1": "C4A Arm Instance",
    "c4d-standard-8": "C4D Instance",
    "e2-highmem-16": "E2 Instance",
    "g2-standard-4": "G2 Instance",
    "n1-highcpu-96": "N1 Predefined Instance",
    "n1-highmem-96": "N1 Predefined Instance",
    "n1-standard-1": "N1 Predefined Instance",
    "n2-standard-128": "N2 Instance",
    "n2d-standard-224": "N2D AMD Instance",
    "n4-highcpu-80": "N4 Instance",
    "n4a-standard-8": "N4A Instance",
    "n4d-standard-8": "N4D Instance",
    "t2a-standard-48": "T2A Arm Instance",
    "t2d-standard-60": "T2D AMD Instance",
}


@pytest.mark.parametrize(("name", "series"), SERIES.items(), ids=SERIES.keys())
@pytest.mark.parametrize("prefix", ["", "Spot Preemptible "], ids=["on demand", "spot"])
def test_each_series_is_priced_by_its_own_skus(name: str, series: str, prefix: str) -> None:
    core = part_of(f"{prefix}{series} Core running in Northern Virginia")
    ram = part_of(f"{prefix}{series} Ram running in Northern Virginia")
    term = "spot" if prefix else "on-demand"
    assert (core, ram) == ((term, PricePart("core", series)), (term, PricePart("ram", series)))
    assert recipe(GcpMachine(name, 3, 5120)) == {
        PricePart("core", series): Fraction(3),
        PricePart("ram", series): Fraction(5),
    }


CARDS = {
    "nvidia-a100-80gb": "Nvidia Tesla A100 80GB",
    "nvidia-h100-80gb": "Nvidia H100 80GB",
    "nvidia-h100-mega-80gb": "Nvidia H100 80GB Mega",
    "nvidia-h200-141gb": "H200 141GB",
    "nvidia-l4": "Nvidia L4",
    "nvidia-tesla-a100": "Nvidia Tesla A100",
    "nvidia-tesla-p100": "Nvidia Tesla P100",
    "nvidia-tesla-p4": "Nvidia Tesla P4",
    "nvidia-tesla-t4": "Nvidia Tesla T4",
    "nvidia-tesla-v100": "Nvidia Tesla V100",
}


@pytest.mark.parametrize(("gpu", "card"), CARDS.items(), ids=CARDS.keys())
def test_each_card_is_priced_by_its_own_skus(gpu: str, card: str) -> None:
    part = PricePart("gpu", card)
    assert part_of(f"{card} GPU running in Tokyo") == ("on-demand", part)
    assert part_of(f"{card} GPU attached to Spot Preemptible VMs running in Tokyo") == (
        "spot",
        part,
    )
    parts = recipe(GcpMachine("n1-standard-8", 8, 30 * 1024, gpu, 4))
    assert parts is not None
    assert parts[part] == 4


@pytest.mark.parametrize(
    ("description", "part"),
    [
        (
            "Compute optimized Instance Core running in Madrid",
            PricePart("core", "Compute optimized"),
        ),
        (
            "Nvidia H100 80GB Plus GPU running in Americas",
            PricePart("gpu", "Nvidia H100 80GB Mega"),
        ),
        ("SSD backed Local Storage in Paris", PricePart("ssd", "any series")),
        ("SSD backed Local Storage running in Paris", PricePart("ssd", "any series")),
        ("C4D Instance Local SSD running in Frankfurt", PricePart("ssd", "C4D Instance")),
    ],
)
def test_other_spellings_of_the_same(description: str, part: PricePart) -> None:
    assert part_of(description) == ("on-demand", part)


@pytest.mark.parametrize(
    "description",
    [
        "SSD backed Local Storage attached to Spot Preemptible VMs",
        "SSD backed Local Storage attached to Spot Preemptible VMs in Paris",
        "Spot Preemptible C4 Instance Local SSD running in Iowa",
    ],
)
def test_local_ssds_of_spot_machines(description: str) -> None:
    named = part_of(description)
    assert named is not None
    assert (named[0], named[1].resource) == ("spot", "ssd")


@pytest.mark.parametrize(
    "description",
    [
        "N2 Custom Instance Core running in Americas",
        "Spot Preemptible N2 Custom Instance Ram running in Americas",
        "Custom Instance Core running in Americas",
        "N2 Custom Extended Instance Ram running in Americas",
        "Sole Tenancy Instance N2 Core running in Americas",
        "N2 Sole Tenancy Instance Core running in Americas",
        "Commitment v1: N2 Cpu in Americas for 1 Year",
        "Reserved A2 Ram in Netherlands",
        "DWS Defined Duration A2 Instance Core running in Americas",
        "Nvidia L4 GPU attached to DWS Defined Duration VMs running in Frankfurt",
        "Nvidia Tesla T4 GPU attached to Sole Tenancy VMs running in Americas",
        "Reserved Nvidia H100 80GB Mega GPU in Americas in Calendar Mode",
        "Commitment v1: H200 141GB GPU running in Americas for 3 Years",
        "Memory Optimized Upgrade Premium for Memory-optimized Instance Core running in Singapore",
        "Committed Use Discount Premium for E2 Instance Core running in Johannesburg",
        "N2 Instance Core",
        "Licensing Fee for NVIDIA L4",
        "Network Internet Egress from Americas to China",
        "",
    ],
)
def test_similar_descriptions_are_not_parts(description: str) -> None:
    assert part_of(description) is None


@pytest.mark.parametrize(
    "machine",
    [
        GcpMachine("n2-custom-4-8192", 4, 8192),
        GcpMachine("n1-megamem-96", 96, 1433 * 1024),
        GcpMachine("z3-highmem-88", 88, 704 * 1024, ssds=12),
        GcpMachine("m2-ultramem-208", 208, 5888 * 1024),
        GcpMachine("ct5lp-hightpu-1t", 24, 48 * 1024, "ct5lp", 1),
        GcpMachine("a4-highgpu-8g", 224, 3968 * 1024, "nvidia-b200", 8),
        GcpMachine("g2-standard-4", 4, 16 * 1024, "nvidia-unheard-of", 1),
    ],
    ids=lambda machine: machine.name,
)
def test_a_machine_whose_parts_are_not_known_has_no_recipe(machine: GcpMachine) -> None:
    assert recipe(machine) is None


N2 = GcpMachine("n2-standard-2", 2, 8192)
CORE = sku("N2 Instance Core running in Americas", 30, HERE)
RAM = sku("N2 Instance Ram running in Americas", 4, HERE, "GiBy.h")


def quoted(*skus: billing_v1.Sku) -> tuple[list[PriceEvent], Rejects]:
    rejects = Rejects("prices")
    return list(quotes([N2], REGION, "on-demand", rates_of(skus), rejects)), rejects


def test_a_quote_is_as_of_its_newest_rate() -> None:
    older = sku(
        "N2 Instance Ram running in Americas",
        4,
        HERE,
        "GiBy.h",
        effective=datetime(2026, 8, 1, tzinfo=UTC),
    )
    assert quoted(CORE, older)[0] == [
        PriceEvent(Market("gcp", REGION, NO_ZONE, N2.name), AS_OF, 2 * 30 + 8 * 4)
    ]


def test_the_newest_price_of_a_sku_is_used() -> None:
    twice = sku("N2 Instance Core running in Americas", 30, HERE, effective=PUBLISHED)
    twice.pricing_info = [
        *sku(
            "N2 Instance Core running in Americas",
            99,
            HERE,
            effective=datetime(2026, 8, 1, tzinfo=UTC),
        ).pricing_info,
        *twice.pricing_info,
    ]
    assert quoted(twice, RAM)[0] == [
        PriceEvent(Market("gcp", REGION, NO_ZONE, N2.name), AS_OF, 2 * 30 + 8 * 4)
    ]


def changed(held: billing_v1.Sku, **changes: object) -> billing_v1.Sku:
    """A copy of an N2 core SKU with one thing wrong."""
    copy = billing_v1.Sku(held)
    for name, value in changes.items():
        expression = copy.pricing_info[0].pricing_expression
        target = {
            "unit_price": expression.tiered_rates[0],
            "tiered_rates": expression,
            "usage_unit": expression,
        }
        setattr(target.get(name, copy), name, value)
    return copy


UNCLEAR = {
    "free": changed(CORE, unit_price={"currency_code": "USD"}),
    "negative": changed(CORE, unit_price={"currency_code": "USD", "nanos": -1}),
    "other money": changed(CORE, unit_price={"currency_code": "EUR", "nanos": 30}),
    "a unit of other things": changed(CORE, usage_unit="GiBy.h"),
    "an unknown unit": changed(CORE, usage_unit="fortnight"),
    "no tier": changed(CORE, tiered_rates=[]),
    "two tiers": changed(
        CORE, tiered_rates=list(CORE.pricing_info[0].pricing_expression.tiered_rates) * 2
    ),
    "no price": changed(CORE, pricing_info=[]),
    "no time": changed(
        CORE, pricing_info=[{"pricing_expression": CORE.pricing_info[0].pricing_expression}]
    ),
}


@pytest.mark.parametrize("unclear", UNCLEAR.values(), ids=UNCLEAR.keys())
def test_a_machine_with_an_unclear_rate_has_no_price_and_is_reported(
    unclear: billing_v1.Sku,
) -> None:
    prices, rejects = quoted(unclear, RAM)
    assert prices == []
    assert rejects.count == 1
    assert rejects.example.startswith(
        "n2-standard-2: on-demand core of N2 Instance in us-central1: SKU"
    )


MISSING = {
    "no rate": [RAM],
    "another region only": [RAM, sku("N2 Instance Core running in Tokyo", 30, ["asia-northeast1"])],
    "spot only": [
        RAM,
        sku("Spot Preemptible N2 Instance Core running in Americas", 9, HERE, usage="Preemptible"),
    ],
    "committed only": [
        RAM,
        sku("N2 Instance Core running in Americas", 20, HERE, usage="Commit1Yr"),
    ],
}


@pytest.mark.parametrize("skus", MISSING.values(), ids=MISSING.keys())
def test_a_machine_without_one_of_its_rates_has_no_price_and_is_reported(
    skus: list[billing_v1.Sku],
) -> None:
    prices, rejects = quoted(*skus)
    assert prices == []
    assert (rejects.count, rejects.example) == (
        1,
        "n2-standard-2: on-demand core of N2 Instance in us-central1 is not on the price list",
    )


def test_contradictory_rates_are_unusable() -> None:
    other = sku("N2 Instance Core running in Iowa", 31, [REGION])
    prices, rejects = quoted(CORE, other, RAM)
    assert prices == []
    assert "another price" in rejects.example


def test_the_same_rate_twice_is_one_rate() -> None:
    again = sku("N2 Instance Core running in Iowa", 30, [REGION])
    assert len(quoted(CORE, again, RAM)[0]) == 1


def test_a_rate_unknown_to_the_list_is_an_error_never_zero() -> None:
    parts = recipe(N2)
    assert parts is not None
    with pytest.raises(UnknownPrice):
        compose(parts, REGION, "spot", Rates())
