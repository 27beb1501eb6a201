"""The notice of a pod that RunPod takes back: a signal, five seconds before it is killed.

docs.runpod.io, "Pricing", until May 2026. The pod's first process notes the signal in a file.
"""

from __future__ import annotations

from pathlib import Path

from spotctl.agent.lease.lease_files import MachineNotice
from spotctl.agent.lease.notices import NoticePoller

SIGNALLED = "/opt/spotctl/signalled"
_SECONDS = 5


class SignalNotices(NoticePoller):
    """Looks for the file."""

    pause = 0.5

    def poll(self) -> list[MachineNotice]:
        path = Path(SIGNALLED)
        if not path.exists():
            return []
        until = round((path.stat().st_mtime + _SECONDS) * 1e6)
        return [MachineNotice("evict", until, "runpod")]


def notices(_: dict[str, str]) -> SignalNotices:
    """The poller of a pod."""
    return SignalNotices()
