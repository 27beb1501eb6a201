"""What the operations of a project reveal about machines: which were created, and when and why they ended. Pure.

Compute Engine keeps operations for at least 14 days, and deletes a machine's other traces with the machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pricing_data.units import MINUTE, parse_time
from spotctl.clouds.base import EndReason
from spotctl.clouds.gcp.names import end_ids

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
_OF_MACHINES = ".gserviceaccount.com"
_SYSTEM = frozenset({"system", "system@google.com"})
_TOLD_LATE = 10 * MINUTE
"""How long after its creation a machine may be missing in lists although it exists."""


@dataclass(frozen=True, slots=True)
class OperationFailure:
    """Why a machine could not be created, in Google's words."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class MachineEnd:
    """The end of a machine; `at` is None as long as it is in progress."""

    at: int | None
    reason: EndReason


@dataclass(frozen=True, slots=True)
class Past:
    """What is known of a machine from its operations. `operation` created it, or is still doing so (`pending`)."""

    zone: str
    name: str
    started: int
    operation: str
    pending: bool
    failure: OperationFailure | None = None
    end: MachineEnd | None = None

    def end_if_missing(self, now: int) -> MachineEnd | None:
        """The end of this machine, which does not exist; None: its creation or its end is too recent to say."""
        if self.end is not None:
            return self.end
        return MachineEnd(None, EndReason.FAILED) if now - self.started > _TOLD_LATE else None


def pasts(operations: Iterable[Any]) -> dict[tuple[str, str], Past]:
    """The past of each machine named in operations, by zone and name, unless its creation was too long ago."""
    by_machine: dict[tuple[str, str], list[Any]] = {}
    for operation in operations:
        zone, kind, name = operation.target_link.split("/")[-3:]
        if kind == "instances":
            by_machine.setdefault((zone, name), []).append(operation)
    found = {}
    for (zone, name), told in by_machine.items():
        told.sort(key=lambda one: parse_time(one.insert_time))
        if creation := next((one for one in told if one.operation_type in _INSERTS), None):
            found[zone, name] = Past(
                zone,
                name,
                parse_time(creation.insert_time),
                creation.name,
                is_pending(creation),
                failure_of(creation),
                _end_of(name, told),
            )
    return found


def is_pending(operation: Any) -> bool:  # noqa: ANN401  # the SDK's messages are not annotated
    return bool(operation.status != type(operation).Status.DONE)


def failure_of(operation: Any) -> OperationFailure | None:  # noqa: ANN401  # the SDK's messages are not annotated
    """Why an operation failed; None if it has not."""
    errors = operation.error.errors
    if errors:
        return OperationFailure(errors[0].code, errors[0].message)
    if operation.http_error_status_code >= 400:
        return OperationFailure(operation.http_error_message, f"HTTP {operation.http_error_status_code}")
    return None


def _end_of(name: str, operations: Iterable[Any]) -> MachineEnd | None:
    """The first thing that ended a machine; operations that failed ended nothing."""
    for one in operations:
        reason = _ENDINGS.get(one.operation_type) or (
            _reason_of_deletion(name, one) if one.operation_type == _DELETE else None
        )
        if reason is not None and failure_of(one) is None:
            return MachineEnd(None if is_pending(one) else parse_time(one.end_time or one.insert_time), reason)
    return None


def _reason_of_deletion(name: str, operation: Any) -> EndReason:  # noqa: ANN401  # the SDK's messages are not annotated
    """A launcher's deletions have request ids that say why; a machine deletes itself when its lease ends."""
    for reason in EndReason:
        if operation.client_operation_id in end_ids(name, reason):
            return reason
    # Google itself deletes machines at the end of `maxRunDuration`, which is later than the end of the lease.
    by_itself = operation.user in _SYSTEM or operation.user.endswith(_OF_MACHINES)
    return EndReason.LEASE_ENDED if by_itself else EndReason.FAILED
