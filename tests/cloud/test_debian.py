"""Machines that are not this computer: a Debian with another Python and its own cloud-init, and an ARM processor under
an emulator (`tests.cloud.debian`)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spotctl.agent import layout
from spotctl.clouds.remote.platforms import REPORT, MachinePlatform, platform_of
from tests.cloud.api import Rented
from tests.cloud.clouds import simulated
from tests.cloud.debian import ARM, RELEASES, Release
from tests.cloud.host import MachineHost
from tests.cloud.laptop import Laptop
from tests.cloud.namespaces import Namespaces
from tests.cloud.test_launch import TRAINING, running

CLOCKS = 20
ELF_AARCH64 = "{183}"
PROCESSORS = f"""
from pathlib import Path
print({{path.read_bytes()[18] for path in Path({layout.BUNDLES!r}).rglob("*.so*")}})
"""
"""A program that prints the processors (of ELF headers) for which the packages that were brought are."""

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


def test_a_training_on_arm_machines_has_the_same_model(tmp_path: Path) -> None:
    if not ARM.root.is_dir():
        pytest.skip(f"no Python of Debian {ARM.number} for ARM: `make debian` makes one")
    with simulated("gcp", release=ARM) as cloud:
        laptop = Laptop(tmp_path, cloud.environment)
        laptop.run("prices", "fetch", "--cloud", cloud.name, "--region", cloud.region, "--type", cloud.type)
        text = TRAINING.format(clocks=CLOCKS, cloud=cloud.name, region=cloud.region, type=cloud.type)
        job = laptop.job(text.replace("resources:", "resources:\n  arch: arm64"))
        with laptop.launched("launch", job, "--attached", "--yes", "--json") as launched:
            launched.wait_for(lambda: laptop.clock("line") >= 1)
            machines = [about(cloud.host, machine) for machine in running(cloud.server)]
            code, out, err = launched.ended()
        assert code == 0, err + out
        assert machines == [(MachinePlatform(ARM.python, "aarch64", (2, 41)), ELF_AARCH64)] * 3
        answer = json.loads(out)
        assert (answer["clocks"], answer["updates_lost"]) == (CLOCKS, 0)
        words = ("--engine", "sim", "--nodes", "1+2", "--clocks", str(CLOCKS), "--deterministic")
        assert answer["model_sha256"] == laptop.answer("train", "work/line.py", *words)["model_sha256"]
        assert (running(cloud.server), cloud.server.resources()) == ([], ())


def about(host: MachineHost, machine: Rented) -> tuple[MachinePlatform, str]:
    """What the Python of a machine's agent reports, and the processors of the packages there."""
    assert isinstance(host, Namespaces)
    programs = (("-I", "-S", "-c", program) for program in (REPORT, PROCESSORS))
    reported, processors = (host.execute(host.at(machine.private), layout.PYTHON, *words).stdout for words in programs)
    return platform_of(reported.split()), processors.strip()
