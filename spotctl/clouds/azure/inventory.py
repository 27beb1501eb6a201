"""What exists of a run in Azure: its machines, and those that have ended.

Azure lists a machine while it exists, and the deployment that made it as long as its resource group exists. The end
of a machine is in the activity log, some minutes late. What is cached here only saves calls, or gives the answer
sooner.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pricing_data.clouds.azure import cause_of
from pricing_data.errors import AccessDenied
from pricing_data.units import SECOND, format_time, parse_time
from spotctl.clouds.azure.calls import AzureCalls, Body, Operation
from spotctl.clouds.azure.ends import LoggedEnd, ends
from spotctl.clouds.azure.names import MachineId, Order
from spotctl.clouds.base import EndReason, Machine, MachineState
from spotctl.home.wall_clock import wall_us

_SUCCEEDED, _FAILED = "Succeeded", "Failed"
_ENDED: Final = (_SUCCEEDED, _FAILED, "Canceled")
_LOG_PAUSE_SECONDS: Final = 20.0
_MARGIN: Final = 60 * SECOND
_DELETION_SHOWN: Final = 60 * SECOND
_ALLOCATED: Final = ("PowerState/starting", "PowerState/running")
_STATES: Final = {"Creating": MachineState.STARTING, "Deleting": MachineState.LEAVING}


class Address(NamedTuple):
    """The addresses at which other machines reach a machine, and at which this computer does, if it can."""

    private: str
    public: str


@dataclass(frozen=True, slots=True)
class OrderOutcome:
    """Which machines of an order were granted, and why others were refused; `ended`: Azure has carried it out."""

    ended: bool
    granted: frozenset[str] = frozenset()
    code: str = ""
    message: str = ""


@dataclass
class _Memory:
    outcomes: dict[str, OrderOutcome] = field(default_factory=dict)
    addresses: dict[str, Address] = field(default_factory=dict)
    started: dict[MachineId, int] = field(default_factory=dict)
    seen_alive: set[MachineId] = field(default_factory=set)
    returned: dict[MachineId, int] = field(default_factory=dict)
    ends: dict[MachineId, LoggedEnd] = field(default_factory=dict)
    principals: dict[str, frozenset[str]] = field(default_factory=dict)
    log_read: dict[str, float] = field(default_factory=dict)


class _Missing(NamedTuple):
    id: MachineId
    order: Order
    began: int


class Inventory:
    """Lists the machines of a resource group."""

    def __init__(self, calls: AzureCalls) -> None:
        self._calls = calls
        self._memory = _Memory()

    def machines(self, group: str) -> Iterator[Machine]:
        """All machines of a group, including those that have ended."""
        alive = {vm["name"].lower(): vm for vm in self._calls.listed(Operation.LIST_MACHINES, group=group)}
        deployments = self._calls.listed(Operation.LIST_DEPLOYMENTS, group=group)
        refused: set[str] = set()
        missing: list[_Missing] = []
        for deployment in deployments:
            order = Order.read(deployment.get("tags") or {})
            if order is None:
                continue
            outcome = self.outcome(group, deployment)
            refused |= {name for name in order.machine_names if _is_refused(name, outcome, alive)}
            missing += [
                _Missing(MachineId(order.market.region, group, name), order, _began(deployment))
                for name in order.machine_names
                if name in outcome.granted and name.lower() not in alive
            ]
        gone = list(self._confirmed(missing, alive))
        # A machine that Azure reports as failed may have been allocated all the same, and is billed then.
        yield from self._alive(
            group, [vm for vm in alive.values() if vm["name"] not in refused or self._runs(group, vm)]
        )
        yield from self._gone(group, gone)

    def outcome(self, group: str, deployment: Body) -> OrderOutcome:
        """What became of an order."""
        properties, order = deployment["properties"], Order.read(deployment.get("tags") or {})
        state, key = properties["provisioningState"], f"{group}/{deployment['name']}"
        if state not in _ENDED or order is None:
            return OrderOutcome(ended=False)
        if key not in self._memory.outcomes:
            names = frozenset(order.machine_names)
            whole = OrderOutcome(ended=True, granted=names)
            self._memory.outcomes[key] = whole if state == _SUCCEEDED else self._partial(group, deployment, names)
        return self._memory.outcomes[key]

    def _partial(self, group: str, deployment: Body, names: frozenset[str]) -> OrderOutcome:
        code, message = cause_of(deployment["properties"].get("error"))
        granted = set()
        for step in self._calls.pages(Operation.LIST_STEPS, group=group, name=deployment["name"]):
            said = step["properties"]
            name = str((said.get("targetResource") or {}).get("id", "")).rpartition("/")[2]
            if name not in names:
                continue
            if said["provisioningState"] == _SUCCEEDED:
                granted.add(name)
            elif (cause := cause_of((said.get("statusMessage") or {}).get("error")))[0]:
                code, message = cause
        return OrderOutcome(True, frozenset(granted), code, message)

    def note_returned(self, machine: MachineId) -> None:
        """Azure accepted the deletion of this machine now."""
        if not self._is_being_deleted(machine):
            self._memory.returned[machine] = wall_us()

    def is_allocated(self, group: str, name: str) -> bool:
        """Whether a machine has a computer, which is what Azure bills."""
        view = {"$expand": "instanceView"}
        vm = self._calls.found(Operation.GET_MACHINE, query=view, group=group, name=name)
        statuses = ((vm or {}).get("properties", {}).get("instanceView") or {}).get("statuses") or ()
        return any(one.get("code") in _ALLOCATED for one in statuses)

    def _runs(self, group: str, refused: Body) -> bool:
        deleting = refused["properties"]["provisioningState"] == "Deleting"
        return not deleting and self.is_allocated(group, refused["name"])

    def _is_being_deleted(self, machine: MachineId) -> bool:
        """Whether its deletion was accepted so recently that a list may not show it; later, the list decides."""
        return wall_us() - self._memory.returned.get(machine, 0) < _DELETION_SHOWN

    def known_gone(self, machine: MachineId) -> bool:
        """Whether this machine has been seen to be gone."""
        return machine in self._memory.ends

    def address(self, group: str, vm: Body) -> Address | None:
        """The address of a machine; None: it has none yet."""
        if vm["id"].lower() not in self._memory.addresses:
            self._read_addresses(group)
        return self._memory.addresses.get(vm["id"].lower())

    def _alive(self, group: str, vms: list[Body]) -> Iterator[Machine]:
        for vm in vms:
            order = Order.read(vm.get("tags") or {})
            if order is None:
                continue
            id_ = MachineId(order.market.region, group, vm["name"])
            address, properties = self.address(group, vm), vm["properties"]
            state = _STATES.get(properties["provisioningState"], MachineState.RUNNING)
            self._memory.seen_alive.add(id_)
            yield Machine(
                id=str(id_),
                market=order.market,
                bid=order.bid,
                state=MachineState.LEAVING if self._is_being_deleted(id_) else state,
                started=self._memory.started.setdefault(id_, parse_time(properties["timeCreated"])),
                tags=dict(order.tags),
                address="" if address is None else address.private,
            )

    def _read_addresses(self, group: str) -> None:
        public = {
            one["id"].lower(): one["properties"].get("ipAddress", "")
            for one in self._calls.listed(Operation.LIST_ADDRESSES, group=group)
        }
        for interface in self._calls.listed(Operation.LIST_INTERFACES, group=group):
            owner = (interface["properties"].get("virtualMachine") or {}).get("id", "").lower()
            first = interface["properties"]["ipConfigurations"][0]["properties"]
            shown = public.get((first.get("publicIPAddress") or {}).get("id", "").lower(), "")
            if owner and first.get("privateIPAddress"):
                self._memory.addresses[owner] = Address(first["privateIPAddress"], shown)

    # -- machines that do not exist any more --------------------------------------------------------------------------

    def _confirmed(self, missing: list[_Missing], alive: dict[str, Body]) -> Iterator[_Missing]:
        """Those that are really gone: a list may be late, but a query for a single machine is exact."""
        for one in missing:
            known = one.id in self._memory.ends
            found = None if known else self._calls.found(Operation.GET_MACHINE, group=one.id.group, name=one.id.name)
            if found is None:
                yield one
            else:
                alive[found["name"].lower()] = found

    def _gone(self, group: str, gone: list[_Missing]) -> Iterator[Machine]:
        self._learn_ends(group, [one for one in gone if one.id not in self._memory.ends])
        for one in gone:
            started = self._memory.started.setdefault(one.id, one.began)
            end = self._memory.ends.get(one.id, LoggedEnd(0, None))
            yield Machine(
                id=str(one.id),
                market=one.order.market,
                bid=one.order.bid,
                state=MachineState.GONE,
                started=started,
                tags=dict(one.order.tags),
                ended=max(end.at, started) if end.at else None,
                end_reason=end.reason,
            )

    def _learn_ends(self, group: str, unknown: list[_Missing]) -> None:
        """Sources by priority: what this process did itself, the log, and what follows from what this process saw."""
        memory = self._memory
        for one in unknown:
            if one.id in memory.returned:
                memory.ends[one.id] = LoggedEnd(memory.returned[one.id], EndReason.RETURNED)
        unknown = [one for one in unknown if one.id not in memory.ends]
        if not unknown:
            return
        logged = self._logged(group, unknown)
        for one in unknown:
            end = logged.get(one.id.name.lower())
            if end is None and one.order.bid is not None and one.id in memory.seen_alive:
                # It was here a moment ago, and nothing of ours ended it. The log would say so only minutes later.
                end = LoggedEnd(wall_us(), EndReason.EVICTED)
            if end is not None:
                memory.ends[one.id] = end

    def _logged(self, group: str, unknown: list[_Missing]) -> Mapping[str, LoggedEnd]:
        now = time.monotonic()
        sooner = any(one.id in self._memory.seen_alive for one in unknown)
        if not sooner and now - self._memory.log_read.get(group, -_LOG_PAUSE_SECONDS) < _LOG_PAUSE_SECONDS:
            return {}
        self._memory.log_read[group] = now
        since, until = min(one.began for one in unknown) - _MARGIN, wall_us() + _MARGIN
        between = f"eventTimestamp ge '{format_time(since)}' and eventTimestamp le '{format_time(until)}'"
        query = {"$filter": f"{between} and resourceGroupName eq '{group}'"}
        # Without the right to read the log, only the reasons are unknown; the machines are listed all the same.
        with suppress(AccessDenied):
            own = frozenset[str]().union(*(self._principals(one.order.identity) for one in unknown))
            return ends(self._calls.pages(Operation.READ_LOG, query=query), own)
        return {}

    def _principals(self, identity: str) -> frozenset[str]:
        """The names under which an identity's calls are logged."""
        if identity not in self._memory.principals:
            found = self._calls.found(Operation.GET_IDENTITY, identity=identity)
            said = {} if found is None else found["properties"]
            self._memory.principals[identity] = frozenset(
                str(said[name]).lower() for name in ("principalId", "clientId") if said.get(name)
            )
        return self._memory.principals[identity]


def _is_refused(name: str, outcome: OrderOutcome, alive: Mapping[str, Body]) -> bool:
    """Whether Azure did not grant a machine of an order, or will not when the order has ended."""
    if outcome.ended:
        return name not in outcome.granted
    return name.lower() in alive and alive[name.lower()]["properties"]["provisioningState"] == _FAILED


def _began(deployment: Body) -> int:
    """When a deployment began: Azure says when it ended, and how long it took."""
    properties = deployment["properties"]
    matched = re.fullmatch(r"PT(?:(\d+)H)?(?:(\d+)M)?(?:([\d.]+)S)?", properties.get("duration") or "PT0S")
    hours, minutes, seconds = (float(part or 0) for part in matched.groups()) if matched else (0.0, 0.0, 0.0)
    return parse_time(properties["timestamp"]) - round((hours * 3600 + minutes * 60 + seconds) * SECOND)
