"""Compares the jobs that `spotctl init` makes of tasks of SkyPilot and dstack with what their own
parsers read.

    python -m tests.spotctl.files.peer_parsers skypilot|dstack [--environment FOLDER]

installs the tool (460 or 180 MB) into an environment of its own (FOLDER, or one that is deleted
afterwards), and gives twenty tasks and changes of each to both. Where the tool accepts a task, the
job must have its nodes, variables and resources, apart from what init lists as left out; where it
refuses one, init must refuse it or list something. The exit code is 0 if so.
"""

from __future__ import annotations

import argparse
import copy
import json
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from pricing_data.market import is_region_of
from pricing_data.units import NANOS_PER_DOLLAR
from spotctl.files.job.programs import Command
from spotctl.files.job.reader import loads
from spotctl.files.job.spec import JobSpec, Range
from spotctl.files.tasks.draft import JobDraft
from spotctl.files.tasks.dstack import dstack_draft
from spotctl.files.tasks.skypilot import skypilot_draft
from spotctl.files.yaml_file import YamlFile, parse
from spotctl.home.cloud import rented_clouds
from spotctl.home.errors import BadRequest
from tests.spotctl.files import dstack_tasks, skypilot_tasks
from tests.spotctl.files.peer_keys import KEYS

SKYPILOT = """
import json, sys
import yaml
import sky
from sky import clouds

# SkyPilot checks regions and types by lists that it downloads; here they are taken as they are.
sky.Resources._try_validate_instance_type = sky.Resources._try_validate_cpus_mem = lambda self: None
for cloud in (clouds.Cloud, clouds.AWS, clouds.GCP, clouds.Azure):
    cloud.validate_region_zone = lambda self, region, zone: (region, zone)

def facts(one, has_disk):
    # What a type of machine has is in the lists, too: these are the given values.
    names = ("region", "zone", "instance_type", "_cpus", "_memory", "use_spot", "disk_size", "max_hourly_cost",
             "image_id", "labels", "_accelerators")
    cloud = None if one.cloud is None else str(one.cloud).lower()
    found = {"cloud": cloud} | {name: getattr(one, name) for name in names}
    return found if has_disk else found | {"disk_size": None}

answers = []
for text in json.load(open(sys.argv[1])):
    try:
        task = sky.Task.from_yaml_config(yaml.safe_load(text))
        has_disk = "disk_size" in (yaml.safe_load(text).get("resources") or {})
        answers.append({"nodes": task.num_nodes, "envs": task.envs, "secrets": sorted(task.secrets),
                        "resources": [facts(one, has_disk) for one in task.resources]})
    except Exception as error:
        answers.append({"refused": f"{type(error).__name__}: {error}"[:200]})
from sky.utils import schemas
schemas = {"": schemas.get_task_schema(), "resources": schemas.get_resources_schema()}
answers.append({part: sorted(schema["properties"]) for part, schema in schemas.items()})
json.dump(answers, open(sys.argv[2], "w"))
"""

DSTACK = """
import json, sys
import yaml
from dstack._internal.core.models.configurations import parse_apply_configuration

def span(part):
    return None if part is None else [part.min, part.max]

answers = []
for text in json.load(open(sys.argv[1])):
    try:
        written = yaml.safe_load(text)
        task = parse_apply_configuration(written)
        machine, gpu = task.resources, task.resources.gpu
        envs = {name: value if isinstance(value, str) else None for name, value in task.env.root.items()}
        # What is not written has a default that a job need not have.
        stated = {key for key, value in (written.get("resources") or {}).items() if value is not None}
        facts = {
            "cpus": span(machine.cpu.count) if "cpu" in stated else None,
            "arch": machine.cpu.arch and machine.cpu.arch.value,
            "memory": span(machine.memory) if "memory" in stated else None,
            "disk_size": machine.disk.size.min if "disk" in stated and machine.disk else None,
            "gpus": [gpu.name, span(gpu.count), span(gpu.memory)] if "gpu" in stated and gpu else None,
            "clouds": task.backends and [each.value for each in task.backends],
            "regions": task.regions, "zones": task.availability_zones, "instance_types": task.instance_types,
            "spot": task.spot_policy and task.spot_policy.value, "max_hourly_cost": task.max_price,
            "image": task.image, "tags": task.tags,
        }
        answers.append({"nodes": task.nodes or 1, "envs": {k: v for k, v in envs.items() if v is not None},
                        "secrets": sorted(k for k, v in envs.items() if v is None), "resources": [facts]})
    except Exception as error:
        answers.append({"refused": f"{type(error).__name__}: {error}"[:200]})
from dstack._internal.core.models import resources
from dstack._internal.core.models.configurations import TaskConfiguration
models = {"": TaskConfiguration, "resources": resources.ResourcesSpec, "resources.gpu": resources.GPUSpec}
answers.append({part: sorted(model.model_fields) for part, model in models.items()})
json.dump(answers, open(sys.argv[2], "w"), default=float)
"""


Differences = Callable[[Mapping[str, Any], JobSpec, set[str]], Iterator[tuple[str, object]]]


@dataclass(frozen=True)
class Peer:
    """Another tool: its package, a program that answers with its parser, its tasks, and how they
    are read here.
    """

    package: str
    parser: str
    tasks: Sequence[Mapping[str, Any]]
    values: Mapping[str, Sequence[object]]
    on_top: frozenset[str]
    """Keys of the values that are not below `resources`."""
    draft: Callable[[YamlFile, Path], JobDraft]
    machine_differences: Differences

    def changed(self, task: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """A task with each key removed in turn, and with each key that has other values set to each
        of them.
        """
        for part in ("", "resources"):
            held = task.get(part, {}) if part else task
            for key in [key for key in held if key not in ("run", "commands", "type", "resources")]:
                other = copy.deepcopy({**task})
                del (other[part] if part else other)[key]
                yield other
            for key, values in self.values.items():
                if (key in self.on_top) is bool(part):
                    continue
                for value in values:
                    other = copy.deepcopy({**task})
                    (other.setdefault(part, {}) if part else other)[key] = value
                    yield other


def differences(peer: Peer, answer: Mapping[str, Any], text: str) -> Iterator[str]:
    """Differences between the tool's answer and the job that init makes of a task."""
    try:
        draft = peer.draft(parse(text, Path("task.yaml")), Path())
        spec = loads(draft.text("task"), Path("job.yaml"))
    except BadRequest as error:
        if "refused" not in answer:
            yield f"refused here: {error}"
        return
    left = {str(step) for problem in draft.left for step in problem.loc}
    if "refused" in answer:
        if not left:
            yield f"refused by its own parser: {answer['refused']}"
        return
    assert isinstance(spec.program, Command)
    if spec.program.nodes.most != answer["nodes"]:
        yield f"nodes: {spec.program.nodes} and {answer['nodes']}"
    if {**spec.env} != answer["envs"] or not set(answer["secrets"]) <= set(spec.secrets):
        yield f"variables: {spec.env}, {spec.secrets} and {answer['envs']}, {answer['secrets']}"
    machines = [dict(peer.machine_differences(one, spec, left)) for one in answer["resources"]]
    if all(machines):
        yield f"machine: {min(machines, key=len)}"


def skypilot_differences(
    one: Mapping[str, Any], spec: JobSpec, left: set[str]
) -> Iterator[tuple[str, object]]:
    """How one of SkyPilot's alternatives differs from the job's machine."""
    resources, needs = spec.resources, spec.resources.needs
    offered = {kind.model.lower(): kind.count.least for kind in needs.accelerators}
    wanted = _lower(one["_accelerators"] or {})
    if not any(one[key] for key in ("_cpus", "_memory", "_accelerators", "instance_type")):
        # What its catalogs take for a task that says nothing.
        one = {**one, "_cpus": "8+", "_memory": "32+"}
    pairs = {
        "cpus": (
            needs.vcpus and str(needs.vcpus).replace("..", "+"),
            one["_cpus"] and f"{one['_cpus']}",
        ),
        "memory": (
            needs.memory_gib and _gib(str(needs.memory_gib)),
            one["_memory"] and _gib(one["_memory"]),
        ),
        "accelerators": (
            wanted if wanted and wanted.items() <= offered.items() else offered,
            wanted,
        ),
        "use_spot": (spec.strategy != "on-demand", bool(one["use_spot"])),
        "disk_size": (spec.image.disk_gib, one["disk_size"]),
        "max_hourly_cost": (
            spec.max_bid,
            one["max_hourly_cost"] and round(one["max_hourly_cost"] * NANOS_PER_DOLLAR),
        ),
        "instance_type": (resources.types, (one["instance_type"],) if one["instance_type"] else ()),
        "image_id": (spec.image.container, _container(one["image_id"])),
        "labels": ({**spec.tags}, one["labels"] or {}),
    }
    for key, (ours, theirs) in pairs.items():
        if ours != theirs and not (key in left or (key == "accelerators" and "gpus" in left)):
            yield key, (ours, theirs)
    if left & {"cloud", "region", "infra", "any_of", "ordered"}:
        return
    clouds = {one["cloud"]} & set(rented_clouds()) if one["cloud"] else {*()}
    if clouds and not clouds <= set(resources.clouds):
        yield "cloud", (resources.clouds, one["cloud"])
    if clouds and one["region"] and one["region"] not in resources.regions:
        yield "region", (resources.regions, one["region"])
    if clouds and one["zone"] and one["zone"] not in resources.zones:
        yield "zone", (resources.zones, one["zone"])
    if not one["region"] and resources.regions:
        yield "region", (resources.regions, None)


def _gib(text: str) -> tuple[float, bool]:
    return float(text.rstrip("+.")), text[-1] in "+."


def _lower(accelerators: Mapping[str, float]) -> dict[str, float]:
    return {name.lower(): count for name, count in accelerators.items()}


def _container(image: Mapping[str, str] | None) -> str | None:
    name = next(iter(image.values())) if image else None
    return name.removeprefix("docker:") if name else None


def dstack_differences(
    one: Mapping[str, Any], spec: JobSpec, left: set[str]
) -> Iterator[tuple[str, object]]:
    """How dstack's machine differs from the job's."""
    resources, needs = spec.resources, spec.resources.needs
    found = [
        (kind.model.lower(), _ends(kind.count), kind.memory_gib and _ends(kind.memory_gib))
        for kind in needs.accelerators
    ]
    wanted = []
    if one["gpus"] and one["gpus"][1] == [0, 0]:
        one = {**one, "gpus": None}
    if not any(one[key] for key in ("cpus", "memory", "gpus", "instance_types")):
        # What its documentation says of a task that says nothing.
        one = {**one, "cpus": [2, None], "memory": [8, None]}
    names, count, size = one["gpus"] or (None, [0, 0], None)
    if count != [0, 0]:
        size = size or (None if names else [1, None])
        wanted = [(name.lower(), [int(count[0] or 1), count[1]], size) for name in names or [""]]
    policy = one["spot"] or "on-demand"
    pairs = {
        "cpu": (needs.vcpus and _ends(needs.vcpus), one["cpus"]),
        "memory": (needs.memory_gib and _ends(needs.memory_gib), one["memory"]),
        "gpu": (found, wanted),
        "disk": (spec.image.disk_gib, one["disk_size"] and max(8, round(one["disk_size"]))),
        "arch": (resources.arch, one["arch"] and {"arm": "arm64", "x86": "x86_64"}[one["arch"]]),
        "spot_policy": (spec.strategy != "on-demand", policy != "on-demand"),
        "max_price": (
            spec.max_bid,
            one["max_hourly_cost"] and round(one["max_hourly_cost"] * NANOS_PER_DOLLAR),
        ),
        "instance_types": (resources.types, tuple(one["instance_types"] or ())),
        "image": (spec.image.container, one["image"]),
        "tags": ({**spec.tags}, one["tags"] or {}),
    }
    for key, (ours, theirs) in pairs.items():
        if ours != theirs and key not in left and not (key == "arch" and "cpu" in left):
            yield key, (ours, theirs)
    here = {"clouds": resources.clouds, "regions": resources.regions, "zones": resources.zones}
    for key, ours in here.items():
        theirs = one[key] or []
        if key == "clouds":
            # A cloud that has none of the regions offers nothing.
            regions = one["regions"] or []
            theirs = [
                c
                for c in theirs
                if c in rented_clouds() and all(is_region_of(c, each) for each in regions)
            ]
        if (
            theirs
            and [*ours] != theirs
            and not left & {"backends", "regions", "availability_zones"}
        ):
            yield key, (ours, theirs)


def _ends(span: Range[Any]) -> list[float | None]:
    return [span.least or None, span.most]


PEERS = {
    "skypilot": Peer(
        "skypilot==0.14.0",
        SKYPILOT,
        skypilot_tasks.tasks(),
        skypilot_tasks.VALUES,
        frozenset({"num_nodes", "envs", "secrets"}),
        skypilot_draft,
        skypilot_differences,
    ),
    "dstack": Peer(
        "dstack==0.22.5",
        DSTACK,
        dstack_tasks.tasks(),
        dstack_tasks.VALUES,
        frozenset(dstack_tasks.VALUES) - {"gpu", "cpu", "memory", "disk"},
        dstack_draft,
        dstack_differences,
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("--environment", type=Path)
    asked_for = parser.parse_args()
    peer, chosen = PEERS[asked_for.peer], asked_for.environment
    with TemporaryDirectory() as scratch:
        folder = chosen or Path(scratch, "environment")
        python = folder / "bin" / "python"
        if not python.exists():
            venv.create(folder, with_pip=True)
            subprocess.run([python, "-m", "pip", "install", "--quiet", peer.package], check=True)
        originals = [yaml.safe_dump(task, sort_keys=False) for task in peer.tasks]
        mutated = [
            yaml.safe_dump(other, sort_keys=False)
            for task in peer.tasks
            for other in peer.changed(task)
        ]
        texts = list(dict.fromkeys([*originals, *mutated]))
        script, asked, answered = (
            Path(scratch, name) for name in ("parse.py", "asked.json", "answered.json")
        )
        script.write_text(peer.parser)
        asked.write_text(json.dumps(texts))
        subprocess.run(
            [python, script, asked, answered], check=True, stdout=subprocess.DEVNULL, cwd=scratch
        )
        *answers, keys = json.loads(answered.read_text())
    if keys != KEYS[asked_for.peer]:
        print(f"keys of {peer.package}: {keys}, where the tests have {KEYS[asked_for.peer]}")
    pairs = zip(texts, answers, strict=True)
    wrong = [(text, said) for text, answer in pairs for said in differences(peer, answer, text)]
    for text, said in wrong:
        print(f"{said}\n{text}")
    refused = sum("refused" in answer for answer in answers)
    print(
        f"{len(originals)} tasks and {len(texts) - len(originals)} changed ones: {asked_for.peer} "
        f"refuses {refused}; {len(wrong)} differences"
    )
    return bool(wrong or keys != KEYS[asked_for.peer])


if __name__ == "__main__":
    sys.exit(main())
