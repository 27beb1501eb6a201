"""`GcpMachine`: a machine type with the components of its price. Pure."""

import re
from dataclasses import dataclass
from typing import Any

from pricing_data.catalog import InstanceType
from pricing_data.errors import BadInput
from pricing_data.market import NO_ZONE, Market

CLOUD = "gcp"

_CARD = re.compile(r"nvidia-(?:tesla-)?(.+?)(?:-mega)?(?:-\d+gb)?")
# The API's names of the GPUs in the shipped catalog, and the local SSDs that come with a machine.
_CARDS = {
    "A100": "nvidia-tesla-a100", "A100-80GB": "nvidia-a100-80gb", "H100": "nvidia-h100-80gb",
    "H200": "nvidia-h200-141gb", "L4": "nvidia-l4",
}  # fmt: skip
_OTHER_CARDS = {"a3-megagpu-8g": "nvidia-h100-mega-80gb"}
_NAMES = {gpu: name for name, gpu in _CARDS.items()}
_BUNDLED_SSDS = {
    **{f"a2-ultragpu-{count}g": count for count in (1, 2, 4, 8)},
    **{f"a3-highgpu-{count}g": 2 * count for count in (1, 2, 4, 8)},
    "a3-megagpu-8g": 16, "a3-ultragpu-8g": 32,
}  # fmt: skip
# These have a fraction of one GPU, which the API counts as a whole one.
_GPU_SHARES = {"g4-standard-6": "1/8", "g4-standard-12": "1/4", "g4-standard-24": "1/2"}


@dataclass(frozen=True, slots=True)
class GcpMachine:
    """A machine type. `gpu` is the API's name (`nvidia-tesla-a100`); `ssds` counts only bundled local SSDs."""

    name: str
    vcpus: int
    memory_mib: int
    gpu: str | None = None
    gpus: int = 0
    ssds: int = 0

    @property
    def instance_type(self) -> InstanceType:
        accelerator = card(self.gpu, _GPU_SHARES.get(self.name)) if self.gpu else None
        return InstanceType(CLOUD, self.name, self.vcpus, self.memory_mib / 1024, accelerator, self.gpus)


def known_machine(known: InstanceType) -> GcpMachine:
    """A machine type from the catalog; one with a GPU of an unknown name will have no price."""
    usual = _CARDS.get(known.accelerator, known.accelerator) if known.accelerator else None
    gpu = _OTHER_CARDS.get(known.name, usual)
    ssds = _BUNDLED_SSDS.get(known.name, 0)
    return GcpMachine(known.name, known.vcpus, round(known.memory_gib * 1024), gpu, known.accelerators, ssds)


def card(gpu: str, share: str | None = None) -> str:
    """An accelerator's name as other clouds write it: without maker, and without a memory size that all of them have.

    >>> card("nvidia-a100-80gb"), card("nvidia-h100-mega-80gb"), card("nvidia-rtx-pro-6000", "1/8")
    ('A100-80GB', 'H100', 'RTX-PRO-6000 (1/8)')
    """
    nvidia = _CARD.fullmatch(gpu)
    name = _NAMES.get(gpu) or (nvidia[1].upper() if nvidia else gpu)
    return f"{name} ({share})" if share else name


def machine_of(record: Any) -> GcpMachine:  # noqa: ANN401  # the SDK's messages are not annotated
    """The machine type that a record of the API describes."""
    first = record.accelerators[0] if record.accelerators else None
    machine = GcpMachine(
        name=record.name,
        vcpus=record.guest_cpus,
        memory_mib=record.memory_mb,
        gpu=first.guest_accelerator_type if first else None,
        gpus=first.guest_accelerator_count if first else 0,
        ssds=record.bundled_local_ssds.partition_count,
    )
    # Reject here, where the record can be named and left out, what the catalog or a market name would reject later.
    Market(CLOUD, "any", NO_ZONE, machine.name)
    if machine.instance_type.accelerators < 0:
        raise BadInput(f"machine type {machine.name} has {machine.gpus} accelerators")
    return machine
