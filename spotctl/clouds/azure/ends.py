"""Reads from Azure's activity log when and why machines ended that are no longer listed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pricing_data.units import parse_time
from spotctl.clouds.provider import EndReason

_DELETION: Final = "microsoft.compute/virtualmachines/delete"
_EVICTION: Final = "microsoft.compute/virtualmachines/evictspotvm/action"
_FAILED: Final = "failed"


@dataclass(frozen=True, slots=True)
class LoggedEnd:
    """An end; the reason is None until Azure has logged it."""

    at: int
    reason: EndReason | None


def ends(events: Iterable[Mapping[str, Any]], own_identities: frozenset[str]) -> dict[str, LoggedEnd]:
    """The ends in the log, by the names of the machines in lower case.

    A machine ends when its eviction or deletion begins: from then on Azure does not bill the machine. A deletion that
    a machine itself asked for, with one of these identities, is the end of its lease.
    """
    logged: dict[str, LoggedEnd] = {}
    for at, event in sorted(
        ((parse_time(event["eventTimestamp"]), event) for event in events), key=lambda pair: pair[0]
    ):
        operation = _value(event, "operationName")
        if operation not in (_DELETION, _EVICTION) or _value(event, "status") == _FAILED:
            continue
        name = str(event["resourceId"]).rpartition("/")[2].lower()
        if operation == _EVICTION:
            reason = EndReason.EVICTED
        else:
            by_machine = str(event.get("caller", "")).lower() in own_identities
            reason = EndReason.LEASE_ENDED if by_machine else EndReason.RETURNED
        logged.setdefault(name, LoggedEnd(at, reason))
    return logged


def _value(event: Mapping[str, Any], name: str) -> str:
    """A localizable string of the log, in lower case."""
    field = event.get(name) or {}
    return str(field.get("value", "")).lower()
