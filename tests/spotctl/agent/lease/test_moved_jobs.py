"""A training job that is moved and killed ends with the result of an undisturbed one: real
processes, real kills.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

from spotctl.agent import Checkpoints, LeaseGrantor
from spotctl.agent.layout import LEASE_VARIABLE
from spotctl.agent.lease.job_lease import SAVED_AND_ENDED

ROOT = Path(__file__).parents[4]
SCRIPT = Path(__file__).parents[1] / "train.py"
EPOCHS = 6
STEPS = 20 * EPOCHS
QUICK, SLOW = 0.002, 0.02
"""Seconds per step; slow jobs last longer than their leases."""


class Machine:
    """A working directory, and the agent's side of the lease of the job in it."""

    def __init__(self, folder: Path) -> None:
        self.workdir = folder / "work"
        self.giver = LeaseGrantor(folder / "run" / "lease")
        self.workdir.mkdir(parents=True, exist_ok=True)

    def receive(self, other: Machine) -> None:
        """Takes over everything in another machine's working directory."""
        shutil.copytree(other.workdir, self.workdir, dirs_exist_ok=True)
        shutil.rmtree(other.workdir)

    def start(
        self, lease: float | None, step: float = QUICK, save_every: float = 600.0
    ) -> subprocess.Popen[bytes]:
        environment = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
        if lease is not None:
            self.giver.begin(lease)
            environment[LEASE_VARIABLE] = str(self.giver.folder)
        words = [str(word) for word in (self.workdir, EPOCHS, step, save_every)]
        return subprocess.Popen([sys.executable, str(SCRIPT), *words], env=environment)

    def steps(self) -> int:
        """The number of steps that the job has reported."""
        progress = self.giver.progress()
        return progress.step if progress else 0

    def reached(self, job: subprocess.Popen[bytes], step: int) -> None:
        """Waits until the job has reported this many steps."""
        while self.steps() < step:
            assert job.poll() is None, "the job ended early"
            time.sleep(0.01)

    @property
    def result(self) -> list[object]:
        return json.loads((self.workdir / "result.json").read_text())  # type: ignore[no-any-return]


def undisturbed(folder: Path) -> list[object]:
    machine = Machine(folder)
    assert machine.start(None, step=0.0).wait(300) == 0
    return machine.result


def test_a_job_whose_lease_ends_resumes_elsewhere_with_the_same_result(tmp_path: Path) -> None:
    first, second, third = (Machine(tmp_path / name) for name in "abc")
    job = first.start(lease=1.0, step=SLOW)
    assert job.wait(300) == SAVED_AND_ENDED
    progress = first.giver.progress()
    assert progress is not None
    assert progress.state == "ended"
    assert progress.reason.startswith("lease 1 ends in")
    assert progress.checkpoint == progress.step < STEPS

    second.receive(first)
    job = second.start(lease=60, step=SLOW)
    second.reached(job, progress.step)
    second.giver.notify("evict", 30, "test")
    assert job.wait(300) == SAVED_AND_ENDED
    assert (later := second.giver.progress()) is not None
    assert later.reason == "evict announced by test"
    assert progress.step <= later.step < STEPS

    third.receive(second)
    assert third.start(lease=60).wait(300) == 0
    assert (last := third.giver.progress()) is not None
    assert (last.state, last.step, last.checkpoint) == ("finished", STEPS, STEPS)
    assert third.result == undisturbed(tmp_path / "alone")


def test_a_job_requests_its_next_lease_and_continues_with_it(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    job = machine.start(lease=4.0, step=SLOW)
    renewals = 0
    while job.poll() is None:
        if machine.giver.renewal_wanted():
            machine.giver.grant(4.0)
            renewals += 1
        time.sleep(0.01)
    assert job.returncode == 0
    assert renewals >= 1
    assert machine.result == undisturbed(tmp_path / "alone")


def test_a_job_killed_at_any_moment_loses_only_the_work_since_its_last_save(tmp_path: Path) -> None:
    """It saves at every step, so that kills hit saves; each time another machine resumes from the
    files.
    """
    rng = random.Random(3)
    machine = Machine(tmp_path / "0")
    for number in range(1, 7):
        job = machine.start(lease=60, save_every=0.0)
        before = Checkpoints(machine.workdir / "checkpoints").newest()
        machine.reached(job, (before[0].step if before else 0) + 2)
        time.sleep(rng.uniform(0, 0.05))
        job.kill()
        job.wait(300)
        assert (told := machine.giver.progress()) is not None
        found = Checkpoints(machine.workdir / "checkpoints").newest()
        assert found is not None
        assert told.checkpoint is not None
        assert found[0].step >= told.checkpoint
        following = Machine(tmp_path / str(number))
        following.receive(machine)
        machine = following
    assert machine.start(lease=60).wait(300) == 0
    assert machine.result == undisturbed(tmp_path / "alone")
