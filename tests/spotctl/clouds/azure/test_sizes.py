"""The rules of names of Azure's sizes, against what Azure said of recorded ones."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from pricing_data.catalog import InstanceType, MachineTraits
from pricing_data.units import parse_time
from spotctl.clouds.azure.machine_types import obstacle, traits_of
from spotctl.clouds.azure.prices.records import read_type


def test_names_say_what_azure_says(shared_data: Path) -> None:
    with (shared_data / "clouds" / "azure_skus_2025.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) > 30
    for row in rows:
        traits = traits_of(row["size"])
        assert traits.boots == row["HyperVGenerations"].replace(",", " "), row
        assert (
            traits.architecture == {"x64": "x86_64", "Arm64": "arm64"}[row["CpuArchitectureType"]]
        ), row
        assert traits.spot in (None, row["LowPriorityCapable"] == "True"), row
        assert (traits.accelerator_gib is not None) == bool(row["GPUs"]), row


@pytest.mark.parametrize(
    ("name", "baseline"),
    [
        ("B1ls", 0.05),
        ("B2s", 0.2),
        ("B4ms", 0.225),
        ("B16ms", 0.17),
        ("B2ts_v2", 0.2),
        ("B8pls_v2", 0.3),
        ("B4as_v2", 0.4),
    ],
)
def test_burstable_sizes_have_their_baselines(name: str, baseline: float) -> None:
    assert traits_of(f"Standard_{name}").baseline == baseline
    assert traits_of("Standard_D4s_v5").baseline == 1.0


@pytest.mark.parametrize(
    ("name", "gpus", "problem"),
    [
        ("Standard_A1_v2", "", "generation 1"),
        ("Standard_D4_v3", "", "generation 1"),
        ("Standard_E4_v3", "", "generation 1"),
        ("Standard_D4s_v3", "", ""),
        ("Standard_D4ps_v5", "", ""),
        ("Standard_NC24ads_A100_v4", "A100-80GB", ""),
        ("Standard_NC4as_T4_v3", "T4", ""),
        ("Standard_ND96isr_MI300X_v5", "MI300X", ""),
        ("Standard_NV36ads_A10_v5", "A10", "drivers for its A10"),
        ("Standard_NV6ads_A10_v5", "A10-slice", "drivers for its A10-slice"),
        ("Standard_NC6s_v3", "V100", "drivers for its V100"),
        ("Standard_ND128isr_GB200_v6", "GB200", "Arm machines with GPUs"),
    ],
)
def test_a_size_that_the_images_do_not_fit_says_why(name: str, gpus: str, problem: str) -> None:
    found = obstacle(
        InstanceType("azure", name, 4, 16.0, gpus or None, int(bool(gpus)), traits=traits_of(name))
    )
    assert problem in found
    assert bool(problem) == bool(found)


@pytest.mark.parametrize(
    ("name", "day"),
    [
        ("Standard_A4", "2024-08-31"),
        ("Standard_NC6s_v3", "2025-09-30"),
        ("Standard_NC24r", "2023-09-06"),
    ],
)
def test_retired_sizes_have_their_day(name: str, day: str) -> None:
    assert traits_of(name).retires == parse_time(day)
    assert traits_of("Standard_A4_v2").retires is None


def test_the_api_is_read_where_it_says_more_than_the_name() -> None:
    said = {
        "vCPUs": "6", "MemoryGB": "112", "GPUs": "1", "HyperVGenerations": "V1,V2", "CpuArchitectureType": "x64",
        "LowPriorityCapable": "True", "MaxResourceVolumeMB": "344064", "RetirementDateUtc": "09/30/2025",
    }  # fmt: skip
    read = read_type(
        {
            "resourceType": "virtualMachines",
            "name": "Standard_NC6s_v3",
            "capabilities": [{"name": name, "value": value} for name, value in said.items()],
        }
    )
    assert read is not None
    assert read.traits == MachineTraits(
        "x86_64", boots="V1 V2", spot=True, local_disk_gb=344.1, retires=parse_time("2025-09-30")
    )
