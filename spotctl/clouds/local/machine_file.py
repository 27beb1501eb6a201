"""`machine.json`: the provider's instructions to a machine's hypervisor; and which of a machine's
ends comes first.

A hypervisor has the standard library only.
"""

from __future__ import annotations

import signal
from dataclasses import asdict, dataclass
from operator import attrgetter
from typing import Any

from spotctl.agent.container.payload import Payload

HOST = "127.0.0.1"
"""The address at which agents of local machines listen."""

RETURN_SIGNAL = signal.SIGUSR1
"""Tells a hypervisor that its machine was returned, when no file can be written."""


@dataclass(frozen=True, slots=True)
class MachineFile:
    """A machine's id, its number in its request, and its planned end; `closes_at` ends the market's
    history.
    """

    id: str
    index: int
    plan: PlannedEnd
    lease_until: int
    closes_at: int
    payload: Payload | None

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "payload": None if self.payload is None else self.payload.to_json()}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> MachineFile:
        payload = None if values["payload"] is None else Payload.from_json(values["payload"])
        return cls(**{**values, "plan": PlannedEnd(**values["plan"]), "payload": payload})


EVICTED, RETURNED, LEASE_ENDED, FAILED = "evicted", "returned", "lease ended", "failed"


@dataclass(frozen=True, slots=True)
class PlannedEnd:
    """When the market takes a machine (`taken_at` None: never) and warns it (`warned_at` None: not
    at all).
    """

    started: int
    taken_at: int | None = None
    warned_at: int | None = None


@dataclass(frozen=True, slots=True)
class ReplayedEnd:
    """When and why a machine ended, on the replayed market's clock."""

    at: int
    reason: str


def end_of(
    plan: PlannedEnd, lease_until: int, terminated_at: int | None, now: int
) -> ReplayedEnd | None:
    """The end that has come by `now`, dated at its own moment, so the result does not depend on
    `now`.

    If an eviction and a termination fall on the same moment, the eviction counts, as in the
    backtest.
    """
    ends = ((plan.taken_at, EVICTED), (terminated_at, RETURNED), (lease_until, LEASE_ENDED))
    due = [
        ReplayedEnd(max(at, plan.started), reason)
        for at, reason in ends
        if at is not None and at <= now
    ]
    return min(due, key=attrgetter("at"), default=None)


def warning(plan: PlannedEnd, now: int) -> int | None:
    """When a machine will be taken, if the market has warned it by now."""
    return plan.taken_at if plan.warned_at is not None and plan.warned_at <= now else None
