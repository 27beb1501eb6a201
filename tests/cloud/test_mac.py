"""A training launched from a computer that is not Linux: its packages come from a package index."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from spotctl.clouds.remote.platforms import Closure, here, look_up_installed, markers_here
from spotctl.run.remote_runner.homes import archives_of
from spotctl.run.work.training_workload import NODE_PACKAGES
from tests.cloud.clouds import WHOLE_RUN, simulated
from tests.cloud.laptop import Laptop
from tests.cloud.test_launch import TRAINING, running
from tests.spotctl.clouds.remote.indexes import add_installed, index_variables

CLOCKS = 20
MAC = Path(__file__).with_name("mac")

pytestmark = [pytest.mark.cloud, pytest.mark.slow]


@pytest.fixture
def index(tmp_path: Path) -> Path:
    own = here()
    assert own is not None
    version = f"cp{own.python[0]}{own.python[1]}"
    for name in Closure(NODE_PACKAGES, look_up_installed, markers_here()).known:
        add_installed(
            tmp_path / "index", name, f"{version}-{version}-manylinux_2_28_{own.processor}"
        )
    return tmp_path / "index"


def mac(folder: Path, environment: Mapping[str, str]) -> Laptop:
    """A laptop that is not Linux, and that shares no packages with others."""
    laptop = Laptop(
        folder, {**environment, "PYTHONPATH": f"{MAC}:{os.environ.get('PYTHONPATH', '')}"}
    )
    archives_of(laptop.home).unlink()
    return laptop


@WHOLE_RUN
def test_a_training_launched_on_a_mac_ends_with_its_model(index: Path, tmp_path: Path) -> None:
    with simulated("gcp") as cloud:
        laptop = mac(tmp_path, {**cloud.environment, **index_variables(index)})
        laptop.run(
            "prices",
            "fetch",
            "--cloud",
            cloud.name,
            "--region",
            cloud.region,
            "--type",
            f"{cloud.type}*",
        )
        job = laptop.job(
            TRAINING.format(clocks=CLOCKS, cloud=cloud.name, region=cloud.region, type=cloud.type)
        )
        ended = laptop.run("launch", job, "--attached", "--yes", "--json")
        assert ended.returncode == 0, ended.stderr
        answer = json.loads(ended.stdout)
        assert (answer["clocks"], answer["updates_lost"]) == (CLOCKS, 0)
        words = ("--engine", "sim", "--nodes", "1+2", "--clocks", str(CLOCKS), "--deterministic")
        assert (
            answer["model_sha256"]
            == laptop.answer("lab", "train", "work/line.py", *words)["model_sha256"]
        )
        assert (running(cloud.server), cloud.server.resources()) == ([], ())


def test_a_mac_without_an_index_buys_nothing(tmp_path: Path) -> None:
    with simulated("gcp") as cloud:
        laptop = mac(tmp_path, cloud.environment)
        laptop.run(
            "prices",
            "fetch",
            "--cloud",
            cloud.name,
            "--region",
            cloud.region,
            "--type",
            f"{cloud.type}*",
        )
        job = laptop.job(
            TRAINING.format(clocks=CLOCKS, cloud=cloud.name, region=cloud.region, type=cloud.type)
        )
        refused = laptop.run("launch", job, "--attached", "--yes")
        assert (refused.returncode, cloud.server.machines()) == (2, ())
        (line,) = refused.stderr.splitlines()
        assert "line: the package index has no wheel of" in line
