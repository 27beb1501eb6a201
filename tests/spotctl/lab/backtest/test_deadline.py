"""`spotctl lab backtest deadline` from its entry point."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.spotctl.approvals import Approved
from tests.spotctl.command_line import spotctl

KEYS = ["scheme", "slack", "jobs", "cost_ratio", "spot_hours", "on_demand_hours", "misses"]
SCHEMES = ["greedy", "uniform-progress", "deadline", "optimal"]


def traced(folder: Path, name: str, days: float, seed: int, machines: int = 1) -> Path:
    """A trace of ten-minute ticks with short and long spells."""
    rng = np.random.default_rng(seed)
    up: list[int] = []
    while len(up) < days * 144:
        up += [machines] * int(rng.geometric(1 / rng.choice([3, 40]))) + [0] * int(
            rng.geometric(1 / rng.choice([2, 30]))
        )
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"metadata": {"gap_seconds": 600}, "data": up[: int(days * 144)]}))
    return path


@pytest.fixture
def traces(tmp_path: Path) -> str:
    for seed in range(3):
        traced(tmp_path, f"one{seed}", 5, seed)
    return str(tmp_path / "one*.json")


def test_json_has_a_row_for_each_scheme_and_slack(traces: str) -> None:
    words = (
        "--hours",
        "10",
        "--slack",
        "1.2,2",
        "--starts",
        "5",
        "--delay",
        "0.2h",
        "--on-demand-ratio",
        "3",
    )
    ended = spotctl("lab", "backtest", "deadline", "--traces", traces, *words, "--json")
    assert (ended.code, ended.err) == (0, "")
    rows = ended.json["results"]
    assert [(row["scheme"], row["slack"]) for row in rows] == [
        (name, slack) for name in SCHEMES for slack in (1.2, 2)
    ]
    assert all(list(row) == KEYS for row in rows)
    assert all(row["jobs"] == 15 and row["misses"] == 0 for row in rows)
    cost = {(row["scheme"], row["slack"]): row["cost_ratio"] for row in rows}
    for slack in (1.2, 2):
        assert 1 / 3 <= cost["optimal", slack] == min(cost[name, slack] for name in SCHEMES)
        assert cost["deadline", slack] < cost["uniform-progress", slack]
    for row in rows:
        # On demand only: 62 ticks. Spot hours cost a third of on-demand hours.
        assert row["cost_ratio"] == pytest.approx(
            (row["spot_hours"] / 3 + row["on_demand_hours"]) / (62 / 6)
        )
    assert [one["slack"] for one in ended.json["gap_closed"]] == [1.2, 2]


def test_the_same_question_has_the_same_answer(traces: str) -> None:
    words = ("--traces", traces, "--hours", "10", "--slack", "1.5", "--starts", "4", "--json")
    first, second = (
        spotctl("lab", "backtest", "deadline", *words).json["results"] for _ in range(2)
    )
    assert first == second


def test_the_table_and_the_plots(traces: str, tmp_path: Path) -> None:
    out = tmp_path / "plots" / "of a replay"
    words = ("--hours", "10", "--slack", "1.2,1.5", "--starts", "4", "--delay", "0s", "--out", out)
    ended = spotctl("lab", "backtest", "deadline", "--traces", traces, *words)
    assert ended.code == 0, ended.err
    lines = ended.out.splitlines()
    assert lines[0].split("  ")[0] == "strategy"
    assert [line.split()[0] for line in lines[1:]] == [*SCHEMES, "gap"]
    assert "12 jobs per strategy" not in ended.err
    assert "24 jobs per strategy" in ended.err
    for name in ("cost_by_slack.png", "one_replay.png"):
        assert (out / name).read_bytes().startswith(b"\x89PNG")


def test_traces_too_short_for_a_slack_are_named_and_left_out(traces: str, tmp_path: Path) -> None:
    traced(tmp_path, "one-short", 0.6, 7)
    ended = spotctl(
        "lab",
        "backtest",
        "deadline",
        "--traces",
        traces,
        "--hours",
        "10",
        "--slack",
        "1.1,2",
        "--json",
    )
    assert ended.code == 0
    assert ended.err == "slack 2: 1 of 4 traces are shorter than 20 hours\n"
    jobs = {(row["scheme"], row["slack"]): row["jobs"] for row in ended.json["results"]}
    assert jobs["deadline", 1.1] == jobs["deadline", 2] + 21


def test_a_trace_of_several_machines_is_up_while_all_are(tmp_path: Path) -> None:
    path = traced(tmp_path, "four", 5, 3, machines=4)
    one = traced(tmp_path, "single", 5, 3)
    words = ("--hours", "10", "--slack", "1.5", "--starts", "4", "--json")
    four, single = (
        spotctl("lab", "backtest", "deadline", "--traces", trace, *words).json
        for trace in (path, one)
    )
    assert four["results"] == single["results"]


@pytest.mark.parametrize(
    "words",
    [
        ["--traces", "none/*.json"],
        ["--hours", "0"],
        ["--hours", "nan"],
        ["--on-demand-ratio", "0"],
        ["--on-demand-ratio", "-3"],
        ["--slack", "0.9"],
        ["--slack", "1.001"],
        ["--slack", "1.5,much"],
        ["--slack", ""],
        ["--hours", "100", "--slack", "2"],
        ["--delay", "soon"],
        ["--delay", "-1h"],
        ["--starts", "0"],
    ],
)
def test_what_cannot_be_replayed_is_one_line_and_code_2(
    traces: str, words: list[str], approved: Approved
) -> None:
    given = words if "--traces" in words else ["--traces", traces, *words]
    ended = spotctl("lab", "backtest", "deadline", *given, "--json")
    approved(ended)
    assert ended.out == ""


def test_files_that_are_no_traces_are_named(tmp_path: Path, approved: Approved) -> None:
    (tmp_path / "odd.json").write_text("{}")
    ended = spotctl("lab", "backtest", "deadline", "--traces", str(tmp_path / "*.json"))
    approved(ended)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("recorded", "least_mean"), [("aws-02-15-2023", 0.45), ("aws-10-26-2022", 0.38)]
)
def test_recorded_traces_are_met_and_a_third_of_the_gap_closes(
    shared_data: Path, recorded: str, least_mean: float
) -> None:
    traces = str(shared_data / "availability" / f"availability__1-node__{recorded}__*")
    ended = spotctl("lab", "backtest", "deadline", "--traces", traces, "--starts", "6", "--json")
    assert ended.code == 0
    assert all(row["misses"] == 0 for row in ended.json["results"])
    closed = [one["share"] for one in ended.json["gap_closed"]]
    assert min(closed) > 1 / 3
    assert np.mean(closed) > least_mean
