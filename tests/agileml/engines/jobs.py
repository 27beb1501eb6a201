"""Fault scripts for tests, by timetable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from agileml.engines.chaos import Act, Evict, Join, KillController, RunningMachine

Choice = Callable[[Sequence[RunningMachine]], Act]


@dataclass
class Timetable:
    """Faults by the clock after which they are injected."""

    acts: dict[int, list[Choice]]

    def due(self, clock: int, seconds: float, machines: Sequence[RunningMachine]) -> Sequence[Act]:  # noqa: ARG002
        choices = [
            choice for at in sorted(self.acts) if at <= clock for choice in self.acts.pop(at)
        ]
        return [choice(machines) for choice in choices]


def transient(machines: Sequence[RunningMachine]) -> list[str]:
    return [machine.name for machine in machines if not machine.reliable]


def reliable(machines: Sequence[RunningMachine]) -> list[str]:
    return [machine.name for machine in machines if machine.reliable]


def kill(pick: slice, of: Callable[[Sequence[RunningMachine]], list[str]] = transient) -> Choice:
    return lambda machines: Evict(tuple(of(machines)[pick]), None)


def evict(pick: slice, seconds: float) -> Choice:
    return lambda machines: Evict(tuple(transient(machines)[pick]), seconds)


def join(count: int, reliable: bool = False) -> Choice:
    return lambda _: Join(count, reliable)


def kill_controller(_: Sequence[RunningMachine]) -> Act:
    return KillController()


def processes(folder: str) -> list[str]:
    """Ids of processes whose command line contains the folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if folder.encode() in path.read_bytes():
                found.append(path.parent.name)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def node_pid(folder: Path, name: str) -> int:
    """The process of a node, whose children are its heartbeat process and what user code starts."""
    mine = [
        pid
        for pid in processes(str(folder))
        if Path(f"/proc/{pid}/fd/1").resolve() == folder / f"{name}.out"
    ]
    (found,) = [pid for pid in mine if parent_of(pid) not in mine]
    return int(found)


def parent_of(pid: str) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
