"""`spotctl prices best` from its entry point."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from pricing_data.availability import Interruption
from pricing_data.fetched_rows import FetchedRows
from pricing_data.list_prices import rows_of
from pricing_data.market import Market, is_region_of
from pricing_data.samples import bundled_catalog
from pricing_data.store import PriceStore
from pricing_data.units import parse_time
from spotctl.home.wall_clock import wall_us
from tests.spotctl.approvals import Approved
from tests.spotctl.command_line import spotctl

pytestmark = pytest.mark.usefixtures("home")

KEYS = {
    "market",
    "usd_per_hour",
    "usd_per_gpu_hour",
    "usd_per_vcpu_hour",
    "usd_per_useful_hour",
    "eviction",
    "band",
    "age_seconds",
    "estimated",
}


@pytest.mark.usefixtures("prices")
def test_the_cheapest_8_a100_over_all_clouds() -> None:
    offers = spotctl("prices", "best", "--gpu", "A100:8", "--json").json["offers"]
    assert offers[0]["estimated"]
    assert [(offer["market"], offer["usd_per_gpu_hour"]) for offer in offers[1:]] == [
        ("gcp/us-central1/-/a2-highgpu-8g", 1.2),
        ("azure/eastus/-/Standard_ND96asr_v4", 1.3),
        ("aws/us-east-1/us-east-1b/p4d.24xlarge", 1.375),
        ("aws/us-east-1/us-east-1a/p4d.24xlarge", 1.5),
        ("gcp/us-central1/-/a2-ultragpu-8g", 1.625),
    ]
    assert all(set(offer) >= KEYS for offer in offers)
    assert all(
        offer["usd_per_hour"] == pytest.approx(8 * offer["usd_per_gpu_hour"]) for offer in offers
    )
    estimated = [offer for offer in offers if offer["estimated"]]
    assert [offer["market"] for offer in estimated] == ["aws/us-west-2/-/p4d.24xlarge"]
    assert estimated[0]["usd_per_hour"] == pytest.approx(0.3 * estimated[0]["on_demand"])
    assert offers[2]["band"] == "5-10%"
    assert offers[3]["band"] == ">20%"
    for offer in offers:
        if offer["eviction"] is not None:
            useful = offer["usd_per_hour"] / (1 - offer["eviction"] * 0.25)
            assert offer["usd_per_useful_hour"] == pytest.approx(useful)
        else:
            assert offer["usd_per_useful_hour"] is None


@pytest.mark.usefixtures("prices")
def test_offers_are_filtered_and_sorted() -> None:
    def found(*words: str) -> list[str]:
        return [
            offer["market"].split("/")[3]
            for offer in spotctl("prices", "best", *words, "--json").json["offers"]
        ]

    assert found("--gpu", "A100-80GB") == ["a2-ultragpu-8g"]
    assert found("--gpu", "A100:..4") == ["a2-highgpu-4g"]
    assert found("--vcpus", "..8") == ["c6i.large"]
    assert found("--memory", "1200..", "--cloud", "gcp") == ["a2-ultragpu-8g"]
    assert found("--cloud", "aws", "--limit", "1", "--sort", "vcpu") == ["c6i.large"]
    assert found("--gpu", "A100:8", "--sort", "useful")[-1] == "a2-ultragpu-8g"
    assert found("--os", "windows") == ["p4d.24xlarge"]
    assert "a2-highgpu-8g" in found("--sort", "eviction")


@pytest.mark.usefixtures("prices")
def test_old_prices_are_left_out_and_counted() -> None:
    ended = spotctl("prices", "best", "--gpu", "A100:8")
    assert "eu-west-1" not in ended.out
    assert "left out: 1 offer with prices older than 7 d" in ended.err
    assert "eu-west-1" in spotctl("prices", "best", "--gpu", "A100:8", "--max-age", "9999d").out


def test_without_prices_the_synthetic_market_is_labeled() -> None:
    offers = spotctl("prices", "best", "--gpu", "K80", "--json").json["offers"]
    assert {offer["synthetic"] for offer in offers} == {True, False}
    assert all(offer["synthetic"] or "shipped with spotctl" in offer["source"] for offer in offers)


def test_the_dated_list_of_gpus_has_its_date_and_source_and_machines_that_are_known() -> None:
    rows = rows_of("gpu_prices")
    assert {row["cloud"] for row in rows} == {"aws", "azure", "gcp"}
    assert len({(row["cloud"], row["region"], row["instance_type"]) for row in rows}) == len(rows)
    for row in rows:
        assert bundled_catalog().instance_type(row["cloud"], row["instance_type"]).accelerators
        assert is_region_of(row["cloud"], row["region"])
        assert parse_time(row["asof"]) < wall_us()
        assert row["source"]
        assert row["certainty"] in ("list", "approximate")
        assert not row["spot"] or float(row["spot"]) < float(row["on_demand"])
        assert bool(row["spot"]) is bool(row["spot_asof"])


def test_until_prices_are_fetched_those_of_gpus_are_from_shipped_lists() -> None:
    words = ("--gpu", "H100:8")
    offers = spotctl("prices", "best", *words, "--json").json["offers"]
    assert {offer["market"].partition("/")[0] for offer in offers} == {"aws", "gcp"}
    for offer in offers:
        assert 0 < offer["discount"] < 1
        assert offer["age_seconds"] > 0
        assert "shipped with spotctl" in offer["source"]
        assert offer["estimated"] is offer["source"].startswith("list price minus saving")
    ended = spotctl("prices", "best", *words)
    assert "(estimated, 2025-06-28)" in ended.out
    assert "(list, 2024-" in ended.out
    assert ended.err.startswith(
        "no prices of aws, gcp, azure, slurm, vast, runpod are stored; fetch them: spotctl prices fetch\n"
    )
    assert (
        "of azure, only on-demand prices are shipped: azure/eastus/-/Standard_ND96isr_H100_v5 "
        "$98.32/h" in ended.err
    )
    assert "vCPUs, memory and GPUs are from the shipped list, as of 20" in ended.err
    old = spotctl("prices", "best", *words, "--max-age", "7d")
    assert (old.code, "no offer fits: --max-age 7d leaves none" in old.err) == (3, True)
    assert spotctl("prices", "best", *words, "--below", "99", "--no-fetch", "--for", "0").code == 3


@pytest.mark.usefixtures("prices")
def test_show_keeps_the_history_of_published_figures(home: Path) -> None:
    market = Market.parse("azure/eastus/-/Standard_ND96asr_v4")
    later = Interruption(market, "eviction-rate", time.time_ns() // 1000, 0.1, 0.15, "test")
    PriceStore(home / "prices").commit(FetchedRows(interruptions=(later,)))
    figures = spotctl("prices", "show", str(market), "--json").json["interruptions"]
    assert [(one["measure"], one["low"], one["high"]) for one in figures] == [
        ("eviction-rate", 0.05, 0.1),
        ("eviction-rate", 0.1, 0.15),
    ]
    assert "eviction-rate  10-15% since" in spotctl("prices", "show", str(market)).out


@pytest.mark.parametrize(
    "words",
    [
        ("--gpu", "A100:x"),
        ("--sort", "beauty"),
        ("--os", "linxu"),
        ("--memory", "9..1"),
        ("--max-age", "soon"),
    ],
)
def test_a_bad_option_is_one_line(words: tuple[str, ...], approved: Approved) -> None:
    ended = spotctl("prices", "best", *words)
    approved(ended)


@pytest.mark.parametrize(
    "words",
    [
        ("best", "--gpu", "a1000"),
        ("best", "--gpu", "A1"),
        ("best", "--gpu", "radeon"),
        ("best", "--gpu", "A9000:8", "--below", "1"),
        ("best", "--gpu", "RTX4090:1"),
    ],
)
def test_a_gpu_that_does_not_exist_is_bad_input(words: tuple[str, ...], approved: Approved) -> None:
    ended = spotctl("prices", *words)
    approved(ended)


@pytest.mark.parametrize("question", [(), ("--stats",), ("--gaps",)])
def test_an_accelerator_that_does_not_exist_is_bad_input(
    question: tuple[str, ...], approved: Approved
) -> None:
    ended = spotctl("lab", "prices", "ls", "--accelerator", "V1000", *question)
    approved(ended)
