"""Requests that are repeated with their token, and settings that a provider does not have."""

from __future__ import annotations

from dataclasses import replace

from spotctl.errors import BadRequest
from spotctl.machines.base import MachineRequest


def same_request(one: MachineRequest, other: MachineRequest) -> bool:
    """Whether two requests differ only in what may change when a request is repeated."""
    return _fixed(one) == _fixed(other)


def check_settings(request: MachineRequest, provider: str) -> None:
    """Refuses settings of a cloud's machines on a provider whose machines have none."""
    for name in ("image", "identity", "disk_gib", "network"):
        if (value := getattr(request, name)) is not None:
            raise BadRequest(
                f"{name} is {value!r}, but machines of the {provider} provider have no {name}; leave it out"
            )


def _fixed(request: MachineRequest) -> MachineRequest:
    return replace(request, lease_until=0, secrets={}, tags=dict(request.tags))
