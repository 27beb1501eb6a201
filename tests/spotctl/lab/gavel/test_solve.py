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


def test_a_table_for_people(tmp_path: Path) -> None:
    ended = solve(tmp_path, PROBLEM, "--policy", "min-cost-slo")
    assert ended.code == 0, ended.err
    lines = ended.out.splitlines()
    assert lines[0].split() == ["job", "v100", "k80", "steps/s", "of", "best", "hours"]
    assert [line.split()[0] for line in lines[1:]] == ["a", "b", "c"]
    assert "costs $" in ended.err


def test_a_plan_says_when_each_job_runs(tmp_path: Path) -> None:
    content = {
        "workers": {"v100": 1},
        "prices": {"v100": 2},
        "jobs": [job(id="urgent", steps=3600, slo_seconds=3600), job(id="later", steps=1800)],
    }
    ended = solve(tmp_path, content, "--policy", "min-cost-slo")
    assert "when each job runs, in hours from now:" in ended.err
    assert "urgent: v100 0:00:00 to 1:00:00" in ended.err
    assert "later: v100 1:00:00 to 1:30:00" in ended.err
    many = {**content, "jobs": [job(id=f"j{m}", steps=100) for m in range(60)]}
    assert (
        "10 more jobs: --json has the times of all"
        in solve(tmp_path, many, "--policy", "makespan").err
    )
    told = solve(tmp_path, content, "--policy", "min-cost-slo", "--json").json["schedule"]
    assert told["later"] == [
        {"type": "v100", "start_seconds": 3600.0, "end_seconds": 5400.0, "share": 1.0}
    ]
    assert "schedule" not in solve(tmp_path, content, "--policy", "max-min-fairness", "--json").json


def test_a_share_that_is_meant_is_told_however_small(tmp_path: Path) -> None:
    jobs = [job(id="long", steps=1e9), job(id="short", steps=1)]
    told = solve(
        tmp_path, {"workers": {"v100": 1}, "jobs": jobs}, "--policy", "makespan", "--json"
    ).json
    assert told["allocation"]["short"] == {"v100": pytest.approx(1e-9, rel=1e-3)}
    assert told["effective_throughput"]["short"] == told["allocation"]["short"]["v100"]


def test_names_are_shown_as_they_are(tmp_path: Path) -> None:
    content = {"workers": {"[b]v100": 1}, "jobs": [job(id="[/red]", throughputs={"[b]v100": 1})]}
    lines = solve(tmp_path, content, "--policy", "max-throughput").out.splitlines()
    assert [line.split()[:2] for line in lines] == [["job", "[b]v100"], ["[/red]", "100.0%"]]


def test_a_pair_has_a_row_of_its_name(tmp_path: Path) -> None:
    pair = {"jobs": ["a", "b"], "throughputs": {"v100": [38.0, 11.0], "k80": [9.0, 3.9]}}
    told = solve(tmp_path, changed(pairs=[pair]), "--policy", "max-throughput", "--json").json
    assert told["allocation"]["a+b"] == {"v100": pytest.approx(1.0)}
    assert told["effective_throughput"]["a"] == pytest.approx(38.0)
    assert "a+b" in solve(tmp_path, changed(pairs=[pair]), "--policy", "max-throughput").out


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


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        '{"workers": {"v100": 1}, "jobs": [{"id": "a", "throughputs": {"v100": NaN}}]}',
        '{"workers": {"v100": 1, "v100": 2}, "jobs": []}',
        changed(jobs=[job(), job()]),
        changed(jobs=[job(throughputs={"v100": -1})]),
        changed(jobs=[job(throughputs={"tpu": 1})]),
        changed(jobs=[job(estimates={"k80": {"basis": "profile", "interval": [1, 2]}})]),
        changed(jobs=[job(estimates={"v100": {"basis": "measured", "interval": [2, 3]}})]),
        changed(jobs=[job(estimates={"v100": {"basis": "guess", "interval": [0, 3]}})]),
        changed(jobs=[job(scale=0)]),
        changed(jobs=[job(weight=0)]),
        changed(jobs=[job(steps=-5)]),
        changed(jobs=[job(stepz=5)]),
        changed(jobs=[job(entity="nobody")]),
        changed(jobs=[job(id="")]),
        changed(workers={}),
        changed(workers={"v100": 0, "k80": 0}),
        changed(jobs=[]),
        changed(jobs=[job(slo_seconds=60, elapsed_seconds=60)]),
        changed(jobs=[job(slo_seconds=0)]),
        changed(workers={"v100": -1, "k80": 1}),
        changed(workers={"v100": 1.5, "k80": 1}),
        changed(prices={"v100": 1}),
        changed(prices={"v100": 1, "k80": 0}),
        changed(entities={"research": {"policy": "lottery"}}),
        changed(budget_usd=-1),
        changed(pairs=[{"jobs": ["a", "x"], "throughputs": {}}]),
        changed(pairs=[{"jobs": ["a", "a"], "throughputs": {}}]),
        changed(pairs=[{"jobs": ["a", "b"], "throughputs": {"x": [1, 1]}}]),
        changed(
            pairs=[{"jobs": ["a", "b"], "throughputs": {}}, {"jobs": ["b", "a"], "throughputs": {}}]
        ),
        changed(jobs=[job(steps=True)]),
        changed(jobs=[job(weight="2")]),
        changed(jobs=[job(scale=10**30)]),
        changed(workers={"v100": 10**400, "k80": 1}),
        changed(jobs=[job(throughputs={"v100": 1e-320})]),
        changed(jobs=[job(steps=1e308)]),
        "[" * 100_000,
        '{"workers": {"v100": ' + "9" * 5000 + "}}",
        '{"workers": {"v100": 1}, "jobs": [{"id": "a", "throughputs": {"v100": 1e999}}]}',
        changed(workers={"v100": 4, "v100_unconsolidated": 3, "k80": 1}),
        changed(servers={"tpu": 4}),
        changed(servers={"v100": 0}),
    ],
)
def test_what_is_wrong_is_named_with_its_place(
    tmp_path: Path, content: object, approved: Approved
) -> None:
    ended = solve(tmp_path, content, "--policy", "makespan", "--json")
    assert ended.out == ""
    approved(ended)


def test_a_policy_says_what_it_lacks(tmp_path: Path, approved: Approved) -> None:
    content = {"workers": {"v100": 1}, "jobs": [job()]}
    approved(solve(tmp_path, content, "--policy", "makespan"))
    approved(solve(tmp_path, content, "--policy", "min-cost"))
    approved(solve(tmp_path, content, "--policy", "fair"))
    assert solve(tmp_path, content, "--policy", "fair").code == 2


def test_a_budget_that_cannot_hold_is_an_error(tmp_path: Path, approved: Approved) -> None:
    ended = solve(tmp_path, changed(budget_usd=0.01), "--policy", "makespan-within-budget")
    approved(ended)


def test_a_missing_file_is_named(tmp_path: Path, approved: Approved) -> None:
    missing = spotctl("lab", "gavel", "solve", tmp_path / "none.json", "--policy", "makespan")
    approved(missing)
