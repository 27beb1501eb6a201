"""Notices of Azure, from the metadata service of a machine."""

from __future__ import annotations

import json
import os
import time
from email.utils import parsedate_to_datetime

from spotctl.agent.lease.lease_files import MachineNotice
from spotctl.agent.lease.notices import NoticePoller, json_object
from spotctl.agent.lease.self_deletion import METADATA_HOST, ask, fetch_metadata

WARNING_SECONDS = 30.0
"""The time from a notice to the end, if a notice does not say; notices often leave less."""

_EVICTIONS, _HINTS = ("Preempt", "Terminate"), ("Reboot", "Redeploy")


class AzureNotices(NoticePoller):
    """Scheduled Events. Azure carries out an acknowledged event at once, so events are acknowledged
    only when nothing is left to save."""

    pause = 1.0

    def __init__(self, host: str) -> None:
        self._host, self._name = host, ""
        self._evictions: dict[str, float] = {}
        self._acknowledged: set[str] = set()

    def poll(self) -> list[MachineNotice]:
        if not self._name:
            path = "/metadata/instance?api-version=2021-02-01"
            self._name = str(
                json_object(fetch_metadata(self._host, path, {"Metadata": "true"}))["compute"][
                    "name"
                ]
            )

        # The first request switches events on, so its answer may take two minutes.
        status, body, _ = ask(self._host, self._path, {"Metadata": "true"}, seconds=130)
        if status != 200:
            raise OSError(f"scheduledevents: status {status}")

        notices = []
        for event in json_object(body)["Events"]:
            names = [str(name).lstrip("_") for name in event.get("Resources", ())]
            kind = event.get("EventType")
            if kind not in (*_EVICTIONS, *_HINTS) or self._name not in names:
                continue

            # Without a time, the event has started or starts now; time counts from when it was
            # first seen.
            id_, before = str(event["EventId"]), str(event.get("NotBefore") or "")
            until = (
                parsedate_to_datetime(before).timestamp() if before else self._evictions.get(id_)
            )
            if until is None:
                until = time.time() + WARNING_SECONDS
            if kind in _EVICTIONS:
                until = self._evictions.setdefault(id_, until)
                notices.append(MachineNotice("evict", round(until * 1e6), "azure"))
            else:
                source = f"azure {kind.lower()}"
                notices.append(MachineNotice("hint", round(until * 1e6), source))

        return notices

    def payload_ended(self) -> None:
        events = [event for event in self._evictions if event not in self._acknowledged]
        if events:
            body = json.dumps({"StartRequests": [{"EventId": event} for event in events]})
            ask(
                self._host,
                self._path,
                {"Metadata": "true", "Content-Type": "application/json"},
                "POST",
                body,
            )
            self._acknowledged.update(events)

    _path = "/metadata/scheduledevents?api-version=2020-07-01"


def notices(_: dict[str, str]) -> AzureNotices:
    """The poller of a machine."""
    return AzureNotices(os.environ.get("AZURE_METADATA_HOST") or METADATA_HOST)
