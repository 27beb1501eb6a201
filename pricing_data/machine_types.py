"""Machine types as the clouds' packages describe them without an account: by a shipped table, or by their names."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from typing import Protocol, cast

from pricing_data.catalog import InstanceType
from pricing_data.known_clouds import cloud_names, has_part, part_of
from pricing_data.traits import MachineTraits

_PART = "machine_types"


class MachineTypesPart(Protocol):
    """The part `machine_types` of a cloud's package, which not every cloud has."""

    def shipped(self) -> tuple[InstanceType, ...]:
        """The types that the package lists; maybe none."""
        ...

    def traits_of(self, name: str) -> MachineTraits:
        """Everything that the package knows of a type."""
        ...

    def obstacle(self, machine: InstanceType) -> str:
        """Why the image that spotctl chooses does not run on a type; empty if it does."""
        ...


@cache
def _part(cloud: str) -> MachineTypesPart | None:
    known = cloud in cloud_names() and has_part(cloud, _PART)
    return cast("MachineTypesPart", part_of(cloud, _PART)) if known else None


def shipped_types() -> Iterator[InstanceType]:
    """The types that the clouds' packages list."""
    for cloud in cloud_names():
        if (part := _part(cloud)) is not None:
            yield from part.shipped()


def completed(machines: Iterable[InstanceType]) -> Iterator[InstanceType]:
    """The types with the traits that were unknown, as far as their clouds' packages know them."""
    for machine in machines:
        part = _part(machine.cloud)
        yield machine if part is None else replace(machine, traits=machine.traits.filled(part.traits_of(machine.name)))


def obstacle(machine: InstanceType) -> str:
    """Why the image that spotctl chooses does not run on a type; empty if it does, or if nothing is known."""
    part = _part(machine.cloud)
    return "" if part is None else part.obstacle(machine)
