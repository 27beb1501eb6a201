"""Tasks of SkyPilot and dstack as job files. `make tasks` compares with their own parsers."""

from __future__ import annotations

import copy
import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from spotctl.files.job.programs import Command
from spotctl.files.job.reader import loads
from spotctl.files.job.spec import JobSpec
from spotctl.files.tasks.dstack import dstack_draft
from spotctl.files.tasks.skypilot import skypilot_draft
from spotctl.files.yaml_file import parse
from spotctl.home.errors import BadRequest
from tests.spotctl.files import public_tasks
from tests.spotctl.files.peer_keys import KEYS
from tests.spotctl.files.skypilot_tasks import tasks

DSTACK = """\
type: task
name: train-distrib
nodes: 2
python: "3.12"
env:
  - NCCL_DEBUG=INFO
  - HF_TOKEN
  - WANDB_API_KEY=${{ secrets.WANDB }}
commands:
  - pip install -r requirements.txt
  - torchrun --nproc-per-node=$DSTACK_GPUS_PER_NODE --node-rank=$DSTACK_NODE_RANK train.py
backends: [aws, lambda]
regions: [us-east-1]
spot_policy: auto
max_price: 2.5
max_duration: 6h
resources:
  cpu: 16..
  gpu: A100:80GB:8
  memory: 64GB..512GB
  shm_size: 24GB
  disk: 200GB..
"""


def job_of(text: str) -> tuple[JobSpec, list[str]]:
    """The job, and the keys that were left out."""
    spec, left = job_and_reasons(text)
    return spec, [*left]


def job_and_reasons(text: str) -> tuple[JobSpec, dict[str, str]]:
    """The job, and why keys were left out."""
    read = dstack_draft if "\ntype: " in f"\n{text}" else skypilot_draft
    draft = read(parse(text, Path("task.yaml")), Path())
    spec = loads(draft.text("task"), Path("job.yaml"))
    return spec, {key: why for _, key, why in draft.listed()}


LISTED = {
    "llm/axolotl/axolotl-spot.yaml": ["file_mounts./sky-notebook"],
    "llm/gpt-2/gpt2-train.yaml": ["use_spot", "any_of", "any_of.0.image_id"],
    "llm/llama-3_1-finetuning/lora.yaml": ["disk_tier", "file_mounts./output"],
    "examples/distributed-pytorch/train-rdzv.yaml": ["use_spot"],
    "examples/deepspeed-multinode/sky.yaml": ["use_spot", "file_mounts.~/.ssh/id_rsa"],
    "examples/distributed-training/axolotl/.dstack.yml": [
        "spot_policy",
        "shm_size",
        "volumes",
    ],
    "examples/distributed-training/torchrun/.dstack.yml": [
        "spot_policy",
        "python",
        "shm_size",
    ],
    "examples/distributed-training/trl/fsdp.dstack.yml": [
        "spot_policy",
        "shm_size",
        "volumes",
    ],
    "examples/fine-tuning/alignment-handbook/train.dstack.yml": [
        "spot_policy",
        "python",
        "ports",
    ],
    "examples/fine-tuning/qlora/train.dstack.yml": [
        "spot_policy",
        "python",
        "commands",
        "ports",
    ],
}


@pytest.mark.parametrize(
    ("tool", "part", "key"),
    [(tool, part, key) for tool, parts in KEYS.items() for part in parts for key in parts[part]],
)
def test_every_key_of_a_tool_is_carried_or_has_its_reason(tool: str, part: str, key: str) -> None:
    task: dict[str, Any] = {"run": "true"}
    if tool == "dstack":
        task = {"type": "task", "commands": ["true"], "resources": {"gpu": {}}}
    holder = task
    for step in filter(None, part.split(".")):
        holder = holder.setdefault(step, {})
    holder.setdefault(key, None)

    with suppress(BadRequest):
        _, left = job_and_reasons(yaml.safe_dump(task))
        assert "no key" not in left.get(".".join(filter(None, (part, key))), "")


@pytest.mark.parametrize(("tool", "place", "text"), public_tasks.TASKS, ids=LISTED)
def test_a_public_task_is_carried_but_for_what_is_listed(tool: str, place: str, text: str) -> None:
    draft = public_tasks.draft_of(tool, text)
    assert public_tasks.listed(draft) == LISTED[place]
    kept, written = set(public_tasks.carried(draft)), draft.job("task")
    machine = written["resources"].get("types", {})
    assert ("accelerators" in kept) is (tool == "SkyPilot" and "accelerators" in machine)
    assert ("nodes" in written) is bool(kept & {"nodes", "num_nodes"})
    assert ("container" in written.get("image", {})) is bool(kept & {"image", "image_id"})
    assert "${{" not in written["run"]


# Whatever YAML holds.
def odd(part: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:  # noqa: ANN401
    """The paths of all parts."""
    yield path
    for key in (
        part if isinstance(part, dict) else range(len(part)) if isinstance(part, list) else ()
    ):
        yield from odd(part[key], (*path, key))


@pytest.mark.parametrize(
    "value", [None, True, -1, 10**18, 0.5, "", "x:y:z", [], [[]], {"a": {}}, {}]
)
def test_whatever_a_task_holds_is_read_or_refused(value: object) -> None:
    for task in [*tasks(), yaml.safe_load(DSTACK)]:
        for path in odd(task):
            other: Any = copy.deepcopy(task)
            if not path:
                other = value
            else:
                holder = other
                for step in path[:-1]:
                    holder = holder[step]
                holder[path[-1]] = value
            text = yaml.safe_dump(other)
            with suppress(BadRequest):
                job_of(text)


def test_the_commands_find_the_tools_variables_and_mounts(tmp_path: Path) -> None:
    text = f"""\
envs: {{BUCKET: kept}}
file_mounts:
  {tmp_path}/in: s3://corpus/images
  {tmp_path}/ckpt: {{source: 's3://$BUCKET/run', mode: MOUNT}}
resources: {{use_spot: true}}
run: |
  names=(zero one)
  [[ -d {tmp_path}/in/. ]] && echo "it's ${{names[$SKYPILOT_NODE_RANK]}} of $SKYPILOT_NUM_NODES"
  echo "$SKYPILOT_NODE_IPS" | wc -l; echo saved > {tmp_path}/ckpt/state
"""
    spec, left = job_of(text)
    assert isinstance(spec.program, Command)
    assert left == []
    assert spec.program.checkpoint is not None
    assert spec.program.checkpoint.path == "s3://kept/run"
    ((name, place),) = spec.data.items()
    assert place == "s3://corpus/images"
    (tmp_path / "data").mkdir()
    (tmp_path / "kept").mkdir()
    variables = {
        "SPOTCTL_NODE_RANK": "1",
        "SPOTCTL_NODES": "2",
        "SPOTCTL_NODE_ADDRESSES": "10.0.0.1,10.0.0.2",
    }
    places = {
        f"DATA_{name.upper().replace('-', '_')}": tmp_path / "data",
        "SPOTCTL_CHECKPOINT_DIR": tmp_path / "kept",
    }
    ran = subprocess.run(
        ["/bin/sh", "-c", spec.program.run],
        env={
            "PATH": os.environ["PATH"],
            **variables,
            **{name: str(place) for name, place in places.items()},
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.split("\n")[:2] == ["it's one of 2", "2"]
    assert (tmp_path / "kept" / "state").read_text() == "saved\n"


@pytest.mark.parametrize(
    ("task", "types"),
    [
        ("run: python train.py\n", {"vcpus": "8..", "memory_gib": "32.."}),
        ("type: task\ncommands: [python train.py]\n", {"vcpus": "2..", "memory_gib": "8.."}),
    ],
    ids=["SkyPilot", "dstack"],
)
def test_a_task_that_asks_for_no_machines_gets_those_of_its_tool(
    task: str, types: dict[str, str]
) -> None:
    read = dstack_draft if task.startswith("type") else skypilot_draft
    text = read(parse(task, Path("task.yaml")), Path()).text("task")
    assert yaml.safe_load(text)["resources"]["types"] == types
    assert "# The task asks for no machines; types are what" in text
