"""`spotctl lab beta` from its entry point."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bidbrain.eviction.crossing import CrossingHistory
from pricing_data.series import PriceSeries
from pricing_data.units import DAY, HOUR, format_time
from tests.bidbrain.eviction.worlds import START, flat
from tests.spotctl.approvals import Approved
from tests.spotctl.command_line import spotctl
from tests.spotctl.lab.beta.conftest import imported

MARKET = "aws/us-east-1/us-east-1a/t0.large"
KEYS = (
    "market",
    "probability",
    "low",
    "high",
    "historical_share",
    "median_seconds_to_eviction",
    "observations",
    "basis",
)


def test_show_answers_the_moment_beside_the_exact_share(moods: list[PriceSeries]) -> None:
    at = START + 9 * DAY
    shown = spotctl(
        "lab", "beta", "show", MARKET, "--bid-delta", "0.00001", "--at", format_time(at), "--json"
    ).json
    assert tuple(shown)[: len(KEYS)] == KEYS
    exact = CrossingHistory(moods[0].window(START, at), HOUR).at_delta(10_000)
    assert shown["historical_share"] == pytest.approx(exact.share, abs=1e-12)
    assert exact.median_time is not None
    # Evictions that prices do not explain come at any time of the hour.
    assert exact.median_time / 1e6 < shown["median_seconds_to_eviction"] < 1800
    assert 0 <= shown["low"] <= shown["probability"] <= shown["high"] <= 1
    assert "given the present, fitted to 6 markets" in shown["basis"]
    assert "a prior, because no eviction rate is recorded" in shown["basis"]
    text = spotctl(
        "lab", "beta", "show", MARKET, "--bid-delta", "0.00001", "--at", format_time(at)
    ).out
    assert f"within 1 h of {format_time(at)}" in text
    assert "$0.00001 above the price" in text


def test_the_same_question_has_the_same_answer(moods: list[PriceSeries]) -> None:
    assert moods
    words = ("lab", "beta", "show", MARKET, "--bid-delta", "0.00001", "--window", "2h", "--json")
    assert spotctl(*words).out == spotctl(*words).out


def test_an_amount_and_its_distance_from_the_price_are_one_bid(moods: list[PriceSeries]) -> None:
    """Their historical shares differ: an amount holds only where prices were at most that high."""
    price = moods[0].price_at(moods[0].last) / 1e9
    named = [("--bid-delta", "0.00001"), ("--bid", f"{price + 0.00001:.9f}")]
    shown = [spotctl("lab", "beta", "show", MARKET, *words, "--json").json for words in named]
    assert [shown[0][key] for key in ("probability", "low", "high")] == [
        shown[1][key] for key in ("probability", "low", "high")
    ]
    assert shown[0]["bid"] != shown[1]["bid"]


@pytest.mark.usefixtures("moods")
def test_a_bid_far_above_everything_is_the_on_demand_price_unless_told_otherwise() -> None:
    shown = spotctl("lab", "beta", "show", MARKET, "--json").json
    assert (shown["bid"], shown["price_probability"], shown["historical_share"]) == (
        "$0.02",
        0.0,
        0.0,
    )
    assert shown["price_high"] > 0
    assert spotctl("lab", "beta", "show", MARKET, "--bid", "on-demand", "--json").json == shown
    assert spotctl("lab", "beta", "show", MARKET, "--bid", "0.02", "--json").json == shown


def test_recorded_evictions_carry_the_estimate_where_prices_never_evict(tmp_path: Path) -> None:
    imported(tmp_path, flat("t0.large", 9), flat("t1.large", 9))
    alone = spotctl("lab", "beta", "show", MARKET, "--json").json
    assert (alone["price_probability"], alone["evidence"]) == (0, "prior")
    assert 0 < alone["low"] < 0.01 < alone["probability"] < 0.1 < alone["high"]
    trace = {
        "metadata": {"gap_seconds": 3600, "market": MARKET, "start": "2026-01-02T00:00:00Z"},
        "data": [1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 0],
    }
    (tmp_path / "trace.json").write_text(json.dumps(trace))
    assert spotctl("prices", "import", tmp_path / "trace.json").code == 0
    told = spotctl("lab", "beta", "show", MARKET, "--json").json
    assert 0.01 < told["low"] < told["probability"] < told["high"] < 0.6
    assert (told["historical_share"], told["evidence"]) == (0, "observed")
    assert told["high"] - told["low"] < 2 * (alone["high"] - alone["low"])
    # Two in ten hours, a week ago, which count a little less than those of today.
    assert "own observations (1.68 evictions in 8.39 machine-hours)" in told["basis"]
    assert told["median_seconds_to_eviction"] == pytest.approx(1800, rel=0.1)


def test_published_figures_are_found_in_the_store(tmp_path: Path) -> None:
    imported(tmp_path, flat("t0.large", 9), flat("t1.large", 9))
    (tmp_path / "advisor.csv").write_text(
        "asof,region,os,instance_type,savings_pct,interruption_bucket\n"
        "2021-02-10,us-east-1,Linux,t0.large,70,0\n2021-02-10,us-east-1,Linux,t1.large,70,4\n"
    )
    assert spotctl("prices", "import", tmp_path / "advisor.csv").code == 0
    calm, wild = (
        spotctl("lab", "beta", "show", MARKET.replace("t0", name), "--json").json
        for name in ("t0", "t1")
    )
    assert 0 < calm["probability"] < wild["probability"]
    assert calm["evidence"] == wild["evidence"] == "prior"
    assert "Spot Advisor's bucket of 0% to 5% per month, which shifts a prior" in calm["basis"]


def test_a_plan_states_the_probability_that_show_does(tmp_path: Path) -> None:
    """The same market, moment and bid, of the choice and by its whole distance from the price."""
    at, file = "2026-01-20T12:00:00Z", tmp_path / "job.yaml"
    file.write_text(
        "name: one\nkind: agileml\napp: mf\nstop: {clocks: 600}\nthroughputs: {c4.2xlarge: 60}\n"
        "resources: {clouds: [local], types: [c4.2xlarge], machines: 1..4, reliable: {machines: "
        "0}}\n"
    )
    (choice,) = spotctl("plan", file, "--at", at, "--json").json["choice"]
    words = ("--bid", f"{choice['bid']:.9f}", "--at", at, "--json")
    shown = spotctl("lab", "beta", "show", choice["market"], *words).json
    assert [choice[key] for key in ("beta", "beta_low", "beta_high")] == [
        shown[key] for key in ("probability", "low", "high")
    ]
    assert shown["probability"] != shown["historical_share"]


@pytest.mark.usefixtures("moods")
@pytest.mark.parametrize(
    "words",
    [
        ["show", "aws/us-east-1/us-east-1a/t9.large"],
        ["show", "t0.large"],
        ["show", MARKET, "--bid-delta", "-0.01"],
        ["show", MARKET, "--bid", "0"],
        ["show", MARKET, "--bid", "0.1", "--bid-delta", "0.1"],
        ["show", MARKET, "--bid", "0.0001"],
        ["show", MARKET, "--window", "30d"],
        ["show", MARKET, "--window", "1x"],
        ["show", MARKET, "--at", "2025-12-31"],
        ["show", MARKET, "--at", "2026-01-01"],
        ["show", MARKET, "--at", "soon"],
        ["calibrate", "gcp"],
        ["calibrate", "aws", "--history", "60d"],
        ["calibrate", "aws", "--history", "1h"],
        ["calibrate", "aws", "--deltas", "-1"],
        ["calibrate", "aws", "--deltas", ","],
    ],
)
def test_what_cannot_be_answered_is_refused_in_a_line(words: list[str], approved: Approved) -> None:
    ended = spotctl("lab", "beta", *words)
    approved(ended)


def test_without_an_on_demand_price_a_bid_has_to_be_given(
    tmp_path: Path, approved: Approved
) -> None:
    imported(tmp_path, flat("t0.large", 9))
    other = flat("t7.large", 9)
    unlisted = PriceSeries(other.market, other.times, other.prices.copy())
    (tmp_path / "more").mkdir()
    lines = ["timestamp,cloud,region,zone,instance_type,product,spot_price"] + [
        f"{format_time(int(time))},aws,us-east-1,us-east-1a,t7.large,Linux/UNIX,0.001"
        for time in unlisted.times
    ]
    (tmp_path / "more" / "p.csv").write_text("\n".join(lines) + "\n")
    assert spotctl("prices", "import", tmp_path / "more" / "p.csv").code == 0
    market = MARKET.replace("t0", "t7")
    ended = spotctl("lab", "beta", "show", market)
    approved(ended)
    assert (
        spotctl("lab", "beta", "show", market, "--bid", "0.002", "--json").json["price_probability"]
        == 0
    )
    assert (
        spotctl("lab", "beta", "show", market, "--bid-delta", "0", "--json").json["bid"]
        == "$0 above the price"
    )
