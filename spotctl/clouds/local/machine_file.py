"""`machine.json`: the provider's instructions to a machine's hypervisor."""

from __future__ import annotations

import signal
from dataclasses import asdict, dataclass
from typing import Any

from spotctl.agent.container.payload import Payload
from spotctl.clouds.machine_end import PlannedEnd

HOST = "127.0.0.1"
"""The address at which agents of local machines listen."""

RETURN_SIGNAL = signal.SIGUSR1
"""Tells a hypervisor that its machine was returned, when no file can be written."""


@dataclass(frozen=True, slots=True)
class MachineFile:
    """A machine's id, its number in its request, and its planned end; `closes_at` ends the market's history."""

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
