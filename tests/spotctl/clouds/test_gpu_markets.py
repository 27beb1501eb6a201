"""Types of machines where the API names models of GPUs."""

from __future__ import annotations

import pytest

from spotctl.clouds.gpu_markets import accelerator_of, cuda_of, type_name, types_of


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("nvidia/cuda:12.8.1-cudnn-runtime-ubuntu24.04", 12.8),
        ("pytorch/pytorch:2.9.1-cuda13.0-cudnn9-runtime", 13.0),
        ("ghcr.io/me/train:2.9.1-cu126", 12.6),
        ("ghcr.io/me/train:1", 12.8),
    ],
)
def test_an_image_says_which_driver_it_needs(image: str, version: float) -> None:
    assert cuda_of(image) == version


@pytest.mark.parametrize(
    ("model", "gib", "name", "accelerator"),
    [
        ("RTX 4090", 24, "2xRTX_4090", "RTX4090"),
        ("A100 SXM4", 80, "2xA100_SXM4+80GB", "A100-80GB"),
        ("A100 PCIE", 40, "2xA100_PCIE", "A100"),
    ],
)
def test_a_type_has_the_model_as_other_clouds_write_it(
    model: str, gib: float, name: str, accelerator: str
) -> None:
    assert type_name(model, 2, gib) == name
    assert accelerator_of(name.partition("x")[2]) == accelerator


def test_a_type_promises_what_each_of_its_machines_has() -> None:
    (kind,) = types_of("runpod", [("2xRTX_4090", 24.0), ("2xRTX_4090", 23.5)])
    assert (kind.vcpus, kind.memory_gib, kind.accelerators) == (8, 16.0, 2)
    assert kind.traits.accelerator_gib == 24
