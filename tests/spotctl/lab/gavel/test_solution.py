"""Allocations as tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spotctl.cli.lab.test_gavel_solve import PROBLEM, changed, job, solve


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
