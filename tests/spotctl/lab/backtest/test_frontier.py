"""`spotctl lab backtest run --frontier` from its entry point, over prices that the test
generates."""

from __future__ import annotations

from pathlib import Path

from tests.spotctl.command_line import spotctl

SOME = "on-demand,standard+agileml,proteus,fixed-bid:0.0001,lookahead:0,lookahead:1"


def test_every_point_has_a_bound_and_the_frontier_is_what_nothing_beats(folder: Path) -> None:
    command = [
        "lab",
        "backtest",
        "run",
        str(folder / "scenario.yaml"),
        "--frontier",
        "--schemes",
        SOME,
        "--workers",
        "1",
        "--out",
        str(folder / "pictures"),
    ]
    answer = spotctl(*command, "--json").json
    points = answer["points"]
    assert [one["scheme"] for one in points] == SOME.split(",")
    for one in points:
        beaten = [
            other
            for other in points
            if other["cost_pct"] <= one["cost_pct"] - 0.15
            and other["runtime_ratio"] <= one["runtime_ratio"] + 0.001
        ]
        assert one["on_frontier"] == (not beaten)
        if one["scheme"] != "on-demand":
            assert one["bound_pct"] <= one["gross_pct"] + 1e-9
    bound = answer["bound"]
    assert [one["cost_pct"] for one in bound] == sorted(
        (one["cost_pct"] for one in bound), reverse=True
    )
    assert answer["default"]["scheme"] == "lookahead"
    assert (folder / "pictures" / "frontier_2h.png").stat().st_size > 10_000


def test_finite_pools_cost_more(folder: Path) -> None:
    command = [
        "lab",
        "backtest",
        "run",
        str(folder / "scenario.yaml"),
        "--frontier",
        "--schemes",
        "proteus",
        "--workers",
        "1",
        "--json",
    ]
    unlimited = spotctl(*command).json
    scenario = folder / "scenario.yaml"
    scenario.write_text(f"{scenario.read_text()}depth: 1\n")
    limited = spotctl(*command).json
    assert limited["points"][0]["bound_pct"] > unlimited["points"][0]["bound_pct"]
    assert limited["points"][0]["runtime_ratio"] > unlimited["points"][0]["runtime_ratio"]


def test_other_windows_of_the_history_have_points_of_their_own(folder: Path) -> None:
    command = [
        "lab",
        "backtest",
        "run",
        str(folder / "scenario.yaml"),
        "--frontier",
        "--schemes",
        "proteus,lookahead",
        "--workers",
        "1",
    ]
    answer = spotctl(*command, "--cuts", "2", "--json").json
    assert [one["window"][:5] for one in answer["windows"]] == ["test ", "test "]
    for window in (answer, *answer["windows"]):
        assert {one["scheme"] for one in window["points"]} == {"proteus", "lookahead"}
        assert window["default"]["scheme"] == "lookahead"
    assert answer["points"] == spotctl(*command, "--json").json["points"]
    text = spotctl(*command, "--cuts", "2")
    assert text.out.count("bound %") == 3
    assert "windows" not in spotctl(*command, "--json").json
