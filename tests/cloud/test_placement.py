"""A command on two nodes that stand close together, launched on a simulated cloud."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cloud.clouds import EVERYTHING, SimulatedCloud, sampled, simulated
from tests.cloud.laptop import Laptop
from tests.cloud.test_launch import running

JOB = """\
name: pair
kind: command
run: until [ -e $SPOTCTL_CHECKPOINT_DIR/over ]; do sleep 0.5; touch $SPOTCTL_CHECKPOINT_DIR/over; done
nodes: 2
workdir: work
hours: 1h
identity: {{{cloud}: {identity}}}
checkpoint: {{path: {bucket}/pair/checkpoints/, every: 1s}}
resources: {{clouds: [{cloud}], regions: [{region}], types: [{type}], placement: close}}
"""

pytestmark = [
    pytest.mark.cloud,
    pytest.mark.slow,
    pytest.mark.skipif(not EVERYTHING, reason="takes long; make cloud-all runs it"),
]


@pytest.fixture(params=sampled("aws"))
def cloud(request: pytest.FixtureRequest) -> Iterator[SimulatedCloud]:
    with simulated(request.param) as found:
        yield found


@pytest.fixture
def laptop(cloud: SimulatedCloud, tmp_path: Path) -> Laptop:
    laptop = Laptop(tmp_path, cloud.environment)
    laptop.run(
        "prices", "fetch", "--cloud", cloud.name, "--region", cloud.region, "--type", cloud.type
    )
    return laptop


def test_the_nodes_are_in_one_group_and_nothing_is_left_of_it(
    cloud: SimulatedCloud, laptop: Laptop
) -> None:
    """The permissions are those that `doctor --policy` prints, where the simulated cloud evaluates
    them.
    """
    values = {name: getattr(cloud, name) for name in ("identity", "bucket", "region", "type")}
    job = laptop.job(JOB.format(cloud=cloud.name, **values))
    with laptop.launched("launch", job, "--attached", "--yes", "--json") as launched:
        launched.wait_for(lambda: len(running(cloud.server)) == 2)
        groups = [left for left in cloud.server.resources() if "placement" in left.kind.lower()]
        code, out, err = launched.ended()
    assert code == 0, err
    assert json.loads(out)["outcome"] == "done"
    assert len(groups) == 1
    assert (len(cloud.server.machines()), running(cloud.server), cloud.server.resources()) == (
        2,
        [],
        (),
    )
