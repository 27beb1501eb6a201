"""The process in which machines are born: it has loaded everything once and forks them off.

So a machine starts within milliseconds and costs the others no computing time. The host runs no code of the user, has
one thread, and is the parent of all processes of a job. When whoever started it goes away, however that happens, it
kills them all, removes the job's folder unless that is to be kept, and goes too; when the host itself is killed, they
see that and go.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
import threading
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path

from agileml.runtime.controller_process import ControllerProcess
from agileml.runtime.node_process import REFUSED, NodeProcess
from agileml.runtime.role_specs import NodeRole, Role


@dataclass(frozen=True, slots=True)
class Start:
    """Have a process of this name play a role."""

    name: str
    role: Role


@dataclass(frozen=True, slots=True)
class Kill:
    """Take a machine away at once, with everything that runs on it."""

    name: str


@dataclass(frozen=True, slots=True)
class Gone:
    """A process has ended: with this status, or by this signal (negative)."""

    name: str
    status: int


class ForkServer:
    """Forks, kills and buries."""

    def __init__(self, connection: Connection, folder: Path, keep: bool) -> None:
        self._connection = connection
        self._folder = folder
        self._keep = keep
        self._processes: dict[int, str] = {}
        self._alive = os.pipe()
        """Nothing is ever written: its end tells the children that the host is gone."""
        self._deaths = os.pipe()
        os.set_blocking(self._deaths[1], False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._deaths[1], warn_on_full_buffer=False)

    def run(self) -> None:
        """Until the other end of the connection is closed."""
        try:
            self._serve()
        finally:
            self._end()

    def _serve(self) -> None:
        while True:
            ready = wait([self._connection, self._deaths[0]])
            if self._deaths[0] in ready:
                os.read(self._deaths[0], 4096)
                self._bury()
            if self._connection in ready:
                try:
                    order = self._connection.recv()
                except (EOFError, OSError):
                    return
                self._obey(order)

    def _obey(self, order: Start | Kill) -> None:
        match order:
            case Start():
                self._fork(order)
            case Kill():
                for pid, name in self._processes.items():
                    if name == order.name:
                        _kill(pid)

    def _fork(self, start: Start) -> None:
        pid = os.fork()
        if pid == 0:
            inherited = [self._connection.fileno(), self._alive[1], *self._deaths]
            _live(start, self._folder, self._keep, self._alive[0], inherited)
        self._processes[pid] = start.name

    def _bury(self) -> None:
        for pid, name in list(self._processes.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del self._processes[pid]
                exit_code = os.waitstatus_to_exitcode(status)
                self._clear_up(name, in_peace=exit_code in (0, -signal.SIGKILL))
                try:
                    self._connection.send(Gone(name, exit_code))
                except OSError:
                    # Nobody listens any more; the loop will find out.
                    return

    def _clear_up(self, name: str, *, in_peace: bool) -> None:
        """A machine that left or was taken away leaves no files, unless they are to be kept.

        What one that ended otherwise said last will be asked for.
        """
        for ending in ("sock", "log") if in_peace and not self._keep else ("sock",):
            (self._folder / f"{name}.{ending}").unlink(missing_ok=True)

    def _end(self) -> None:
        for pid in self._processes:
            _kill(pid)
        for pid in self._processes:
            os.waitpid(pid, 0)
        _remove(self._folder, self._keep)


def _kill(pid: int) -> None:
    """Kills a child and what it has started. It is not waited for yet, so that its number cannot be another's."""
    os.kill(pid, signal.SIGKILL)
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        # It died before it could make a group of its own.
        return


def _live(start: Start, folder: Path, keep: bool, alive: int, inherited: list[int]) -> None:
    """The life of a child, which ends here and never returns to the host's code."""
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setpgid(0, 0)
        for descriptor in inherited:
            os.close(descriptor)
        _write_to(folder / f"{start.name}.log")
        threading.Thread(target=_die_with_host, args=(alive, folder, keep), daemon=True).start()
        status = _play(start.role)
    except BaseException:  # noqa: BLE001 - a fork must not go on in its parent's code, whatever happened
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _play(role: Role) -> int:
    if isinstance(role, NodeRole):
        return 0 if NodeProcess(role).run() else REFUSED
    ControllerProcess(role).run()
    return 0


def _write_to(path: Path) -> None:
    """What the process says goes to a file of its own, which is shown if it dies."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.close(descriptor)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", force=True)


def _die_with_host(alive: int, folder: Path, keep: bool) -> None:
    os.read(alive, 1)
    _remove(folder, keep)
    os._exit(1)


def _remove(folder: Path, keep: bool) -> None:
    if not keep:
        shutil.rmtree(folder, ignore_errors=True)


def main(connection: Connection, folder: str, keep: bool) -> None:
    """What a new interpreter runs to become a host."""
    # Terminals send signals to everybody; whether the machines go is for the provider to say.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ForkServer(connection, Path(folder), keep).run()
