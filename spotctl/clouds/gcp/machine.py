"""Notices of Compute Engine, from the metadata service of a machine."""

from __future__ import annotations

import os
import time

from spotctl.agent.lease.lease_files import MachineNotice
from spotctl.agent.lease.notices import NoticePoller
from spotctl.agent.lease.self_deletion import METADATA_HOST, ask

WARNING_SECONDS = 30.0
"""The time from a notice to the end."""

_WAIT_SECONDS = 60


class GoogleNotices(NoticePoller):
    """A preemption changes `instance/preempted`, about 30 seconds ahead; the service delays its
    answer until then.
    """

    pause = 0.0

    def __init__(self, host: str) -> None:
        self._host = host
        self._etag = ""
        self._until: int | None = None

    def poll(self) -> list[MachineNotice]:
        if self._until is None:
            # The first request is answered at once; later ones name the last answer, so that no
            # change is missed.
            query = f"?wait_for_change=true&timeout_sec={_WAIT_SECONDS}&last_etag={self._etag}"
            path = f"/computeMetadata/v1/instance/preempted{query if self._etag else ''}"
            headers = {"Metadata-Flavor": "Google"}
            status, body, answered = ask(self._host, path, headers, seconds=_WAIT_SECONDS + 10)
            if status != 200:
                raise OSError(f"instance/preempted: status {status}")
            # Without a tag in the answer, the next request cannot wait for a change.
            self._etag = answered.get("etag", "")
            self.pause = 0.0 if self._etag else 1.0
            if body.strip().upper() != "TRUE":
                return []
            self._until = round((time.time() + WARNING_SECONDS) * 1e6)

        self.pause = _WAIT_SECONDS
        return [MachineNotice("evict", self._until, "gcp")]


def notices(_: dict[str, str]) -> GoogleNotices:
    """The poller of a machine."""
    return GoogleNotices(os.environ.get("GCE_METADATA_HOST") or METADATA_HOST)
