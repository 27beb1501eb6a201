"""`MarketSnapshot`: all offers at a moment as columns; and which of them a job may use, or why not.

There may be tens of thousands of markets, but far fewer kinds (a machine type in a region of a
cloud). Facts about a kind are looked up once; prices are compared as arrays.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from itertools import chain
from typing import Any

import numpy as np

from bidbrain.arrays import Bools, Ints
from bidbrain.eviction.estimate import MEMORY, PriceOutlook
from bidbrain.outbid.bid import HostMarket
from bidbrain.strategies.base import Offer
from pricing_data.catalog import GPU_MEMORY_GIB, X86, XEN, Catalog, InstanceType, is_model, obstacle
from pricing_data.errors import UnknownPrice
from pricing_data.known_clouds import has_part, markets_of, part_of
from pricing_data.market import LINUX, Market, api_region, closest, mistyped
from pricing_data.series import PriceSeries, clipped
from pricing_data.store.table import PriceTable
from pricing_data.units import HOUR
from spotctl.files.job.resources import Reservation, Resources
from spotctl.files.job.spec import ANY, JobSpec
from spotctl.files.job.values import CLOSE, Accelerators
from spotctl.home.cloud import cloud_of

STALE_AFTER = 36 * HOUR
"""AWS repeats every price at least once a day, so an older price is out of date."""
MIN_MEMORY_GIB = 2.0
"""Memory that the default images and the agent need."""
# A shorter history cannot show how a bid fares in an hour; its first price is extended back to this
# length.
_MIN_HISTORY = 4 * HOUR
_WILDCARDS = "*?["


@dataclass(frozen=True, slots=True, order=True)
class MachineKind:
    """A machine type in a region of a cloud: the unit of Gavel's allocation, of quotas and of list
    prices.
    """

    cloud: str
    region: str
    type: str

    def __str__(self) -> str:
        return f"{self.cloud}/{self.region}/{self.type}"


@dataclass(frozen=True, slots=True, eq=False)
class MarketSnapshot:
    """Market `i` sells kind `kind[i]` at `price[i]` (nano-dollars), which was last seen `age[i]`
    microseconds ago.

    A market whose history begins after `at` has an age of -1 and no valid price. `machine` and
    `on_demand` are by kind, None if the catalog does not know. `outlook` says how likely prices
    rise above bids. `own_images` are the clouds whose image the user has chosen, and `hosts` the
    markets in which each host runs the highest bid. `traffic` is what hosts usually ask, in
    dollars, for a GB that a machine receives, and one that it sends.
    """

    table: PriceTable
    catalog: Catalog
    at: int
    kind: Ints
    price: Ints
    age: Ints
    kinds: tuple[MachineKind, ...]
    machine: tuple[InstanceType | None, ...]
    on_demand: tuple[int | None, ...]
    outlook: PriceOutlook
    own_images: frozenset[str] = frozenset()
    hosts: Mapping[Market, HostMarket] = field(default_factory=dict)
    traffic: Mapping[Market, tuple[float, float]] = field(default_factory=dict)

    @classmethod
    def of(cls, table: PriceTable, catalog: Catalog, at: int) -> MarketSnapshot:
        """The markets of a table at a moment; later prices are ignored."""
        numbers: dict[tuple[str, str, str], int] = {}
        kind = [
            numbers.setdefault((market.cloud, market.region, market.instance_type), len(numbers))
            for market in table.markets
        ]
        kinds = tuple(MachineKind(*names) for names in numbers)
        of_kind = np.array(kind, dtype=np.int64)
        _, first = np.unique(of_kind, return_index=True)
        price, age = _in_force(table, at)

        machines = list[InstanceType | None]()
        for each in kinds:
            is_known = catalog.knows(each.cloud, each.type)
            machines.append(catalog.instance_type(each.cloud, each.type) if is_known else None)

        listed = [on_demand_price(catalog, table.markets[row], at) for row in first.tolist()]
        outlook = PriceOutlook(table.markets, table.series, at)
        return cls(
            table,
            catalog,
            at,
            kind=of_kind,
            price=price,
            age=age,
            kinds=kinds,
            machine=tuple(machines),
            on_demand=tuple(listed),
            outlook=outlook,
        )

    @property
    def markets(self) -> Sequence[Market]:
        """The markets, by row."""
        return self.table.markets

    @property
    def usable(self) -> Bools:
        """Which Linux markets have a current spot price and an on-demand price."""
        is_linux = [market.os == LINUX for market in self.markets]
        linux = np.array(is_linux, dtype=np.bool_)
        listed_prices = np.array([price or 0 for price in self.on_demand], dtype=np.int64)
        sold = linux & (listed_prices[self.kind] > 0)
        present = sold & (self.age >= 0)
        current = present & (self.age <= STALE_AFTER)

        is_dear = self.price > listed_prices[self.kind]
        for row in np.flatnonzero(current & is_dear).tolist():
            current[row] = is_sold_on_demand(self.markets[row])
        never = [machine is not None and machine.traits.spot is False for machine in self.machine]
        current &= is_dear | ~np.array(never, dtype=np.bool_)[self.kind]

        # A zone that a public list names is one that the account names otherwise.
        public = np.array([has_public_zone(market) for market in self.markets], dtype=np.bool_)
        owned = np.zeros(len(self.kinds), dtype=np.bool_)
        owned[self.kind[current & ~public]] = True
        return current & ~(public & owned[self.kind])

    def list_price(self, kind: int) -> int:
        """The on-demand price of a kind that has a usable market."""
        price = self.on_demand[kind]
        assert price is not None
        return price

    def why_unsuitable(self, machine: InstanceType | None, spec: JobSpec) -> str:
        """Why a type does not suit a job; empty if it does, or if the catalog does not know it."""
        if machine is None:
            return ""
        return why_unsuitable(machine, spec, self.at, self.own_images)

    def offer(self, row: int, nu: float) -> Offer:
        """A market with what one of its machines does per hour, and costs on demand."""
        kind = int(self.kind[row])
        list_price = self.list_price(kind)
        return Offer(self.markets[row], nu, list_price)

    def history(self, row: int) -> PriceSeries:
        """The prices of a market in the last weeks, as older ones do not predict the next hours;
        the last one is extended to the moment. Of a market that was hardly watched, but looked at
        now and then, only the last look counts: what happened between looks is unknown."""
        known = self.table.series(row)
        times, prices = known.times, known.prices
        watched = clipped(known.watched or (), self.at - MEMORY, self.at)
        if watched and sum(span.end - span.start for span in watched) < _MIN_HISTORY:
            in_force = int(np.searchsorted(times, watched[-1].start, side="right")) - 1
            times, prices = times[max(in_force, 0) :], prices[max(in_force, 0) :]

        if times[-1] < self.at:
            times = np.append(times, self.at)
            prices = np.append(prices, prices[-1])

        if times[0] > self.at - _MIN_HISTORY:
            times = np.insert(times, 0, self.at - _MIN_HISTORY)
            prices = np.insert(prices, 0, prices[0])

        whole_times = times.astype(np.int64)
        whole_prices = prices.astype(np.int64)
        series = PriceSeries(self.markets[row], whole_times, whole_prices)
        since = max(series.first, self.at - MEMORY)
        return series.window(since, self.at)


def has_public_zone(market: Market) -> bool:
    """Whether the zone of a market has its name in public lists only: no account can rent there by
    that name."""
    return _is_public(market.cloud, market.zone)


@cache
def _is_public(cloud: str, zone: str) -> bool:
    names = markets_of(cloud).zone_id
    return bool(names) and re.fullmatch(names, zone) is not None


def _in_force(table: PriceTable, at: int) -> tuple[Ints, Ints]:
    """Each market's price at a moment and the age of its last confirmation: 0 if the history
    continues.
    """
    if not table.markets:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    begins = table.starts[:-1]
    ends = table.starts[1:]
    is_past = (table.times <= at).astype(np.int64)
    seen = np.add.reduceat(is_past, begins)
    rows = begins + np.maximum(seen, 1) - 1
    is_followed = begins + seen < ends
    since_change = at - table.times[rows]
    age = np.where(is_followed, 0, since_change)
    age_or_none = np.where(seen > 0, age, -1)
    return table.prices[rows], age_or_none.astype(np.int64)


def on_demand_price(catalog: Catalog, market: Market, at: int) -> int | None:
    """The on-demand price of a market in nano-dollars per hour, if it is known."""
    try:
        return catalog.on_demand(market, at).price
    except UnknownPrice:
        return None


def eligible(snapshot: MarketSnapshot, usable: Bools, spec: JobSpec) -> tuple[Ints, int, Ints]:
    """The kinds that a job may use, the number of markets that match its resources, and the
    unusable ones of them.

    Types that do not suit the job are among the latter if the job names types, or if nothing else
    matches.
    """
    resources = spec.resources
    meant = _meant(snapshot, resources)
    types = {id(machine): machine for machine in snapshot.machine}
    unsuitable = {
        number for number, machine in types.items() if snapshot.why_unsuitable(machine, spec)
    }
    suitable = [id(machine) not in unsuitable for machine in snapshot.machine]
    suits = np.array(suitable, dtype=np.bool_)[snapshot.kind]
    chosen = meant & suits

    if resources.types or not chosen.any():
        # Those that only do not suit the job come first.
        unsuited = meant & usable & ~suits
        rows_unsuited = np.flatnonzero(unsuited)
        rows_unusable = np.flatnonzero(meant & ~usable)
        unusable = np.concatenate([rows_unsuited, rows_unusable])
        chosen_kinds = snapshot.kind[chosen & usable]
        return np.unique(chosen_kinds), int(meant.sum()), unusable

    chosen_sold = snapshot.kind[chosen & usable]
    rows_left_out = np.flatnonzero(chosen & ~usable)
    return (np.unique(chosen_sold), int(chosen.sum()), rows_left_out)


def _meant(snapshot: MarketSnapshot, resources: Resources) -> Bools:
    """The markets of the clouds, regions, zones and types that a job names, with the machines that
    it needs.
    """
    named = () if resources.regions == (ANY,) else resources.regions
    regions = {cloud: {api_region(cloud, name) for name in named} for cloud in resources.clouds}
    types = {id(machine): machine for machine in snapshot.machine}
    fitting = {
        number
        for number, machine in types.items()
        if machine is not None and _fits(machine, resources)
    }

    pairs = zip(snapshot.kinds, snapshot.machine, strict=True)
    meant_kinds = [
        id(machine) in fitting
        and kind.cloud in regions
        and (not regions[kind.cloud] or kind.region in regions[kind.cloud])
        for kind, machine in pairs
    ]

    are_meant = np.array(meant_kinds, dtype=np.bool_)
    there = in_zones(snapshot, resources)
    return are_meant[snapshot.kind] & there


def in_zones(snapshot: MarketSnapshot, resources: Resources) -> Bools:
    """The markets in the zones that a job names."""
    if resources.zones in ((), (ANY,)):
        return np.ones(len(snapshot.markets), dtype=np.bool_)
    in_named = [market.zone in resources.zones for market in snapshot.markets]
    return np.array(in_named, dtype=np.bool_)


def _fits(machine: InstanceType, resources: Resources) -> bool:
    """Whether a type is named by the job and has what the job needs."""
    if resources.types and not any(fnmatchcase(machine.name, glob) for glob in resources.types):
        return False

    needs = resources.needs
    if needs.vcpus is not None and machine.vcpus not in needs.vcpus:
        return False
    if needs.memory_gib is not None and machine.memory_gib not in needs.memory_gib:
        return False

    return not needs.accelerators or any(
        _has(machine, accelerators) for accelerators in needs.accelerators
    )


def _has(machine: InstanceType, wanted: Accelerators) -> bool:
    """Whether a type has as many accelerators as wanted, of the model and the memory that are
    wanted.
    """
    model = machine.accelerator
    if model is None or machine.accelerators not in wanted.count:
        return False
    if wanted.model and not is_model(model, wanted.model):
        return False
    if wanted.memory_gib is None:
        return True

    # A cloud that describes a type measures a little less than its GPU is named by.
    gib = GPU_MEMORY_GIB.get(model, machine.traits.accelerator_gib)
    return gib is not None and gib in wanted.memory_gib


def why_unusable(snapshot: MarketSnapshot, row: int, spec: JobSpec) -> tuple[Market, str]:
    """A matching market and the reason why it cannot be used."""
    market, age, kind = snapshot.markets[row], int(snapshot.age[row]), int(snapshot.kind[row])
    machine, listed = snapshot.machine[kind], snapshot.on_demand[kind]
    why = snapshot.why_unsuitable(machine, spec)
    if why:
        pass
    elif market.os != LINUX:
        why = f"sells {market.os} machines; jobs need Linux"
    elif age < 0:
        why = "no price is known before the planned moment"
    elif age > STALE_AFTER:
        why = f"stale: its last price is {age_text(age)} old (update: spotctl prices fetch)"
    elif listed is None:
        why = f"the on-demand price of {market.instance_type} in {market.region} is unknown"
    elif snapshot.price[row] > listed and not is_sold_on_demand(market):
        why = f"{market.instance_type} is not sold on demand, and has no spot price there"
    elif machine is not None and machine.traits.spot is False:
        why = "its cloud sells it only on demand, and not at the price that is stored"
    else:
        why = "the account has another name for this zone, whose prices are known"
    return market, why


def age_text(micros: int) -> str:
    """An age in whole hours, or from two days on in days."""
    days = micros / (24 * HOUR)
    if days >= 2:
        return f"{days:.0f} days"
    return f"{micros / HOUR:.0f} hours"


def places(kinds: Sequence[MachineKind]) -> list[Ints]:
    """The columns of each region; all machines of a job are in one, because they communicate with
    each other.
    """
    grouped: dict[tuple[str, str], list[int]] = {}
    for j, kind in enumerate(kinds):
        members = grouped.setdefault((kind.cloud, kind.region), [])
        members.append(j)
    return [np.array(columns) for columns in grouped.values()]


def is_kind_of(reservation: Reservation, kind: MachineKind) -> bool:
    """Whether a reservation has machines of a kind."""
    market = reservation.market
    return (market.cloud, market.region, market.instance_type) == (
        kind.cloud,
        kind.region,
        kind.type,
    )


def said_of_types(market: Market, name: str) -> Any:  # noqa: ANN401 - what the cloud's part has
    """A table of what is known of the machine types of a market's cloud; None if it has none."""
    if not has_part(market.cloud, "machine_types"):
        return None
    return getattr(part_of(market.cloud, "machine_types"), name, None)


def is_sold_on_demand(market: Market) -> bool:
    """Whether the list price of a type buys anything: some are only spot, or reserved."""
    unsold = said_of_types(market, "NOT_ON_DEMAND")
    return unsold is None or unsold.fullmatch(market.instance_type) is None


def why_unsuitable(
    machine: InstanceType, spec: JobSpec, at: int, own_images: Collection[str] = ()
) -> str:
    """Why a type does not suit a job at a time, and the cure; empty if it does. What is unknown
    counts as suitable.

    On the clouds of `own_images` the image is not the one that spotctl chooses.
    """
    of_hardware = _hardware_problems(machine, spec.resources)
    of_others = _other_problems(machine, spec, at, own_images)
    problems = chain(of_hardware, of_others)
    return next(problems, "")


def _hardware_problems(machine: InstanceType, resources: Resources) -> Iterator[str]:
    wanted = resources.arch or X86
    architecture = machine.traits.architecture
    if wanted != ANY and architecture not in (None, wanted):
        yield f"it is {architecture}, and the job {wanted} (resources: {{arch: {architecture}}}, or any)"
    least = resources.memory
    if least is None:
        is_chosen = resources.needs.memory_gib is not None or machine.name in resources.types
        least = 0.0 if is_chosen else MIN_MEMORY_GIB

    if machine.memory_gib < least:
        yield f"it has {machine.memory_gib:g} GiB, and the job needs {least:g} (resources: {{memory: ...}})"
    may_burst = (
        _is_named(machine, resources) if resources.burstable is None else resources.burstable
    )
    if machine.is_burstable and not may_burst:
        share = f"{machine.steady_vcpus / machine.vcpus:.0%}"
        yield f"it is burstable: it may use {share} of its vCPUs all the time (resources: {{burstable: true}})"

    if resources.placement == CLOSE and machine.is_burstable:
        yield "it is burstable, and such machines are not placed close together (remove placement, or name other types)"


def _other_problems(
    machine: InstanceType, spec: JobSpec, at: int, own_images: Collection[str]
) -> Iterator[str]:
    traits = machine.traits
    job = cloud_of(machine.cloud).job
    if traits.retires is not None and traits.retires <= at:
        yield "its cloud has retired it"
    if traits.hypervisor == XEN and not _is_named(machine, spec.resources):
        yield "its console is shown minutes late, perhaps after its first lease (resources: {types: [...]} names it)"
    own_image = spec.image.of(machine.cloud)
    is_usual_image = own_image is None and machine.cloud not in own_images
    if is_usual_image and job is not None and (problem := obstacle(machine)):
        yield f"{problem}; name an image that does (image: {{{job.image}: ...}})"


def _is_named(machine: InstanceType, resources: Resources) -> bool:
    """Whether the job names a type or its family."""
    globs = (glob for glob in resources.types if glob[0] not in _WILDCARDS)
    return any(fnmatchcase(machine.name, glob) for glob in globs)


def _misspelled(resources: Resources, snapshot: MarketSnapshot) -> Iterator[str]:
    """Why nothing can match: a type, an accelerator or a region that does not exist."""
    stored = {kind.type for kind in snapshot.kinds if kind.cloud in resources.clouds}
    types = stored or _listed_types(resources, snapshot.catalog)
    for glob in resources.types:
        if not fnmatch.filter(types, glob) and (near := closest(glob, types)):
            yield f"no known type is named {glob} (did you mean {near[0]}?)"

    if sentence := _unknown_accelerator(resources, snapshot.catalog):
        yield sentence
    known = {kind.region for kind in snapshot.kinds if kind.cloud in resources.clouds}
    for region in resources.regions:
        if region not in known and (meant := mistyped(region)):
            yield f"no region is named {region} (did you mean {meant}?)"


def _unknown_types(resources: Resources, snapshot: MarketSnapshot) -> bool:
    """Whether a job names types, and no cloud of the job has any of them."""
    known = {kind.type for kind in snapshot.kinds if kind.cloud in resources.clouds}
    known |= _listed_types(resources, snapshot.catalog)
    return bool(resources.types) and not any(
        fnmatch.filter(known, glob) for glob in resources.types
    )


def _listed_types(resources: Resources, catalog: Catalog) -> set[str]:
    return {machine.name for machine in catalog.types if machine.cloud in resources.clouds}


def _unknown_accelerator(resources: Resources, catalog: Catalog) -> str:
    """A sentence about an accelerator that no machine has; empty if there are such machines."""
    for wanted in resources.needs.accelerators:
        if wanted.model and not any(is_model(name, wanted.model) for name in catalog.accelerators):
            return catalog.unknown_accelerator(wanted.model, ())
    return ""
