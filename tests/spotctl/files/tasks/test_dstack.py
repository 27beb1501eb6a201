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
    assert needs.accelerators == (Accelerators("A100", Range(8, 8), Range(80.0, 80.0)),)
    assert needs.vcpus == Range(16)
    assert (needs.memory_gib, spec.image.disk_gib) == (Range(64.0, 512.0), 200)
    assert (spec.resources.clouds, spec.resources.regions) == (("aws",), ("us-east-1",))
    assert (spec.max_bid, spec.strategy) == (round(2.5 * NANOS_PER_DOLLAR), "auto")
    assert left == ["python", "env.2", "backends", "max_duration", "resources.shm_size"]


@pytest.mark.parametrize(
    ("line", "accelerators"),
    [
        ("gpu: H100", [Accelerators("H100", Range(1))]),
        ("gpu: A100:40GB:4..8", [Accelerators("A100", Range(4, 8), Range(40.0, 40.0))]),
        (
            "gpu: {name: [L4, T4], count: {min: 2}}",
            [Accelerators("L4", Range(2)), Accelerators("T4", Range(2))],
        ),
        ("gpu: nvidia:T4:1", [Accelerators("T4", Range(1, 1))]),
        ("gpu: 24GB", [Accelerators("", Range(1), Range(24.0, 24.0))]),
        ("gpu: 24GB..:2", [Accelerators("", Range(2, 2), Range(24.0))]),
        ("gpu: {memory: 16GB..40GB}", [Accelerators("", Range(1), Range(16.0, 40.0))]),
        ("gpu: 2", [Accelerators("", Range(2, 2), Range(1.0))]),
        ("gpu: 0", []),
    ],
)
def test_a_gpu_of_dstack_has_models_a_memory_and_a_count(
    line: str, accelerators: list[Accelerators]
) -> None:
    spec, _ = job_of(f"type: task\ncommands: [python train.py]\nresources: {{{line}}}\n")
    assert spec.resources.needs.accelerators == tuple(accelerators)
    assert spec.strategy == "on-demand"
