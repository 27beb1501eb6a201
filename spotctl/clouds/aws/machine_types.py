"""EC2's instance types as the wheel describes them, for a computer without an account. Pure.

`lists/machine_types.csv` has a row for each family, made from EC2's own descriptions by `python -m
bench.aws_machine_types`. Its column `sizes` has an entry for each size: its name, then `:` and its
vCPUs, `/` and its GiB, `*` and its accelerators, `+` and the GB of its local disks, `@` and the
Gbit/s of its network. vCPUs that follow from the name, and memory that follows from the vCPUs and
the family's `gib_per_vcpu`, are left out.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from importlib.resources import files

from pricing_data.catalog import ARM, NVIDIA_OLD, X86, InstanceType, MachineTraits, driver_of
from pricing_data.units import parse_time

_CLOUD = "aws"
_LIST = "lists/machine_types.csv"
_SIZE = re.compile(r"([^:/*+@]+)(?::(\d+))?(?:/([\d.]+))?(?:\*(\d+))?(?:\+(\d+))?(?:@([\d.]+))?")
# EC2 User Guide, "Key concepts for burstable performance instances": the baseline per vCPU.
_BURSTABLE = frozenset({"t2", "t3", "t3a", "t4g"})
_BASELINES = {
    "nano": 0.05,
    "micro": 0.1,
    "small": 0.2,
    "medium": 0.2,
    "large": 0.3,
    "xlarge": 0.4,
    "2xlarge": 0.4,
}
_OLD_BASELINES = {"xlarge": 0.225, "2xlarge": 0.17}
_MIN_BASELINE = 0.05


FABRIC = (
    "EFA",
    re.compile(
        r"(p4de?|p5|p5en?|p6e?-\w+|trn1n|trn2u?|hpc\w+)\..*|trn1\.32xlarge|g4dn\.((8|12|16)xlarge|metal)"
        r"|(g5|g6|gr6|g6e|g7|g7e)\.(8|12|16|24|48)xlarge|(p3dn|inf1|dl1|dl2q)\.24xlarge"
    ),
)
"""A network between machines that is faster than TCP, and the types with accelerators, or for HPC,
that have one: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa.html"""


def usual_vcpus(size: str) -> int:
    """The vCPUs that most types of a size have.

    >>> usual_vcpus("large"), usual_vcpus("xlarge"), usual_vcpus("12xlarge")
    (2, 4, 48)
    """
    match = re.fullmatch(r"(\d*)xlarge", size)
    return 4 * int(match[1] or 1) if match else 2


def baseline_of(name: str, *, burstable: bool | None = None) -> float:
    """The share of its vCPUs that a type may use all the time. `burstable` is EC2's word on it, if
    EC2 was asked.
    """
    family, _, size = name.partition(".")
    if burstable is None:
        burstable = family in _BURSTABLE
    if not burstable:
        return 1.0
    old = _OLD_BASELINES if family == "t2" else {}
    return {**_BASELINES, **old}.get(size, _MIN_BASELINE)


def shipped() -> tuple[InstanceType, ...]:
    """See `MachineTypesPart`."""
    return tuple(_types().values())


def traits_of(name: str) -> MachineTraits:
    """See `MachineTypesPart`; of a type that is not listed, the letters of its family say how it is
    billed.
    """
    known = _types().get(name)
    return MachineTraits(baseline=baseline_of(name)) if known is None else known.traits


def obstacle(machine: InstanceType) -> str:
    """See `MachineTypesPart`."""
    if machine.traits.architecture not in (None, X86, ARM):
        return "no image of Linux runs on a Mac"
    driver = machine.traits.driver or driver_of(machine.accelerator)
    return (
        f"AWS's image has no driver for its {machine.accelerator}" if driver == NVIDIA_OLD else ""
    )


@cache
def _types() -> Mapping[str, InstanceType]:
    lines = (files(__package__) / _LIST).read_text(encoding="utf-8").splitlines()
    types: dict[str, InstanceType] = {}
    for row in csv.DictReader(lines):
        family, as_of, ratio = row["family"], parse_time(row["asof"]), float(row["gib_per_vcpu"])
        accelerator = row["accelerator"] or None
        gpu_gib = float(row["accelerator_gib"]) if row["accelerator_gib"] else None
        hypervisor, is_spot = row["hypervisor"] or "none", row["spot"] == "yes"
        usual = MachineTraits(
            row["architecture"],
            hypervisor=hypervisor,
            boots=row["boots"],
            spot=is_spot,
            accelerator_gib=gpu_gib,
            driver=driver_of(accelerator),
        )

        traits = cache(partial(replace, usual))
        for entry in row["sizes"].split():
            match = _SIZE.fullmatch(entry)
            assert match is not None, entry
            size, stated, gib, gpus, disk, network = match.groups()
            name, vcpus = f"{family}.{size}", int(stated or usual_vcpus(size))
            memory_gib = float(gib) if gib else vcpus * ratio
            count = int(gpus or 0)
            devices = accelerator if count else None
            gbps = float(network) if network else None
            own = traits(baseline=baseline_of(name), local_disk_gb=float(disk or 0))
            types[name] = InstanceType(
                _CLOUD, name, vcpus, memory_gib, devices, count, gbps, own, as_of
            )

    return types
