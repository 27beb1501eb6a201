"""The facts of a plan: how long local nodes take to start, and that every process makes the same
plan.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from pricing_data.units import SECOND, parse_time
from spotctl.files.job.reader import loads, written
from spotctl.home.config import Settings
from spotctl.log.events import RunBegan
from spotctl.planning.candidates import local_startup
from spotctl.run.start.launch_plans import plan_of_run
from tests.spotctl.command_line import spotctl
from tests.spotctl.launches import command, state_of


@pytest.mark.parametrize(
    ("program", "seconds"),
    [
        (
            "kind: agileml\napp: mf\nstop: {clocks: 4}\nresources: {clouds: [local], machines: "
            "2..4}",
            0.4,
        ),
        ("kind: command\nrun: 'true'\nresources: {clouds: [local]}", 2),
    ],
)
@pytest.mark.parametrize("speed", [60, 600])
def test_a_process_starts_no_faster_because_the_market_does(
    tmp_path: Path, program: str, seconds: float, speed: int
) -> None:
    """A command loads its libraries while the clock runs; it stands while a training's nodes do."""
    text = f"name: starts\n{program}\nlocal: {{speed: {speed}}}\n"
    assert local_startup(loads(text, tmp_path / "job.yaml")) == seconds * speed * SECOND


ZONES = ("UTC", "Asia/Tokyo", "America/Los_Angeles", "Europe/Berlin")
clocks = st.builds("{:02}:{:02}".format, st.integers(0, 23), st.integers(0, 59)).map(
    'deadline: "{}"\n'.format
)
deadlines = (
    st.just("") | clocks | st.sampled_from(["deadline: 20m\n", "deadline: 10h\n", "deadline: 2d\n"])
)
kinds = st.sampled_from(
    [
        "kind: agileml\napp: mf\nstop: {clocks: 500}\nthroughputs: {c4.xlarge: 40}\n"
        "resources: {clouds: [local], machines: 4..16}\n",
        "kind: agileml\napp: mf\nstop: {minutes: 90}\nresources: {clouds: [local], machines: ..8, "
        "types: [m3.*]}\n",
        "kind: command\nrun: 'true'\nnodes: 3\nhours: 5h\nresources: {clouds: [local]}\n",
        "kind: command\nrun: 'true'\ncheckpoint: {path: ckpt}\nresources: {clouds: [local], types: "
        "{vcpus: 4..8}}\n",
    ]
)
others = st.lists(
    st.sampled_from(
        ["budget: 0.30 USD\n", "budget: 25 USD\n", "local: {start: 2026-01-22T03:30:00Z}\n"]
    ),
    unique_by=lambda line: line.partition(":")[0],
).map("".join)
strategies = st.sampled_from(
    ["", "strategy: proteus\n", "strategy: on-demand\n", "strategy: lookahead\n"]
)


@settings(
    max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.builds("name: job\n{}{}{}{}".format, kinds, deadlines, others, strategies),
    st.sampled_from(ZONES),
)
@pytest.mark.slow
def test_plan_and_launch_make_the_same_plan(tmp_path: Path, job: str, zone: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(job)
    planned = spotctl("plan", file, "--json", TZ=zone)
    previewed = spotctl("launch", file, "--dry-run", "--json", TZ=zone)
    assert (planned.code, planned.out) == (previewed.code, previewed.out)
    if planned.code != 0:
        assert planned.error == previewed.error


@pytest.mark.parametrize(
    ("zone", "moment"),
    [
        ("UTC", "22:00"),
        ("Asia/Tokyo", "13:00"),
        ("America/Los_Angeles", "06:00"),
        ("Europe/Berlin", "21:00"),
    ],
)
def test_a_time_of_day_is_read_in_the_users_time_zone(
    tmp_path: Path, zone: str, moment: str
) -> None:
    """The local market begins at midnight UTC."""
    file = command(tmp_path, "true")
    file.write_text(file.read_text() + "hours: 1h\ndeadline: '22:00'\n")
    shown = spotctl("launch", file, "--dry-run", TZ=zone)
    assert re.search(rf"^time .*; the deadline 2026-01-15T{moment}:00Z", shown.out, re.MULTILINE)


def test_a_run_that_is_resumed_in_another_zone_keeps_its_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = loads(
        "name: job\nkind: command\nrun: 'true'\nhours: 2h\ndeadline: '22:00'\nresources: {clouds: "
        "[local]}\n",
        tmp_path / "job.yaml",
    )
    moment = parse_time("2026-01-20T13:00:00Z")
    began = RunBegan("job", "local", written(spec), "", 0, moment)
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    plan = plan_of_run(began, Settings(home=tmp_path), parse_time("2026-01-20T03:00:00Z"))
    assert plan.job.deadline == moment
    # Logs of earlier versions have no resolved deadline; their planner read times of day as UTC.
    before = RunBegan("job", "local", written(spec), "", 0)
    plan = plan_of_run(before, Settings(home=tmp_path), parse_time("2026-01-20T03:00:00Z"))
    assert plan.job.deadline == parse_time("2026-01-20T22:00:00Z")


def test_a_launch_records_the_moment_of_its_deadline(tmp_path: Path) -> None:
    file = command(tmp_path, "true")
    file.write_text(file.read_text() + "deadline: '22:00'\n")
    assert spotctl("launch", file, "--yes", TZ="Asia/Tokyo").code == 0
    began = state_of(tmp_path / "home").began
    assert began is not None
    assert began.deadline == parse_time("2026-01-15T13:00:00Z")


def test_a_decider_with_a_deadline_keeps_the_time_that_a_launch_takes_around_its_work(
    tmp_path: Path,
) -> None:
    spec = loads(
        "name: job\nkind: command\nrun: 'true'\nhours: 2h\ndeadline: 10h\nresources: {clouds: "
        "[local]}\nlocal: {speed: 600}\n",
        tmp_path / "job.yaml",
    )
    began = RunBegan("job", "local", written(spec), "", 0, parse_time("2026-01-20T13:00:00Z"))
    plan = plan_of_run(began, Settings(home=tmp_path), parse_time("2026-01-20T03:00:00Z"))
    times = plan.demand.times
    assert times.order > 0 < times.ending
    assert plan.decider.deadline is not None
    assert plan.job.deadline is not None
    assert plan.decider.deadline + times.order + times.ending == plan.job.deadline
