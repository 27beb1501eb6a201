"""`GcpMachine`: a machine type with the components of its price. Pure."""

from dataclasses import dataclass
from typing import Any

from pricing_data.catalog import ARM, X86, InstanceType, MachineTraits
from pricing_data.errors import BadInput
from pricing_data.market import NO_ZONE, Market
from pricing_data.units import parse_time
from spotctl.clouds.gcp.machine_types import API_NAMES, gpu_name

CLOUD = "gcp"

_OTHER_CARDS = {"a3-megagpu-8g": "nvidia-h100-mega-80gb"}
# The local SSDs that come with a machine.
_BUNDLED_SSDS = {
    **{f"a2-ultragpu-{count}g": count for count in (1, 2, 4, 8)},
    **{f"a3-highgpu-{count}g": 2 * count for count in (1, 2, 4, 8)},
    "a3-megagpu-8g": 16, "a3-ultragpu-8g": 32,
}  # fmt: skip
# These have a fraction of one GPU, which the API counts as a whole one.
_GPU_SHARES = {"g4-standard-6": "1/8", "g4-standard-12": "1/4", "g4-standard-24": "1/2"}


_SSD_GB = 375
_ARCHITECTURES = {"X86_64": X86, "ARM64": ARM}
_RETIRED = ("OBSOLETE", "DELETED")


@dataclass(frozen=True, slots=True)
class GcpMachine:
    """A machine type. `gpu` is the API's name (`nvidia-tesla-a100`); `ssds` counts only bundled local SSDs. `retires`
    is since when it cannot be rented any more."""

    name: str
    vcpus: int
    memory_mib: int
    gpu: str | None = None
    gpus: int = 0
    ssds: int = 0
    architecture: str | None = None
    retires: int | None = None

    @property
    def instance_type(self) -> InstanceType:
        accelerator = gpu_name(self.gpu, _GPU_SHARES.get(self.name)) if self.gpu else None
        traits = MachineTraits(self.architecture, local_disk_gb=self.ssds * _SSD_GB or None, retires=self.retires)
        memory = self.memory_mib / 1024
        return InstanceType(CLOUD, self.name, self.vcpus, memory, accelerator, self.gpus, traits=traits)


def known_machine(known: InstanceType) -> GcpMachine:
    """A machine type from the catalog; one with a GPU of an unknown name will have no price."""
    usual = API_NAMES.get(known.accelerator, known.accelerator) if known.accelerator else None
    gpu = _OTHER_CARDS.get(known.name, usual)
    ssds = _BUNDLED_SSDS.get(known.name, 0)
    return GcpMachine(known.name, known.vcpus, round(known.memory_gib * 1024), gpu, known.accelerators, ssds)


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
        architecture=_ARCHITECTURES.get(record.architecture),
        retires=_retirement(record.deprecated),
    )
    # Reject here, where the record can be named and left out, what the catalog or a market name would reject later.
    Market(CLOUD, "any", NO_ZONE, machine.name)
    if machine.instance_type.accelerators < 0:
        raise BadInput(f"machine type {machine.name} has {machine.gpus} accelerators")
    return machine


def _retirement(status: Any) -> int | None:  # noqa: ANN401  # the SDK's messages are not annotated
    """Since when a type cannot be rented any more; 0 if Google gives no date. A deprecated type can still be rented."""
    if status.state not in _RETIRED:
        return None
    dates = (date for date in (status.obsolete, status.deleted) if date)
    return min(map(parse_time, dates), default=0)
