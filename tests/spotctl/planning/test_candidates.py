"""Speeds and hours of kinds of machines."""

from __future__ import annotations

from pathlib import Path

from spotctl.files.job.reader import loads
from spotctl.planning.candidates import length_of, measured_for, speeds_of
from spotctl.planning.values import TypeSpeed
from tests.spotctl.planning.test_offers import OPEN


def test_a_measured_speed_overrules_the_job_file_and_says_so() -> None:
    text = (
        "name: a\nkind: agileml\napp: mf\nresources: {clouds: [local], machines: 2..2}\nstop: "
        "{clocks: 9}\n"
    )
    spec = loads(f"{text}throughputs: {{m3.medium: 4, c4.xlarge: 8}}\n", Path("job.yaml"))
    found = measured_for(spec, {"m3.medium": TypeSpeed(5.5, "2 runs")})
    assert (found["m3.medium"].nu, found["m3.medium"].source) == (
        5.5,
        "2 runs, instead of 4 in the job file",
    )
    assert (found["c4.xlarge"].nu, found["c4.xlarge"].source) == (8.0, "the job file")


def test_hours_of_earlier_runs_are_not_said_to_be_the_users() -> None:
    spec = loads("name: a\nkind: command\nrun: x\nresources: {clouds: [local]}\n", Path("job.yaml"))
    work = length_of(spec, 5.2, "as earlier runs took", in_units=False)
    assert work.source == "5.2 hours of all machines, as earlier runs took"


def test_a_burstable_type_is_as_fast_as_its_baseline() -> None:
    types = [OPEN[name] for name in ("t4g.nano", "t3.xlarge", "t2.micro", "m6i.large")]
    speeds = {name: speed.nu for name, speed in speeds_of(types, {}).items()}
    assert speeds == {"t4g.nano": 0.1, "t3.xlarge": 1.6, "t2.micro": 0.1, "m6i.large": 2.0}


def test_of_machines_with_gpus_the_gpus_count_and_not_the_vcpus_around_them() -> None:
    types = [OPEN[name] for name in ("g6.xlarge", "g6.8xlarge", "g6.12xlarge")]
    speeds = speeds_of(types, {})
    assert {name: speed.nu for name, speed in speeds.items()} == {
        "g6.xlarge": 1.0,
        "g6.8xlarge": 1.0,
        "g6.12xlarge": 4.0,
    }
    assert {speed.source for speed in speeds.values()} == {"GPU count, as no throughput is known"}

    scaled = speeds_of(types, {"g6.xlarge": TypeSpeed(7.0, "the job file")})["g6.12xlarge"]
    assert (scaled.nu, scaled.source) == (28.0, "scaled by GPUs from g6.xlarge")
