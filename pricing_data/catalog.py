"""`Catalog`: the hardware of instance types, and their on-demand prices.

Machine types come from the clouds' packages (by a shipped table, or by their names), and from the
clouds themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Protocol, cast

from pricing_data.errors import BadInput, UnknownInstanceType, UnknownPrice
from pricing_data.known_clouds import cloud_names, has_part, part_of
from pricing_data.list_prices import ListPrices, shipped
from pricing_data.market import Market, closest

X86, ARM = "x86_64", "arm64"
XEN = "xen"
"""The hypervisor of EC2's types before Nitro."""


@dataclass(frozen=True, slots=True, order=True)
class MachineTraits:
    """Facts beyond a type's size; None where they are unknown.

    `baseline` is the share of its vCPUs that a burstable type may use all the time; it is 1 for
    other types. `boots` lists the ways in which its machines boot, in the cloud's words
    (`legacy-bios uefi`, `V1`), and `driver` is the family of drivers that its accelerators need.
    `spot` says whether it is sold as spot machines, `retires` since when it is not sold any more.
    """

    architecture: str | None = None
    baseline: float | None = None
    hypervisor: str | None = None
    boots: str | None = None
    spot: bool | None = None
    accelerator_gib: float | None = None
    driver: str | None = None
    local_disk_gb: float | None = None
    retires: int | None = None

    def filled(self, other: MachineTraits) -> MachineTraits:
        """These facts, with those of `other` where they are unknown."""
        known = (getattr(self, field.name) for field in fields(self))
        others = (getattr(other, field.name) for field in fields(other))
        pairs = zip(known, others, strict=True)
        return MachineTraits(*(second if first is None else first for first, second in pairs))


NO_TRAITS = MachineTraits()


@dataclass(frozen=True, slots=True, order=True)
class InstanceType:
    """The hardware of an instance type. `None` where the cloud does not publish it (mostly the
    network speed).

    `as_of` is the date of the list that a shipped one is from; None if the cloud itself described
    the type.
    """

    cloud: str
    name: str
    vcpus: int
    memory_gib: float
    accelerator: str | None = None
    accelerators: int = 0
    network_gbps: float | None = None
    traits: MachineTraits = NO_TRAITS
    as_of: int | None = field(default=None, compare=False)

    @property
    def steady_vcpus(self) -> float:
        """The vCPUs that a machine may use all the time: of a burstable type, only a share."""
        return self.vcpus * (self.traits.baseline or 1.0)

    @property
    def is_burstable(self) -> bool:
        return self.steady_vcpus < self.vcpus

    def __post_init__(self) -> None:
        if self.vcpus <= 0 or self.memory_gib <= 0:
            raise BadInput(
                f"instance type {self.cloud}/{self.name}: {self.vcpus} vCPUs, {self.memory_gib:g} "
                "GiB; both must be above 0"
            )
        if (self.accelerator is None) != (self.accelerators == 0):
            raise BadInput(
                f"instance type {self.cloud}/{self.name}: {self.accelerators} accelerators named "
                f"{self.accelerator!r}"
            )


@dataclass(frozen=True, slots=True, order=True)
class OnDemandPrice:
    """The on-demand price of a type in a region, in nano-dollars per hour, as of a time."""

    cloud: str
    region: str
    instance_type: str
    os: str
    as_of: int
    price: int
    source: str

    def __post_init__(self) -> None:
        if self.price <= 0:
            raise BadInput(
                f"on-demand price of {self.cloud}/{self.region}/{self.instance_type} is "
                f"{self.price}; it must be above 0"
            )


@dataclass(frozen=True)
class Catalog:
    """Instance types and on-demand prices by market. An unknown value raises; it is never 0 or a
    guess.

    If two entries describe the same type, the later one wins: fetched entries come after the
    shipped ones. `lists` are the prices of what machines need besides: egress, disks, addresses.
    """

    types: tuple[InstanceType, ...] = ()
    prices: tuple[OnDemandPrice, ...] = ()
    lists: ListPrices = field(default_factory=shipped)
    _types: dict[tuple[str, str], InstanceType] = field(init=False, repr=False, compare=False)
    _prices: dict[tuple[str, str, str, str], list[OnDemandPrice]] = field(
        init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        by_name = {(t.cloud, t.name): t for t in self.types}
        object.__setattr__(self, "_types", by_name)
        latest: dict[tuple[str, str, str, str], dict[int, OnDemandPrice]] = {}
        for price in self.prices:
            offer = (price.cloud, price.region, price.instance_type, price.os)
            latest.setdefault(offer, {})[price.as_of] = price

        by_offer = {
            offer: [moments[at] for at in sorted(moments)] for offer, moments in latest.items()
        }
        object.__setattr__(self, "_prices", by_offer)

    def instance_type(self, cloud: str, name: str) -> InstanceType:
        """Raises `UnknownInstanceType` if the catalog does not describe the type."""
        try:
            return self._types[cloud, name]
        except KeyError:
            raise UnknownInstanceType(
                f"instance type {cloud}/{name} is not in the catalog (run spotctl prices fetch "
                f"--cloud {cloud})"
            ) from None

    def knows(self, cloud: str, name: str) -> bool:
        return (cloud, name) in self._types

    @property
    def accelerators(self) -> set[str]:
        """The models of all machines."""
        return {machine.accelerator for machine in self.types if machine.accelerator is not None}

    def unknown_accelerator(
        self, written: str, clouds: Iterable[str], known: Iterable[str] = ()
    ) -> str:
        """A sentence about a model that no machine has: the one that was probably meant, or all
        `known` ones; and which of the clouds have machines that are still to be fetched.
        """
        names = sorted(known or self.accelerators)
        near = closest(written.upper(), names)
        question = f"did you mean {near[0]}?" if near else f"known: {', '.join(names)}"
        without_list = set(clouds) - {machine.cloud for machine in self.types}
        unread = sorted(without_list)
        named, options = ", ".join(unread), "".join(f" --cloud {cloud}" for cloud in unread)
        fetch = f"; those of {named} are not known yet: run spotctl prices fetch{options}"
        problem = f"no known machine has the accelerator {written} ({question})"
        return problem + (fetch if unread else "")

    def on_demand(self, market: Market, at: int | None = None) -> OnDemandPrice:
        """The on-demand price of a spot market's type: the one dated nearest to `at`, or the
        newest.

        On-demand prices change once in years, so a list from two weeks later is better than one
        from eight months earlier. A caller that must not look ahead passes the catalog of that day;
        `as_of` dates the price.
        """
        known = self._prices.get((market.cloud, market.region, market.instance_type, market.os))
        if not known:
            raise UnknownPrice(
                f"no on-demand price of {market.instance_type} ({market.os}) in "
                f"{market.cloud}/{market.region} is known"
                " (import one: spotctl prices import FILE --on-demand TABLE)"
            )
        if at is None:
            return known[-1]
        return min(known, key=lambda price: abs(price.as_of - at))

    def merged(self, newer: Catalog) -> Catalog:
        """Both catalogs; `newer` wins where both have the same type, or a price of the same
        time."""
        types = self.types + newer.types
        prices = self.prices + newer.prices
        lists = self.lists.merged(newer.lists)
        return Catalog(types, prices, lists)


_PART = "machine_types"


class MachineTypesPart(Protocol):
    """The part `machine_types` of a cloud's package, which not every cloud has. A package that
    lists types has the function `shipped`, too, which returns them."""

    traits_of: Callable[[str], MachineTraits]
    """Everything that the package knows of a type."""
    obstacle: Callable[[InstanceType], str]
    """Why the image that spotctl chooses does not run on a type; empty if it does."""


@cache
def _part(cloud: str) -> MachineTypesPart | None:
    known = cloud in cloud_names() and has_part(cloud, _PART)
    if known:
        return cast("MachineTypesPart", part_of(cloud, _PART))
    return None


def shipped_types() -> Iterator[InstanceType]:
    """The types that the clouds' packages list."""
    for cloud in cloud_names():
        part = _part(cloud)
        if part is not None and hasattr(part, "shipped"):
            yield from part.shipped()


def completed(machines: Iterable[InstanceType]) -> Iterator[InstanceType]:
    """The types with the traits that were unknown, as far as their clouds' packages know them."""
    for machine in machines:
        part = _part(machine.cloud)
        yield (
            machine
            if part is None
            else replace(machine, traits=machine.traits.filled(part.traits_of(machine.name)))
        )


def obstacle(machine: InstanceType) -> str:
    """Why the image that spotctl chooses does not run on a type; empty if it does, or if nothing is
    known.
    """
    part = _part(machine.cloud)
    if part is None:
        return ""
    return part.obstacle(machine)


GPU_MEMORY_GIB = {
    "A10": 24, "A100": 40, "A100-80GB": 80, "A10G": 24, "B200": 180, "GB200": 186, "H100": 80, "H200": 141, "K520": 4,
    "K80": 12, "L4": 24, "L40S": 48, "M60": 8, "MI300X": 192, "P100": 16, "P4": 8, "P40": 24, "T4": 16, "V100": 16,
    "V100-32GB": 32,
}  # fmt: skip
"""Memory of one GPU."""

NVIDIA, NVIDIA_OLD, NVIDIA_VGPU, AMD, NEURON = (
    "nvidia",
    "nvidia-old",
    "nvidia-vgpu",
    "amd",
    "neuron",
)

# NVIDIA's open kernel modules support only the Turing generation and later ones.
_OLD = frozenset({"K520", "K80", "M2050", "M60", "P4", "P40", "P100", "V100", "V100-32GB"})
_FIRST_WORDS = {
    NVIDIA: (
        "A10",
        "A100",
        "A10G",
        "B200",
        "B300",
        "GB200",
        "GB300",
        "H100",
        "H200",
        "L4",
        "L40S",
        "RTX",
        "T4",
        "T4g",
    ),
    AMD: ("MI25", "MI300X", "Radeon", "V620", "V710"),
    NEURON: ("Inferentia", "Inferentia2", "Trainium", "Trainium2"),
}
_FAMILIES = {word: family for family, words in _FIRST_WORDS.items() for word in words}


def is_model(accelerator: str, wanted: str) -> bool:
    """Whether an accelerator is of the wanted model, or a variant of it.

    >>> is_model("A100-80GB", "a100"), is_model("L40S", "L4"), is_model("L4 (1/8)", "L4")
    (True, False, False)
    """
    name, model = accelerator.upper(), wanted.upper()
    return name == model or (name.startswith(f"{model}-") and not name.endswith("-SLICE"))


def driver_of(accelerator: str | None) -> str | None:
    """The family of an accelerator's drivers; None if it is unknown, or if there is no accelerator.

    >>> driver_of("V100"), driver_of("A100-80GB"), driver_of("L4 (1/8)"), driver_of("RTX-PRO-6000"), driver_of("Gaudi")
    ('nvidia-old', 'nvidia', 'nvidia', 'nvidia', None)
    """
    if accelerator is None:
        return None
    if accelerator in _OLD:
        return NVIDIA_OLD
    first_word = accelerator.partition(" ")[0]
    family = first_word.partition("-")[0]
    return _FAMILIES.get(family)
