"""Machines that are not this computer: a Debian with another Python and its own cloud-init (`tests.cloud.debian`)."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cloud.clouds import SimulatedCloud, simulated
from tests.cloud.debian import RELEASES, ROOTS, Release
from tests.cloud.laptop import Laptop
from tests.cloud.test_launch import TRAINING, running
from tests.spotctl.clouds.remote.indexes import index_variables

CLOCKS = 20
COMMAND = """\
name: count
kind: command
run: "echo $(python3 -V) >version.txt; cp version.txt $SPOTCTL_CHECKPOINT_DIR/"
nodes: 1
checkpoint: {{path: {bucket}/count}}
resources: {{clouds: [{cloud}], regions: [{region}], types: [{type}]}}
"""

pytestmark = [pytest.mark.cloud, pytest.mark.slow]


@pytest.fixture(params=RELEASES, ids=lambda release: release.name)
def release(request: pytest.FixtureRequest) -> Release:
    made: Release = request.param
    if not (os.environ.get(ROOTS) and made.root(Path(os.environ[ROOTS])).is_dir()):
        pytest.skip(f"no root of Debian {made.number}: `make debian` makes one")
    return made


def laptop_of(folder: Path, cloud: SimulatedCloud, release: Release) -> Laptop:
    """A laptop whose settings name the release, and whose package index has wheels for its Python."""
    settings = {
        name: value.replace("debian-12", f"debian-{release.number}") for name, value in cloud.environment.items()
    }
    laptop = Laptop(folder, {**settings, **index_variables(release.wheels(Path(os.environ[ROOTS])))})
    laptop.run("prices", "fetch", "--cloud", cloud.name, "--region", cloud.region, "--type", f"{cloud.type}*")
    return laptop


def test_a_training_on_machines_with_another_python_has_the_same_model(release: Release, tmp_path: Path) -> None:
    with simulated("gcp", base=release.root(Path(os.environ[ROOTS]))) as cloud:
        laptop = laptop_of(tmp_path, cloud, release)
        job = laptop.job(TRAINING.format(clocks=CLOCKS, cloud=cloud.name, region=cloud.region, type=cloud.type))
        ended = laptop.run("launch", job, "--attached", "--yes", "--json")
        assert ended.returncode == 0, ended.stderr + ended.stdout
        answer = json.loads(ended.stdout)
        assert (answer["clocks"], answer["updates_lost"]) == (CLOCKS, 0)
        words = ("--engine", "sim", "--nodes", "1+2", "--clocks", str(CLOCKS), "--deterministic")
        assert answer["model_sha256"] == laptop.answer("train", "work/line.py", *words)["model_sha256"]
        assert (running(cloud.server), cloud.server.resources()) == ([], ())
