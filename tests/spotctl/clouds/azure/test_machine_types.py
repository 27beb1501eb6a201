"""The rules of names of Azure's sizes, against what Azure said of recorded ones."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from pricing_data.catalog import InstanceType, MachineTraits
from pricing_data.units import parse_time
from spotctl.clouds.azure.machine_types import (
    FABRIC,
    accelerator_of,
    obstacle,
    spelled,
    traits_of,
)
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
        is_fast = FABRIC[1].fullmatch(row["size"]) is not None
        assert is_fast == (row["RdmaEnabled"] == "True"), row


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


SPELLINGS = """
    Basic_A0 Standard_A1 Standard_A1_v2 Standard_A2m_v2 Standard_B1ls Standard_B2pts_v2 Standard_D2s_v3 Standard_D2_v3
    Standard_DS1_v2 Standard_DS11-1_v2 Standard_D11_v2_Promo Standard_DC4as_cc_v5 Standard_DC4eds_v5 Standard_E4-2s_v3
    Standard_E96-24ads_v5 Standard_EC2as_v5 Standard_F2s_v2 Standard_FX4mds Standard_G5 Standard_GS5-8 Standard_H16mr
    Standard_HB120-16rs_v3 Standard_HC44rs Standard_HX176rs Standard_L8s_v3 Standard_M128-32ms Standard_M208ms_v2
    Standard_M416s_8_v2 Standard_M176bds_4_v3 Standard_NC6 Standard_NC24r_Promo Standard_NC6s_v3 Standard_NC4as_T4_v3
    Standard_NC24ads_A100_v4 Standard_NC80adis_H100_v5 Standard_NCC40ads_H100_v5 Standard_NC36ds_xl_RTXPRO6000BSE_v6
    Standard_ND40rs_v2 Standard_ND96asr_v4 Standard_ND96amsr_A100_v4 Standard_ND96isr_H200_v5
    Standard_ND96isr_MI300X_v5 Standard_ND128isr_NDR_GB200_v6 Standard_NG32ads_V620_v1 Standard_NP10s
    Standard_NV36adms_A10_v5 Standard_NV24ads_V710_v5 Standard_NV6
""".split()


@pytest.mark.parametrize("name", SPELLINGS)
def test_sizes_in_lower_case_get_the_capitals_of_azure(name: str) -> None:
    assert spelled(name.lower()) == name
    assert spelled(name) == name


ACCELERATORS = {
    "K80": "Standard_NC6 Standard_NC24r Standard_NC12_Promo",
    "P100": "Standard_NC6s_v2 Standard_NC24rs_v2",
    "V100": "Standard_NC6s_v3 Standard_NC24rs_v3 Standard_ND40rs_v2",
    "P40": "Standard_ND6s Standard_ND24rs",
    "M60": "Standard_NV6 Standard_NV12s_v3 Standard_NV24_Promo",
    "MI25": "Standard_NV32as_v4",
    "MI25-slice": "Standard_NV4as_v4",
    "T4": "Standard_NC4as_T4_v3 Standard_NC64as_T4_v3",
    "A10": "Standard_NV36ads_A10_v5 Standard_NV72ads_A10_v5",
    "A10-slice": "Standard_NV6ads_A10_v5 Standard_NV18ads_A10_v5",
    "A100": "Standard_ND96asr_v4",
    "A100-80GB": "Standard_ND96amsr_A100_v4 Standard_NC48ads_A100_v4",
    "H100": "Standard_ND96isr_H100_v5 Standard_NC80adis_H100_v5",
    "H200": "Standard_ND96isr_H200_v5",
    "MI300X": "Standard_ND96isr_MI300X_v5",
    "V620-slice": "Standard_NG8ads_V620_v1",
    "V710": "Standard_NV24ads_V710_v5",
    "GB200": "Standard_ND128isr_NDR_GB200_v6",
    "RTXPRO6000BSE": "Standard_NC144ds_xl_RTXPRO6000BSE_v6",
    "gpu": "Standard_NX7s_v9 Standard_ND96asr_v9 Standard_DC4as_cc_v5",
}


@pytest.mark.parametrize(
    ("accelerator", "name"), [(a, n) for a, names in ACCELERATORS.items() for n in names.split()]
)
def test_accelerators_come_from_the_size_name_if_it_is_unambiguous(
    accelerator: str, name: str
) -> None:
    assert accelerator_of(name) == accelerator
