"""Problem files, and what is wrong in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spotctl.approvals import Approved
from tests.spotctl.cli.lab.test_gavel_solve import changed, job, solve
from tests.spotctl.command_line import spotctl


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
        changed(jobs=[job(entity="unknown")]),
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


def test_a_missing_file_is_named(tmp_path: Path, approved: Approved) -> None:
    missing = spotctl("lab", "gavel", "solve", tmp_path / "none.json", "--policy", "makespan")
    approved(missing)
