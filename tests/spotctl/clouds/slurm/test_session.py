"""The session of docs/slurm.md, typed on a real cluster, whose owners want all nodes meanwhile; and
what a user may get wrong."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.servers.slurm_cluster import SlurmCluster, needs_slurm, run
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, needs_slurm]

PROGRAM = """
import os, signal, sys, time
from pathlib import Path

file = Path(os.environ["SPOTCTL_CHECKPOINT_DIR"], "step")
step = int(file.read_text()) if file.exists() else 0
ending = []
signal.signal(signal.SIGTERM, lambda *_: ending.append(True))
print("begins at", step, os.environ["WORD"], flush=True)
while step < 45 and not ending:
    time.sleep(1)
    step += 1
file.with_name("new").write_text(str(step))
file.with_name("new").replace(file)
print("ends at", step, flush=True)
sys.exit(step < 45)
"""


@dataclass(frozen=True)
class Home:
    """A home of spotctl, and a folder with a job."""

    cluster: SlurmCluster
    folder: Path

    def spotctl(self, *words: str, status: int = 0, **variables: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "spotctl", *words],
            cwd=self.folder,
            env=self.environment | variables,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "SPOTCTL_HOME": str(self.folder / "home"), "WORD": "s3cret"}

    def write_job(self, **changes: object) -> None:
        job = {
            "name": "count",
            "kind": "command",
            "run": "python3 count.py",
            "workdir": ".",
            "hours": "1m",
            "secrets": ["WORD"],
            "checkpoint": {"path": str(self.folder / "checkpoints")},
            "resources": {"clouds": ["slurm"], "types": ["2c-2g"]},
        }
        (self.folder / "job.yaml").write_text(json.dumps(job | changes))


@pytest.fixture
def home(cluster: SlurmCluster, tmp_path: Path) -> Iterator[Home]:
    made = Home(cluster, tmp_path)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text(
        "[slurm]\nusd_per_hour = {spot = 0.1, owner = 0.4}\nwait_seconds = 30\n"
    )
    (tmp_path / "count.py").write_text(PROGRAM)
    made.write_job()
    yield made
    cluster.clear()


def test_a_command_that_owners_preempt(home: Home) -> None:
    assert "done" in home.spotctl("prices", "fetch", "--cloud", "slurm")
    said = home.spotctl("doctor")
    assert "cluster: try, Slurm" in said
    assert "partition spot (preemptible): takes jobs: 2c-2g" in said
    assert "2c-2g (spot)" in home.spotctl("plan", "job.yaml")

    words = [sys.executable, "-m", "spotctl", "launch", "job.yaml", "--yes", "--attached"]
    with (home.folder / "launch").open("w+") as output:
        launch = subprocess.Popen(
            words,
            cwd=home.folder,
            env=home.environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        machines = home.folder / "home" / "slurm" / "shared" / "machines"

        def outputs() -> list[str]:
            return [path.read_text() for path in machines.glob("*/agent/output")]

        eventually(lambda: any("begins at 0" in text for text in outputs()))
        assert '"running"' in home.spotctl("status", "--json")
        home.cluster.take(seconds=5)
        assert launch.wait(300) == 0
        output.seek(0)
        told = output.read()

    assert "eviction warning" in told
    assert "survived 1 eviction" in told
    starts = sorted(int(at) for at in re.findall(r"begins at (\d+) s3cret", "".join(outputs())))
    ends = sorted(int(at) for at in re.findall(r"ends at (\d+)", "".join(outputs())))
    assert starts == [0, ends[0]]
    assert ends[1] == 45
    assert not home.cluster.alive()
    assert "0 orphaned resources" in home.spotctl("gc")
    # No secret is in a file, nor in what the controller keeps of a job.
    held = [path for path in machines.rglob("*") if path.is_file() and path.name != "output"]
    assert not any(b"s3cret" in path.read_bytes() for path in held)


def test_a_run_goes_on_while_the_controller_is_away(home: Home) -> None:
    home.write_job(run="sleep 30", checkpoint={"path": str(home.folder / "none")})
    home.spotctl("prices", "fetch", "--cloud", "slurm")
    words = [sys.executable, "-m", "spotctl", "launch", "job.yaml", "--yes", "--attached"]
    launch = subprocess.Popen(
        words, cwd=home.folder, env=home.environment, stdout=subprocess.DEVNULL
    )
    machines = home.folder / "home" / "slurm" / "shared" / "machines"
    eventually(lambda: [*machines.glob("*/ready")])
    daemons = home.cluster.daemons
    daemons["slurmctld"].terminate()
    daemons["slurmctld"].wait(60)
    # Longer than the program runs from here on.
    time.sleep(40)
    again = ["slurmctld", "-D", "-f", str(home.cluster.folder / "slurm.conf")]
    with (home.cluster.folder / "again").open("wb") as output:
        daemons["slurmctld"] = subprocess.Popen(again, stdout=output, stderr=output)
    assert launch.wait(300) == 0
    eventually(lambda: not home.cluster.alive())
    assert len([*machines.iterdir()]) == 1


def test_a_run_that_is_stopped_leaves_nothing(home: Home) -> None:
    home.write_job(run="sleep 600", checkpoint={"path": str(home.folder / "none")})
    home.spotctl("prices", "fetch", "--cloud", "slurm")
    words = [sys.executable, "-m", "spotctl", "launch", "job.yaml", "--yes", "--attached"]
    launch = subprocess.Popen(
        words, cwd=home.folder, env=home.environment, stdout=subprocess.DEVNULL
    )
    eventually(home.cluster.alive)
    home.spotctl("stop", "count")
    launch.wait(300)
    eventually(lambda: not home.cluster.alive())
    assert "0 orphaned resources" in home.spotctl("gc")


def test_what_a_killed_launcher_leaves_is_found(home: Home) -> None:
    home.write_job(run="sleep 600", checkpoint={"path": str(home.folder / "none")})
    home.spotctl("prices", "fetch", "--cloud", "slurm")
    words = [sys.executable, "-m", "spotctl", "launch", "job.yaml", "--yes", "--attached"]
    launch = subprocess.Popen(
        words, cwd=home.folder, env=home.environment, stdout=subprocess.DEVNULL
    )
    machines = home.folder / "home" / "slurm" / "shared" / "machines"
    eventually(lambda: [*machines.glob("*/ready")])
    launch.kill()
    launch.wait()
    home.spotctl("stop", "count")
    eventually(lambda: not home.cluster.alive())


def test_a_cluster_that_is_not_there(home: Home) -> None:
    config = home.folder / "home" / "config.toml"
    config.write_text("[slurm]\npartitions = ['lab']\n")
    answer = home.spotctl("prices", "fetch", "--cloud", "slurm", status=1)
    assert "partition 'lab' of the [slurm] settings is unknown" in answer
    answer = home.spotctl("prices", "fetch", "--cloud", "slurm", status=5, PATH="/nowhere")
    assert "is not installed here; run spotctl on a login node" in answer


def test_a_path_that_is_not_there(home: Home) -> None:
    home.write_job(data={"train": "/no/such/folder"})
    answer = home.spotctl("launch", "job.yaml", "--yes", "--attached", status=2)
    assert "no such file or folder exists" in answer
    assert run("squeue", "-h") == ""


def test_a_first_launch(home: Home) -> None:
    home.spotctl("prices", "fetch", "--cloud", "slurm")
    said = home.spotctl("try", "slurm", "--yes")
    assert "nothing is left: slurm lists no machine" in said
    assert not home.cluster.alive()
