"""Google Cloud's machine types as their names describe them, for a computer without an account. Pure."""

from __future__ import annotations

from pricing_data.accelerators import GPU_MEMORY_GIB, NVIDIA_OLD, driver_of
from pricing_data.catalog import ARM, X86, InstanceType, MachineTraits
from spotctl.clouds.gcp.gpus import gpu_name, split_type

_ARM_SERIES = frozenset({"a4x", "c4a", "n4a", "t2a"})
# https://cloud.google.com/compute/docs/general-purpose-machines#sharedcore: the share of each vCPU.
_SHARED_CORES = {"f1-micro": 0.2, "g1-small": 0.5, "e2-micro": 0.125, "e2-small": 0.25, "e2-medium": 0.5}
_GPUS = {
    "a2-highgpu": "A100", "a2-megagpu": "A100", "a2-ultragpu": "A100-80GB", "a3-edgegpu": "H100", "a3-highgpu": "H100",
    "a3-megagpu": "H100", "a3-ultragpu": "H200", "a4-highgpu": "B200", "a4x-highgpu": "GB200", "g2-standard": "L4",
    "g4-standard": "RTX-PRO-6000",
}  # fmt: skip


def shipped() -> tuple[InstanceType, ...]:
    """See `MachineTypesPart`; the package lists no types."""
    return ()


def traits_of(name: str) -> MachineTraits:
    """See `MachineTypesPart`."""
    type_, attached = split_type(name)
    series = type_.partition("-")[0]
    accelerator = gpu_name(attached[0]) if attached else _GPUS.get("-".join(type_.split("-")[:2]))
    return MachineTraits(
        ARM if series in _ARM_SERIES else X86,
        _SHARED_CORES.get(type_, 1.0),
        "none" if type_.endswith("-metal") else "kvm",
        "uefi",
        accelerator_gib=GPU_MEMORY_GIB.get(accelerator or ""),
        driver=driver_of(accelerator),
    )


def obstacle(machine: InstanceType) -> str:
    """See `MachineTypesPart`."""
    return f"Google's image has no driver for its {machine.accelerator}" if machine.traits.driver == NVIDIA_OLD else ""
