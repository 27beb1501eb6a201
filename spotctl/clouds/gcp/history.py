"""Reads from a project's operations which machines were created, and when and why they ended. Pure.

Compute Engine keeps operations for at least 14 days, and deletes a machine's other traces with the machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pricing_data.units import MINUTE, parse_time
from spotctl.clouds.gcp.names import end_ids
from spotctl.clouds.provider import EndReason

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
    """A machine's life as its operations record it. `operation` created it, or is still doing so (`pending`)."""

    zone: str
    name: str
    started: int
    operation: str
    pending: bool
    failure: OperationFailure | None = None
    end: MachineEnd | None = None

    def end_if_missing(self, now: int) -> MachineEnd | None:
        """The end of this machine if it does not exist; None: its creation or its end is too recent to say."""
        if self.end is not None:
            return self.end
        return MachineEnd(None, EndReason.FAILED) if now - self.started > _LISTED_AFTER else None


def pasts(operations: Iterable[Any]) -> dict[tuple[str, str], Past]:
    """The past of each machine named in operations, by zone and name, unless its creation was too long ago."""
    by_machine: dict[tuple[str, str], list[Any]] = {}
    for operation in operations:
        zone, kind, name = operation.target_link.split("/")[-3:]
        if kind == "instances":
            by_machine.setdefault((zone, name), []).append(operation)
    known = {}
    for (zone, name), own in by_machine.items():
        own.sort(key=lambda operation: parse_time(operation.insert_time))
        if creation := next((operation for operation in own if operation.operation_type in _INSERTS), None):
            known[zone, name] = Past(
                zone,
                name,
                parse_time(creation.insert_time),
                creation.name,
                is_pending(creation),
                failure_of(creation),
                _end_of(name, own),
            )
    return known


def is_pending(operation: Any) -> bool:  # noqa: ANN401  # the SDK's messages are not annotated
    return bool(operation.status != type(operation).Status.DONE)


def failure_of(operation: Any) -> OperationFailure | None:  # noqa: ANN401  # the SDK's messages are not annotated
    """Why an operation failed; None if it has not failed."""
    errors = operation.error.errors
    if errors:
        return OperationFailure(errors[0].code, errors[0].message)
    if operation.http_error_status_code >= 400:
        return OperationFailure(operation.http_error_message, f"HTTP {operation.http_error_status_code}")
    return None


def _end_of(name: str, operations: Iterable[Any]) -> MachineEnd | None:
    """The end by the first operation that ended a machine; operations that failed ended nothing."""
    for operation in operations:
        reason = _ENDINGS.get(operation.operation_type) or (
            _reason_of_deletion(name, operation) if operation.operation_type == _DELETE else None
        )
        if reason is not None and failure_of(operation) is None:
            at = None if is_pending(operation) else parse_time(operation.end_time or operation.insert_time)
            return MachineEnd(at, reason)
    return None


def _reason_of_deletion(name: str, operation: Any) -> EndReason:  # noqa: ANN401  # the SDK's messages are not annotated
    """A launcher's deletions have request ids that say why; a machine deletes itself when its lease ends."""
    for reason in EndReason:
        if operation.client_operation_id in end_ids(name, reason):
            return reason
    # Google itself deletes machines at the end of `maxRunDuration`, which is later than the end of the lease.
    by_itself = operation.user in _GOOGLE_USERS or operation.user.endswith(_SERVICE_ACCOUNTS)
    return EndReason.LEASE_ENDED if by_itself else EndReason.FAILED
