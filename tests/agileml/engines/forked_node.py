"""Nodes that join a job, forked from one process that has imported everything: tests start many of
them.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from contextlib import suppress
from multiprocessing.context import ForkServerProcess

from agileml import join

_FORKS = multiprocessing.get_context("forkserver")


def start_fork_server() -> None:
    """It lives as long as this process, which watches it, in files of its own."""
    _FORKS.set_forkserver_preload([__name__])
    process = _FORKS.Process(target=os.getpid)
    process.start()
    process.join()
    process.close()


class ForkedNode:
    """`python -m agileml.join WORDS` in a session of its own."""

    def __init__(self, words: list[str], environment: dict[str, str]) -> None:
        self._process = _FORKS.Process(target=_run, args=(words, environment))
        assert isinstance(self._process, ForkServerProcess)
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def ended(self) -> bool:
        return not self._process.is_alive()

    def wait(self) -> int:
        """The exit code; nothing that the node has started may be left then."""
        self._process.join()
        with suppress(ProcessLookupError):
            os.killpg(self.pid, 0)
            raise AssertionError("a process of the node is left")
        assert self._process.exitcode is not None
        return self._process.exitcode

    def kill(self) -> None:
        """A machine that is taken away takes everything with it that runs there."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        # It may not have had the time to begin a session.
        self._process.kill()
        self._process.join()


def _run(words: list[str], environment: dict[str, str]) -> None:
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    os.environ.update(environment)
    sys.exit(join.main(words))
