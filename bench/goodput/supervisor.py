"""Plays a schedule on a system: starts its processes, kills them from outside, and starts others in
their place.

One supervisor does this for all systems alike. A node is everything with its mark in the
environment, so that what its processes have started dies with it. A node that ends by itself is
started again as a killed one is, and counted.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from bench.goodput.recorder import Final, Goodput, Recorder, measured
from bench.goodput.schedule import COORDINATOR, RESTART_SECONDS, Event
from bench.goodput.systems import Cell, System
from bench.goodput.workload import FOLDER, NODE, RECORDER, WARNED
from spotctl.agent.container.processes import MARK, dies_with, kill, kill_marked, marked

WARM_SECONDS = 5.0
"""From the first commit to the beginning of what is measured."""

START_SECONDS = 120.0
FINAL_SECONDS = 30.0
MAX_EARLY_EXITS = 6
"""Nodes that may end before the first commit."""

_TURN_SECONDS = 0.02
_SUBREAPER = 36
_TICKS = os.sysconf("SC_CLK_TCK")
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "GLOO_SOCKET_IFNAME": "lo",
    "PYTHONWARNINGS": "ignore",
}


@dataclass(frozen=True)
class Outcome:
    """The result of a cell: goodput, processor seconds, and the number of nodes that ended by
    themselves.
    """

    goodput: Goodput
    seconds: float
    processor_seconds: float
    losses: int
    exits: int
    final: Final | None
    others_share: float = 0.0
    """The part of the processors' time that other processes of the computer took, with the
    supervisor."""


@dataclass
class Supervisor:
    """The processes of one system in one cell."""

    system: System
    cell: Cell
    recorder: Recorder = field(default_factory=Recorder)
    _running: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    _restarts: dict[int, float] = field(default_factory=dict)
    """When the node with a number is to be started."""
    _kills: list[tuple[float, dict[int, int]]] = field(default_factory=list)
    """When warned nodes are taken away, each with the number of its start: not the one in place of
    a node that left."""
    _starts: Counter[int] = field(default_factory=Counter)
    _exits: int = 0
    _losses: int = 0

    def play(
        self,
        first: Sequence[int],
        events: Sequence[Event],
        seconds: float,
        final_seconds: float = FINAL_SECONDS,
    ) -> Outcome:
        """Runs the system through the events; raises TimeoutError if it does not start."""
        adopt_orphans()
        if self.system.coordinator is not None:
            self._restarts[COORDINATOR] = 0.0
        for node in first:
            self._restarts[node] = 0.0
        try:
            self._until_first_commit()
            begin = self._wait_until(self.recorder.commits[0].at + WARM_SECONDS)
            self._exits, used, busy = 0, self._processor_seconds(), _busy_seconds()
            for event in events:
                self._wait_until(begin + event.second)
                self._apply(event)
            end = self._wait_until(begin + seconds)
            used, busy = self._processor_seconds() - used, _busy_seconds() - busy
            exits = self._exits
            self._finish(final_seconds)
        finally:
            self._end_all()
            self.recorder.close()
        # A node may leave as soon as it is warned, and another one starts once its machine is gone.
        faults = sorted(
            {begin + event.second + after for event in events for after in (0.0, event.warning)}
        )
        goodput = measured(self.recorder.commits, faults, begin, end)
        others = max(0.0, busy - used) / ((end - begin) * (os.cpu_count() or 1))
        return Outcome(goodput, end - begin, used, self._losses, exits, self.recorder.final, others)

    def _apply(self, event: Event) -> None:
        if event.joins:
            for node in set(event.nodes) - set(self._running):
                self._restarts.setdefault(node, 0.0)
        elif event.warning:
            for node in event.nodes:
                self._warn(node)
            self._kills.append(
                (time.time() + event.warning, {node: self._starts[node] for node in event.nodes})
            )
        else:
            self._losses += len(event.nodes)
            self._kill(event.nodes)

    # -- time --------------------------------------------------------------------------------------

    def _until_first_commit(self) -> None:
        until = time.time() + START_SECONDS
        while not self.recorder.commits:
            if time.time() > until or self._exits > MAX_EARLY_EXITS:
                raise TimeoutError(
                    f"{self.system.name} did not begin to train; its processes wrote: "
                    f"{self._printed()}"
                )
            self._turn()

    def _printed(self) -> str:
        """The last line of each output."""
        outputs = [
            path.read_text(errors="replace").splitlines()
            for path in sorted(self.cell.folder.glob("*.out"))
        ]
        return " | ".join(lines[-1] for lines in outputs if lines)

    def _wait_until(self, moment: float) -> float:
        while time.time() < moment:
            self._turn()
        return moment

    def _turn(self) -> None:
        self.recorder.receive(_TURN_SECONDS)
        _reap()
        now = time.time()
        for due, starts in [planned for planned in self._kills if planned[0] <= now]:
            self._kills.remove((due, starts))
            self._losses += len(starts)
            self._kill(
                [
                    node
                    for node in starts
                    if node in self._running and starts[node] == self._starts[node]
                ]
            )
        for node, process in list(self._running.items()):
            if not _is_alive(process.pid):
                taken = next(
                    (due for due, starts in self._kills if starts.get(node) == self._starts[node]),
                    None,
                )
                self._exits += taken is None
                self._lose(node, taken)
        for node, due in list(self._restarts.items()):
            if due <= now:
                del self._restarts[node]
                self._starts[node] += 1
                self._start(node)

    # -- processes ---------------------------------------------------------------------------------

    def _start(self, node: int) -> None:
        command = self.system.command(self.cell, node, self._starts[node])
        if command is None:
            return
        home = self.cell.home(node)
        home.mkdir(exist_ok=True)
        with home.with_suffix(".out").open("ab") as output:
            self._running[node] = subprocess.Popen(
                command,
                env={
                    **os.environ,
                    **ENVIRONMENT,
                    **self._variables(node),
                    **self.system.variables(self.cell),
                },
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=dies_with(os.getpid()),  # noqa: PLW1509 - this process has one thread
            )

    def _variables(self, node: int) -> Mapping[str, str]:
        shared = {
            RECORDER: self.recorder.address,
            FOLDER: str(self.cell.folder),
            "PYTHONPATH": str(Path.cwd()),
        }
        return {**shared, NODE: f"{node}-{self._starts[node]}", MARK: str(self.cell.home(node))}

    def _warn(self, node: int) -> None:
        """A notice in the shared folder: each system takes notice in its own way."""
        (self.cell.folder / f"{WARNED}{node}-{self._starts[node]}").touch()

    def _kill(self, nodes: Sequence[int]) -> None:
        """All processes of these nodes, at once."""
        for node in nodes:
            if node in self._running:
                with suppress(ProcessLookupError):
                    os.killpg(self._running[node].pid, signal.SIGKILL)
        for node in nodes:
            self._lose(node)

    def _lose(self, node: int, taken: float | None = None) -> None:
        """Ends what is left of a node. Its machine is gone now, or is taken away later because it
        was warned.
        """
        if node == COORDINATOR:
            kill_marked(self.cell.home(node))
        else:
            self.system.kill(self.cell, node)
        self._running.pop(node, None)
        self._restarts.setdefault(node, (taken or time.time()) + RESTART_SECONDS)

    def _finish(self, seconds: float) -> None:
        """Lets the system report the loss of its model."""
        (self.cell.folder / "end").touch()
        until = time.time() + seconds
        while self.recorder.final is None and time.time() < until:
            self._turn()

    def _end_all(self) -> None:
        while pids := [pid for pid, mark in marked() if mark.is_relative_to(self.cell.folder)]:
            for pid in pids:
                kill(pid)
            _reap()

    def _processor_seconds(self) -> float:
        """The processor time of all processes of the system so far, also of those that are gone."""
        _reap()
        gone = resource.getrusage(resource.RUSAGE_CHILDREN)
        homes = self.cell.folder
        alive = [_processor_ticks(pid) for pid, mark in marked() if mark.is_relative_to(homes)]
        return gone.ru_utime + gone.ru_stime + sum(alive) / _TICKS


def adopt_orphans() -> None:
    """Makes this process the parent of all descendants whose parents die, so that their processor
    time is known.
    """
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def _reap() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


def _busy_seconds() -> float:
    """The time of all processors so far that was not idle, nor waiting for disks."""
    user, nice, system, _, _, *more = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:8]
    )
    return (user + nice + system + sum(more)) / _TICKS


def _is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def _processor_ticks(pid: int) -> int:
    """User and system time of a process, and of its children that it has waited for."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(map(int, fields[11:15]))
