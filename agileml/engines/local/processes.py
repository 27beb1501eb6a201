"""Processes of one job on this computer, forked by a fork server; a client for starting and killing
them.
"""

import os
import select
import shutil
import subprocess
import sys
from multiprocessing import Pipe
from pathlib import Path

from agileml.engines.base import Gone
from agileml.engines.local.fork_server import LOG_SUFFIX, OUTPUT_SUFFIX, Start
from agileml.errors import AgileMLError
from agileml.runtime.folders import short_folder
from agileml.runtime.ground import take_lock
from agileml.runtime.role_specs import Role
from agileml.user_code import crash_site

_BOOT = """\
import sys
from multiprocessing.connection import Connection
descriptor, alive, folder, keep = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4] == "keep"
connection = Connection(descriptor)
sys.path[:], preloaded = connection.recv()
for name in preloaded:
    __import__(name)
from agileml.engines.local.fork_server import main
main(connection, [alive, *map(int, filter(None, sys.argv[5:]))], folder, keep)
"""
"""Runs the fork server, with its parent's module search path."""

_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Each node gets one processor: with more threads the nodes of a computer would slow each other
down."""

_KEPT_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}
"""For glibc: the next arrays are as large as the last ones, and the system clears memory that was
freed."""

NODE_ENVIRONMENT = {**_ONE_THREAD, **_KEPT_MEMORY}

_PRELOADED = ("torch", "torch._dynamo", "lightning.pytorch", "transformers.trainer")
"""Slow to import; if this process has imported them for the trainer, the fork server does so once
for all nodes."""

CLOSE_SECONDS = 10.0
"""Time for the fork server to kill its processes and exit."""
OUTPUT_LINES = 3

LOCK = "lock"
LOCK_SECONDS = 10.0
"""Time for the processes of a killed parent to end."""


class Processes:
    """The processes of a job, in a folder for their sockets and logs.

    A temporary folder is removed at the end. A folder that is given stays, with the logs in it.
    """

    def __init__(self, folder: Path | None = None, *, nodes: bool = True) -> None:
        """With `nodes`, their large modules are imported before the first one starts; a controller
        needs none.
        """
        self._keep = folder is not None
        self._lock = None if folder is None else _lock_folder(folder)
        self.folder = folder or short_folder()
        self._stopped: set[str] = set()
        self._connection, theirs = Pipe()
        self._all_ended, alive = os.pipe()
        """Every process holds the other end, so that this one ends when the last of them has."""

        try:
            self._server = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    _BOOT,
                    *map(str, (theirs.fileno(), alive, self.folder)),
                    "keep" if self._keep else "",
                    "" if self._lock is None else str(self._lock),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno(), alive, *filter(None, [self._lock])],
                env={**os.environ, **NODE_ENVIRONMENT},
                # A Ctrl-C is for the command alone, also while this process starts.
                start_new_session=True,
            )
        except BaseException:
            self._connection.close()
            os.close(self._all_ended)
            self._leave_folder()
            raise
        finally:
            theirs.close()
            os.close(alive)

        self._connection.send(
            (sys.path, [name for name in _PRELOADED if nodes and name in sys.modules])
        )

    def start(self, name: str, role: Role) -> None:
        """Starts a process. Raises AgileMLError if the fork server is gone."""
        self._send(Start(name, role))

    def stop(self, name: str) -> None:
        """Kills a process and what it has started; `ended` reports it with status None."""
        self._stopped.add(name)
        self._send(name)

    def ended(self) -> list[Gone]:
        """The processes that ended since the last call. Raises AgileMLError if the fork server is
        gone.
        """
        ended: list[Gone] = []
        try:
            while self._connection.poll():
                ended.append(self._gone(*self._connection.recv()))
        except (EOFError, OSError) as error:
            raise self._lost() from error
        return ended

    def close(self) -> None:
        """Kills all processes and removes a temporary folder."""
        self._connection.close()
        try:
            if not self._ends_within(CLOSE_SECONDS):
                self._server.kill()
                # The server's children notice and exit by themselves, and remove the folder as this
                # process does.
                self._ends_within(CLOSE_SECONDS)
        finally:
            self._server.kill()
            self._server.wait()
            os.close(self._all_ended)
            self._leave_folder()

    def _leave_folder(self) -> None:
        """Removes a temporary folder, or unlocks one that stays."""
        if not self._keep:
            shutil.rmtree(self.folder, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)

    def _ends_within(self, seconds: float) -> bool:
        """Waits until no process of the job is left."""
        ready, _, _ = select.select([self._all_ended], [], [], seconds)
        return bool(ready)

    def _gone(self, name: str, ended: int) -> Gone:
        """A process has ended, with this exit status or by this signal (negative)."""
        status = None if name in self._stopped else ended
        self._stopped.discard(name)
        files = [self.folder / f"{name}{suffix}" for suffix in (OUTPUT_SUFFIX, LOG_SUFFIX)]
        output = next(filter(None, map(_end_of, files)), "") if status else ""
        if not self._keep:
            for file in files:
                file.unlink(missing_ok=True)
        return Gone(name, status, output)

    def _send(self, order: Start | str) -> None:
        try:
            self._connection.send(order)
        except OSError as error:
            raise self._lost() from error

    def _lost(self) -> AgileMLError:
        return AgileMLError(
            f"the process that runs the job's machines is gone (status {self._server.poll()}); "
            "start the job again"
        )


def _lock_folder(folder: Path) -> int:
    """A descriptor that locks a folder while any process holds it: those of a killed parent take a
    moment to end.
    """
    try:
        return take_lock(folder / LOCK, seconds=LOCK_SECONDS)
    except BlockingIOError:
        raise AgileMLError(
            f"folder {folder} is in use: another process runs the job in it"
        ) from None
    except OSError as error:
        raise AgileMLError(f"folder {folder}: {error.strerror or error}") from error


def _end_of(log: Path) -> str:
    try:
        return end_of(log.read_text(errors="replace"))
    except OSError:
        return ""


def end_of(text: str) -> str:
    """Where a process crashed, or else the last lines of what it wrote."""
    return crash_site(text) or " | ".join(text.strip().splitlines()[-OUTPUT_LINES:])
