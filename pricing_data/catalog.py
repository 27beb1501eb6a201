"""`Catalog`: what a machine of a type is, and what it costs on demand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pricing_data.errors import BadInput, UnknownInstanceType, UnknownPrice
from pricing_data.market import Market


@dataclass(frozen=True, slots=True, order=True)
class InstanceType:
    """A machine on sale. `None` where the cloud does not say (a network speed, mostly)."""

    cloud: str
    name: str
    vcpus: int
    memory_gib: float
    accelerator: str | None = None
    accelerators: int = 0
    network_gbps: float | None = None

    def __post_init__(self) -> None:
        if self.vcpus <= 0 or self.memory_gib <= 0:
            raise BadInput(
                f"instance type {self.cloud}/{self.name}: {self.vcpus} vCPUs, {self.memory_gib:g} GiB: both are above 0"
            )
        if (self.accelerator is None) != (self.accelerators == 0):
            raise BadInput(
                f"instance type {self.cloud}/{self.name}: {self.accelerators} accelerators named {self.accelerator!r}"
            )


@dataclass(frozen=True, slots=True, order=True)
class OnDemandPrice:
    """What a type cost on demand in a region, in nano-dollars per hour, as of a time."""

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
                f"on-demand price of {self.cloud}/{self.region}/{self.instance_type} is {self.price}, not above 0"
            )


@dataclass(frozen=True)
class Catalog:
    """Instance types and on-demand prices, asked by market. What it does not know raises; nothing is ever 0 or a guess.

    Where two entries name the same type, the later one given wins: what was fetched comes after what was shipped.
    """

    types: tuple[InstanceType, ...] = ()
    prices: tuple[OnDemandPrice, ...] = ()
    _types: dict[tuple[str, str], InstanceType] = field(init=False, repr=False, compare=False)
    _prices: dict[tuple[str, str, str, str], list[OnDemandPrice]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_types", {(t.cloud, t.name): t for t in self.types})
        object.__setattr__(self, "_prices", _by_offer(self.prices))

    def instance_type(self, cloud: str, name: str) -> InstanceType:
        """What a machine of this type is."""
        try:
            return self._types[cloud, name]
        except KeyError:
            raise UnknownInstanceType(
                f"instance type {cloud}/{name} is not in the catalog (spotctl prices fetch --cloud {cloud} brings it)"
            ) from None

    def knows(self, cloud: str, name: str) -> bool:
        """Whether the type is described."""
        return (cloud, name) in self._types

    def on_demand(self, market: Market, at: int | None = None) -> OnDemandPrice:
        """The on-demand price beside a spot market: of the lists known, the one nearest to `at`, or the newest.

        Lists are snapshots of prices that move once in years, so a list of two weeks later says more than one of
        eight months before. Whoever must not look ahead gives the catalog of that day; `as_of` tells which list it is.
        """
        known = self._prices.get((market.cloud, market.region, market.instance_type, market.os))
        if not known:
            raise UnknownPrice(
                f"unknown on-demand price of {market.instance_type} ({market.os}) in {market.cloud}/{market.region}"
                " (spotctl prices import FILE --on-demand TABLE brings one)"
            )
        return known[-1] if at is None else min(known, key=lambda price: abs(price.as_of - at))

    def merged(self, newer: Catalog) -> Catalog:
        """Both catalogs; where they differ about a type or about a price of the same moment, `newer` is right."""
        return Catalog(self.types + newer.types, self.prices + newer.prices)


def _by_offer(prices: Iterable[OnDemandPrice]) -> dict[tuple[str, str, str, str], list[OnDemandPrice]]:
    latest: dict[tuple[str, str, str, str], dict[int, OnDemandPrice]] = {}
    for price in prices:
        offer = (price.cloud, price.region, price.instance_type, price.os)
        latest.setdefault(offer, {})[price.as_of] = price
    return {offer: [moments[at] for at in sorted(moments)] for offer, moments in latest.items()}
