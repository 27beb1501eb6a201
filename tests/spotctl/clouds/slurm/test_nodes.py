"""Trainings and commands of several nodes of a real cluster, while owners want nodes at random: the
weights are those of undisturbed ones."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers.slurm_cluster import SlurmCluster, needs_slurm, slurm_cluster
from tests.spotctl.clouds.slurm.test_session import Home
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, needs_slurm]

CLOCKS, STEPS = 150, 40
LINE = """
import os
import time
import numpy as np

class Line:
    def init(self, rng):
        return {"line": np.zeros((1, 2))}

    def shards(self):
        x = np.linspace(0.0, 1.0, 64)
        return np.array_split(np.column_stack([x, 3 * x - 1]), 8)

    def step(self, shard, lo, hi, params, clock, rng):
        time.sleep(0.03 if "SLURM_JOB_ID" in os.environ else 0)
        errors = self.errors(shard[lo:hi], params)
        params.update("line", [0], [[-0.01 * errors @ shard[lo:hi, 0], -0.01 * errors.sum()]])

    def loss(self, params, sample):
        parts = [self.errors(piece.shard[piece.lo : piece.hi], params) for piece in sample]
        return np.square(np.concatenate(parts)).mean()

    def errors(self, points, params):
        slope, intercept = params.read("line", [0])[0]
        return slope * points[:, 0] + intercept - points[:, 1]
"""
GANG = """
import json, os, socket, sys, time
from pathlib import Path

STEPS, SHARDS = int(sys.argv[1]), 4
rank, nodes = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
file = Path(os.environ["SPOTCTL_CHECKPOINT_DIR"], "state.json")
given = os.environ["SPOTCTL_NODE_ADDRESSES"].split(",")
assert len(given) == nodes and given[rank] == os.environ["SPOTCTL_NODE_ADDRESS"] != "", given

def parts(step, weight):
    mine = range(SHARDS)[rank::nodes]
    return {shard: 0.1 * (weight - shard) / (step + shard + 1) for shard in mine}

def send(file, value):
    file.write(json.dumps(value) + "\\n")
    file.flush()

if rank:
    for _ in range(200):
        try:
            peer = socket.create_connection(place).makefile("rw")
            break
        except OSError:
            time.sleep(0.1)
    while (line := peer.readline()) and (state := json.loads(line)):
        send(peer, parts(*state))
    sys.exit(0 if line else 1)

step, weight = json.loads(file.read_text()) if file.exists() else (0, 0.5)
print("begins at", step, "on", nodes, flush=True)
with socket.create_server(place, backlog=nodes) as server:
    server.settimeout(20)
    peers = [server.accept()[0].makefile("rw") for _ in range(nodes - 1)]
while step < STEPS:
    time.sleep(0.5 if nodes > 1 else 0)
    for peer in peers:
        send(peer, [step, weight])
    given = {str(shard): value for shard, value in parts(step, weight).items()}
    for peer in peers:
        given |= json.loads(peer.readline())
    weight -= sum(given[str(shard)] for shard in range(SHARDS))
    step += 1
    file.with_name("new").write_text(json.dumps([step, weight]))
    file.with_name("new").replace(file)
for peer in peers:
    send(peer, None)
print("weight", weight.hex(), flush=True)
"""
SLURM: dict[str, Any] = {"clouds": ["slurm"], "types": ["2c-2g"]}
TRAINING: dict[str, object] = {
    "name": "line",
    "kind": "agileml",
    "app": "line.py:Line",
    "workdir": "work",
    "stop": {"clocks": CLOCKS},
    "throughputs": {"2c-2g": 600},
    "resources": {**SLURM, "machines": 2, "reliable": {"machines": 1, "type": "2c-2g"}},
}


@pytest.fixture(scope="module")
def wide() -> Iterator[SlurmCluster]:
    with slurm_cluster(nodes=6, grace=10) as made:
        yield made


def made_home(cluster: SlurmCluster, folder: Path) -> Home:
    made = Home(cluster, folder)
    (folder / "home").mkdir()
    (folder / "work").mkdir()
    (folder / "work" / "line.py").write_text(LINE)
    (folder / "work" / "gang.py").write_text(GANG)
    text = "[slurm]\nusd_per_hour = {spot = 0.1, owner = 0.4}\nwait_seconds = 30\n"
    (folder / "home" / "config.toml").write_text(text)
    made.spotctl("prices", "fetch", "--cloud", "slurm")
    return made


@pytest.fixture
def home(wide: SlurmCluster, tmp_path: Path) -> Iterator[Home]:
    yield made_home(wide, tmp_path)
    wide.clear()


def gang(home: Home, nodes: int | str, steps: int = STEPS) -> dict[str, object]:
    return {
        "name": "gang",
        "kind": "command",
        "run": f"python3 gang.py {steps}",
        "workdir": "work",
        "hours": "2m",
        "nodes": nodes,
        "checkpoint": {"path": str(home.folder / "checkpoints"), "every": "2s"},
        "retries": {"1": 20},
        "resources": SLURM,
    }


def launched(home: Home, job: dict[str, object]) -> subprocess.Popen[bytes]:
    (home.folder / f"{job['name']}.yaml").write_text(json.dumps(job))
    words = [sys.executable, "-m", "spotctl", "launch", f"{job['name']}.yaml", "--yes"]
    with (home.folder / f"{job['name']}.out").open("wb") as output:
        return subprocess.Popen(
            [*words, "--attached"],
            cwd=home.folder,
            env=home.environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )


def printed(home: Home) -> str:
    machines = home.folder / "home" / "slurm" / "shared" / "machines"
    return "".join(path.read_text() for path in machines.glob("*/agent/output"))


def undisturbed_weight(home: Home, steps: int = STEPS) -> str:
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    own = {"SPOTCTL_NODE_ADDRESSES": "here", "SPOTCTL_NODE_ADDRESS": "here"}
    (home.folder / "alone").mkdir()
    folder = {"SPOTCTL_CHECKPOINT_DIR": str(home.folder / "alone")}
    words = [sys.executable, str(home.folder / "work" / "gang.py"), str(steps)]
    done = subprocess.run(
        words, env={**os.environ, **alone, **own, **folder}, capture_output=True, check=True
    )
    return done.stdout.decode().split()[-1]


def test_a_training_and_a_command_while_owners_want_nodes(home: Home) -> None:
    drawn = random.Random(85)
    running = [launched(home, TRAINING), launched(home, gang(home, 2))]
    eventually(lambda: "begins at" in printed(home) or running[1].poll() is not None)
    began, taken = time.monotonic(), 0
    while any(one.poll() is None for one in running):
        if taken < 8:
            home.cluster.take(drawn.randint(1, 4), drawn.randint(3, 12))
            taken += 1
        time.sleep(drawn.uniform(3, 12))
        assert time.monotonic() - began < 900
    outputs = [(home.folder / f"{name}.out").read_text() for name in ("line", "gang")]
    assert [one.returncode for one in running] == [0, 0], outputs
    assert "evict" in "".join(outputs)

    words = ("lab", "train", "work/line.py:Line", "--engine", "sim", "--nodes", "1+2")
    alone = home.spotctl(*words, "--clocks", str(CLOCKS), "--deterministic", "--json")
    (model,) = (home.folder / "home" / "runs").glob("line-*/iterations.jsonl")
    last = json.loads(model.read_text().splitlines()[-1])
    assert last["model_sha256"] == json.loads(alone)["model_sha256"]
    assert f"weight {undisturbed_weight(home)}" in printed(home)
    assert not home.cluster.alive()
    assert "0 orphaned resources" in home.spotctl("gc")


def test_a_range_of_nodes_goes_on_with_fewer(home: Home) -> None:
    running = launched(home, gang(home, "2..3"))
    eventually(lambda: "begins at" in printed(home) or running.poll() is not None)
    home.cluster.take(4, 30)
    assert running.wait(600) == 0, (home.folder / "gang.out").read_text()
    assert f"weight {undisturbed_weight(home)}" in printed(home)
    starts = [line.split()[-1] for line in printed(home).splitlines() if "begins at" in line]
    assert len(starts) > 1
    assert set(starts) <= {"2", "3"}
    assert not home.cluster.alive()
