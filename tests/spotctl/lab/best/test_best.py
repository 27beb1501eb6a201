"""`spotctl prices best` from its entry point."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pricing_data.availability import Interruption
from pricing_data.fetched_rows import FetchedRows
from pricing_data.list_prices import rows_of
from pricing_data.market import Market, is_region_of
from pricing_data.samples import bundled_catalog
from pricing_data.store import PriceStore
from pricing_data.units import DAY, parse_time
from spotctl.home.wall_clock import wall_us
from tests.spotctl.approvals import Approved
from tests.spotctl.command_line import spotctl

_HEADER = "timestamp,cloud,region,zone,instance_type,product,spot_price"
_PRICES = """
aws,us-east-1,us-east-1a,p4d.24xlarge,Linux/UNIX,12.0
aws,us-east-1,us-east-1b,p4d.24xlarge,Linux/UNIX,11.0
aws,us-east-1,us-east-1b,p4d.24xlarge,Windows,1.0
aws,us-east-1,us-east-1a,c6i.large,Linux/UNIX,0.03
gcp,us-central1,,a2-highgpu-8g,,9.6
gcp,us-central1,,a2-highgpu-4g,,4.0
gcp,us-central1,,a2-ultragpu-8g,,13.0
azure,us_east,,Standard_ND96asr_v4,,10.4
"""
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


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPOTCTL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def prices(tmp_path: Path, home: Path) -> None:
    at = (datetime.now(UTC) - timedelta(hours=2)).isoformat(timespec="seconds")
    lines = [f"{at},{line}" for line in _PRICES.split()]
    lines.append("2016-02-25T00:35:34Z,aws,eu-west-1,eu-west-1a,p4d.24xlarge,Linux/UNIX,0.5")
    (tmp_path / "now.csv").write_text("\n".join([_HEADER, *lines]))
    assert spotctl("prices", "import", tmp_path / "now.csv").code == 0
    now = time.time_ns() // 1000
    rates = [
        Interruption(
            Market.parse("azure/eastus/-/Standard_ND96asr_v4"),
            "eviction-rate",
            now - DAY,
            0.05,
            0.1,
            "test",
        ),
        Interruption(
            Market.parse("gcp/us-central1/-/a2-highgpu-8g"),
            "preemption-rate",
            now - DAY,
            0.9,
            0.9,
            "test",
        ),
        Interruption(
            Market.parse("aws/us-east-1/-/p4d.24xlarge"),
            "monthly-bucket",
            now - DAY,
            0.2,
            1.0,
            "test",
        ),
        Interruption(
            Market.parse("aws/us-west-2/-/p4d.24xlarge"), "saving", now - DAY, 0.7, 0.7, "test"
        ),
        Interruption(
            Market.parse("aws/us-east-1/-/p4d.24xlarge"), "saving", now - DAY, 0.7, 0.7, "test"
        ),
    ]
    PriceStore(home / "prices").commit(FetchedRows(interruptions=tuple(rates)))


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


@pytest.mark.usefixtures("prices")
@pytest.mark.parametrize(
    "words",
    [
        ("prices", "best", "--gpu", "A100:8"),
        ("lab", "prices", "ls", "--stats"),
        ("prices", "show", "gcp/us-central1/-/a2-highgpu-8g"),
    ],
)
def test_80_columns_hold_every_figure_whole(words: tuple[str, ...]) -> None:
    shown = spotctl(*words, COLUMNS="80").out
    assert "\N{HORIZONTAL ELLIPSIS}" not in shown
    assert max(map(len, shown.splitlines())) <= 80
    if words[0] == "best":
        assert [float(figure) for figure in re.findall(r" (\d\.\d{4}) ", shown)][:3]


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


def test_without_prices_the_synthetic_market_is_labeled() -> None:
    offers = spotctl("prices", "best", "--gpu", "K80", "--json").json["offers"]
    assert {offer["synthetic"] for offer in offers} == {True, False}
    assert all(offer["synthetic"] or "shipped with spotctl" in offer["source"] for offer in offers)


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
        "no prices of aws, gcp, azure, vast are stored; fetch them: spotctl prices fetch\n"
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
@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("--gpu", "A100:8", "--memory", "4000.."), "--memory 4000.."),
        (("--gpu", "A100:9..", "--memory", "4000.."), "--gpu A100:9.."),
        (("--cloud", "azure", "--gpu", "H200"), "--gpu H200"),
        (("--cloud", "azure", "--region", "westus", "--vcpus", "8"), "--region westus"),
        (("--vcpus", "3", "--gpu", "A100"), "--vcpus 3"),
        (("--type", "p4d.*", "--memory", "..8"), "--memory ..8"),
        (("azure/eastus/*/E*", "--memory", "..8"), "'azure/eastus/*/E*'"),
        (("--os", "suse"), "--os suse"),
    ],
)
def test_where_nothing_fits_the_last_filter_is_named(words: tuple[str, ...], option: str) -> None:
    answer = spotctl("prices", "best", *words, "--json")
    assert (answer.code, answer.json["offers"]) == (3, [])
    assert answer.json["removed_by"]["option"] == option
    if words[:2] == ("--cloud", "azure"):
        assert answer.json["removed_by"]["before"] == 1
        assert (
            f"no offer fits: {option} leaves none (1 market before it)"
            in spotctl("prices", "best", *words).err
        )


@pytest.mark.usefixtures("prices")
def test_only_clouds_without_current_prices_are_named(tmp_path: Path) -> None:
    fresh = spotctl("prices", "best", "--gpu", "A100:8", "--json").json
    assert [cloud["state"] for cloud in fresh["clouds"]] == [*["fresh"] * 3, "missing"]
    known = ("--cloud", "aws", "--cloud", "gcp", "--cloud", "azure")
    assert spotctl("prices", "best", "--gpu", "A100:8", "--json", *known).json["fetch"] is None
    assert "fetch them" not in spotctl("prices", "best", "--gpu", "A100:8", *known).err
    assert "fetch them" not in spotctl("prices", "best", "--gpu", "H200", *known).err, (
        "fresh, and none sells it"
    )
    seen = datetime.now(UTC) - timedelta(days=8)
    (tmp_path / "old.csv").write_text(
        f"{_HEADER}\n{seen.isoformat(timespec='seconds')},aws,us-east-1,us-east-1a,c6i.large,Linux/UNIX,0.03"
    )
    home = {"SPOTCTL_HOME": str(tmp_path / "other")}
    assert spotctl("prices", "import", tmp_path / "old.csv", **home).code == 0
    both = spotctl(
        "prices", "best", "--cloud", "aws", "--cloud", "azure", "--region", "us-east-1", **home
    )
    assert both.err.startswith(
        "prices of aws are 8 d old; fetch them: spotctl prices fetch --cloud aws --region "
        "us-east-1\n"
    )
    every = spotctl("prices", "best", "--json", **home).json
    assert {cloud["cloud"]: cloud["state"] for cloud in every["clouds"]} == {
        "aws": "old",
        "gcp": "missing",
        "azure": "missing",
        "vast": "missing",
    }
    assert every["fetch"] == "spotctl prices fetch"
    listed = spotctl("lab", "prices", "ls", "--json", **home).json
    assert [(cloud["cloud"], cloud["state"]) for cloud in listed["clouds"]] == [("aws", "old")]


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
