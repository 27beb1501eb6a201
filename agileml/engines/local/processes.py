"""The provider's end of a host: machines to start and to kill, and word of those that are gone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from multiprocessing import Pipe
from pathlib import Path
from types import TracebackType

from agileml.engines.local.fork_server import Gone, Kill, Start
from agileml.errors import AgileMLError
from agileml.runtime.role_specs import Role
from agileml.transport.addresses import LONGEST_UNIX_PATH

_BOOT = """\
import sys
from multiprocessing.connection import Connection
descriptor, folder, keep = int(sys.argv[1]), sys.argv[2], sys.argv[3] == "keep"
connection = Connection(descriptor)
sys.path[:] = connection.recv()
from agileml.engines.local.fork_server import main
main(connection, folder, keep)
"""
"""The host finds modules where its parent does."""

_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""A machine has one processor here; many threads of many machines would only get in each other's way."""

LONGEST_NAME = len("/controller.sock")
PATIENCE = 10.0
"""Seconds for a host to bury its processes."""


class Machines:
    """The processes of a job, with a folder of their own. As a context it leaves nothing behind.

    A folder that is given is kept: others meet in it, and whoever goes on finds there what these wrote.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._keep = folder is not None
        self.folder = folder or short_folder()
        self._connection, theirs = Pipe()
        try:
            self._host = subprocess.Popen(
                [sys.executable, "-c", _BOOT, str(theirs.fileno()), str(self.folder), "keep" if self._keep else ""],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={**os.environ, **_ONE_THREAD},
            )
        except BaseException:
            self._connection.close()
            self._remove()
            raise
        finally:
            theirs.close()
        self._connection.send(sys.path)

    def __enter__(self) -> Machines:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._connection.close()
        try:
            self._host.wait(PATIENCE)
        finally:
            if self._host.poll() is None:
                self._host.kill()
                self._host.wait()
            self._remove()

    def _remove(self) -> None:
        if not self._keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, name: str, role: Role) -> None:
        """Starts a process."""
        self._order(Start(name, role))

    def kill(self, name: str) -> None:
        """Kills a process, as a machine dies that is taken away."""
        self._order(Kill(name))

    def gone(self) -> list[Gone]:
        """Which processes have ended since it was last asked."""
        ended: list[Gone] = []
        try:
            while self._connection.poll():
                ended.append(self._connection.recv())
        except (EOFError, OSError) as error:
            raise self._lost() from error
        return ended

    def last_words(self, name: str, lines: int = 3) -> str:
        """The end of what a process wrote."""
        try:
            text = (self.folder / f"{name}.log").read_text(errors="replace")
        except OSError:
            return ""
        return " | ".join(text.strip().splitlines()[-lines:])

    def forget(self, name: str) -> None:
        """Removes what a process wrote, unless the folder is kept."""
        if not self._keep:
            (self.folder / f"{name}.log").unlink(missing_ok=True)

    def _order(self, order: Start | Kill) -> None:
        try:
            self._connection.send(order)
        except OSError as error:
            raise self._lost() from error

    def _lost(self) -> AgileMLError:
        return AgileMLError(
            f"the process that holds the job's machines is gone (status {self._host.poll()}); start the job again"
        )


def short_folder(prefix: str = "agileml-") -> Path:
    """A new folder, for its owner alone, in which the path of a socket is not too long for the system."""
    folder = tempfile.mkdtemp(prefix=prefix)
    if len(os.fsencode(folder)) + LONGEST_NAME <= LONGEST_UNIX_PATH:
        return Path(folder)
    Path(folder).rmdir()
    return Path(tempfile.mkdtemp(prefix=prefix, dir="/tmp"))
