"""Orders that are repeated with their token."""

from __future__ import annotations

from dataclasses import replace

from spotctl.machines.base import MachineRequest


def same_request(one: MachineRequest, other: MachineRequest) -> bool:
    """Whether two orders are one that was repeated: later, so that its lease may end later."""
    return _lasting(one) == _lasting(other)


def _lasting(order: MachineRequest) -> MachineRequest:
    return replace(order, lease_until=0, secrets={}, tags=dict(order.tags))
