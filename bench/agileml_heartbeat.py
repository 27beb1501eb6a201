"""The cost of heartbeats: processor time of the heartbeat processes, while the nodes work."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from agileml.apps.registry import TrainerSource
from agileml.core.events import Iteration
from agileml.engines.chaos import QUIET
from agileml.engines.local import LocalEngine
from agileml.job import Stopping, TrainingJob
from agileml.roles.node import JobSettings
from bench.agileml_throughput import descendants
from bench.harness import Row, table

SECONDS = 20.0
ARGUMENTS = {"users": 6000, "items": 4000, "ratings": 400_000}
NODES = 2


@dataclass
class HeartbeatTimes:
    """Processor seconds of the heartbeat processes, and seconds, since the first clock."""

    used: float = 0.0
    seconds: float = 0.0
    _first: tuple[float, float] | None = None
    _beating: list[int] = field(default_factory=list)

    def __call__(self, iteration: Iteration) -> None:
        """A clock is done."""
        del iteration
        if self._first is None:
            self._beating = heartbeat_processes()
            self._first = self._read()
        now, used = self._read()
        self.seconds, self.used = now - self._first[0], used - self._first[1]

    def _read(self) -> tuple[float, float]:
        return time.monotonic(), sum(map(_used, self._beating))


def heartbeat_processes() -> list[int]:
    """The children of the nodes, which are children of the fork server, which is a child of this
    process.
    """
    parents = {process: _parent(process) for process in descendants(os.getpid())}
    return [process for process, parent in parents.items() if parents.get(parent) in parents]


def _parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def _used(process: int) -> float:
    """Processor seconds, to the nanosecond; such a process has one thread."""
    return int(Path(f"/proc/{process}/schedstat").read_text().split()[0]) / 1e9


def run() -> str:
    """One job for a while."""
    times = HeartbeatTimes()
    settings = JobSettings(loss_sample=0)
    job = TrainingJob(
        TrainerSource("mf", ARGUMENTS), 1, NODES - 1, Stopping(seconds=SECONDS), settings
    )
    LocalEngine().run(job, QUIET, times)
    share = times.used / times.seconds / NODES
    rows = [
        Row(
            "processor time of a heartbeat process, of one processor",
            f"{share * 1000:.2f} ms a second",
            "1 s a second",
            f"{share:.4f}",
        )
    ]
    remark = (
        f"One job of {SECONDS:g} s on {NODES} nodes that work all the time, with the default of 4 "
        "heartbeats a second."
    )
    return table("Heartbeats of training nodes", remark, rows)
