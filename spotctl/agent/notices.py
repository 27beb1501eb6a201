"""Eviction notices: one poller for each cloud, which asks the cloud's metadata service.

A poller's `poll` returns the notices in force, waits no longer than the service's long poll, and raises
OSError or ValueError when the service does not answer as documented. Moments are seconds since 1970.
"""

import json
from dataclasses import dataclass
from typing import Any, Protocol

from spotctl.agent.cloud_parts import MACHINE, cloud_part


@dataclass(frozen=True, slots=True)
class CloudNotice:
    """The machine will be taken (`kind` "evict") at `until`, or may be ("hint"); by `source`."""

    kind: str
    until: float
    source: str


class NoticePoller(Protocol):
    """Asks one cloud's metadata service; the caller pauses this many seconds between polls."""

    pause: float

    def poll(self) -> list[CloudNotice]:
        """The notices in force; a notice may be returned more than once."""
        ...

    def payload_ended(self) -> None:
        """Tells the cloud that the machine has nothing more to save, so that the cloud need not wait."""
        ...


def poller_of(cloud: str, environment: dict[str, str]) -> NoticePoller | None:
    """The poller for a cloud; None if the machine is on no known cloud."""
    part = cloud_part(cloud, MACHINE)
    poller: NoticePoller | None = None if part is None else part.notices(environment)
    return poller


def json_object(body: str) -> dict[str, Any]:
    """The JSON object of an answer."""
    values = json.loads(body)
    if not isinstance(values, dict):
        raise ValueError(f"not a JSON object: {body[:60]}")
    return values
