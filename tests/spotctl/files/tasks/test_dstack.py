"""Tasks of dstack."""

from __future__ import annotations

import pytest

from pricing_data.units import NANOS_PER_DOLLAR
from spotctl.files.job.programs import Command
from spotctl.files.job.spec import Accelerators, Range
from tests.spotctl.files.tasks.test_draft import DSTACK, job_of


def test_a_task_of_dstack_is_a_job() -> None:
    spec, left = job_of(DSTACK)
    needs = spec.resources.needs
    assert isinstance(spec.program, Command)
    assert (spec.program.nodes.most, spec.env, spec.secrets) == (
        2,
        {"NCCL_DEBUG": "INFO"},
        ("HF_TOKEN", "WANDB_API_KEY"),
    )
    assert (needs.accelerators, needs.vcpus) == (Accelerators("A100-80GB", Range(8, 8)), Range(16))
    assert (needs.memory_gib, spec.image.disk_gib) == (Range(64.0, 512.0), 200)
    assert (spec.resources.clouds, spec.resources.regions) == (("aws",), ("us-east-1",))
    assert (spec.max_bid, spec.strategy) == (round(2.5 * NANOS_PER_DOLLAR), "auto")
    assert left == ["python", "env.2", "backends", "max_duration", "resources.shm_size"]


@pytest.mark.parametrize(
    ("line", "accelerators"),
    [
        ("gpu: H100", Accelerators("H100", Range(1))),
        ("gpu: A100:40GB:4..8", Accelerators("A100", Range(4, 8))),
        ("gpu: {name: [L4, T4], count: {min: 2}}", Accelerators("L4", Range(2))),
        ("gpu: nvidia:T4:1", Accelerators("T4", Range(1, 1))),
        ("gpu: 24GB", None),
        ("gpu: 0", None),
    ],
)
def test_a_gpu_of_dstack_is_a_model_with_a_count(
    line: str, accelerators: Accelerators | None
) -> None:
    spec, _ = job_of(f"type: task\ncommands: [python train.py]\nresources: {{{line}}}\n")
    assert spec.resources.needs.accelerators == accelerators
    assert spec.strategy == "on-demand"
