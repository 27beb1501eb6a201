"""Names, ids and request ids, all derived from the request, so that a repeated request finds its machines. Pure.

Compute Engine forgets a deleted machine at once and keeps only the operations, for two weeks, with the machine's name.
So the name says which market, run, intent and request a machine belonged to.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from pricing_data.market import NO_ZONE, Market
from spotctl.clouds.provider import EndReason, MachineRequest, fingerprint
from spotctl.home.installation import INSTALLATION_TAG, INTENT_TAG, RUN_TAG

CLOUD = "gcp"
PREFIX = "spotctl-"
_SCOPE, _TOKEN, _PRINT = 7, 7, 4
_LONGEST_TYPE = 22
_MAX_DELETIONS = 20
_RUN = frozenset({INSTALLATION_TAG, RUN_TAG})
_NAMESPACE = uuid.UUID("6f0d5b0e-6f5c-4d5c-9a5e-6d1f1c3f2b77")
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_NAME = re.compile(
    rf"{PREFIX}(?P<spot>[sd])(?P<zonal>[rz])-(?P<type>[a-z][a-z0-9-]*)-(?P<scope>[a-z0-9]{{{_SCOPE}}})"
    rf"-(?P<intent>\d*)-(?P<token>[a-z0-9]{{{_TOKEN}}})(?P<print>[a-z0-9]{{{_PRINT}}})-(?P<index>\d+)"
)
_ID = re.compile(rf"{CLOUD}:(?P<zone>[a-z0-9-]+):(?P<name>[a-z0-9-]+)")


@dataclass(frozen=True, slots=True)
class OrderName:
    """The parts of the names of a request's machines. `scope` stands for the run, and `print` for the whole request;
    a type that is too long for a name is cut."""

    is_spot: bool
    is_zonal: bool
    type: str
    scope: str
    intent: str
    token: str
    print: str

    @classmethod
    def of(cls, request: MachineRequest) -> Self:
        return cls(
            is_spot=request.bid is not None,
            is_zonal=request.market.zone != NO_ZONE,
            type=request.market.instance_type.replace("+", "--")[:_LONGEST_TYPE].rstrip("-"),
            scope=scope_of(request.tags),
            intent=request.tags.get(INTENT_TAG, ""),
            token=_short(request.token, _TOKEN),
            print=_short(fingerprint(request), _PRINT),
        )

    @property
    def any_print(self) -> str:
        """A regular expression for the names of all machines of this token, whatever was requested with it."""
        return rf"{PREFIX}.*-{self.token}[a-z0-9]{{{_PRINT}}}-[0-9]+"

    def machine(self, index: int) -> str:
        kind = ("s" if self.is_spot else "d") + ("z" if self.is_zonal else "r")
        return f"{PREFIX}{kind}-{self.type}-{self.scope}-{self.intent}-{self.token}{self.print}-{index}"

    def market(self, zone: str) -> Market:
        region = region_of(zone)
        return Market(CLOUD, region, zone if self.is_zonal else NO_ZONE, self.type.replace("--", "+"))


def parsed(name: str) -> tuple[OrderName, int] | None:
    """The parts of a machine's name, and its index; None if the name is not one of spotctl's."""
    if (match := _NAME.fullmatch(name)) is None:
        return None
    parts = match.group("type", "scope", "intent", "token", "print")
    return OrderName(match["spot"] == "s", match["zonal"] == "z", *parts), int(match["index"])


def index_of(name: str) -> int:
    return int(name.rpartition("-")[2])


def scope_of(tags: Mapping[str, str]) -> str:
    """Identifies a run in names: a hash of installation and run, or else of all tags but the intent."""
    common = _RUN if tags.keys() >= _RUN else tags.keys() - {INTENT_TAG}
    return _short(repr(sorted((key, tags[key]) for key in common)), _SCOPE)


def names_of_machines(tags: Mapping[str, str]) -> str:
    """A regular expression for the names of the machines that may have these tags."""
    return rf"{PREFIX}.*-{scope_of(tags)}-.*" if tags.keys() >= _RUN else rf"{PREFIX}.*"


def network_tag(scope: str) -> str:
    return f"{PREFIX}{scope}"


def machine_id(zone: str, name: str) -> str:
    return f"{CLOUD}:{zone}:{name}"


def place_of(machine: str) -> tuple[str, str] | None:
    """The zone and the name of a machine that spotctl may have created; None for any other id."""
    match = _ID.fullmatch(machine)
    return (match["zone"], match["name"]) if match and parsed(match["name"]) else None


def region_of(zone: str) -> str:
    return zone.rpartition("-")[0]


def is_zone(place: str) -> bool:
    """Whether the name of a place is that of a zone: a region's with one more part."""
    return place.count("-") > 1


def placement_policy(scope: str, zone: str) -> str:
    """The name of a run's policy for machines that are close together in a zone."""
    return f"{PREFIX}{scope}-{zone}"


def policy_path(scope: str, zone: str) -> str:
    """How a machine names that policy."""
    return f"regions/{region_of(zone)}/resourcePolicies/{placement_policy(scope, zone)}"


def create_id(name: str, zone: str, body: object) -> str:
    """The request id of a creation. Google refuses a known id with another body, and `lease_until` may differ."""
    return _uuid(f"create {zone} {name} {body!r}")


def end_ids(name: str, reason: EndReason) -> tuple[str, ...]:
    """The request ids of a deletion, which record why a machine was deleted: Google keeps them with the operation.

    Google answers a known id with the operation of the first call, so a deletion that failed takes the next id.
    """
    again = (f" {attempt}" if attempt else "" for attempt in range(_MAX_DELETIONS))
    return tuple(_uuid(f"{reason.value} {name}{number}") for number in again)


def _uuid(text: str) -> str:
    return str(uuid.uuid5(_NAMESPACE, text))


def _short(text: str, length: int) -> str:
    number = int.from_bytes(hashlib.sha256(text.encode()).digest())
    return "".join(_DIGITS[number // 36**place % 36] for place in range(length))
