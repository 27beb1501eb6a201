"""Parser of machine types."""

from __future__ import annotations

import pytest
from google.cloud import compute_v1

from pricing_data.catalog import InstanceType, MachineTraits
from pricing_data.errors import BadInput
from pricing_data.units import parse_time
from spotctl.clouds.gcp.prices.records import GcpMachine, machine_of
from tests.servers.gcp import machine


def test_a_machine_without_accelerators() -> None:
    held = machine("n1-highcpu-2", 2, 1.8)
    assert machine_of(held).instance_type == InstanceType("gcp", "n1-highcpu-2", 2, 1843 / 1024)


def test_a_machine_with_accelerators_and_local_ssds() -> None:
    held = machine("a2-ultragpu-2g", 24, 340, gpus=("nvidia-a100-80gb", 2), ssds=2)
    assert machine_of(held) == GcpMachine(
        "a2-ultragpu-2g", 24, 340 * 1024, "nvidia-a100-80gb", 2, 2
    )
    assert machine_of(held).instance_type == InstanceType(
        "gcp", "a2-ultragpu-2g", 24, 340.0, "A100-80GB", 2, traits=MachineTraits(local_disk_gb=750)
    )


def test_a_fraction_of_a_gpu_is_not_a_whole_one() -> None:
    held = machine("g4-standard-6", 6, 22, gpus=("nvidia-rtx-pro-6000", 1))
    assert machine_of(held).instance_type.accelerator == "RTX-PRO-6000 (1/8)"


BAD_MACHINES = {
    "no name": machine("", 4, 16),
    "a name no market can carry": machine("n2 standard/4", 4, 16),
    "no vCPUs": machine("n2-standard-4", 0, 16),
    "no memory": machine("n2-standard-4", 4, 0),
    "no kind of accelerator": machine("a2-highgpu-1g", 12, 85, gpus=("", 1)),
    "no accelerators of a kind": machine("a2-highgpu-1g", 12, 85, gpus=("nvidia-tesla-a100", 0)),
    "fewer accelerators than none": machine(
        "a2-highgpu-1g", 12, 85, gpus=("nvidia-tesla-a100", -1)
    ),
}


@pytest.mark.parametrize("bad", BAD_MACHINES.values(), ids=BAD_MACHINES.keys())
def test_an_invalid_machine_is_rejected(bad: compute_v1.MachineType) -> None:
    with pytest.raises(BadInput):
        machine_of(bad)


def test_the_api_says_which_processors_a_type_has_and_whether_it_can_still_be_rented() -> None:
    held = machine("t2a-standard-4", 4, 16)
    held.architecture = "ARM64"
    assert machine_of(held).instance_type.traits == MachineTraits(architecture="arm64")
    held.deprecated = compute_v1.DeprecationStatus(state="DEPRECATED")
    assert machine_of(held).retires is None
    held.deprecated = compute_v1.DeprecationStatus(
        state="OBSOLETE", obsolete="2026-03-01T00:00:00Z"
    )
    assert machine_of(held).retires == parse_time("2026-03-01T00:00:00Z")
    held.deprecated = compute_v1.DeprecationStatus(state="DELETED")
    assert machine_of(held).retires == 0
