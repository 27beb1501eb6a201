"""Reservations of a job file: machines that are the user's until a moment, at a price of their
own."""

import re
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any

from pricing_data.errors import PricingDataError
from pricing_data.known_clouds import markets_of
from pricing_data.market import NO_ZONE, Market, is_region_of
from pricing_data.units import MINUTE, NANOS_PER_DOLLAR, format_time, format_usd
from spotctl.files.job.conversions import MOST, meant, read_flag, read_moment, read_text, read_whole
from spotctl.files.job.forms import MOMENT, Form
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
    if not re.fullmatch(used.form, reservation.id):
        return (
            f"has the id {reservation.id}, which is none of {cloud}; write one such as "
            f"{used.example}"
        )
    if reservation.block and used.block_ends_early is None:
        with_blocks = [
            name for name in clouds_with_reservations() if _used(name).block_ends_early is not None
        ]
        return f"has block: true, which is for {', '.join(with_blocks)} only; remove it"

    shape = markets_of(cloud).zone.replace("{region}", re.escape(market.region))
    is_zone = market.zone == NO_ZONE or re.fullmatch(shape, market.zone)
    if not is_region_of(cloud, market.region) or not is_zone:
        return (
            f"has the zone {reservation.zone}, which is none of {cloud}; write one such as "
            f"{used.zone}"
        )
    return ""


def _read(name: str, value: object) -> object:
    readers = {
        "machines": lambda v: read_whole(v, 1, MOST),
        "until": read_moment,
        "block": read_flag,
    }

    try:
        if name == "price":
            # What is paid already costs 0.
            if value == 0 and not isinstance(value, bool):
                return 0
            if not isinstance(value, str) or not re.fullmatch(_PRICE, value):
                raise ValueError("is not an amount per hour such as 2.50 USD/h, or 0")
            return int(
                Decimal(value.removesuffix("/h").removesuffix("USD").strip()) * NANOS_PER_DOLLAR
            )
        if name in readers:
            return readers[name](value)
        text = read_text(value)
    except ValueError as error:
        raise ValueError(f"has {name} {value!r}, which {error}") from None

    if name == "cloud" and text not in clouds_with_reservations():
        raise ValueError(
            f"has the cloud {text}, but reservations are for "
            f"{', '.join(clouds_with_reservations())}"
        )

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
