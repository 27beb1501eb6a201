"""The `ray` engine on a cluster of several Ray nodes on this computer, one of them killed.

SPOTCTL_TEST_RAY=all (make ray) also drains one, starts a cluster from the command line and from a
job file, kills these commands, and runs the suite that every fleet passes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from agileml import reference
from agileml.apps.registry import TrainerSource
from agileml.engines.chaos import Act, Join, RunningMachine, Script
from agileml.engines.ray import RayEngine
from agileml.job import Stopping, Trained, TrainingJob
from spotctl.run.work.training_workload import LOG_FILE
from tests.agileml.engines.attached_jobs import PACE, write_trainer
from tests.agileml.engines.fleet_suite import (
    JOB,
    LENGTHS,
    SAME,
    FleetSuite,
    Log,
    Recorder,
    ReplacingFleetSuite,
)
from tests.agileml.engines.jobs import processes
from tests.agileml.engines.ray_cluster import Cluster, ray_cluster
from tests.spotctl.command_line import spotctl

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ALL = pytest.mark.skipif(not os.environ.get("SPOTCTL_TEST_RAY"), reason="takes minutes: make ray")

JOB_FILE = """\
name: job
kind: agileml
app: mf
engine: ray
stop: {clocks: 4}
resources: {machines: 2}
"""

Play = Callable[[TrainingJob, Script, Log], Trained]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    pytest.importorskip("ray")
    with ray_cluster() as made:
        yield made


@pytest.fixture
def play(cluster: Cluster) -> Play:  # noqa: ARG001 - the engine finds it
    return lambda job, script, log: RayEngine().run(job, script, log.append)


@dataclass
class Faults:
    """One machine after the other is lost, each once the job has settled on what is there."""

    cluster: Cluster
    hurry: Path
    log: Log
    last: int
    step: int = 0

    def __post_init__(self) -> None:
        self.first = self.cluster.add()

    def due(self, clock: int, seconds: float, machines: Sequence[RunningMachine]) -> Sequence[Act]:  # noqa: ARG002
        transient = sum(not machine.reliable for machine in machines)
        settled = bool(self.log) and self.log[-1].transient == transient
        if settled and (transient == 2 if self.step % 2 == 0 else transient == 0):
            self.step += 1
            if self.step > self.last:
                self.hurry.touch()
            else:
                return self.act()
        return ()

    def act(self) -> Sequence[Act]:
        match self.step:
            case 1:
                self.cluster.kill(self.first)
            case 2:
                self.second = self.cluster.add()
                return [Join(2)]
            case 3:
                self.cluster.drain(self.second)
        return ()


@pytest.mark.parametrize(
    "last", [1, pytest.param(3, marks=ALL)], ids=["a raylet is killed", "and one is drained"]
)
def test_machines_are_lost(cluster: Cluster, play: Play, tmp_path: Path, last: int) -> None:
    hurry, log, clocks = tmp_path / "hurry", Log(), 15 if last == 1 else 50
    trainer = write_trainer(tmp_path / "code")
    # Ten seconds for a clock on one node: on a busy computer, too, the faults strike before the job
    # is done.
    (trainer.parent / "helpers" / "pace.py").write_text(PACE.replace("0.05", "0.15"))
    source = TrainerSource(str(trainer), {"hurry": str(hurry)})
    faults = Faults(cluster, hurry, log, last)
    try:
        trained = play(
            replace(JOB, source=source, transient=2, stopping=Stopping(clocks=clocks)), faults, log
        )
    finally:
        cluster.remove_added()
    story = [event for iteration in log for event in iteration.events]
    assert hurry.exists(), (faults.step, story)
    assert (trained.failures, trained.evictions) == (2, 2 if last == 3 else 0), story
    assert (trained.counters.lost, trained.counters.doubled) == (0, 0)
    assert reference.model_digest(trained.model) == reference.model_digest(
        reference.run(source.load(), clocks, 0)
    )


@ALL
class TestRayWhenInterrupted:
    test = FleetSuite.test_nothing_is_left_of_a_run_that_is_interrupted


@ALL
@pytest.mark.parametrize("how", ["train", "launch"])
def test_a_command_starts_a_cluster_of_its_own_and_ends_it(how: str, tmp_path: Path) -> None:
    options = ("--nodes", "1+2", "--clocks", "4", "--deterministic", "--json")
    job = tmp_path / "job.yaml"
    job.write_text(JOB_FILE)
    words = (
        ("lab", "train", "mf", "--engine", "ray", *options)
        if how == "train"
        else ("launch", str(job), "--json")
    )
    with (
        tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as name,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("TMPDIR", name)
        patch.delenv("RAY_ADDRESS", raising=False)
        answer = spotctl(*words).json
        assert list(Path(name).iterdir()) == []
        assert processes(name) == []
    expected = spotctl("lab", "train", "mf", "--engine", "sim", *options).json
    assert {key: answer[key] for key in expected} == expected


@ALL
@pytest.mark.parametrize("how", ["train", "launch"])
def test_what_a_killed_command_has_trained_is_not_lost(how: str, tmp_path: Path) -> None:
    slow = "tests.agileml.toys:Slow"
    (tmp_path / "job.yaml").write_text(
        JOB_FILE.replace("app: mf", f"app: {slow}").replace("clocks: 4", "clocks: 12")
    )
    trained = (
        "lab",
        "train",
        slow,
        "--nodes",
        "1+2",
        "--clocks",
        "12",
        "--deterministic",
        "--json",
    )
    state = ("--engine", "ray", "--state", str(tmp_path / "s"), "--log", str(tmp_path / LOG_FILE))
    words, again = {
        "train": ((*trained, *state), (*trained, *state)),
        "launch": (("launch", str(tmp_path / "job.yaml")), ("resume", "job", "--json")),
    }[how]

    def lines() -> list[dict[str, Any]]:
        """Of the iteration log, wherever the command writes it."""
        texts = [
            text
            for log in tmp_path.rglob(LOG_FILE)
            for text in log.read_text().splitlines(keepends=True)
        ]
        return [json.loads(text) for text in texts if text.endswith("\n")]

    with (
        tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as name,
        pytest.MonkeyPatch.context() as patch,
    ):
        for variable, value in {"TMPDIR": name, "PYTHONPATH": str(Path.cwd())}.items():
            patch.setenv(variable, value)
        patch.delenv("RAY_ADDRESS", raising=False)
        begun = subprocess.Popen(
            [sys.executable, "-m", "spotctl", *words], stdout=subprocess.DEVNULL
        )
        while len(lines()) < 4:
            time.sleep(0.2)
            assert begun.poll() is None
        begun.kill()
        begun.wait()
        assert spotctl(*again).code == 0
    *clocks, ending = lines()
    assert [line["clock"] for line in clocks] == list(range(1, 13))
    assert "controller restarted" in [event for line in clocks[4:] for event in line["events"]]
    quick = TrainerSource("tests.agileml.toys:Decades").load()
    assert ending["model_sha256"] == reference.model_digest(reference.run(quick, 12, seed=0))


if os.environ.get("SPOTCTL_TEST_RAY"):

    class TestRay(ReplacingFleetSuite):
        @pytest.fixture
        def source(self) -> TrainerSource:
            return TrainerSource("tests.agileml.toys:Slow", {"lengths": LENGTHS})

        @pytest.fixture
        def play(self, play: Play) -> Play:
            return play

        def test_a_node_that_runs_other_code_is_refused_and_the_job_goes_on(
            self, run: Callable[..., tuple[Trained, Log, Recorder]], tmp_path: Path
        ) -> None:
            """It cannot: a node gets its code from the job, whatever has become of the file."""
            trainer = tmp_path / "same.py"
            trainer.write_text(SAME.replace("Paced", "Slow"))
            job = replace(
                JOB,
                source=TrainerSource(str(trainer), {"lengths": LENGTHS}),
                stopping=Stopping(clocks=60),
            )

            def change_and_join(_: Sequence[RunningMachine]) -> Act:
                trainer.write_text("raise RuntimeError\n")
                return Join(1)

            _, log, _ = run({2: [change_and_join]}, job)
            assert log[-1].transient == 4
