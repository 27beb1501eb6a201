"""Machines and resources as their callers see them, from Google's descriptions and from a project's
operations. Pure.

Operations tell which machines were created, and when and why they ended: Compute Engine keeps them
for at least 14 days, and deletes a machine's other traces with the machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

from pricing_data.units import MINUTE, parse_time
from spotctl.clouds.gcp.orders import (
    BID_LABEL,
    CLOUD,
    POLICY_KIND,
    described,
    end_ids,
    machine_id,
    parsed,
    tags_of,
)
from spotctl.clouds.provider import EndReason, Machine, MachineEnd, MachineState, Resource, run_tags
from spotctl.home.installation import INTENT_TAG

_STATES = {
    "PROVISIONING": MachineState.STARTING,
    "STAGING": MachineState.STARTING,
    "PENDING": MachineState.STARTING,
    "REPAIRING": MachineState.STARTING,
    "RUNNING": MachineState.RUNNING,
    "PENDING_STOP": MachineState.LEAVING,
    "STOPPING": MachineState.LEAVING,
    "DEPROVISIONING": MachineState.LEAVING,
    "SUSPENDING": MachineState.LEAVING,
    "SUSPENDED": MachineState.GONE,
    "STOPPED": MachineState.GONE,
    "TERMINATED": MachineState.GONE,
}
"""A stopped machine is gone: it is never started again, and `spotctl gc` deletes it with its
disk."""


def last_part(link: str) -> str:
    """The name at the end of a resource's address."""
    return link.rpartition("/")[2]


# The SDK's messages are not annotated.
def machine_of(instance: Any, past: Past | None, mandatory: Mapping[str, str]) -> Machine | None:  # noqa: ANN401
    """A machine that exists; None if its name is not one of spotctl's."""
    known, zone = parsed(instance.name), last_part(instance.zone)
    if known is None:
        return None

    order, _ = known
    type_ = last_part(instance.machine_type)
    for card in instance.guest_accelerators:
        type_ += f"+{card.accelerator_count}-{last_part(card.accelerator_type)}"

    bid = instance.labels.get(BID_LABEL)
    interfaces = instance.network_interfaces
    machine = Machine(
        machine_id(zone, instance.name),
        replace(order.market(zone), instance_type=type_),
        int(bid) if bid else None,
        _STATES.get(instance.status, MachineState.STARTING),
        past.started if past is not None else parse_time(instance.creation_timestamp),
        tags_of(instance.labels, mandatory),
        interfaces[0].network_i_p if interfaces else "",
    )

    if machine.state is not MachineState.GONE:
        return machine
    end = past.end if past is not None else None
    at, reason = (None, None) if end is None else (end.at, end.reason)
    if not at and instance.last_stop_timestamp:
        at = parse_time(instance.last_stop_timestamp)
    return replace(machine, ended=at, end_reason=reason)


def gone_machine(past: Past, end: MachineEnd, tags: Mapping[str, str]) -> Machine:
    """A machine that Google has deleted, whose run has these tags. Its bid is no longer known."""
    known = parsed(past.name)
    assert known is not None, past.name
    order, _ = known
    own = run_tags(tags)
    if order.intent:
        own[INTENT_TAG] = order.intent

    return Machine(
        machine_id(past.zone, past.name),
        order.market(past.zone),
        None,
        MachineState.GONE,
        past.started,
        own,
        ended=end.at,
        end_reason=end.reason,
    )


def shared_resource(kind: str, item: Any) -> Resource | None:  # noqa: ANN401  # the SDK's messages
    """A firewall rule or a placement policy of a run: its description holds the run's tags.

    None if spotctl did not create it.
    """
    if (tags := described(item.description)) is None:
        return None
    if kind == POLICY_KIND:
        place = detail = last_part(item.region)
    else:
        place, detail = "global", last_part(item.network)
    return Resource(kind, f"{CLOUD}:{place}:{item.name}", tags, detail)


_INSERTS = frozenset({"insert", "bulkInsert"})
_EVICTED = "compute.instances.preempted"
_ENDINGS = {
    _EVICTED: EndReason.EVICTED,
    # The machine switched itself off without being allowed to delete itself, or its system crashed.
    "compute.instances.guestTerminate": EndReason.FAILED,
    "compute.instances.hostError": EndReason.FAILED,
    "compute.instances.terminateOnHostMaintenance": EndReason.FAILED,
    "stop": EndReason.FAILED,
}
_DELETE = "delete"
_SERVICE_ACCOUNTS = ".gserviceaccount.com"
_GOOGLE_USERS = frozenset({"system", "system@google.com"})
_LISTED_AFTER = 10 * MINUTE
"""A list may lack an existing machine that is younger than this."""


OperationFailure = tuple[str, str]
"""Why a machine could not be created: Google's code and words."""


@dataclass(frozen=True, slots=True)
class Past:
    """A machine's life as its operations record it. `operation` created it, or is still doing so
    (`pending`).
    """

    zone: str
    name: str
    started: int
    operation: str
    pending: bool
    failure: OperationFailure | None = None
    end: MachineEnd | None = None

    def end_if_missing(self, now: int) -> MachineEnd | None:
        """The end of this machine if it does not exist; None: its creation or its end is too recent
        to say.
        """
        if self.end is not None:
            return self.end
        return MachineEnd(None, EndReason.FAILED) if now - self.started > _LISTED_AFTER else None


def pasts(operations: Iterable[Any]) -> dict[tuple[str, str], Past]:
    """The past of each machine named in operations, by zone and name, unless its creation was too
    long ago.
    """
    by_machine: dict[tuple[str, str], list[tuple[int, Any]]] = {}
    for operation in operations:
        zone, kind, name = operation.target_link.split("/")[-3:]
        if kind == "instances":
            at = parse_time(operation.insert_time)
            by_machine.setdefault((zone, name), []).append((at, operation))

    known = {}
    for (zone, name), timed in by_machine.items():
        timed.sort(key=itemgetter(0))
        creations = [of for of in timed if of[1].operation_type in _INSERTS]
        if creations:
            started, creation = creations[0]
            pending, failure = is_pending(creation), failure_of(creation)
            end = _end_of(name, [operation for _, operation in timed])
            known[zone, name] = Past(zone, name, started, creation.name, pending, failure, end)

    return known


def is_pending(operation: Any) -> bool:  # noqa: ANN401  # the SDK's messages are not annotated
    return bool(operation.status != type(operation).Status.DONE)


# The SDK's messages are not annotated.
def failure_of(operation: Any) -> OperationFailure | None:  # noqa: ANN401
    """Why an operation failed; None if it has not failed."""
    errors = operation.error.errors
    if errors:
        return errors[0].code, errors[0].message
    if operation.http_error_status_code >= 400:
        return operation.http_error_message, f"HTTP {operation.http_error_status_code}"
    return None


def _end_of(name: str, operations: Iterable[Any]) -> MachineEnd | None:
    """The end by the first operation that ended a machine; operations that failed ended nothing."""
    for operation in operations:
        kind = operation.operation_type
        reason = _ENDINGS.get(kind)
        if kind == _DELETE:
            reason = _reason_of_deletion(name, operation)
        if reason is None or failure_of(operation) is not None:
            continue

        at = None
        if not is_pending(operation):
            at = parse_time(operation.end_time or operation.insert_time)
        return MachineEnd(at, reason)
    return None


# The SDK's messages are not annotated.
def _reason_of_deletion(name: str, operation: Any) -> EndReason:  # noqa: ANN401
    """A launcher's deletions have request ids that say why; a machine deletes itself when its lease
    ends.
    """
    for reason in EndReason:
        if operation.client_operation_id in end_ids(name, reason):
            return reason
    # Google itself deletes machines at the end of `maxRunDuration`, which is later than the end of
    # the lease.
    by_itself = operation.user in _GOOGLE_USERS or operation.user.endswith(_SERVICE_ACCOUNTS)
    return EndReason.LEASE_ENDED if by_itself else EndReason.FAILED
