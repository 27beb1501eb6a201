"""The machines of a Ray cluster, as its head reports them.

The head is asked on a separate thread: a lost head answers nothing, and after a minute Ray ends the process that asked.
"""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agileml.engines.ray.placement import RayMachine
from agileml.errors import AgileMLError

LOOK_SECONDS = 0.5
"""Time between two looks."""

HEAD_SECONDS = 30.0
"""A head that has not answered for so long is lost. Ray waits for twice that."""


class HeadLost(AgileMLError):
    """The machine that holds a Ray cluster together does not answer."""


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """The machines that are alive, and the ids of those that will be taken away: when, in milliseconds since 1970."""

    at: float
    machines: list[RayMachine]
    draining: Mapping[str, int]


class ClusterView:
    """The newest look at the cluster. Raises HeadLost if it is too old."""

    def __init__(self, ray: Any) -> None:  # noqa: ANN401 - a module, which may be missing
        self._ray = ray
        self._failure: Exception | None = None
        self._newest = self._look()
        self._closed = threading.Event()
        threading.Thread(target=self._run, name="ray-view", daemon=True).start()

    @property
    def newest(self) -> ClusterSnapshot:
        """The head's last answer."""
        if time.monotonic() - self._newest.at > HEAD_SECONDS:
            # What Ray raised last is for `--debug`: its kinds are many, and its texts are for Ray's developers.
            raise HeadLost(
                f"the head of the Ray cluster has not answered for {HEAD_SECONDS:g} seconds"
            ) from self._failure
        return self._newest

    def close(self) -> None:
        """No more looks."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(LOOK_SECONDS):
            try:
                self._newest = self._look()
            except Exception as error:  # noqa: BLE001 - whatever it is, there is no answer; `newest` says so
                self._failure = error

    def _look(self) -> ClusterSnapshot:
        machines = [RayMachine(node["Resources"], node["Labels"]) for node in self._ray.nodes() if node["Alive"]]
        # Ray Train finds out in this way; there is no public one.
        return ClusterSnapshot(time.monotonic(), machines, self._ray._private.state.state.get_draining_nodes())
