"""Machines that are not this computer: a Debian with another Python and its own cloud-init (`tests.cloud.debian`)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cloud.clouds import simulated
from tests.cloud.debian import RELEASES, Release
from tests.cloud.laptop import Laptop
from tests.cloud.test_launch import TRAINING, running

CLOCKS = 20

pytestmark = [pytest.mark.cloud, pytest.mark.slow]


@pytest.fixture(params=RELEASES, ids=lambda release: release.name)
def release(request: pytest.FixtureRequest) -> Release:
    made: Release = request.param
    if not made.root.is_dir():
        pytest.skip(f"no root of Debian {made.number}: `make debian` makes one")
    return made


def test_a_training_on_machines_with_another_python_has_the_same_model(release: Release, tmp_path: Path) -> None:
    with simulated("gcp", release=release) as cloud:
        laptop = Laptop(tmp_path, cloud.environment)
        laptop.run("prices", "fetch", "--cloud", cloud.name, "--region", cloud.region, "--type", f"{cloud.type}*")
        job = laptop.job(TRAINING.format(clocks=CLOCKS, cloud=cloud.name, region=cloud.region, type=cloud.type))
        ended = laptop.run("launch", job, "--attached", "--yes", "--json")
        assert ended.returncode == 0, ended.stderr + ended.stdout
        answer = json.loads(ended.stdout)
        assert (answer["clocks"], answer["updates_lost"]) == (CLOCKS, 0)
        words = ("--engine", "sim", "--nodes", "1+2", "--clocks", str(CLOCKS), "--deterministic")
        assert answer["model_sha256"] == laptop.answer("train", "work/line.py", *words)["model_sha256"]
        assert (running(cloud.server), cloud.server.resources()) == ([], ())
