"""Compares the jobs that `spotctl init` makes of SkyPilot's tasks with what SkyPilot's own parser reads.

    python -m tests.spotctl.files.skypilot_parser [--environment FOLDER]

installs skypilot from PyPI (460 MB) into an environment of its own (FOLDER, or one that is deleted afterwards), and
gives twenty tasks and changes of each to both. Where SkyPilot accepts a task, the job must have its nodes, variables
and resources, apart from what init lists as left out; where it refuses one, init must refuse it or list something. The
exit code is 0 if so.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from pricing_data.units import NANOS_PER_DOLLAR
from spotctl.files.job.programs import Command
from spotctl.files.job.reader import loads
from spotctl.files.job.spec import JobSpec
from spotctl.files.tasks.skypilot import skypilot_draft
from spotctl.files.yaml_file import parse
from spotctl.home.cloud import rented_clouds
from spotctl.home.errors import BadRequest
from tests.spotctl.files.skypilot_tasks import changed, tasks

PACKAGE = "skypilot==0.14.0"

PARSER = """
import json, sys
import yaml
import sky
from sky import clouds

# SkyPilot checks regions and types by lists that it downloads; here they are taken as they are.
sky.Resources._try_validate_instance_type = sky.Resources._try_validate_cpus_mem = lambda self: None
for cloud in (clouds.Cloud, clouds.AWS, clouds.GCP, clouds.Azure):
    cloud.validate_region_zone = lambda self, region, zone: (region, zone)

def facts(one):
    # What a type of machine has is in the lists, too: these are the given values.
    names = ("region", "zone", "instance_type", "_cpus", "_memory", "use_spot", "disk_size", "max_hourly_cost",
             "image_id", "labels", "_accelerators")
    cloud = None if one.cloud is None else str(one.cloud).lower()
    return {"cloud": cloud} | {name: getattr(one, name) for name in names}

answers = []
for text in json.load(open(sys.argv[1])):
    try:
        task = sky.Task.from_yaml_config(yaml.safe_load(text))
        kept = [name for name, value in (yaml.safe_load(text).get("resources") or {}).items() if name == "disk_size"]
        answers.append({"nodes": task.num_nodes, "envs": task.envs, "secrets": sorted(task.secrets),
                        "resources": [facts(one) for one in task.resources], "has_disk": bool(kept)})
    except Exception as error:
        answers.append({"refused": f"{type(error).__name__}: {error}"[:200]})
json.dump(answers, open(sys.argv[2], "w"))
"""


def differences(answer: Mapping[str, Any], text: str) -> Iterator[str]:
    """What of a task differs between SkyPilot's answer and the job that init makes."""
    try:
        draft = skypilot_draft(parse(text, Path("task.yaml")), Path())
        spec = loads(draft.text("task"), Path("job.yaml"))
    except BadRequest as error:
        if "refused" not in answer:
            yield f"refused here: {error}"
        return
    left = {str(step) for problem in draft.left for step in problem.loc}
    if "refused" in answer:
        if not left:
            yield f"refused by SkyPilot: {answer['refused']}"
        return
    assert isinstance(spec.program, Command)
    if spec.program.nodes.most != answer["nodes"]:
        yield f"nodes: {spec.program.nodes} and {answer['nodes']}"
    if {**spec.env} != answer["envs"] or not set(answer["secrets"]) <= set(spec.secrets):
        yield f"variables: {spec.env}, {spec.secrets} and {answer['envs']}, {answer['secrets']}"
    machines = [dict(machine_differences(one, spec, left, has_disk=answer["has_disk"])) for one in answer["resources"]]
    if all(machines):
        yield f"machine: {min(machines, key=len)}"


def machine_differences(
    one: Mapping[str, Any], spec: JobSpec, left: set[str], *, has_disk: bool
) -> Iterator[tuple[str, object]]:
    """How one of SkyPilot's alternatives differs from the job's machine."""
    resources, needs = spec.resources, spec.resources.needs
    found = needs.accelerators
    pairs = {
        "cpus": (needs.vcpus and str(needs.vcpus).replace("..", "+"), one["_cpus"] and f"{one['_cpus']}"),
        "memory": (needs.memory_gib and _gib(str(needs.memory_gib)), one["_memory"] and _gib(one["_memory"])),
        "accelerators": ({found.model.lower(): found.count.least} if found else {}, _lower(one["_accelerators"] or {})),
        "use_spot": (spec.strategy != "on-demand", bool(one["use_spot"])),
        "disk_size": (spec.image.disk_gib, one["disk_size"] if has_disk else None),
        "max_hourly_cost": (spec.max_bid, one["max_hourly_cost"] and round(one["max_hourly_cost"] * NANOS_PER_DOLLAR)),
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


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--environment", type=Path)
    chosen = parser.parse_args().environment
    with TemporaryDirectory() as scratch:
        folder = chosen or Path(scratch, "environment")
        python = folder / "bin" / "python"
        if not python.exists():
            venv.create(folder, with_pip=True)
            subprocess.run([python, "-m", "pip", "install", "--quiet", PACKAGE], check=True)
        originals = [yaml.safe_dump(task, sort_keys=False) for task in tasks()]
        mutated = [yaml.safe_dump(other, sort_keys=False) for task in tasks() for other in changed(task)]
        texts = list(dict.fromkeys([*originals, *mutated]))
        script, asked, answered = (Path(scratch, name) for name in ("parse.py", "asked.json", "answered.json"))
        script.write_text(PARSER)
        asked.write_text(json.dumps(texts))
        subprocess.run([python, script, asked, answered], check=True, stdout=subprocess.DEVNULL, cwd=scratch)
        answers = json.loads(answered.read_text())
    wrong = [(text, said) for text, answer in zip(texts, answers, strict=True) for said in differences(answer, text)]
    for text, said in wrong:
        print(f"{said}\n{text}")
    refused = sum("refused" in answer for answer in answers)
    print(
        f"{len(originals)} tasks and {len(texts) - len(originals)} changed ones: SkyPilot refuses {refused};"
        f" {len(wrong)} differences"
    )
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
