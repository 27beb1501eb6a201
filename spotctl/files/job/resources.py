"""Machines that a job may rent, with the keys of a job file that describe them."""

import re
from dataclasses import dataclass, make_dataclass
from decimal import Decimal
from functools import cache
from typing import Any, ClassVar

from pricing_data.errors import PricingDataError
from pricing_data.known_clouds import markets_of
from pricing_data.market import NO_ZONE, Market, is_region_of
from pricing_data.units import MINUTE, NANOS_PER_DOLLAR, format_time, format_usd
from spotctl.files.job import forms
from spotctl.files.job.conversions import (
    AUTO,
    MOST,
    meant,
    read_flag,
    read_moment,
    read_text,
    read_whole,
)
from spotctl.files.job.forms import ANY, MOMENT, Form
from spotctl.files.job.sections import ListOf, key
from spotctl.files.job.values import Accelerators, Range
from spotctl.home.cloud import UsedReservations, cloud_of, rented_clouds

NOTICE = 2 * MINUTE
"""Machines are returned this long before they would be taken, as by the notice of an eviction."""

_PRICE = r"(?:0|[0-9]{1,9}(?:\.[0-9]{1,9})?) ?USD/h"
_NEEDED, _BLOCK = ("id", "cloud", "zone", "type", "machines", "price", "until"), "block"
_KEYS = (*_NEEDED, _BLOCK)


@dataclass(frozen=True, slots=True)
class Reservation:
    """`machines` of one market at `price` nano-dollars an hour each, until a moment; `id` as its
    cloud names it.

    A `block` is a Capacity Block of EC2, which is bought like a market of its own.
    """

    id: str
    cloud: str
    zone: str
    type: str
    machines: int
    price: int
    until: int
    block: bool = False

    @property
    def market(self) -> Market:
        """The reservation as a market of its own."""
        region = markets_of(self.cloud).region_of_zone(self.zone)
        zone = NO_ZONE if self.zone == region and self.used.regional else self.zone
        return Market(self.cloud, region, zone, self.type, reservation=self.name)

    @property
    def name(self) -> str:
        """The last part of the id, which can be a path."""
        return self.id.rpartition("/")[2]

    @property
    def used(self) -> UsedReservations:
        """The facts about reservations of its cloud."""
        return _used(self.cloud)

    @property
    def leave(self) -> int:
        """When its machines are returned: a notice before the cloud would take them."""
        early = self.used.block_ends_early if self.block else None
        return self.until - NOTICE - (early or 0)


@cache
def _used(cloud: str) -> UsedReservations:
    keys = cloud_of(cloud).job
    assert keys is not None, cloud
    assert keys.reservations is not None, cloud
    return keys.reservations


def clouds_with_reservations() -> tuple[str, ...]:
    """The clouds whose reservations can be used."""
    jobs = ((cloud, cloud_of(cloud).job) for cloud in rented_clouds())
    return tuple(
        cloud for cloud, keys in jobs if keys is not None and keys.reservations is not None
    )


def read_reservation(written: object) -> Reservation:
    """A reservation from a mapping; ValueError says what is wrong with it."""
    if not isinstance(written, dict):
        raise ValueError("is not a mapping")

    for name in written:
        if name not in _KEYS:
            raise ValueError(f"has the unknown key {name}{meant(str(name), _KEYS)}")

    for name in _NEEDED:
        if written.get(name) is None:
            raise ValueError(f"has no {name}")

    given: dict[str, Any] = {name: _read(name, value) for name, value in written.items()}
    reservation = Reservation(**given)
    try:
        _ = reservation.market
    except PricingDataError as error:
        raise ValueError(f"names no market ({error})") from None

    return reservation


def problem_of(reservation: Reservation) -> str:
    """The reason why its cloud has no such reservation: its id, zone or block; empty if it can have
    one.
    """
    cloud, used, market = reservation.cloud, reservation.used, reservation.market
    none = f"which is none of {cloud}; write one such as"
    if not re.fullmatch(used.form, reservation.id):
        return f"has the id {reservation.id}, {none} {used.example}"
    if reservation.block and used.block_ends_early is None:
        early = {name: _used(name).block_ends_early for name in clouds_with_reservations()}
        with_blocks = ", ".join(name for name, ends in early.items() if ends is not None)
        return f"has block: true, which is for {with_blocks} only; remove it"

    shape = markets_of(cloud).zone.replace("{region}", re.escape(market.region))
    is_zone = market.zone == NO_ZONE or re.fullmatch(shape, market.zone)
    if not is_region_of(cloud, market.region) or not is_zone:
        return f"has the zone {reservation.zone}, {none} {used.zone}"
    return ""


def _read(name: str, value: object) -> object:
    readers = {"until": read_moment, "block": read_flag}
    try:
        if name == "machines":
            return read_whole(value, 1, MOST)
        if name == "price":
            # What is paid already costs 0.
            if value == 0 and not isinstance(value, bool):
                return 0
            if not isinstance(value, str) or not re.fullmatch(_PRICE, value):
                raise ValueError("is not an amount per hour such as 2.50 USD/h, or 0")
            dollars = value.removesuffix("/h").removesuffix("USD").strip()
            return int(Decimal(dollars) * NANOS_PER_DOLLAR)
        if name in readers:
            return readers[name](value)
        text = read_text(value)
    except ValueError as error:
        raise ValueError(f"has {name} {value!r}, which {error}") from None

    known = clouds_with_reservations()
    if name == "cloud" and text not in known:
        raise ValueError(f"has the cloud {text}, but reservations are for {', '.join(known)}")

    return text


def reservation_text(reservation: Reservation) -> dict[str, Any]:
    """The mapping as it is written in a job file."""
    price = f"{format_usd(reservation.price)} USD/h" if reservation.price else 0
    content: dict[str, Any] = {name: getattr(reservation, name) for name in _NEEDED}
    content |= {"price": price, "until": format_time(reservation.until)}
    return content | ({_BLOCK: True} if reservation.block else {})


_TEXT = {"type": "string", "minLength": 1}
_IDS = "|".join(_used(cloud).form for cloud in clouds_with_reservations())
_SCHEMA: dict[str, object] = {
    "type": "object",
    "required": list(_NEEDED),
    "additionalProperties": False,
    "properties": {
        "id": {"type": "string", "pattern": f"^(?:{_IDS})$"},
        "cloud": {"enum": list(clouds_with_reservations())},
        "zone": _TEXT,
        "type": _TEXT,
        "machines": {"type": "integer", "minimum": 1, "maximum": MOST},
        "price": {"anyOf": [{"const": 0}, {"type": "string", "pattern": f"^(?:{_PRICE})$"}]},
        "until": dict(MOMENT.schema),
        _BLOCK: {"type": "boolean"},
    },
}
RESERVATION = Form(
    read_reservation,
    "a mapping such as {id: cr-0abc, cloud: aws, zone: us-east-1a, type: p5.48xlarge, machines: 2, "
    "price: 0, until: 2026-12-01T11:30Z}",
    _SCHEMA,
    reservation_text,
)


@dataclass(frozen=True, slots=True)
class Needs:
    """Requirements of a machine, whatever its type."""

    vcpus: Range[int] | None = key(forms.VCPU_RANGE, "Number of vCPUs.", "8..")
    memory_gib: Range[float] | None = key(forms.MEMORY_RANGE, "Memory in GiB.", "16..")
    accelerators: tuple[Accelerators, ...] = key(
        forms.ACCELERATORS,
        "Model, memory or both of accelerators, and their number; any one kind of a list.",
        "V100:1..",
        ["A100:8", "80GB..:8"],
        default=(),
    )


@dataclass(frozen=True, slots=True)
class Reliable:
    """On-demand machines, which are never evicted, held from start to end in addition to the spot
    machines.

    `machines` is None if the plan decides between one and none.
    """

    machines: int | None = key(
        forms.AUTO_OR_MACHINES,
        "How many. agileml keeps the model there; with 0 it continues from the last checkpoint "
        "after losing all"
        " machines, and auto takes what is cheaper. If left out: auto for agileml on the local "
        "market, 1 elsewhere, where the runner lives there; 0 for a command.",
        1,
        "auto",
        default=0,
    )
    type: str | None = key(
        forms.TYPE_NAME, "Their type; the cheapest allowed one if left out.", "c6i.large"
    )


@dataclass(frozen=True, slots=True)
class Resources:
    """Machines that may be rented."""

    spellings: ClassVar = {
        "accelerators": ("types", "accelerators"),
        "gpu": ("types", "accelerators"),
    }
    """As other tools spell keys, and where these are here."""

    clouds: tuple[str, ...] = key(
        ListOf(forms.CLOUD),
        "Where to rent; local is a market that is replayed on this computer, and free. Required, "
        "except with engine: ray.",
        ["local"],
        ["aws", "gcp"],
        default=(),
    )
    machines: Range[int] = key(
        forms.MACHINE_RANGE,
        "Transient machines at one time. Required for agileml; a command always has as many as it "
        "has nodes.",
        "4..64",
        default=Range(0),
    )
    reliable: Reliable = key(
        Reliable,
        "On-demand machines in addition to the spot machines.",
        {"machines": 1},
        default=Reliable(0),
    )
    types: tuple[str, ...] = key(
        ListOf(forms.TYPE_GLOB),
        "Machine types by name or glob; any if left out.",
        ["c6i.2xlarge", "n2-standard-8"],
        default=(),
    )
    needs: Needs = key(
        Needs,
        "Instead of names: what a machine must have.",
        {"vcpus": "8..", "memory_gib": "16.."},
        name="types",
        default=Needs(),
    )
    arch: str | None = key(
        forms.ARCHITECTURE,
        "Processors that the job's programs and image run on: x86_64, arm64 or any; x86_64 if left "
        "out.",
        "arm64",
    )
    memory: float | None = key(
        forms.MEMORY,
        "Least memory of a machine; 2 GiB if left out, except for types that are named without a "
        "glob.",
        "4 GiB",
    )
    burstable: bool | None = key(
        forms.FLAG,
        "Whether to rent burstable types, which may use only a share of their vCPUs all the time, "
        "and are compared by that share. If left out, only those that types names.",
        False,
    )
    placement: str | None = key(
        forms.PLACEMENT,
        "close: the machines of a command with several nodes stand next to each other, for a fast "
        "network between them. They are harder to get, and some types cannot.",
        "close",
    )
    regions: tuple[str, ...] = key(
        ListOf(forms.REGION, word=ANY),
        "Regions to rent in; all if left out. A command with a checkpoint and a deadline may move "
        "between them to where spot machines are.",
        ["us-east-1", "us-central1"],
        ANY,
        default=(),
    )
    reservations: tuple[Reservation, ...] = key(
        ListOf(RESERVATION),
        "Machines that you have reserved in one region of a cloud, with your price for each (0: "
        "paid already) and their"
        " end. They are used before machines that cost more, and never evicted. block: true names "
        "a Capacity Block of AWS.",
        [
            {
                "id": "cr-0abc",
                "cloud": "aws",
                "zone": "us-east-1a",
                "type": "p5.48xlarge",
                "machines": 2,
                "price": 0,
                "until": "2026-12-01T11:30Z",
            }
        ],
        default=(),
    )
    zones: tuple[str, ...] = key(
        ListOf(forms.ZONE, word=ANY),
        "Zones to rent in; all if left out.",
        ["us-east-1a", "us-east-1b"],
        default=(),
    )


_ImagesByCloud: Any = make_dataclass(
    "_ImagesByCloud",
    [
        (cloud, str | None, key(forms.IMAGE, keys.image_help, keys.image_example, name=keys.image))
        for cloud in rented_clouds()
        if (keys := cloud_of(cloud).job) is not None
    ],
    frozen=True,
)
"""A key for each cloud that rents machines."""


@dataclass(frozen=True)
class Image(_ImagesByCloud):  # type: ignore[misc] # a class that is made when the clouds are known
    """The image of cloud machines; `auto`, the default, is Ubuntu, with drivers on machines with
    GPUs.

    The job runs directly on the machine, or in a `container`.
    """

    disk_gib: int | None = key(forms.DISK, "Size of a machine's disk.", 100)
    container: str | None = key(
        forms.CONTAINER, "Container image in which the job runs.", "ghcr.io/me/train:1"
    )
    login: str | None = key(
        forms.VARIABLE,
        "One of secrets, with USER:PASSWORD for the container's registry; the container does not "
        "get it.",
        "REGISTRY_LOGIN",
    )

    def of(self, cloud: str) -> str | None:
        """The image on a cloud; None leaves the choice to its provider."""
        image: str | None = getattr(self, cloud, None)
        return None if image == AUTO else image
