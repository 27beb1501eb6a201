"""`Machine`: a machine type with what its price is composed of. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pricing_data.catalog import InstanceType
from pricing_data.errors import BadInput
from pricing_data.market import NO_ZONE, Market

if TYPE_CHECKING:
    from google.cloud.compute_v1 import MachineType

CLOUD = "gcp"

_CARD = re.compile(r"nvidia-(?:tesla-)?(.+?)(?:-mega)?(?:-\d+gb)?")
# These own a part of one GPU, which the API counts as a whole one.
_GPU_SHARES = {"g4-standard-6": "1/8", "g4-standard-12": "1/4", "g4-standard-24": "1/2"}


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine type. `gpu` is spelt as the API spells it (`nvidia-tesla-a100`); local SSDs only where bundled."""

    name: str
    vcpus: int
    memory_mib: int
    gpu: str | None = None
    gpus: int = 0
    ssds: int = 0

    @property
    def instance_type(self) -> InstanceType:
        """The catalog's entry."""
        accelerator = card(self.gpu, _GPU_SHARES.get(self.name)) if self.gpu else None
        return InstanceType(CLOUD, self.name, self.vcpus, self.memory_mib / 1024, accelerator, self.gpus)


def card(gpu: str, share: str | None = None) -> str:
    """An accelerator's name as other clouds write it, without its maker and its memory.

    >>> card("nvidia-tesla-a100"), card("nvidia-h100-mega-80gb"), card("nvidia-rtx-pro-6000", "1/8")
    ('A100', 'H100', 'RTX-PRO-6000 (1/8)')
    """
    nvidia = _CARD.fullmatch(gpu)
    name = nvidia[1].upper() if nvidia else gpu
    return f"{name} ({share})" if share else name


def machine_of(record: MachineType) -> Machine:
    """The machine that a record of the API describes."""
    first = record.accelerators[0] if record.accelerators else None
    machine = Machine(
        name=record.name,
        vcpus=record.guest_cpus,
        memory_mib=record.memory_mb,
        gpu=first.guest_accelerator_type if first else None,
        gpus=first.guest_accelerator_count if first else 0,
        ssds=record.bundled_local_ssds.partition_count,
    )
    # A record that the catalog or a market's name would refuse is refused here, where it can be named and left out.
    Market(CLOUD, "any", NO_ZONE, machine.name)
    if machine.instance_type.accelerators < 0:
        raise BadInput(f"machine type {machine.name} has {machine.gpus} accelerators")
    return machine
