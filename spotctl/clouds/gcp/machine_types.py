"""Google Cloud's machine types as their names describe them, for a computer without an account.
Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pricing_data.catalog import (
    ARM,
    GPU_MEMORY_GIB,
    NVIDIA_OLD,
    X86,
    InstanceType,
    MachineTraits,
    driver_of,
)
from pricing_data.sources.public_catalog import NO_GPUS

_ARM_SERIES = frozenset({"a4x", "c4a", "n4a", "t2a"})
# https://cloud.google.com/compute/docs/general-purpose-machines#sharedcore: the share of each vCPU.
_SHARED_CORES = {
    "f1-micro": 0.2,
    "g1-small": 0.5,
    "e2-micro": 0.125,
    "e2-small": 0.25,
    "e2-medium": 0.5,
}
_GPUS = {
    "a2-highgpu": "A100", "a2-megagpu": "A100", "a2-ultragpu": "A100-80GB", "a3-edgegpu": "H100", "a3-highgpu": "H100",
    "a3-megagpu": "H100", "a3-ultragpu": "H200", "a4-highgpu": "B200", "a4x-highgpu": "GB200", "g2-standard": "L4",
    "g4-standard": "RTX-PRO-6000",
}  # fmt: skip


FABRIC = "GPUDirect", re.compile(r"a3-(high|mega|ultra)gpu-8g|a4x?-.*")
"""See `MachineTypesPart`: https://cloud.google.com/compute/docs/gpus/gpudirect"""

NOT_ON_DEMAND = re.compile(r"a3-highgpu-[124]g|a3-ultragpu-.*|a4x?-.*")
"""See `MachineTypesPart`: types that are sold as spot, Flex-start or reserved only, although they
have a list price: https://cloud.google.com/ai-hypercomputer/docs/consumption-models, as of December
2026."""

NEVER_SPOT = frozenset("m2 m3 x4".split())
"""Series that are not sold as spot: https://cloud.google.com/compute/docs/instances/spot, as of
November 2026."""


def traits_of(name: str) -> MachineTraits:
    """See `MachineTypesPart`."""
    type_, attached = split_type(name)
    series = type_.partition("-")[0]
    accelerator = gpu_name(attached[0]) if attached else _GPUS.get("-".join(type_.split("-")[:2]))
    architecture = ARM if series in _ARM_SERIES else X86
    hypervisor = "none" if type_.endswith("-metal") else "kvm"
    gpu_gib, driver = GPU_MEMORY_GIB.get(accelerator or ""), driver_of(accelerator)
    share = _SHARED_CORES.get(type_, 1.0)
    return MachineTraits(
        architecture, share, hypervisor, "uefi", accelerator_gib=gpu_gib, driver=driver
    )


def obstacle(machine: InstanceType) -> str:
    """See `MachineTypesPart`."""
    return (
        f"Google's image has no driver for its {machine.accelerator}"
        if machine.traits.driver == NVIDIA_OLD
        else ""
    )


API_NAMES = {
    "A100": "nvidia-tesla-a100", "A100-80GB": "nvidia-a100-80gb", "H100": "nvidia-h100-80gb",
    "H200": "nvidia-h200-141gb", "L4": "nvidia-l4",
}  # fmt: skip
"""The API's names of the GPUs in the shipped catalog."""
_CARD = re.compile(r"nvidia-(?:tesla-)?(.+?)(?:-mega)?(?:-\d+gb)?")
_ATTACHED = re.compile(r"(?P<type>[a-z0-9-]+)\+(?P<count>\d+)-(?P<card>[a-z0-9-]+)")
_NAMES = {gpu: name for name, gpu in API_NAMES.items()}


def gpu_name(gpu: str, share: str | None = None) -> str:
    """An accelerator's name as other clouds write it: without maker, and without a memory size that
    all of them have.

    >>> gpu_name("nvidia-a100-80gb"), gpu_name("nvidia-h100-mega-80gb"), gpu_name("nvidia-rtx-pro-6000", "1/8")
    ('A100-80GB', 'H100', 'RTX-PRO-6000 (1/8)')
    """
    nvidia = _CARD.fullmatch(gpu)
    name = _NAMES.get(gpu) or (nvidia[1].upper() if nvidia else gpu)
    return f"{name} ({share})" if share else name


def catalog_gpus(counts: Mapping[str, int], name: str) -> tuple[str, int] | None:
    """See `OwnGpus`; `counts` are the numbers of GPUs of known types.

    >>> catalog_gpus({}, "a3-megagpu-8g"), catalog_gpus({"g2-standard-24": 2}, "g2-standard-24")
    (('H100-MEGA', 8), ('L4', 2))
    >>> catalog_gpus({}, "n2-standard-8"), catalog_gpus({}, "a9-ultragpu-8g")
    (('', 0), None)
    """
    family = "-".join(name.split("-")[:2])
    counted = re.search(r"-(\d+)g(-nolssd)?$", name)
    count = counts.get(name, int(counted[1]) if counted else 0)
    if family in _GPUS and count:
        return ("H100-MEGA" if family == "a3-megagpu" else _GPUS[family]), count
    # A series of which this version knows nothing may have GPUs, too.
    may_have_gpus = "gpu" in name or re.match(r"g\d", name) or count
    return None if may_have_gpus else NO_GPUS


def split_type(instance_type: str) -> tuple[str, tuple[str, int] | None]:
    """The machine type and its attached GPUs.

    N1 machines get GPUs attached (`n1-standard-8+2-nvidia-tesla-t4`); types such as a2, a3 and g2
    have their own.
    """
    match = _ATTACHED.fullmatch(instance_type)
    return (match["type"], (match["card"], int(match["count"]))) if match else (instance_type, None)
