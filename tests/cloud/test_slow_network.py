"""Jobs of several machines on a slow network (`tc tbf` on every machine), with evictions: gangs and
trainings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from spotctl.agent.data.locations import place_of
from spotctl.run.environment import LAUNCHER
from tests.cloud.clouds import EVERYTHING, SimulatedCloud, simulated
from tests.cloud.laptop import Laptop
from tests.cloud.namespaces import Namespaces
from tests.cloud.test_launch import TRAINING, running, spot

MEGABITS = 50.0
CLOCKS = 40
STEPS = 100
WIDE = '''\
"""A model of 0.5 MB. Each step reads and changes all of it."""

import numpy as np


class Wide:
    def init(self, rng):
        return {"wide": rng.random((128, 512))}

    def shards(self):
        return np.array_split(np.arange(48.0), 8)

    def step(self, shard, lo, hi, params, clock, rng):
        rows = np.arange(128)
        params.update("wide", rows, 0.01 * (shard[lo:hi].sum() - params.read("wide", rows)))

    def loss(self, params, sample):
        return float(np.mean(params.read("wide", np.arange(128))))
'''
PAIR = '''\
"""Two nodes send each other what they have derived from the last step, and keep all steps."""

import hashlib, json, os, socket, sys, time

rank, most = int(os.environ["RANK"]), int(sys.argv[1])
kept = os.path.join(os.environ["SPOTCTL_CHECKPOINT_DIR"], "steps")
place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))


def connected():
    if rank == 0:
        with socket.create_server(place) as server:
            return server.accept()[0]
    while True:
        try:
            return socket.create_connection(place)
        except ConnectionRefusedError:
            time.sleep(0.1)


def derived(value, of):
    return hashlib.sha256(f"{value} {of}".encode()).digest() * 8192


steps = json.load(open(kept)) if os.path.exists(kept) else [""]
with connected() as peer, peer.makefile("rb") as answers:
    peer.sendall(len(steps).to_bytes(4, "big"))
    # Each has saved when it could: both go on from the earlier step.
    steps = steps[: int.from_bytes(answers.read(4), "big")]
    print("begins after step", len(steps) - 1, flush=True)
    while len(steps) <= most:
        peer.sendall(derived(steps[-1], rank))
        received = answers.read(8192 * 32)
        assert received == derived(steps[-1], 1 - rank)
        steps.append(hashlib.sha256(b"".join(derived(steps[-1], of) for of in (0, 1))).hexdigest())
        with open(os.path.join(os.path.dirname(kept), ".steps"), "w") as file:
            json.dump(steps, file)
        os.replace(file.name, kept)
        time.sleep(0.1)
if rank == 0:
    open(os.path.join(os.environ["OUTPUT_RESULT"], "last"), "w").write(steps[-1])
'''
GANG = """\
name: pair
kind: command
run: python3 pair.py {steps}
nodes: 2
workdir: work
hours: 1h
identity: {{{cloud}: {identity}}}
outputs: {{result: {bucket}/pair/result/}}
checkpoint: {{path: {bucket}/pair/checkpoints/, every: 1s}}
resources: {{clouds: [{cloud}], regions: [{region}], types: [{type}]}}
"""

pytestmark = [
    pytest.mark.cloud,
    pytest.mark.slow,
    pytest.mark.skipif(not EVERYTHING, reason="takes long; make cloud-all runs it"),
]


@pytest.fixture(params=["gcp"])
def cloud(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SimulatedCloud]:
    """One cloud: what it is about, the network between machines, is the same on all."""
    with simulated(request.param, MEGABITS) as found:
        for name, value in found.environment.items():
            monkeypatch.setenv(name, value)
        yield found


@pytest.fixture
def laptop(cloud: SimulatedCloud, tmp_path: Path) -> Laptop:
    laptop = Laptop(tmp_path, cloud.environment)
    laptop.run(
        "prices", "fetch", "--cloud", cloud.name, "--region", cloud.region, "--type", cloud.type
    )
    return laptop


def delayed(cloud: SimulatedCloud) -> list[int]:
    """How many packets each machine that runs had to hold back."""
    assert isinstance(cloud.host, Namespaces)
    shown = (
        cloud.host.execute(
            cloud.host.at(one.private), "tc", "-s", "qdisc", "show", "dev", "eth0"
        ).stdout
        for one in running(cloud.server)
    )
    return [
        int(found[1]) if (found := re.search(r"tbf.*?overlimits (\d+)", text, re.DOTALL)) else 0
        for text in shown
    ]


def test_a_training_of_one_and_three_machines_survives_evictions(
    cloud: SimulatedCloud, laptop: Laptop
) -> None:
    """The model is that of an undisturbed training, to the bit."""
    text = TRAINING.format(clocks=CLOCKS, cloud=cloud.name, region=cloud.region, type=cloud.type)
    job = laptop.job(
        text.replace("name: line", "name: wide")
        .replace("line:Line", "wide:Wide")
        .replace("args: {pause: 0.03}\n", "")
        .replace("machines: 2\n", "machines: 3\n")
    )
    (laptop.folder / "work" / "wide.py").write_text(WIDE)
    with laptop.launched("launch", job, "--attached", "--yes", "--json") as launched:
        launched.wait_for(lambda: laptop.clock("wide") >= 5 and len(spot(cloud.server)) == 3)
        first, second, _ = spot(cloud.server)
        cloud.server.evict(first.id, 10.0)
        launched.wait_for(lambda: first.id not in {one.id for one in running(cloud.server)})
        at = laptop.clock("wide")
        launched.wait_for(lambda: laptop.clock("wide") >= at + 5)
        assert all(delayed(cloud)), delayed(cloud)
        cloud.server.evict(second.id, None)
        code, out, err = launched.ended()
    assert code == 0, err
    answer = json.loads(out)
    assert (answer["clocks"], answer["updates_lost"], answer["evictions"]) == (CLOCKS, 0, 2)
    words = ("--engine", "sim", "--nodes", "1+3", "--clocks", str(CLOCKS), "--deterministic")
    assert (
        answer["model_sha256"]
        == laptop.answer("lab", "train", "work/wide.py", *words)["model_sha256"]
    )
    assert (running(cloud.server), cloud.server.resources()) == ([], ())


def test_a_gang_of_two_nodes_survives_an_eviction(cloud: SimulatedCloud, laptop: Laptop) -> None:
    """It goes on from its checkpoint, on the machine that remains and a new one, and ends with the
    right result.
    """
    values = {name: getattr(cloud, name) for name in ("identity", "bucket", "region", "type")}
    job = laptop.job(GANG.format(cloud=cloud.name, steps=STEPS, **values))
    (laptop.folder / "work" / "pair.py").write_text(PAIR)
    place = place_of(f"{cloud.bucket}/pair", LAUNCHER)
    assert place is not None
    bucket = place.bucket
    with laptop.launched("launch", job, "--attached", "--yes", "--json") as launched:
        launched.wait_for(
            lambda: all(any(bucket.list(f"pair/checkpoints/node-{rank}")) for rank in (0, 1))
        )
        assert all(delayed(cloud)), delayed(cloud)
        cloud.server.evict(spot(cloud.server)[1].id, 10.0)
        code, out, err = launched.ended()
    assert code == 0, err
    answer = json.loads(out)
    assert (answer["outcome"], answer["evictions"]) == ("done", 1)
    last = b"".join(bucket.get("pair/result/last")).decode()
    assert last == result(STEPS)
    said = laptop.run("logs", "pair").stdout
    begun = [int(step) for step in re.findall(r"begins after step (\d+)", said)]
    assert (len(begun), begun.count(0), len(set(begun))) == (4, 2, 2), said
    assert (len(cloud.server.machines()), running(cloud.server), cloud.server.resources()) == (
        3,
        [],
        (),
    )


def result(steps: int) -> str:
    """What the two nodes come to, undisturbed."""
    value = ""
    for _ in range(steps):
        both = (sha256(f"{value} {of}".encode()).digest() * 8192 for of in (0, 1))
        value = sha256(b"".join(both)).hexdigest()
    return value
