"""The next points of a job's cost and time, as `spotctl plan --explain` shows them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.spotctl.command_line import spotctl

JOB = """\
kind: agileml
name: j
app: mf
stop: {clocks: 1500}
throughputs: {c4.2xlarge: 60, c4.xlarge: 30, m4.4xlarge: 120}
resources: {clouds: [local], machines: 1..16, types: [c4.*, m4.*], reliable: {machines: 1}}
local: {speed: 1500}
"""


@pytest.mark.slow
def test_the_next_points_are_those_of_plans_with_another_value_of_time(tmp_path: Path) -> None:
    job, home = tmp_path / "job.yaml", tmp_path / "home"
    job.write_text(JOB)
    asked = ["plan", str(job), "--at", "2026-01-15T00:00:00Z", "--json"]
    own = json.loads(spotctl(*asked, SPOTCTL_HOME=str(home)).out)
    assert own["pace"] == []
    explained = json.loads(spotctl(*asked, "--explain", SPOTCTL_HOME=str(home)).out)
    assert {**explained, "pace": [], "ways": []} == own
    assert explained["pace"]
    for point in explained["pace"]:
        assert min(point["cost_change"], point["hours_change"]) < 0
        job.write_text(f"{JOB}value_of_time: {point['value_of_time_usd']:g} USD/h\n")
        other = json.loads(spotctl(*asked, SPOTCTL_HOME=str(home)).out)["expected"]
        assert other["cost_usd"] / own["expected"]["cost_usd"] - 1 == pytest.approx(
            point["cost_change"]
        )
        assert other["hours"] / own["expected"]["hours"] - 1 == pytest.approx(point["hours_change"])


def test_a_job_of_unknown_length_has_no_next_points(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("kind: command\nname: j\nrun: 'true'\nresources: {clouds: [local]}\n")
    answer = spotctl("plan", str(job), "--json", "--explain", SPOTCTL_HOME=str(tmp_path / "home"))
    assert json.loads(answer.out)["pace"] == []
