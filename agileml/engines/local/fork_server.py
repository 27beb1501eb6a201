"""The process that forks a job's processes: it has imported everything once, so that a machine
starts in milliseconds.

The fork server runs no user code, has one thread, and is the parent of all processes of a job. When
its own parent goes away, for whatever reason, it kills them all, removes a temporary folder and
exits. When the fork server itself is killed, its children notice and exit.
"""

import logging
import os
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path

from agileml.errors import AgileMLError, ControllerUnreachable
from agileml.runtime.controller_process import ControllerProcess
from agileml.runtime.heartbeat import beating
from agileml.runtime.node_process import NOT_ADMITTED, UNREACHABLE
from agileml.runtime.output import redirect
from agileml.runtime.role_specs import NodeRole, Role
from agileml.transport import sockets

OUTPUT_SUFFIX, LOG_SUFFIX = ".out", ".log"
"""Files of a process: what it prints, and what this package logs in it."""


@dataclass(frozen=True, slots=True)
class Start:
    """Fork a process of this name for a role."""

    name: str
    role: Role


class ForkServer:
    """Forks, kills and reaps the processes of a job."""

    def __init__(self, connection: Connection, folder: Path, keep: bool) -> None:
        self._connection = connection
        self._folder = folder
        self._keep = keep
        self._children: dict[int, Start] = {}
        self._lifetime = os.pipe()
        """Nothing is ever written to it: its end tells the children that the fork server is
        gone."""
        self._deaths = os.pipe()
        os.set_blocking(self._deaths[1], False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._deaths[1], warn_on_full_buffer=False)

    def run(self) -> None:
        """Serves until the other end of the connection is closed."""
        try:
            self._serve()
        finally:
            for pid in self._children:
                _kill(pid)
            for pid in self._children:
                os.waitpid(pid, 0)
            _remove(self._folder, self._keep)

    def _serve(self) -> None:
        while True:
            ready = wait([self._connection, self._deaths[0]])
            if self._deaths[0] in ready:
                os.read(self._deaths[0], 4096)
                self._reap()
            if self._connection in ready:
                try:
                    order = self._connection.recv()
                except (EOFError, OSError):
                    return
                if isinstance(order, Start):
                    pid = os.fork()
                    if pid == 0:
                        inherited = [self._connection.fileno(), self._lifetime[1], *self._deaths]
                        _run_child(order, self._folder, self._keep, self._lifetime[0], inherited)
                    self._children[pid] = order
                    continue
                # The name of a process: it ends with everything that it has started.
                for pid, start in self._children.items():
                    if start.name == order:
                        _kill(pid)

    def _reap(self) -> None:
        for pid, start in list(self._children.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del self._children[pid]
                # A killed process could not remove its socket.
                for address in start.role.rendezvous.listening(start.name):
                    sockets.remove(address)
                try:
                    self._connection.send((start.name, os.waitstatus_to_exitcode(status)))
                except OSError:
                    # The other end is closed; the loop will notice.
                    return


def _kill(pid: int) -> None:
    """Kills a child and what it has started. The child has not been waited for, so its process id
    is not reused.
    """
    os.kill(pid, signal.SIGKILL)
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        # The child died before it could make a process group of its own.
        return


def _run_child(start: Start, folder: Path, keep: bool, lifetime: int, inherited: list[int]) -> None:
    """Runs a child's role and exits; never returns into the fork server's code."""
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setpgid(0, 0)
        for descriptor in inherited:
            os.close(descriptor)
        redirect(folder / f"{start.name}{OUTPUT_SUFFIX}")
        log = str(folder / f"{start.name}{LOG_SUFFIX}")
        logging.basicConfig(
            filename=log, level=logging.INFO, format="%(asctime)s %(message)s", force=True
        )
        watch = threading.Thread(
            target=_exit_with_server, args=(lifetime, folder, keep), daemon=True
        )
        status = _run_role(start, folder, watch)
    except AgileMLError as error:
        status = UNREACHABLE if isinstance(error, ControllerUnreachable) else status
        sys.stderr.write(f"{error}\n")
    # A fork must not go on in its parent's code, whatever happened.
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _run_role(start: Start, folder: Path, watch: threading.Thread) -> int:
    """Runs a role; `watch` is a thread that ends the process with the fork server."""
    role = start.role
    if isinstance(role, NodeRole):
        # The heartbeat process is forked, so it comes before the first thread.
        with beating(role, folder / f"{start.name}{OUTPUT_SUFFIX}") as vitals:
            watch.start()
            if role.process(vitals).run():
                return 0
            return NOT_ADMITTED

    watch.start()
    ControllerProcess(role).run()
    return 0


def _exit_with_server(lifetime: int, folder: Path, keep: bool) -> None:
    os.read(lifetime, 1)
    _remove(folder, keep)
    os._exit(1)


def _remove(folder: Path, keep: bool) -> None:
    if not keep:
        shutil.rmtree(folder, ignore_errors=True)


def main(connection: Connection, held: Sequence[int], folder: str, keep: bool) -> None:
    """The entry point of a new interpreter that becomes a fork server.

    `held` are descriptors that all processes hold as long as they run; what a trainer starts must
    not inherit them.
    """
    for descriptor in held:
        os.set_inheritable(descriptor, False)
    # A terminal sends SIGINT to every process; only the parent decides when the job ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ForkServer(connection, Path(folder), keep).run()
