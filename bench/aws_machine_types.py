"""EC2's instance types in the wheel: `python -m bench.aws_machine_types >
spotctl/clouds/aws/lists/machine_types.csv`.

The descriptions are those that moto records from EC2's DescribeInstanceTypes.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from importlib.resources import files

from pricing_data.catalog import InstanceType
from spotctl.clouds.aws.machine_types import usual_vcpus
from spotctl.clouds.aws.prices.records import instance_type

HEADER = (
    "asof,family,architecture,hypervisor,boots,spot,accelerator,accelerator_gib,gib_per_vcpu,sizes"
)


def recorded() -> list[InstanceType]:
    """Every type that moto describes."""
    packed = (files("moto") / "ec2/resources/instance_types.json.gz").read_bytes()
    return [instance_type(record) for record in json.loads(gzip.decompress(packed)).values()]


def lines(machines: Iterable[InstanceType], as_of: str) -> Iterator[str]:
    """The table: the sizes of a family that differ in nothing but size share a row."""
    alike: dict[tuple[str, ...], list[InstanceType]] = defaultdict(list)
    for machine in machines:
        traits, family = machine.traits, machine.name.partition(".")[0]
        hypervisor = "" if traits.hypervisor == "none" else traits.hypervisor or ""
        gib = "" if traits.accelerator_gib is None else f"{traits.accelerator_gib:g}"
        ways = (
            traits.architecture or "",
            hypervisor,
            traits.boots or "",
            "yes" if traits.spot else "no",
        )
        alike[family, *ways, machine.accelerator or "", gib].append(machine)
    yield HEADER
    for (family, *same), members in sorted(alike.items()):
        ratio = Counter(machine.memory_gib / machine.vcpus for machine in members).most_common(1)[
            0
        ][0]
        members.sort(key=lambda machine: (machine.vcpus, machine.name))
        yield ",".join(
            (as_of, family, *same, f"{ratio:g}", " ".join(_entries(members, float(f"{ratio:g}"))))
        )


def _entries(members: Sequence[InstanceType], ratio: float) -> Iterator[str]:
    for machine in members:
        size, disk = machine.name.partition(".")[2], machine.traits.local_disk_gb
        parts = [size]
        if machine.vcpus != usual_vcpus(size):
            parts.append(f":{machine.vcpus}")
        if machine.memory_gib != machine.vcpus * ratio:
            parts.append(f"/{machine.memory_gib!r}".removesuffix(".0"))
        if machine.accelerators:
            parts.append(f"*{machine.accelerators}")
        if disk:
            parts.append(f"+{disk:.0f}")
        if machine.network_gbps is not None:
            parts.append(f"@{machine.network_gbps!r}".removesuffix(".0"))
        yield "".join(parts)


if __name__ == "__main__":
    today = datetime.now(UTC).date().isoformat()
    sys.stdout.writelines(f"{line}\n" for line in lines(recorded(), today))
