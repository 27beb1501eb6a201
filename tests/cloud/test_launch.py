"""Jobs launched on simulated clouds, from the job file to the trained model: real machines, real
evictions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cloud.api import ApiServer, Rented
from tests.cloud.clouds import WHOLE_RUN, SimulatedCloud, sampled, simulated
from tests.cloud.laptop import Laptop

CLOCKS = 50
TRAINING = """\
name: line
kind: agileml
app: line:Line
args: {{pause: 0.03}}
workdir: work
stop: {{clocks: {clocks}}}
throughputs: {{{type}: 600}}
resources:
  clouds: [{cloud}]
  regions: [{region}]
  types: [{type}]
  machines: 2
  reliable: {{machines: 1, type: {type}}}
tags: {{team: search}}
"""

pytestmark = [WHOLE_RUN, pytest.mark.cloud, pytest.mark.slow]


@pytest.fixture(params=sampled("gcp"))
def cloud(request: pytest.FixtureRequest) -> Iterator[SimulatedCloud]:
    with simulated(request.param) as found:
        yield found


@pytest.fixture
def laptop(cloud: SimulatedCloud, tmp_path: Path) -> Laptop:
    laptop = Laptop(tmp_path, cloud.environment)
    fetched = laptop.run(
        "prices",
        "fetch",
        "--cloud",
        cloud.name,
        "--region",
        cloud.region,
        "--type",
        f"{cloud.type}*",
    )
    assert f"{cloud.type}" in laptop.run("lab", "prices", "ls").stdout, fetched.stderr
    return laptop


def running(server: ApiServer) -> list[Rented]:
    return [machine for machine in server.machines() if machine.ended is None]


def spot(server: ApiServer) -> list[Rented]:
    return [machine for machine in running(server) if machine.spot]


def test_a_training_survives_evictions_and_leaves_nothing(
    cloud: SimulatedCloud, laptop: Laptop
) -> None:
    """One eviction is announced, one is not; the model is that of an undisturbed training, to the
    bit.
    """
    job = laptop.job(
        TRAINING.format(clocks=CLOCKS, cloud=cloud.name, region=cloud.region, type=cloud.type)
    )
    with laptop.launched("launch", job, "--attached", "--yes", "--json") as launched:
        launched.wait_for(lambda: bool(running(cloud.server)))
        launched.wait_for(lambda: laptop.clock("line") >= 5)
        first = spot(cloud.server)[0]
        cloud.server.evict(first.id, 10.0)
        launched.wait_for(lambda: first.id not in {one.id for one in running(cloud.server)})
        at = laptop.clock("line")
        launched.wait_for(lambda: laptop.clock("line") >= at + 5 and bool(spot(cloud.server)))
        cloud.server.evict(spot(cloud.server)[0].id, None)
        code, out, err = launched.ended()
    assert code == 0, err
    answer = json.loads(out)
    assert (answer["clocks"], answer["updates_lost"], answer["evictions"]) == (CLOCKS, 0, 2)
    undisturbed = laptop.answer(
        *(
            "lab",
            "train",
            "work/line.py",
            "--engine",
            "sim",
            "--nodes",
            "1+2",
            "--clocks",
            str(CLOCKS),
        ),
        "--deterministic",
    )
    assert answer["model_sha256"] == undisturbed["model_sha256"]
    assert running(cloud.server) == []
    assert cloud.server.resources() == ()
    assert len(cloud.server.machines()) >= 4
    assert {machine.tags["team"] for machine in cloud.server.machines()} == {"search"}
