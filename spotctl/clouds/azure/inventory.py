"""Lists the machines of a run in Azure, including those that have ended.

Azure lists a machine while the machine exists, and its deployment as long as the resource group
exists. The end of a machine is in the activity log, some minutes late. The cache here only saves
calls, or gives an answer sooner.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final, NamedTuple

from pricing_data.errors import AccessDenied
from pricing_data.units import SECOND, format_time, parse_time
from spotctl.clouds.azure.calls import AzureCalls, Body, Operation
from spotctl.clouds.azure.orders import AzureOrder, MachineId
from spotctl.clouds.azure.session import cause_of
from spotctl.clouds.provider import EndReason, Machine, MachineEnd, MachineState
from spotctl.home.wall_clock import wall_us

_SUCCEEDED, _FAILED = "Succeeded", "Failed"
_FINAL_STATES: Final = (_SUCCEEDED, _FAILED, "Canceled")
_LOG_PAUSE_SECONDS: Final = 20.0
_LOG_MARGIN: Final = 60 * SECOND
_DELETION_LISTED_AFTER: Final = 60 * SECOND
_ALLOCATED: Final = frozenset({"PowerState/starting", "PowerState/running"})
_STATES: Final = {"Creating": MachineState.STARTING, "Deleting": MachineState.LEAVING}


MachineAddresses = tuple[str, str]
"""A machine's address for other machines, and its address for this computer; empty if it has no
public one."""


@dataclass(frozen=True, slots=True)
class OrderOutcome:
    """Which machines of an order were granted, and why others were refused; `ended`: Azure is done
    with the order.
    """

    ended: bool
    granted: frozenset[str] = frozenset()
    code: str = ""
    message: str = ""


class _UnlistedMachine(NamedTuple):
    id: MachineId
    order: AzureOrder
    began: int


class Inventory:
    """Lists the machines of a resource group."""

    def __init__(self, calls: AzureCalls) -> None:
        self._calls = calls
        # These save calls, or give an answer sooner.
        self._outcomes: dict[str, OrderOutcome] = {}
        self._addresses: dict[str, MachineAddresses] = {}
        self._started: dict[MachineId, int] = {}
        self._seen_alive: set[MachineId] = set()
        self._returned: dict[MachineId, int] = {}
        self.known_ends: dict[MachineId, MachineEnd] = {}
        """The machines that have been seen to be gone."""
        self._names_in_log: dict[str, frozenset[str]] = {}
        self._log_read: dict[str, float] = {}

    def machines(self, group: str) -> Iterator[Machine]:
        """All machines of a group, including those that have ended."""
        alive = {
            vm["name"].lower(): vm for vm in self._calls.listed(Operation.LIST_MACHINES, group)
        }
        deployments = self._calls.listed(Operation.LIST_DEPLOYMENTS, group)
        refused: set[str] = set()
        missing: list[_UnlistedMachine] = []

        for deployment in deployments:
            order = AzureOrder.read(deployment.get("tags") or {})
            if order is None:
                continue
            outcome = self.outcome(group, deployment)
            for name in order.machine_names:
                vm = alive.get(name.lower())
                if outcome.ended and name not in outcome.granted:
                    refused.add(name)
                elif not outcome.ended and vm is not None:
                    # Azure will refuse it when the order has ended.
                    if vm["properties"]["provisioningState"] == _FAILED:
                        refused.add(name)
                elif vm is None and name in outcome.granted:
                    id_ = MachineId(order.market.region, group, name)
                    missing.append(_UnlistedMachine(id_, order, _began(deployment)))

        gone = list(self._confirmed(missing, alive))
        billed = []
        for vm in alive.values():
            # A machine that Azure reports as failed may have been allocated all the same, and is
            # billed then.
            is_refused = vm["name"] in refused
            is_deleting = vm["properties"]["provisioningState"] == "Deleting"
            if not is_refused or (not is_deleting and self.is_allocated(group, vm["name"])):
                billed.append(vm)

        yield from self._alive(group, billed)
        yield from self._gone(group, gone)

    def outcome(self, group: str, deployment: Body) -> OrderOutcome:
        """Azure's decision about an order, as far as it has been made."""
        properties, order = deployment["properties"], AzureOrder.read(deployment.get("tags") or {})
        state, key = properties["provisioningState"], f"{group}/{deployment['name']}"
        if state not in _FINAL_STATES or order is None:
            return OrderOutcome(ended=False)

        if key not in self._outcomes:
            names = frozenset(order.machine_names)
            whole = OrderOutcome(ended=True, granted=names)
            self._outcomes[key] = (
                whole if state == _SUCCEEDED else self._partial(group, deployment, names)
            )

        return self._outcomes[key]

    def _partial(self, group: str, deployment: Body, names: frozenset[str]) -> OrderOutcome:
        code, message = cause_of(deployment["properties"].get("error"))
        granted = set()
        for step in self._calls.pages(Operation.LIST_STEPS, group, deployment["name"]):
            properties = step["properties"]
            name = str((properties.get("targetResource") or {}).get("id", "")).rpartition("/")[2]
            if name not in names:
                continue
            if properties["provisioningState"] == _SUCCEEDED:
                granted.add(name)
            elif (cause := cause_of((properties.get("statusMessage") or {}).get("error")))[0]:
                code, message = cause

        return OrderOutcome(True, frozenset(granted), code, message)

    def note_returned(self, machine: MachineId) -> None:
        """Notes that Azure accepted the deletion of this machine now."""
        if not self._is_being_deleted(machine):
            self._returned[machine] = wall_us()

    def is_allocated(self, group: str, name: str) -> bool:
        """Whether Azure has given the machine hardware: from then on it is billed."""
        return not _ALLOCATED.isdisjoint(self.statuses(group, name))

    def statuses(self, group: str, name: str) -> list[str]:
        """The codes of a machine's states, and what Azure hears of the agent that its image has."""
        vm = self._calls.find(Operation.GET_MACHINE, group, name, expand="instanceView")
        view = (vm or {}).get("properties", {}).get("instanceView") or {}
        agent = (view.get("vmAgent") or {}).get("statuses") or ()
        states = view.get("statuses") or ()
        codes = [str(status.get("code", "")) for status in states]
        heard = [str(status.get("displayStatus", "")) for status in agent]
        return codes + heard

    def _is_being_deleted(self, machine: MachineId) -> bool:
        """Whether the machine's deletion was accepted so recently that a list may not show it;
        later, lists decide.
        """
        return wall_us() - self._returned.get(machine, 0) < _DELETION_LISTED_AFTER

    def address(self, vm: Body) -> MachineAddresses | None:
        """The addresses of a machine's interface, which Azure makes with the machine; None: it has
        none yet.
        """
        id_ = vm["id"].lower()
        if id_ in self._addresses:
            return self._addresses[id_]

        interfaces = vm["properties"].get("networkProfile", {}).get("networkInterfaces") or ()
        interface = (
            self._calls.find(Operation.GET_INTERFACE, interfaces[0]["id"]) if interfaces else None
        )
        if interface is None:
            return None

        first = interface["properties"]["ipConfigurations"][0]["properties"]
        if not first.get("privateIPAddress"):
            return None

        outside = first.get("publicIPAddress")
        public = self._calls.find(Operation.GET_ADDRESS, outside["id"]) if outside else None
        shown = "" if public is None else public["properties"].get("ipAddress", "")
        self._addresses[id_] = first["privateIPAddress"], shown
        return self._addresses[id_]

    def _alive(self, group: str, vms: list[Body]) -> Iterator[Machine]:
        for vm in vms:
            order = AzureOrder.read(vm.get("tags") or {})
            if order is None:
                continue
            id_ = MachineId(order.market.region, group, vm["name"])
            address, properties = self.address(vm), vm["properties"]
            state = _STATES.get(properties["provisioningState"], MachineState.RUNNING)
            if self._is_being_deleted(id_):
                state = MachineState.LEAVING
            created = parse_time(properties["timeCreated"])
            started = self._started.setdefault(id_, created)
            private = "" if address is None else address[0]
            self._seen_alive.add(id_)
            yield Machine(
                id=str(id_),
                market=order.market,
                bid=order.bid,
                state=state,
                started=started,
                tags=dict(order.tags),
                address=private,
            )

    # -- machines that do not exist any more -------------------------------------------------------

    def _confirmed(
        self, missing: list[_UnlistedMachine], alive: dict[str, Body]
    ) -> Iterator[_UnlistedMachine]:
        """The missing machines that are really gone: a list may be late, but a query for a single
        machine is exact.
        """
        for machine in missing:
            id_ = machine.id
            known = id_ in self.known_ends
            vm = None if known else self._calls.find(Operation.GET_MACHINE, id_.group, id_.name)
            if vm is None:
                yield machine
            else:
                alive[vm["name"].lower()] = vm

    def _gone(self, group: str, gone: list[_UnlistedMachine]) -> Iterator[Machine]:
        # The ends by this process's own deletions, or else by the log, or else by inference.
        for machine in gone:
            if machine.id not in self.known_ends and machine.id in self._returned:
                at = self._returned[machine.id]
                self.known_ends[machine.id] = MachineEnd(at, EndReason.RETURNED)

        unknown = [machine for machine in gone if machine.id not in self.known_ends]
        logged = self._read_log(group, unknown) if unknown else {}
        for machine in unknown:
            end = logged.get(machine.id.name.lower())
            if end is None and machine.order.bid is not None and machine.id in self._seen_alive:
                # The machine was here a moment ago, and nothing of ours ended it: an eviction. The
                # log is minutes late.
                end = MachineEnd(wall_us(), EndReason.EVICTED)
            if end is not None:
                self.known_ends[machine.id] = end

        for machine in gone:
            order, started = machine.order, self._started.setdefault(machine.id, machine.began)
            end = self.known_ends.get(machine.id, MachineEnd(None, None))
            ended = None if end.at is None else max(end.at, started)
            yield Machine(
                str(machine.id),
                order.market,
                order.bid,
                MachineState.GONE,
                started,
                dict(order.tags),
                ended=ended,
                end_reason=end.reason,
            )

    def _read_log(self, group: str, unknown: list[_UnlistedMachine]) -> Mapping[str, MachineEnd]:
        now = time.monotonic()
        urgent = any(machine.id in self._seen_alive for machine in unknown)
        read_at = self._log_read.get(group, -_LOG_PAUSE_SECONDS)
        if not urgent and now - read_at < _LOG_PAUSE_SECONDS:
            return {}

        self._log_read[group] = now
        began = min(machine.began for machine in unknown)
        since, until = format_time(began - _LOG_MARGIN), format_time(wall_us() + _LOG_MARGIN)
        between = f"eventTimestamp ge '{since}' and eventTimestamp le '{until}'"
        chosen = f"{between} and resourceGroupName eq '{group}'"
        logged = self._calls.pages(Operation.READ_LOG, filter=chosen)

        # Without the right to read the log, only the reasons are unknown; the machines are listed
        # all the same.
        with suppress(AccessDenied):
            # The names under which Azure logs the calls of the machines' identities.
            own = frozenset[str]()
            for identity in {machine.order.identity for machine in unknown}:
                if identity not in self._names_in_log:
                    answer = self._calls.find(Operation.GET_IDENTITY, identity)
                    properties = {} if answer is None else answer["properties"]
                    shown = [properties.get(name) for name in ("principalId", "clientId")]
                    names = frozenset(str(name).lower() for name in shown if name)
                    self._names_in_log[identity] = names
                own |= self._names_in_log[identity]
            return ends(logged, own)

        return {}


def _began(deployment: Body) -> int:
    """When a deployment began: Azure says when it ended, and how long it took."""
    properties = deployment["properties"]
    ended, took = parse_time(properties["timestamp"]), properties.get("duration") or "PT0S"
    matched = re.fullmatch(r"PT(?:(\d+)H)?(?:(\d+)M)?(?:([\d.]+)S)?", took)
    if matched is None:
        return ended

    hours, minutes, seconds = (float(part or 0) for part in matched.groups())
    return ended - round((hours * 3600 + minutes * 60 + seconds) * SECOND)


_DELETION: Final = "microsoft.compute/virtualmachines/delete"
_EVICTION: Final = "microsoft.compute/virtualmachines/evictspotvm/action"
_FAILURE: Final = "failed"


def ends(
    events: Iterable[Mapping[str, Any]], own_identities: frozenset[str]
) -> dict[str, MachineEnd]:
    """The ends in the log, by the names of the machines in lower case.

    A machine ends when its eviction or deletion begins: from then on Azure does not bill the
    machine. A deletion that a machine itself asked for, with one of these identities, is the end of
    its lease.
    """
    logged: dict[str, MachineEnd] = {}
    timed = [(parse_time(event["eventTimestamp"]), event) for event in events]
    for at, event in sorted(timed, key=itemgetter(0)):
        operation = _value(event, "operationName")
        if operation not in (_DELETION, _EVICTION) or _value(event, "status") == _FAILURE:
            continue
        name = str(event["resourceId"]).rpartition("/")[2].lower()
        if operation == _EVICTION:
            reason = EndReason.EVICTED
        else:
            by_machine = str(event.get("caller", "")).lower() in own_identities
            reason = EndReason.LEASE_ENDED if by_machine else EndReason.RETURNED
        logged.setdefault(name, MachineEnd(at, reason))

    return logged


def _value(event: Mapping[str, Any], name: str) -> str:
    """A localizable string of the log, in lower case."""
    field = event.get(name) or {}
    return str(field.get("value", "")).lower()
