"""Machines that are not this computer: a Debian with another Python and its own cloud-init, and an
ARM processor under an emulator (`tests.cloud.debian`)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from spotctl.agent import layout
from spotctl.clouds.remote.platforms import REPORT
from spotctl.run.remote_runner.start import PACKAGES
from tests.cloud.api import Rented
from tests.cloud.clouds import SimulatedCloud, simulated
from tests.cloud.debian import ARM, RELEASES, Release
from tests.cloud.host import MachineHost
from tests.cloud.laptop import Laptop
from tests.cloud.namespaces import Namespaces
from tests.cloud.test_launch import TRAINING, running, spot
from tests.cloud.test_remote_matrix import TRAINING as KEPT

CLOCKS = 20
CLOCKS_ON_ARM = 60
PROCESSORS = f"""
from pathlib import Path
print({{path.read_bytes()[18] for path in Path({layout.ROOT!r}).rglob("*.so")}})
"""
"""A program that prints the processors, by their numbers in ELF files, of the packages that were
brought."""

ON_ARM = "3 13 aarch64 glibc 2.41\n{183}\n"

pytestmark = [pytest.mark.cloud, pytest.mark.slow]


@pytest.fixture(params=RELEASES, ids=lambda release: release.name)
def release(request: pytest.FixtureRequest) -> Release:
    made: Release = request.param
    if not made.root.is_dir():
        pytest.skip(f"no root of Debian {made.number}: `make debian` makes one")
    return made


def test_a_training_on_machines_with_another_python_has_the_same_model(
    release: Release, tmp_path: Path
) -> None:
    with simulated("gcp", release=release) as cloud:
        laptop = Laptop(tmp_path, cloud.environment)
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
        assert ended.returncode == 0, ended.stderr + ended.stdout
        answer = json.loads(ended.stdout)
        assert (answer["clocks"], answer["updates_lost"]) == (CLOCKS, 0)
        words = ("--engine", "sim", "--nodes", "1+2", "--clocks", str(CLOCKS), "--deterministic")
        assert (
            answer["model_sha256"]
            == laptop.answer("lab", "train", "work/line.py", *words)["model_sha256"]
        )
        assert (running(cloud.server), cloud.server.resources()) == ([], ())


@pytest.fixture
def arm() -> Iterator[SimulatedCloud]:
    if not ARM.root.is_dir():
        pytest.skip(f"no Python of Debian {ARM.number} for ARM: `make debian` makes one")
    with simulated("gcp", release=ARM) as cloud:
        yield cloud


def test_a_training_on_arm_machines_survives_an_eviction(
    arm: SimulatedCloud, tmp_path: Path
) -> None:
    laptop = laptop_of(arm, tmp_path)
    with laptop.launched(
        "launch", job_on(arm, laptop), "--attached", "--yes", "--json"
    ) as launched:
        launched.wait_for(lambda: laptop.clock("kept") >= 1 and all_have_agents(arm))
        machines = [reported_by(arm.host, machine) for machine in running(arm.server)]
        arm.server.evict(spot(arm.server)[0].id, 10.0)
        code, out, err = launched.ended()
    assert code == 0, err + out
    assert machines == [ON_ARM] * 3
    assert json.loads(out)["evictions"] == 1
    assert_has_trained(arm, laptop, json.loads(out))


def test_a_runner_on_an_arm_machine_ends_the_training(arm: SimulatedCloud, tmp_path: Path) -> None:
    laptop = laptop_of(arm, tmp_path)
    with laptop.launched("launch", job_on(arm, laptop), "--yes", "--json") as launched:
        launched.wait_for(lambda: bool(spot(arm.server)))
        (reliable,) = (machine for machine in running(arm.server) if not machine.spot)
        has_runner = executed(arm.host, reliable, "test", "-d", PACKAGES).returncode == 0
        machine = reported_by(arm.host, reliable)
        code, out, err = launched.ended()
    assert code == 0, err + out
    assert (has_runner, machine) == (True, ON_ARM)
    assert_has_trained(arm, laptop, json.loads(out))


def laptop_of(cloud: SimulatedCloud, folder: Path) -> Laptop:
    laptop = Laptop(folder, cloud.environment)
    laptop.run(
        "prices", "fetch", "--cloud", cloud.name, "--region", cloud.region, "--type", cloud.type
    )
    return laptop


def job_on(cloud: SimulatedCloud, laptop: Laptop) -> Path:
    """A training on ARM machines."""
    places = {
        "bucket": cloud.bucket,
        "region": cloud.region,
        "type": cloud.type,
        "identity": cloud.identity,
    }
    text = KEPT.format(cloud=cloud.name, program=CLOCKS_ON_ARM, **places)
    return laptop.job(text.replace("resources:", "resources:\n  arch: arm64"))


def all_have_agents(cloud: SimulatedCloud) -> bool:
    machines = running(cloud.server)
    return all(
        executed(cloud.host, machine, "test", "-e", layout.STARTED).returncode == 0
        for machine in machines
    )


def executed(host: MachineHost, machine: Rented, *words: str) -> subprocess.CompletedProcess[str]:
    assert isinstance(host, Namespaces)
    return host.execute(host.at(machine.private), *words)


def reported_by(host: MachineHost, machine: Rented) -> str:
    """The platform that the Python of a machine's agent reports, and the processors of the packages
    there.
    """
    done = executed(host, machine, layout.PYTHON, "-I", "-S", "-c", REPORT + PROCESSORS)
    return done.stdout + done.stderr


def assert_has_trained(cloud: SimulatedCloud, laptop: Laptop, answer: Mapping[str, Any]) -> None:
    """The model is that of one process on this computer, and nothing is left."""
    assert (answer["clocks"], answer["updates_lost"]) == (CLOCKS_ON_ARM, 0)
    words = ("--engine", "sim", "--nodes", "1+2", "--clocks", str(CLOCKS_ON_ARM), "--deterministic")
    assert (
        answer["model_sha256"]
        == laptop.answer("lab", "train", "work/line.py", *words)["model_sha256"]
    )
    assert (running(cloud.server), cloud.server.resources()) == ([], ())
