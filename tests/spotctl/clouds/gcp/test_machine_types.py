"""What the names of Google's machine types say."""

from __future__ import annotations

import pytest

from pricing_data.catalog import InstanceType
from pricing_data.market import Market
from spotctl.clouds.gcp.machine_types import obstacle, split_type, traits_of


@pytest.mark.parametrize(
    ("name", "architecture", "baseline", "driver"),
    [
        ("e2-micro", "x86_64", 0.125, None),
        ("e2-standard-2", "x86_64", 1.0, None),
        ("c4a-standard-4", "arm64", 1.0, None),
        ("t2a-standard-1", "arm64", 1.0, None),
        ("a2-ultragpu-1g", "x86_64", 1.0, "nvidia"),
        ("n1-standard-8+1-nvidia-tesla-t4", "x86_64", 1.0, "nvidia"),
        ("n1-standard-8+2-nvidia-tesla-v100", "x86_64", 1.0, "nvidia-old"),
    ],
)
def test_a_name_says_what_a_type_is(
    name: str, architecture: str, baseline: float, driver: str | None
) -> None:
    traits = traits_of(name)
    assert (traits.architecture, traits.baseline, traits.driver) == (architecture, baseline, driver)
    shown = InstanceType("gcp", name, 2, 8.0, "V100", 1, traits=traits)
    expected = "Google's image has no driver for its V100" if driver == "nvidia-old" else ""
    assert obstacle(shown) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n1-standard-8", ("n1-standard-8", None)),
        ("n1-standard-8+2-nvidia-tesla-t4", ("n1-standard-8", ("nvidia-tesla-t4", 2))),
        ("a2-highgpu-1g", ("a2-highgpu-1g", None)),
    ],
)
def test_gpus_are_attached_by_the_name_of_the_type(
    text: str, expected: tuple[str, tuple[str, int] | None]
) -> None:
    assert split_type(text) == expected
    assert Market("gcp", "us-central1", "-", text).instance_type == text
