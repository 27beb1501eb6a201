"""Azure's machine sizes: their hardware, as the API describes it."""

import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation

from pricing_data.catalog import ARM, X86, InstanceType, MachineTraits
from pricing_data.errors import BadInput
from pricing_data.units import parse_time
from spotctl.clouds.azure.machine_types import accelerator_of, spelled
from spotctl.clouds.azure.prices.records import listed, number, text
from spotctl.clouds.errors import ApiRecord

_ARCHITECTURES = {"x64": X86, "Arm64": ARM}


def read_type(sku: ApiRecord) -> InstanceType | None:
    """The instance type that a compute SKU describes; `None` for other SKUs (disks, hosts, snapshots)."""
    if text(sku, "resourceType").lower() != "virtualmachines":
        return None
    return machine_of(spelled(text(sku, "name")), _capabilities(sku))


def machine_of(name: str, capabilities: ApiRecord) -> InstanceType:
    """The instance type of a size with these capabilities."""
    gpus = _amount(capabilities, "GPUs") if "GPUs" in capabilities else Decimal(0)
    return InstanceType(
        cloud="azure",
        name=name,
        # A size with constrained cores is made from more vCPUs than the machine can use.
        vcpus=int(_amount(capabilities, "vCPUsAvailable" if "vCPUsAvailable" in capabilities else "vCPUs")),
        memory_gib=float(_amount(capabilities, "MemoryGB")),
        accelerator=_accelerator(name, gpus),
        accelerators=max(int(gpus), 1) if gpus else 0,
        traits=_traits(capabilities),
    )


def _traits(capabilities: ApiRecord) -> MachineTraits:
    """The facts that Azure states itself; the others follow from the name."""
    spot = capabilities.get("LowPriorityCapable")
    generations = capabilities.get("HyperVGenerations")
    return MachineTraits(
        _ARCHITECTURES.get(str(capabilities.get("CpuArchitectureType"))),
        boots=" ".join(generations.split(",")) if isinstance(generations, str) and generations else None,
        spot=None if spot is None else spot == "True",
        local_disk_gb=_local_disk_gb(capabilities),
        retires=_retirement(capabilities.get("RetirementDateUtc")),
    )


def _local_disk_gb(capabilities: ApiRecord) -> float | None:
    name = "MaxResourceVolumeMB"
    return float(round(_amount(capabilities, name) / 1000, 1)) if capabilities.get(name) else None


def _retirement(date: object) -> int | None:
    """Azure writes the month first: `09/30/2025`."""
    match = re.match(r"(\d\d)/(\d\d)/(\d{4})", str(date))
    return parse_time(f"{match[3]}-{match[1]}-{match[2]}") if match else None


def _accelerator(name: str, gpus: Decimal) -> str | None:
    if not gpus:
        return None
    accelerator = accelerator_of(name)
    return accelerator if gpus >= 1 or accelerator.endswith("-slice") else f"{accelerator}-slice"


def _capabilities(sku: ApiRecord) -> ApiRecord:
    pairs = (pair for pair in listed(sku, "capabilities") if isinstance(pair, Mapping))
    return {pair["name"]: pair.get("value") for pair in pairs if isinstance(pair.get("name"), str)}


def _amount(capabilities: ApiRecord, name: str) -> Decimal:
    digits = number(capabilities, name)
    try:
        amount = Decimal(digits)
    except InvalidOperation:
        raise BadInput(f"{name} is {digits!r}, not a number") from None
    if not amount.is_finite() or amount < 0:
        raise BadInput(f"{name} is {digits}, not a number of at least 0")
    return amount
