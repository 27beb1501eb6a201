"""Scenario files, and what they may say."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tests.spotctl.approvals import Approved
from tests.spotctl.command_line import spotctl
from tests.spotctl.lab.backtest.conftest import SCENARIO, TRACE


def test_markets_may_come_from_the_store(folder: Path) -> None:
    assert spotctl("prices", "import", folder / "history.csv").code == 0
    stored = SCENARIO.replace("prices: [history.csv]", "store: {markets: 'aws/us-east-1/*/m4.*'}")
    (folder / "scenario.yaml").write_text(stored)
    assert (
        spotctl("lab", "backtest", "run", folder / "scenario.yaml", "--workers", "1", "--json").code
        == 0
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("max_vcpus: 64", "max_vcpu: 64"),
        ("machines: 4", "machines: 0"),
        ("starts: 5", "starts: many"),
        ("2026-01-05T00:00:00Z]", "whenever]"),
        ("test: [2026-01-05", "test: [2026-01-03"),
        ("2026-01-09T00:00:00Z", "2026-03-09T00:00:00Z"),
        ("[on-demand,", "[magic,"),
        ("m4.*", "x9.*"),
        ("hours: [2]", "hours: [90]"),
        ("c4.2xlarge", "c9.2xlarge"),
        ("history.csv", "nothing.csv"),
        ("prices: [history.csv]", ""),
        ("max_vcpus: 64", "billing: monthly\nmax_vcpus: 64"),
        ("max_vcpus: 64", "evictions: magic\nmax_vcpus: 64"),
        ("max_vcpus: 64", "evictions: {hazard: }\nmax_vcpus: 64"),
        ("max_vcpus: 64", "evictions: {availability: {}}\nmax_vcpus: 64"),
        ("max_vcpus: 64", "evictions: {availability: {traces: x*}}\nmax_vcpus: 64"),
        ("max_vcpus: 64", "evictions: {hazard: {}}\nmax_vcpus: 64"),
        ("max_vcpus: 64", "evictions: {hazard: {per_hour: -1}}\nmax_vcpus: 64"),
        ("max_vcpus: 64", "evictions: {hazard: {per_hour: .inf}}\nmax_vcpus: 64"),
        ("max_vcpus: 64", "evictions: {hazard: {per_hour: {'*/*/us-east-1a': 1}}}\nmax_vcpus: 64"),
        ("max_vcpus: 64", "evictions: {hazard: {lifetimes: [none.csv]}}\nmax_vcpus: 64"),
        ("starts: 5", "starts: 5\nseed: -1"),
        ("[on-demand,", "['price-capacity:none',"),
        ('types: ["m4.*"]', 'types: ["m4.*"], region: mars'),
        ("job:", "job: ["),
    ],
)
def test_a_scenario_that_cannot_be_replayed_is_one_line_and_exit_code_2(
    folder: Path, old: str, new: str, approved: Approved
) -> None:
    assert old in SCENARIO
    (folder / "scenario.yaml").write_text(SCENARIO.replace(old, new, 1))
    ended = spotctl("lab", "backtest", "run", folder / "scenario.yaml", "--workers", "1")
    approved(ended)


def test_a_strategy_that_needs_a_deadline_says_how_to_write_one(
    folder: Path, approved: Approved
) -> None:
    approved(
        spotctl(
            "lab",
            "backtest",
            "run",
            folder / "scenario.yaml",
            "--schemes",
            "auto,deadline",
            "--workers",
            "1",
        )
    )


def test_a_market_plays_the_trace_it_is_told_to(traces: Path, approved: Approved) -> None:
    (traces / "never.json").write_text(TRACE % "0, 0")
    told = """evictions:
  availability: {traces: '*.json', markets: {"*/*/us-east-1b": never}}
max_vcpus: 64"""
    (traces / "scenario.yaml").write_text(
        SCENARIO.replace("max_vcpus: 64", told).replace("standard+agileml", "tierml")
    )
    ended = spotctl(
        "lab",
        "backtest",
        "run",
        traces / "scenario.yaml",
        "--workers",
        "1",
        "--out",
        traces / "out",
    )
    assert ended.code == 0, ended.err
    assert "1 markets have their own trace, 1 get an assigned one" in ended.err
    with (traces / "out" / "jobs.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["scheme"] == "tierml"]
    # Spot hours that ended in an eviction are free.
    hours = [(row["zone"][-1], float(row["spot_hours"]) + float(row["free_hours"])) for row in rows]
    spot = {zone: sum(held for where, held in hours if where == zone) for zone in ("a", "b")}
    assert spot["b"] == 0 < spot["a"]
    (traces / "scenario.yaml").write_text(
        SCENARIO.replace("max_vcpus: 64", told.replace(": never", ": 'x*'"))
    )
    ended = spotctl("lab", "backtest", "run", traces / "scenario.yaml", "--workers", "1")
    approved(ended)


def test_hazards_may_be_rates_by_market_or_learned_from_lives(folder: Path) -> None:
    columns = "cloud,zone,gpu,gpu_count,start,lifetime_h,preempted"
    lives = [
        f"aws,us-east-1a,v100,1,2026-01-01T00:00:00Z,{hours},1" for hours in (0.1, 0.2, 0.5, 1, 3)
    ]
    (folder / "lives.csv").write_text("\n".join([columns, *lives]))
    found = {}
    for hazard in (
        "{per_hour: 0}",
        "{per_hour: {'*/*/us-east-1a': 0, '*': 3}}",
        "{lifetimes: [lives.csv]}",
    ):
        text = SCENARIO.replace("max_vcpus: 64", f"evictions: {{hazard: {hazard}}}\nmax_vcpus: 64")
        text = text.partition("schemes:")[0] + "schemes: [standard+agileml]"
        (folder / "scenario.yaml").write_text(text)
        assert (
            spotctl(
                "lab",
                "backtest",
                "run",
                folder / "scenario.yaml",
                "--workers",
                "1",
                "--out",
                folder / "out",
            ).code
            == 0
        )
        with (folder / "out" / "jobs.csv").open() as file:
            rows = list(csv.DictReader(file))
        found[hazard] = {
            zone: sum(int(row["evictions"]) for row in rows if row["zone"][-1] == zone)
            for zone in ("a", "b")
        }
    none, by_zone, learned = found.values()
    assert by_zone["a"] == none["a"]
    assert by_zone["b"] > none["b"]
    assert sum(learned.values()) > sum(none.values())
