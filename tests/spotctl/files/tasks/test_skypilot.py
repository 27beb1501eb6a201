"""Tasks of SkyPilot."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from spotctl.files.job.programs import Command
from spotctl.files.job.spec import Range
from tests.spotctl.files import public_tasks
from tests.spotctl.files.skypilot_tasks import tasks
from tests.spotctl.files.tasks.test_draft import job_of


@pytest.mark.parametrize("task", tasks(), ids=[task["name"] for task in tasks()])
def test_each_task_of_skypilot_is_a_job(task: dict[str, Any]) -> None:
    spec, left = job_of(yaml.safe_dump(task))
    resources = task["resources"]
    assert isinstance(spec.program, Command)
    assert spec.program.nodes.most == task.get("num_nodes", 1)
    assert (spec.strategy == "auto") is bool(resources.get("use_spot"))
    for key in ("ports", "job_recovery", "autostop", "disk_tier"):
        assert (f"resources.{key}" in left) is (key in resources)


def test_machines_of_several_clouds_that_differ_in_their_image_are_one_kind() -> None:
    spec, _ = job_of(public_tasks.SKYPILOT["llm/gpt-2/gpt2-train.yaml"])
    assert spec.resources.clouds == ("gcp", "aws", "azure", "runpod")


def test_alternatives_of_gpus_and_places_are_all_allowed() -> None:
    spec, left = job_of("""
resources:
  ordered:
    - {infra: aws/us-east-1, accelerators: A10G:1, use_spot: true}
    - {infra: aws/us-west-2, accelerators: A10G:1, use_spot: true}
    - {infra: gcp/us-central1, accelerators: L4:1}
run: python train.py
""")
    resources = spec.resources
    assert [kind.model for kind in resources.needs.accelerators] == ["A10G", "L4"]
    assert resources.regions == ("us-east-1", "us-west-2", "us-central1")
    assert (resources.clouds, spec.strategy) == (("aws", "gcp"), "auto")
    assert left == ["resources.ordered"]


@pytest.mark.parametrize(
    ("written", "kinds"),
    [
        ("[A100:8, H100:8]", [("A100", 8, None), ("H100", 8, None)]),
        ("{L4: 2, T4: null}", [("L4", 2, None), ("T4", 1, None)]),
        ("80GB+:8", [("", 8, Range(80.0))]),
        ("24GB", [("", 1, Range(24.0, 24.0))]),
    ],
)
def test_gpus_are_named_by_model_or_memory(
    written: str, kinds: list[tuple[str, int, Range[float] | None]]
) -> None:
    spec, _ = job_of(f"resources:\n  accelerators: {written}\nrun: python train.py\n")
    found = spec.resources.needs.accelerators
    assert [(kind.model, kind.count.least, kind.memory_gib) for kind in found] == kinds


def test_what_is_written_where_outputs_are_kept_is_no_checkpoint() -> None:
    mounts = "{/output: {name: my-checkpoints, mode: MOUNT}}"
    spec, left = job_of(f"file_mounts: {mounts}\nrun: python train.py\n")
    assert isinstance(spec.program, Command)
    assert spec.program.checkpoint is None
    assert "file_mounts./output" in left
