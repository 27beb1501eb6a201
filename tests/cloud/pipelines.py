"""`python -m tests.cloud.pipelines small|transformer|resnet18 [UPDATES]`: examples/pipelines on a
simulated cloud.

Four machines train a model of examples/pipelines. Five are taken away one after the other, three of
them without a warning. The losses are compared with those of plain PyTorch in one process, and the
bill with the plan, for which the model is profiled first. The machines' image has PyTorch, because
they reach no package index. All machines share the processors of this computer.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import yaml

from spotctl.clouds.remote.platforms import Closure, look_up_installed, markers_here
from tests.cloud.clouds import SimulatedCloud, simulated
from tests.cloud.laptop import Laptop, Launched
from tests.cloud.test_launch import running, spot

NAME, MACHINES, STAGES = "split", 4, 2
WARNINGS = (10.0, None, None, 10.0, None)
"""Seconds between the notice of an eviction and the eviction; None: without notice."""
CLOUD = "aws"
PROFILE = "measured.json"
_EXAMPLES = Path(__file__).parents[2] / "examples" / "pipelines"
_PACKAGES = "usr/lib/python3/dist-packages"
_MODELS = {
    "small": ("small_transformer", 2, 8),
    "transformer": ("transformer", 4, 4),
    "resnet18": ("resnet18", 8, 4),
}
"""By the name of the profile: the model, samples of a microbatch, and microbatches of an update."""


def job_text(
    cloud: SimulatedCloud, app: str, parallel: Mapping[str, Any], updates: int, **variables: str
) -> str:
    """The example for AWS with another model, on a cloud whose image needs no setup."""
    job = yaml.safe_load((_EXAMPLES / "aws.yaml").read_text(encoding="utf-8"))
    del job["setup"]
    place = {
        "clouds": [cloud.name],
        "regions": [cloud.region],
        "types": [cloud.type],
        "machines": MACHINES,
    }
    changes = {
        "name": NAME,
        "app": app,
        "workdir": "work",
        "parallel": parallel,
        "stop": {"clocks": updates},
    }
    # JSON is YAML.
    return json.dumps({**job, **changes, "env": {**job["env"], **variables}, "resources": place})


def launch_through(
    cloud: SimulatedCloud, laptop: Laptop, job: Path, warnings: Sequence[float | None]
) -> Any:  # noqa: ANN401
    """The answer of `launch --json` after a training through evictions."""
    with laptop.launched("launch", job, "--attached", "--yes", "--json") as launched:
        for warning in warnings:
            _evict(cloud, laptop, launched, warning)
        code, out, err = launched.ended()
    assert code == 0, err
    assert running(cloud.server) == []
    return json.loads(out)


def _evict(
    cloud: SimulatedCloud, laptop: Laptop, launched: Launched, warning: float | None
) -> None:
    """Takes a machine away once the training has gone on, and enough are there to go on without
    it."""
    launched.wait_for(lambda: len(spot(cloud.server)) > STAGES)
    begun = laptop.clock(NAME)
    launched.wait_for(lambda: laptop.clock(NAME) > begun)
    machine = spot(cloud.server)[0].id
    cloud.server.evict(machine, warning)
    launched.wait_for(lambda: machine not in {rented.id for rented in running(cloud.server)})


def image_with(packages: Sequence[str], folder: Path) -> Path:
    """A folder with packages of this computer and all that they need, for the image of machines."""
    place = folder / _PACKAGES
    for name in Closure(packages, look_up_installed, markers_here()).known:
        installed = distribution(name)
        for file in installed.files or ():
            source, target = Path(str(installed.locate_file(file))), place / file
            if ".." not in file.parts and source.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                _link(source, target)
    return folder


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def main(name: str, updates: int) -> None:
    model, samples, microbatches = _MODELS[name]
    with (
        tempfile.TemporaryDirectory() as folder,
        simulated(CLOUD, software=image_with(["torch"], Path(folder, "image"))) as cloud,
    ):
        laptop = Laptop(Path(folder), cloud.environment)
        laptop.run(
            "prices", "fetch", "--cloud", cloud.name, "--region", cloud.region, "--type", cloud.type
        )
        shutil.copytree(_EXAMPLES, laptop.folder / "work", dirs_exist_ok=True)
        app = f"models.py:{model}"
        _profile(laptop, laptop.folder / "work" / app, samples)
        parallel = {"profile": PROFILE, "batch": samples * microbatches, "stages": STAGES}
        job = laptop.job(job_text(cloud, app, parallel, updates))
        expected = laptop.answer("plan", job)["expected"]
        answer = launch_through(cloud, laptop, job, WARNINGS)
        sys.stdout.write(figures(name, answer, expected, cloud))
        sys.stdout.flush()
        log = Path(answer["model"]).with_name("iterations.jsonl")
        words = [model, str(samples), str(microbatches), str(log)]
        subprocess.run([sys.executable, _EXAMPLES / "compare.py", *words], check=True)


def _profile(laptop: Laptop, model: Path, samples: int) -> None:
    """Measures the model as the machines run it: all at once on the processors of this computer."""
    words = (
        "--microbatch",
        str(samples),
        "--together",
        str(MACHINES),
        "--out",
        model.with_name(PROFILE),
    )
    measured = laptop.run("lab", "parallel", "profile", model, *words)
    assert measured.returncode == 0, measured.stderr


def figures(
    name: str, answer: Mapping[str, Any], expected: Mapping[str, Any], cloud: SimulatedCloud
) -> str:
    """A run next to its plan."""
    machines = cloud.server.machines()
    minutes = sum(machine.ended - machine.started for machine in machines if machine.ended) / 60e6
    return (
        f"{name}: {answer['clocks']} updates, {answer['evictions']} evictions, {len(machines)} "
        f"machines for {minutes:.0f} machine-minutes, {answer['updates_lost']} updates lost\n"
        f"plan ${expected['cost_p10_usd']:.4f} to ${expected['cost_p90_usd']:.4f}, bill "
        f"${answer['cost_usd']:.4f},"
        f" books of the cloud ${sum(machine.usd for machine in machines):.4f} without disks and "
        "addresses\n"
    )


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in _MODELS:
        sys.exit(f"name a model: {', '.join(_MODELS)}")
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 40)
