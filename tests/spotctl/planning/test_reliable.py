"""Whether a training rents a reliable machine, where its job file leaves that to the plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spotctl.files.job.reader import loads
from spotctl.home.config import Settings
from spotctl.home.errors import BadRequest
from spotctl.planning.forecast import forecast_of
from spotctl.planning.values import JobPlan
from spotctl.run.start.launch_plans import stored_plans
from spotctl.run.work.training_workload import training_job
from tests.spotctl.command_line import spotctl

JOB = """\
kind: agileml
name: j
app: mf
stop: {{clocks: {clocks}}}
throughputs: {{c4.2xlarge: 60}}
resources: {{clouds: [local], machines: {machines}, types: [c4.2xlarge]{reliable}}}
strategy: proteus
"""
AT = "2026-01-15T00:00:00Z"


def planned(home: Path, clocks: int, machines: str = "2..4", reliable: str = "") -> JobPlan:
    spec = loads(JOB.format(clocks=clocks, machines=machines, reliable=reliable), home / "job.yaml")
    return stored_plans([spec], Settings(home=home), AT).plans[0]


def test_a_small_job_rents_no_reliable_machine_and_says_why(tmp_path: Path) -> None:
    plan = planned(tmp_path, 200)
    kept = planned(tmp_path, 200, reliable=", reliable: {machines: 1}")
    assert (plan.decider.reliable, plan.job.spec.resources.reliable.machines) == (None, 0)
    assert forecast_of(plan).usd.median < forecast_of(kept).usd.median / 2
    assert "instead of" in plan.reliable_reason
    assert kept.reliable_reason == ""
    # The run takes the number that was decided, and its nodes serve and work.
    assert (training_job(plan.job.spec).reliable, training_job(plan.job.spec).transient) == (0, 1)


def test_a_job_of_unknown_length_keeps_one(tmp_path: Path) -> None:
    text = JOB.format(clocks=9, machines="2..4", reliable="").replace("throughputs: {c4.2xlarge: 60}", "")
    plan = stored_plans([loads(text, tmp_path / "job.yaml")], Settings(home=tmp_path), AT).plans[0]
    assert plan.job.spec.resources.reliable.machines == 1
    assert "unknown" in plan.reliable_reason


@pytest.mark.parametrize(
    ("resources", "machines"),
    [
        ("clouds: [local], machines: 2", None),
        ("clouds: [local], machines: 2, reliable: {machines: 0}", 0),
        ("clouds: [aws], regions: [us-east-1], machines: 2, reliable: {machines: auto}", None),
        ("clouds: [aws], regions: [us-east-1], machines: 2", 1),
    ],
)
def test_the_number_that_a_job_file_means(tmp_path: Path, resources: str, machines: int | None) -> None:
    text = f"kind: agileml\nname: j\napp: mf\nstop: {{clocks: 9}}\nresources: {{{resources}}}\n"
    assert loads(text, tmp_path / "job.yaml").resources.reliable.machines == machines


def test_auto_is_for_trainings(tmp_path: Path) -> None:
    text = "kind: command\nname: j\nrun: 'true'\nresources: {clouds: [local], reliable: {machines: auto}}\n"
    with pytest.raises(BadRequest, match=r"reliable\.machines: is auto, which is for kind: agileml"):
        loads(text, tmp_path / "job.yaml")


@pytest.mark.slow
def test_a_plan_compares_script_and_trainer_with_and_without_a_reliable_machine(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(JOB.format(clocks=200, machines="2..4", reliable=""))
    answer = spotctl("plan", str(job), "--at", AT, "--json", "--explain", SPOTCTL_HOME=str(tmp_path / "home"))
    plan = json.loads(answer.out)
    by_name = {way["way"]: way for way in plan["ways"]}
    assert list(by_name) == ["script", "trainer with a reliable machine", "trainer without one"]
    assert [name for name, way in by_name.items() if way["chosen"]] == ["trainer without one"]
    assert by_name["trainer without one"]["cost_usd"] == plan["expected"]["cost_usd"]
    assert by_name["trainer with a reliable machine"]["cost_usd"] > 2 * plan["expected"]["cost_usd"]
    assert all(way["hours"] > 0 for way in by_name.values())
