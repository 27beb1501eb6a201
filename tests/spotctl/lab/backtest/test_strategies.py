"""`spotctl lab backtest run` from its entry point, over prices that the test generates."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from spotctl.files.job.conversions import STRATEGIES
from tests.spotctl.approvals import Approved
from tests.spotctl.command_line import spotctl
from tests.spotctl.lab.backtest.conftest import SCENARIO


def test_it_prints_a_table_and_writes_jobs_and_plots(folder: Path) -> None:
    ended = spotctl(
        "lab",
        "backtest",
        "run",
        folder / "scenario.yaml",
        "--out",
        folder / "out",
        "--workers",
        "2",
    )
    assert ended.code == 0, ended.err
    assert "\ndefault for hourly-refund billing: lookahead, because " in ended.err
    assert [line.split()[0] for line in ended.out.splitlines()[1:]] == [
        "on-demand",
        "standard+agileml",
        "proteus",
        "bound",
    ]
    with (folder / "out" / "jobs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4 * 2 * 5
    assert {row["zone"] for row in rows} == {"us-east-1a", "us-east-1b"}
    for name in ("cost_and_runtime_2h.png", "machine_hours_2h.png", "footprint_2h.png"):
        assert (folder / "out" / name).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("words", [(), ("--against", "proteus"), ("--frontier",)])
def test_80_columns_hold_the_names_of_strategies(folder: Path, words: tuple[str, ...]) -> None:
    ended = spotctl(
        "lab", "backtest", "run", folder / "scenario.yaml", *words, "--workers", "1", COLUMNS="80"
    )
    assert ended.code == 0, ended.err
    lines = ended.out.splitlines()
    assert max(map(len, lines)) <= 80
    assert any(" standard+agileml " in f" {line} " for line in lines)
    assert all(
        len(line.split()) > 3 for line in lines if line and line != "differences from proteus"
    )


def test_json_has_the_documented_keys_and_repeats_itself(folder: Path) -> None:
    one, again = (
        spotctl("lab", "backtest", "run", folder / "scenario.yaml", "--workers", "1", "--json").json
        for _ in range(2)
    )
    assert one["results"] == again["results"]
    assert one["wall_seconds"] > 0
    assert one["cheapest"] in ("standard+agileml", "proteus")
    assert one["default"]["scheme"] == "lookahead"
    keys = {
        "scheme",
        "hours",
        "jobs",
        "cost_pct",
        "cost_p50",
        "cost_p95",
        "runtime_ratio",
        "evictions_per_job",
    }
    assert all({*keys, "free_pct", "unfinished"} <= set(row) for row in one["results"])
    on_demand = next(row for row in one["results"] if row["scheme"] == "on-demand")
    assert on_demand["cost_pct"] == pytest.approx(100 * (2 + 1 / 12) / 2)
    assert on_demand["jobs"] == 10


def test_every_strategy_of_a_job_file_can_be_replayed(folder: Path) -> None:
    """With a deadline, which `deadline` and `regions` need, and machines that `regions` can
    move."""
    text = SCENARIO.replace(
        "{type: c4.2xlarge, machines: 4}, hours: [2]",
        "{type: m4.4xlarge, machines: 2}, hours: [2], deadline: 2",
    )
    (folder / "scenario.yaml").write_text(text.replace("starts: 5", "starts: 2"))
    names = ",".join(STRATEGIES)
    for more in ((), ("--frontier",)):
        ended = spotctl(
            "lab",
            "backtest",
            "run",
            folder / "scenario.yaml",
            "--schemes",
            names,
            "--workers",
            "1",
            "--json",
            *more,
        )
        rows = ended.json["points" if more else "results"]
        assert [row["scheme"] for row in rows] == list(STRATEGIES)
        assert not any(row["unfinished"] for row in rows)


@pytest.mark.parametrize("billing", ["per-second", "per-second-first-hour-free", "gcp", "azure"])
def test_todays_regime_replays(traces: Path, billing: str) -> None:
    told = f"evictions: {{availability: {{traces: '*e*.json'}}}}\nbilling: {billing}\nmax_vcpus: 64"
    text = SCENARIO.replace("max_vcpus: 64", told).replace(
        "proteus, bound", "proteus, price-capacity, bound"
    )
    (traces / "scenario.yaml").write_text(text)
    ended = spotctl("lab", "backtest", "run", traces / "scenario.yaml", "--workers", "1", "--json")
    rows = {row["scheme"]: row for row in ended.json["results"]}
    assert rows["price-capacity"]["evictions_per_job"] > 0
    assert (rows["price-capacity"]["free_pct"] > 0) is (
        billing in ("per-second-first-hour-free", "azure")
    )
    assert "availability: 0 markets have their own trace, 2 get an assigned one" in ended.err


def test_a_job_may_use_all_zones_together(folder: Path) -> None:
    (folder / "scenario.yaml").write_text(SCENARIO.replace('["m4.*"]', '["m4.*"], zones: together'))
    rows = spotctl(
        "lab", "backtest", "run", folder / "scenario.yaml", "--workers", "1", "--json"
    ).json["results"]
    assert {row["jobs"] for row in rows} == {5}


def test_compare_pairs_the_jobs_of_all_variants(folder: Path) -> None:
    asked = (
        "lab",
        "backtest",
        "run",
        folder / "scenario.yaml",
        "--schemes",
        "standard+agileml,on-demand",
    )
    more = (
        "--against",
        "proteus",
        "--cuts",
        "2",
        "--vary",
        "lambda,startup",
        "--workers",
        "1",
        "--starts",
        "4",
    )
    answer = spotctl(*asked, *more, "--json").json
    assert [row["scheme"] for row in answer["results"]] == [
        "proteus",
        "standard+agileml",
        "on-demand",
    ]
    found = answer["differences"]
    names = [row["variant"] for row in found if row["scheme"] == "on-demand"]
    assert names[0] == "as it is"
    assert names[1:3] == ["test 2026-01-03 to 2026-01-06", "test 2026-01-06 to 2026-01-09"]
    assert names[3:] == ["lambda x 0.5", "lambda x 2", "startup x 0.5", "startup x 2"]
    assert {row["against"] for row in found} == {"proteus"}
    for row in found:
        assert row["jobs"] + row["unpaired"] == 8
        if row["cost_low"] is not None:
            assert row["cost_low"] <= row["cost_points"] <= row["cost_high"]
    shown = spotctl(*asked, *more)
    table, _, differences = shown.out.partition("\n\ndifferences from proteus\n")
    assert table.splitlines()[0].split()[0] == "strategy"
    assert differences.splitlines()[0].split()[:3] == ["variant", "strategy", "hours"]
    assert len(differences.splitlines()) == 1 + len(found)


@pytest.mark.parametrize(
    "options",
    [
        ("--against", "magic"),
        ("--against", "proteus", "--vary", "weather"),
        ("--against", "proteus", "--cuts", "90"),
        ("--cuts", "1"),
        ("--frontier", "--against", "proteus"),
    ],
)
def test_a_comparison_that_makes_no_sense_is_one_line(
    folder: Path, options: tuple[str, ...], approved: Approved
) -> None:
    ended = spotctl("lab", "backtest", "run", folder / "scenario.yaml", *options, "--workers", "1")
    approved(ended)


def test_the_scenario_of_today_gives_what_decision_6_says(
    shared_data: Path, tmp_path: Path
) -> None:
    """Fewer starts than the example has. No run is left unfinished, and the default pays less than
    the usual ways.
    """
    example = Path("examples/backtest_today.yaml").read_text().replace("starts: 60", "starts: 16")
    (tmp_path / "scenario.yaml").write_text(example.replace("../shared/data", str(shared_data)))
    found = spotctl("lab", "backtest", "run", tmp_path / "scenario.yaml", "--json").json["results"]
    figures = {(row["scheme"], row["hours"]): row for row in found}
    assert not any(row["unfinished"] for row in found)
    for hours in (2, 20):
        ours, usual = figures["price-capacity", hours], figures["standard+agileml", hours]
        assert ours["cost_pct"] < usual["cost_pct"]
        assert ours["runtime_ratio"] < 0.85 < usual["runtime_ratio"]


@pytest.mark.slow
def test_the_2016_scenario_gives_the_independent_figures(shared_data: Path, tmp_path: Path) -> None:
    """Fewer starts than the example has, so the tolerance is that of the evaluation plus that of
    the draw.
    """
    example = Path("examples/backtest_2016.yaml").read_text().replace("starts: 200", "starts: 15")
    # The others have no independent figures; calibrating lookahead takes most of the example's
    # time.
    example = example.replace(', "fixed-bid:0.0001", lookahead, bound]', "]")
    assert example.endswith("tierml, proteus]\n")
    (tmp_path / "scenario.yaml").write_text(example.replace("../shared/data", str(shared_data)))
    found = spotctl("lab", "backtest", "run", tmp_path / "scenario.yaml", "--json").json["results"]
    figures = {
        (row["scheme"], row["hours"]): (row["cost_pct"], row["runtime_ratio"]) for row in found
    }
    expected = {
        ("standard+checkpoint", 2): (30.8, 1.24),
        ("standard+checkpoint", 20): (33.5, 1.20),
        ("standard+agileml", 2): (28.0, 1.04),
        ("standard+agileml", 20): (29.8, 1.00),
        ("tierml", 2): (29.8, 1.04),
        ("tierml", 20): (30.5, 1.00),
        ("proteus", 2): (25.0, 0.79),
        ("proteus", 20): (24.4, 0.73),
    }
    for key, (cost, runtime) in expected.items():
        assert figures[key][0] == pytest.approx(cost, abs=2.5), key
        assert figures[key][1] == pytest.approx(runtime, abs=0.03), key
