"""Eviction notices: one poller for each cloud, which asks the cloud's metadata service, and a relay
to the agent.

A poller's `poll` returns the notices in force, waits no longer than the service's long poll, and
raises OSError or ValueError when the service does not answer as documented.
"""

import json
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from spotctl.agent.cloud_parts import MACHINE, cloud_part
from spotctl.agent.errors import AgentError
from spotctl.agent.lease.lease_files import MachineNotice
from spotctl.agent.link.wire import LinkClient

_LONGEST_PAUSE = 60.0


class NoticePoller(ABC):
    """Asks one cloud's metadata service; the caller pauses this many seconds between polls."""

    pause: float

    @abstractmethod
    def poll(self) -> list[MachineNotice]:
        """The notices in force; a notice may be returned more than once."""

    def payload_ended(self) -> None:  # noqa: B027 - not every cloud waits for that
        """Tells the cloud that the machine has nothing more to save, so that the cloud need not
        wait.
        """


def poller_of(cloud: str, environment: dict[str, str]) -> NoticePoller | None:
    """The poller for a cloud; None if the machine is on no known cloud."""
    part = cloud_part(cloud, MACHINE)
    poller: NoticePoller | None = None if part is None else part.notices(environment)
    return poller


class NoticeRelay:
    """Delivers the cloud's notices to the agent over its link, like any other caller."""

    def __init__(
        self,
        poller: NoticePoller,
        connect: Callable[[], LinkClient],
        sleep: Callable[[float], None],
    ) -> None:
        self._poller, self._connect, self._sleep = poller, connect, sleep
        self._delivered: set[MachineNotice] = set()
        self._evicted = False
        self._failure = ""

    def run(self) -> None:
        """Relays for ever. If the metadata service does not answer, logs the error once and asks
        again.
        """
        pause = 1.0
        while True:
            try:
                self.turn()
            except (OSError, ValueError, KeyError, TypeError, AgentError) as error:
                if str(error) != self._failure:
                    self._failure = str(error)
                    print(f"eviction notices: {error}", file=sys.stderr, flush=True)  # noqa: T201
                self._sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE if not self._evicted else 1.0)
            else:
                self._failure, pause = "", 1.0
                self._sleep(self._poller.pause)

    def turn(self) -> None:
        """Asks the cloud once and passes new notices on."""
        for notice in self._poller.poll():
            if notice not in self._delivered:
                seconds = max(notice.until / 1e6 - time.time(), 0.0)
                self._call("notify", seconds=seconds, **asdict(notice))
                self._delivered.add(notice)
            self._evicted = self._evicted or notice.kind == "evict"
        if self._evicted:
            status = self._call("status")
            if not status["work"] or status["exit_code"] is not None:
                self._poller.payload_ended()

    def _call(self, operation: str, **arguments: object) -> dict[str, Any]:
        link = self._connect()
        try:
            return link.call(operation, **arguments)
        finally:
            link.close()


def json_object(body: str) -> dict[str, Any]:
    """The JSON object of an answer."""
    values = json.loads(body)
    if not isinstance(values, dict):
        raise ValueError(f"not a JSON object: {body[:60]}")
    return values
