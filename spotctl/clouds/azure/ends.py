"""When and why machines ended that Azure does not list any more, from its activity log. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pricing_data.units import parse_time
from spotctl.clouds.base import EndReason

_DELETION: Final = "microsoft.compute/virtualmachines/delete"
_EVICTION: Final = "microsoft.compute/virtualmachines/evictspotvm/action"
_FAILED: Final = "failed"


@dataclass(frozen=True, slots=True)
class LoggedEnd:
    """An end; the reason is None while Azure has not said it."""

    at: int
    reason: EndReason | None


def ends(events: Iterable[Mapping[str, Any]], own_identities: frozenset[str]) -> dict[str, LoggedEnd]:
    """The ends in the log, by the names of the machines in small letters.

    A machine ends when its eviction or deletion begins: from then on Azure does not bill it. A deletion that a machine
    itself asked for, with one of these identities, is the end of its lease.
    """
    found: dict[str, LoggedEnd] = {}
    for at, event in sorted(((parse_time(one["eventTimestamp"]), one) for one in events), key=lambda pair: pair[0]):
        operation = _value(event, "operationName")
        if operation not in (_DELETION, _EVICTION) or _value(event, "status") == _FAILED:
            continue
        name = str(event["resourceId"]).rpartition("/")[2].lower()
        if operation == _EVICTION:
            reason = EndReason.EVICTED
        else:
            itself = str(event.get("caller", "")).lower() in own_identities
            reason = EndReason.LEASE_ENDED if itself else EndReason.RETURNED
        found.setdefault(name, LoggedEnd(at, reason))
    return found


def _value(event: Mapping[str, Any], name: str) -> str:
    """A localizable string of the log, in small letters."""
    field = event.get(name) or {}
    return str(field.get("value", "")).lower()
