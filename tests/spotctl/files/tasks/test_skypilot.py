"""Tasks of SkyPilot."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from spotctl.files.job.programs import Command
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
    assert spec.resources.clouds == ("gcp", "aws", "azure")
