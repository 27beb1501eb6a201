"""`spotctl lab gavel solve` from its entry point."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bidbrain.gavel.policies import POLICIES
from tests.spotctl.approvals import Approved
from tests.spotctl.command_line import Ended, spotctl

PROBLEM: dict[str, Any] = {
    "workers": {"v100": 1, "k80": 1},
    "prices": {"v100": 2.48, "k80": 0.45},
    "jobs": [
        {
            "id": "a",
            "throughputs": {"v100": 40.0, "k80": 10.0},
            "steps": 1e6,
            "slo_seconds": 360000,
            "entity": "research",
        },
        {"id": "b", "throughputs": {"v100": 12.0, "k80": 4.0}, "steps": 1e5},
        {"id": "c", "throughputs": {"v100": 100.0, "k80": 50.0}, "steps": 1e6, "arrival": 2},
    ],
    "entities": {"research": {"weight": 1, "policy": "fifo"}},
    "budget_usd": 100,
}


def solve(folder: Path, content: object, *words: str) -> Ended:
    path = folder / "problem.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return spotctl("lab", "gavel", "solve", path, *words)


def changed(**parts: object) -> dict[str, Any]:
    return {**PROBLEM, **parts}


def job(**fields: object) -> dict[str, Any]:
    return {"id": "a", "throughputs": {"v100": 1.0}, **fields}


def test_the_published_example_as_json(tmp_path: Path) -> None:
    ended = solve(tmp_path, PROBLEM, "--policy", "max-min-fairness", "--json")
    assert (ended.code, ended.err) == (0, "")
    told = ended.json
    assert list(told) == [
        *(
            "status",
            "objective",
            "allocation",
            "effective_throughput",
            "cost_usd_per_hour",
            "infeasible",
            "solve_seconds",
        )
    ]
    assert told["status"] == "optimal"
    assert told["infeasible"] == []
    assert told["allocation"]["a"] == {"v100": pytest.approx(0.4545, abs=1e-4)}
    assert told["allocation"]["c"] == {
        "v100": pytest.approx(0.0909, abs=1e-4),
        "k80": pytest.approx(0.9091, abs=1e-4),
    }
    assert told["effective_throughput"]["b"] == pytest.approx(5.8182, abs=1e-3)
    assert told["cost_usd_per_hour"] == pytest.approx(2.93)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("agnostic", [(), ("--agnostic",)])
def test_every_policy_answers(tmp_path: Path, name: str, agnostic: tuple[str, ...]) -> None:
    ended = solve(tmp_path, PROBLEM, "--policy", name, "--json", *agnostic)
    assert ended.code == 0, ended.err
    told = ended.json
    assert set(told["allocation"]) == {"a", "b", "c"}
    assert (
        ("hours" in told)
        == ("cost_usd" in told)
        == (name in {"min-cost-slo", "makespan-within-budget"})
    )


def test_help_names_every_policy() -> None:
    # Folded lines and borders are not what this is about.
    words = spotctl("lab", "gavel", "solve", "--help", COLUMNS="200").out.replace("\n", " ")
    assert all(name in words for name in POLICIES)


def test_what_cannot_be_kept_is_told_and_the_rest_solved(tmp_path: Path) -> None:
    jobs = [*PROBLEM["jobs"], job(id="late", steps=1e6, slo_seconds=70, elapsed_seconds=60)]
    told = solve(tmp_path, changed(jobs=jobs), "--policy", "min-cost-slo", "--json").json
    assert told["status"] == "relaxed"
    assert len(told["infeasible"]) == 1
    assert "job 'late': its deadline cannot be kept" in told["infeasible"][0]
    assert told["hours"]["late"] == {"v100": pytest.approx(1e6 / 3600)}


PLACED = [
    job(id=f"j{m}", scale=2, throughputs={"v100": 10.0, "v100_unconsolidated": 9.0})
    for m in range(4)
]


def test_a_type_that_is_spread_over_servers_draws_on_the_same_workers(tmp_path: Path) -> None:
    """Four workers are four, under both names or one, in every policy."""
    for policy in ("max-min-fairness", "max-throughput", "hierarchical"):
        answers = [
            solve(tmp_path, {"workers": workers, "jobs": PLACED}, "--policy", policy, "--json").json
            for workers in ({"v100": 4, "v100_unconsolidated": 4}, {"v100": 4})
        ]
        held = [
            2 * sum(sum(row.values()) for row in told["allocation"].values()) for told in answers
        ]
        assert held == pytest.approx([4.0, 4.0])
        assert answers[0]["effective_throughput"] == pytest.approx(
            answers[1]["effective_throughput"]
        )


def test_jobs_run_where_they_are_faster_and_one_worker_is_on_one_server(tmp_path: Path) -> None:
    workers = {"v100": 8, "v100_unconsolidated": 8}
    jobs = [
        job(id="wide", scale=4, throughputs={"v100": 1.0, "v100_unconsolidated": 2.0}),
        job(id="small", throughputs={"v100": 1.0}),
        job(id="stays", scale=2, throughputs={"v100": 1.0}),
    ]
    told = solve(
        tmp_path, {"workers": workers, "jobs": jobs}, "--policy", "max-throughput", "--json"
    ).json
    assert told["allocation"] == {
        "wide": {"v100_unconsolidated": pytest.approx(1.0)},
        "small": {"v100": pytest.approx(1.0)},
        "stays": {"v100": pytest.approx(1.0)},
    }
    assert told["cost_usd_per_hour"] is None


def test_servers_take_big_jobs_first_and_the_others_are_spread(tmp_path: Path) -> None:
    """Three servers of four: three jobs of three workers have one each, and the fourth one worker
    of each.
    """
    jobs = [
        *(
            job(id=f"three{m}", scale=3, throughputs={"v100": 9.0, "v100_unconsolidated": 6.0})
            for m in range(4)
        ),
        job(id="eight", scale=8, throughputs={"v100": 9.0}),
    ]
    content = {
        "workers": {"v100": 12},
        "servers": {"v100": 4},
        "jobs": jobs[:4],
        "prices": {"v100": 2.0},
    }
    told = solve(tmp_path, content, "--policy", "max-min-fairness", "--json").json
    spread = [row.get("v100_unconsolidated", 0.0) for row in told["allocation"].values()]
    assert sum(spread) == pytest.approx(1.0)
    assert sum(sum(row.values()) for row in told["allocation"].values()) == pytest.approx(4.0)
    assert sum(told["effective_throughput"].values()) == pytest.approx(3 * 9 + 6)
    assert told["cost_usd_per_hour"] == pytest.approx(24.0)
    # No server has eight workers, and there is no throughput on several.
    told = solve(tmp_path, {**content, "jobs": jobs}, "--policy", "max-min-fairness", "--json").json
    assert told["status"] == "relaxed"
    assert told["allocation"]["eight"] == {}


def test_servers_without_room_for_a_job_that_was_not_measured_on_several_are_told(
    tmp_path: Path,
) -> None:
    jobs = [job(id=f"j{m}", scale=3, throughputs={"v100": 9.0}) for m in range(4)]
    content = {"workers": {"v100": 12}, "servers": {"v100": 4}, "jobs": jobs}
    told = solve(tmp_path, content, "--policy", "max-min-fairness", "--json").json
    assert "has no throughput on v100_unconsolidated: add it" in told["infeasible"][0]
    assert sum(told["effective_throughput"].values()) == pytest.approx(27.0)


def test_a_budget_that_cannot_hold_is_an_error(tmp_path: Path, approved: Approved) -> None:
    ended = solve(tmp_path, changed(budget_usd=0.01), "--policy", "makespan-within-budget")
    approved(ended)
