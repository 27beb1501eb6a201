"""`Catalog`: the hardware of instance types, and their on-demand prices."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from pricing_data.errors import BadInput, UnknownInstanceType, UnknownPrice
from pricing_data.list_prices import ListPrices, shipped
from pricing_data.market import Market
from pricing_data.spelling import closest
from pricing_data.traits import NO_TRAITS, MachineTraits


@dataclass(frozen=True, slots=True, order=True)
class InstanceType:
    """The hardware of an instance type. `None` where the cloud does not publish it (mostly the network speed).

    `as_of` is the date of the list that a shipped one is from; None if the cloud itself described the type.
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
                f"instance type {self.cloud}/{self.name}: {self.vcpus} vCPUs, {self.memory_gib:g} GiB;"
                " both must be above 0"
            )
        if (self.accelerator is None) != (self.accelerators == 0):
            raise BadInput(
                f"instance type {self.cloud}/{self.name}: {self.accelerators} accelerators named {self.accelerator!r}"
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
                f"on-demand price of {self.cloud}/{self.region}/{self.instance_type} is {self.price};"
                " it must be above 0"
            )


@dataclass(frozen=True)
class Catalog:
    """Instance types and on-demand prices by market. An unknown value raises; it is never 0 or a guess.

    If two entries describe the same type, the later one wins: fetched entries come after the shipped ones. `lists` are
    the prices of what machines need besides: egress, disks, addresses.
    """

    types: tuple[InstanceType, ...] = ()
    prices: tuple[OnDemandPrice, ...] = ()
    lists: ListPrices = field(default_factory=shipped)
    _types: dict[tuple[str, str], InstanceType] = field(init=False, repr=False, compare=False)
    _prices: dict[tuple[str, str, str, str], list[OnDemandPrice]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_types", {(t.cloud, t.name): t for t in self.types})
        object.__setattr__(self, "_prices", _by_offer(self.prices))

    def instance_type(self, cloud: str, name: str) -> InstanceType:
        """Raises `UnknownInstanceType` if the catalog does not describe the type."""
        try:
            return self._types[cloud, name]
        except KeyError:
            raise UnknownInstanceType(
                f"instance type {cloud}/{name} is not in the catalog (run spotctl prices fetch --cloud {cloud})"
            ) from None

    def knows(self, cloud: str, name: str) -> bool:
        return (cloud, name) in self._types

    @property
    def accelerators(self) -> set[str]:
        """The models of all machines."""
        return {machine.accelerator for machine in self.types if machine.accelerator is not None}

    def unknown_accelerator(self, written: str, known: Iterable[str] = ()) -> str:
        """A sentence about a model that no machine has: the one that was probably meant, or all `known` ones."""
        names = sorted(known or self.accelerators)
        near = closest(written.upper(), names)
        question = f"did you mean {near[0]}?" if near else f"known: {', '.join(names)}"
        return f"no known machine has the accelerator {written} ({question})"

    def on_demand(self, market: Market, at: int | None = None) -> OnDemandPrice:
        """The on-demand price of a spot market's type: the one dated nearest to `at`, or the newest.

        On-demand prices change once in years, so a list from two weeks later is better than one from eight months
        earlier. A caller that must not look ahead passes the catalog of that day; `as_of` dates the price.
        """
        known = self._prices.get((market.cloud, market.region, market.instance_type, market.os))
        if not known:
            raise UnknownPrice(
                f"no on-demand price of {market.instance_type} ({market.os}) in {market.cloud}/{market.region} is known"
                " (import one: spotctl prices import FILE --on-demand TABLE)"
            )
        return known[-1] if at is None else min(known, key=lambda price: abs(price.as_of - at))

    def merged(self, newer: "Catalog") -> "Catalog":
        """Both catalogs; `newer` wins where both have the same type, or a price of the same time."""
        return Catalog(self.types + newer.types, self.prices + newer.prices, self.lists.merged(newer.lists))


def _by_offer(prices: Iterable[OnDemandPrice]) -> dict[tuple[str, str, str, str], list[OnDemandPrice]]:
    latest: dict[tuple[str, str, str, str], dict[int, OnDemandPrice]] = {}
    for price in prices:
        offer = (price.cloud, price.region, price.instance_type, price.os)
        latest.setdefault(offer, {})[price.as_of] = price
    return {offer: [moments[at] for at in sorted(moments)] for offer, moments in latest.items()}
