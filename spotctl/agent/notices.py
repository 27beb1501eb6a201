"""Eviction notices: one poller per cloud, which asks the cloud's metadata service.

A poller's `poll` returns the notices in force, waits no longer than the service's long poll, and raises
OSError or ValueError when the service does not answer as documented. Moments are seconds since 1970.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Protocol

from spotctl.agent.self_deletion import METADATA_HOST, ask, azure_host, fetch_metadata, google_host

GOOGLE_WARNING_SECONDS = 30.0
AZURE_WARNING_SECONDS = 30.0
"""The time from a notice to the end; Azure's notices often leave less."""

_TOKEN_SECONDS = 21_600
_GOOGLE_WAIT_SECONDS = 60
_EVICTIONS, _HINTS = ("Preempt", "Terminate"), ("Reboot", "Redeploy")


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


class AwsNotices:
    """IMDSv2: interruption notices two minutes ahead, and rebalance recommendations, which are only hints."""

    pause = 5.0

    def __init__(self, host: str) -> None:
        self._host = host
        self._token, self._token_until = "", 0.0

    def poll(self) -> list[CloudNotice]:
        notices = []
        action = self._value("spot/instance-action")
        if action is not None and action.get("action") in ("terminate", "stop", "hibernate"):
            notices.append(CloudNotice("evict", _iso(action["time"]), "aws"))
        rebalance = self._value("events/recommendations/rebalance")
        if rebalance is not None:
            notices.append(CloudNotice("hint", _iso(rebalance["noticeTime"]), "aws rebalance"))
        return notices

    def payload_ended(self) -> None:
        """EC2 does not accept acknowledgments."""

    def _value(self, path: str) -> dict[str, Any] | None:
        if time.monotonic() > self._token_until:
            lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_SECONDS)}
            status, token, _ = ask(self._host, "/latest/api/token", lifetime, "PUT")
            if status != 200:
                raise OSError(f"metadata token: status {status}")
            self._token, self._token_until = token, time.monotonic() + _TOKEN_SECONDS / 2
        status, body, _ = ask(self._host, f"/latest/meta-data/{path}", {"X-aws-ec2-metadata-token": self._token})
        if status == 404:
            return None
        if status != 200:
            self._token_until = 0.0
            raise OSError(f"{path}: status {status}")
        return _object(body)


class GoogleNotices:
    """A preemption changes `instance/preempted`, about 30 seconds ahead; the service delays its answer until then."""

    pause = 0.0

    def __init__(self, host: str) -> None:
        self._host = host
        self._etag = ""
        self._until: float | None = None

    def poll(self) -> list[CloudNotice]:
        if self._until is None:
            # The first request is answered at once; later ones name the last answer, so that no change is missed.
            query = f"?wait_for_change=true&timeout_sec={_GOOGLE_WAIT_SECONDS}&last_etag={self._etag}"
            path = f"/computeMetadata/v1/instance/preempted{query if self._etag else ''}"
            headers = {"Metadata-Flavor": "Google"}
            status, body, answered = ask(self._host, path, headers, seconds=_GOOGLE_WAIT_SECONDS + 10)
            if status != 200:
                raise OSError(f"instance/preempted: status {status}")
            # Without a tag in the answer, the next request cannot wait for a change.
            self._etag = answered.get("etag", "")
            self.pause = 0.0 if self._etag else 1.0
            if body.strip().upper() != "TRUE":
                return []
            self._until = time.time() + GOOGLE_WARNING_SECONDS
        self.pause = _GOOGLE_WAIT_SECONDS
        return [CloudNotice("evict", self._until, "gcp")]

    def payload_ended(self) -> None:
        """Compute Engine does not accept acknowledgments."""


class AzureNotices:
    """Scheduled Events. Azure carries out an acknowledged event at once, so events are acknowledged only when nothing
    is left to save."""

    pause = 1.0

    def __init__(self, host: str) -> None:
        self._host, self._name = host, ""
        self._evictions: dict[str, float] = {}
        self._acknowledged: set[str] = set()

    def poll(self) -> list[CloudNotice]:
        if not self._name:
            path = "/metadata/instance?api-version=2021-02-01"
            self._name = str(_object(fetch_metadata(self._host, path, {"Metadata": "true"}))["compute"]["name"])
        # The first request switches events on, so its answer may take two minutes.
        status, body, _ = ask(self._host, self._path, {"Metadata": "true"}, seconds=130)
        if status != 200:
            raise OSError(f"scheduledevents: status {status}")
        return [self._notice(event) for event in _object(body)["Events"] if self._is_ours(event)]

    def payload_ended(self) -> None:
        events = [event for event in self._evictions if event not in self._acknowledged]
        if events:
            body = json.dumps({"StartRequests": [{"EventId": event} for event in events]})
            ask(self._host, self._path, {"Metadata": "true", "Content-Type": "application/json"}, "POST", body)
            self._acknowledged.update(events)

    _path = "/metadata/scheduledevents?api-version=2020-07-01"

    def _is_ours(self, event: dict[str, Any]) -> bool:
        names = [str(name).lstrip("_") for name in event.get("Resources", ())]
        return event.get("EventType") in (*_EVICTIONS, *_HINTS) and self._name in names

    def _notice(self, event: dict[str, Any]) -> CloudNotice:
        name, kind = str(event["EventId"]), "evict" if event["EventType"] in _EVICTIONS else "hint"
        before = str(event.get("NotBefore") or "")
        # Without a time, the event has started or starts now; time counts from when it was first seen.
        until = parsedate_to_datetime(before).timestamp() if before else self._evictions.get(name)
        if until is None:
            until = time.time() + AZURE_WARNING_SECONDS
        if kind == "evict":
            self._evictions.setdefault(name, until)
            until = self._evictions[name]
        return CloudNotice(kind, until, "azure" if kind == "evict" else f"azure {event['EventType'].lower()}")


def poller_of(cloud: str, environment: dict[str, str]) -> NoticePoller | None:
    """The poller for a cloud; None if the machine is on no known cloud."""
    aws_host = environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", METADATA_HOST)
    pollers: dict[str, Callable[[], NoticePoller]] = {
        "aws": lambda: AwsNotices(aws_host.rpartition("//")[2].rstrip("/")),
        "gcp": lambda: GoogleNotices(google_host()),
        "azure": lambda: AzureNotices(azure_host()),
    }
    return pollers[cloud]() if cloud in pollers else None


def _iso(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).replace(tzinfo=UTC).timestamp()


def _object(body: str) -> dict[str, Any]:
    values = json.loads(body)
    if not isinstance(values, dict):
        raise ValueError(f"not a JSON object: {body[:60]}")
    return values
