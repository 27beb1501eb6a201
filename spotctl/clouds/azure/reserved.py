"""The machines that are free in a group of capacity reservations, which a machine names to be taken from one of these.

Azure does not refuse more machines than are reserved: it grants them on demand, within the quota, if it has any
(learn.microsoft.com/azure/virtual-machines/capacity-reservation-overallocate). So spotctl looks before it buys. Two
orders at the same moment may still get one machine too many.
"""

from __future__ import annotations

import re
from typing import Final

from pricing_data.errors import UnknownResource
from pricing_data.market import NO_ZONE
from spotctl.clouds.azure.calls import AzureCalls, Body, Operation
from spotctl.clouds.azure.names import zone_of
from spotctl.clouds.errors import NoCapacity, NotFound
from spotctl.clouds.provider import MachineRequest

_CORRECT: Final = "correct the job's reservations"
_ID: Final = re.compile(r"/subscriptions/([^/]+)/resourceGroups/([^/]+)/providers/[^/]+/[^/]+/([^/]+)", re.IGNORECASE)


def available(calls: AzureCalls, request: MachineRequest) -> int:
    """The machines of a request that its reservations have now. NoCapacity: none. NotFound: no such machines are
    reserved."""
    match = _ID.fullmatch(request.reservation)
    if match is None:
        raise NotFound(f"{request.market}: {request.reservation} is no id of a capacity reservation group; {_CORRECT}")
    owner, group, name = match.groups()
    try:
        member = _member(calls, match, request)
        shown = calls.send(
            Operation.GET_RESERVATION, group, name, member["name"], owner=owner, expand="instanceView"
        ).body
    except UnknownResource as error:
        raise NotFound(
            f"{request.market}: Azure has no capacity reservation group {request.reservation}; {_CORRECT}"
        ) from error
    quantity, used = _use(shown)
    if used >= quantity:
        raise NoCapacity(f"{request.market}: all {quantity} machines of reservation {name} are in use")
    return min(request.count, quantity - used)


def _member(calls: AzureCalls, named: re.Match[str], request: MachineRequest) -> Body:
    """The group's reservation of the machines' size and zone; it has one of each at most."""
    (owner, group, name), zone = named.groups(), zone_of(request.market)
    wanted, others = (request.market.instance_type.lower(), zone), list[str]()
    for member in calls.pages(Operation.LIST_RESERVATIONS, group, name, owner=owner):
        size, own = str(member["sku"]["name"]), (member.get("zones") or [NO_ZONE])[0]
        if (size.lower(), own) == wanted:
            return member
        others.append(f"{size} {_place(own)}")
    raise NotFound(
        f"{request.market}: {name} reserves no {request.market.instance_type} {_place(zone)}, but"
        f" {', '.join(others) or 'nothing'}; {_CORRECT}"
    )


def _place(zone: str) -> str:
    return "without a zone" if zone == NO_ZONE else f"in zone {zone}"


def _use(member: Body) -> tuple[int, int]:
    """The machines that a reservation holds, and those of them that are in use."""
    view = member["properties"].get("instanceView") or {}
    state = view.get("utilizationInfo") or {}
    quantity = state.get("currentCapacity", member["sku"]["capacity"])
    elsewhere = sum((state.get("usedReservedCountBySubscription") or {}).values())
    return int(quantity), len(state.get("virtualMachinesAllocated") or ()) + int(elsewhere)
