"""From where each machine gets an archive: from this computer only as often as needed, else from
another machine.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum

MAX_FETCHING = 4
"""How many machines fetch an archive from one other machine at the same time."""

MAX_SENT = 2
"""How many machines this computer sends the same archive to at the same time, where they cannot
reach each other."""

_MAX_FAILURES = 2
"""After as many failures, machines are taken not to reach each other."""


@dataclass(frozen=True, slots=True)
class ArchiveServer:
    """Where a machine serves an archive, with what the other machine needs to fetch it."""

    given: Mapping[str, object] = field(repr=False)
    stop: Callable[[], None]


class CopyOrigin(Enum):
    """Origins of an archive that are no machine."""

    HERE = "this computer"
    WAIT = "none, until another machine has it"


def origin_of(fetching: Mapping[str, int], sending: int, failures: int) -> str | CopyOrigin:
    """The origin of the next copy. `fetching` counts, for each machine that has the archive, those
    that fetch it there.

    The first copy, and with machines that do not reach each other every copy, comes from this
    computer.
    """
    if failures >= _MAX_FAILURES:
        return CopyOrigin.HERE if sending < MAX_SENT else CopyOrigin.WAIT
    if not fetching:
        return CopyOrigin.WAIT if sending else CopyOrigin.HERE
    busy, machine = min((busy, name) for name, busy in fetching.items())
    return machine if busy < MAX_FETCHING else CopyOrigin.WAIT


@dataclass(slots=True)
class _Archive:
    fetching: dict[str, int] = field(default_factory=dict)
    servers: dict[str, ArchiveServer] = field(default_factory=dict)
    sending: int = 0
    failures: int = 0


class Spreading:
    """The copies of archives on the machines of this process. Methods may be called from any
    thread.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._archives: dict[str, _Archive] = {}
        self._closed = False

    @contextmanager
    def turn(self, digest: str, waiting: Callable[[], None]) -> Iterator[ArchiveServer | None]:
        """Waits until a copy of an archive can be made: of the server's, or of this computer's if
        there is none.

        A block that raises counts as a failed copy.
        """
        with self._changed:
            archive = self._archives.setdefault(digest, _Archive())
            origin: str | CopyOrigin = CopyOrigin.WAIT
            while origin is CopyOrigin.WAIT:
                origin = CopyOrigin.HERE  # after the end
                if not self._closed:
                    origin = origin_of(archive.fetching, archive.sending, archive.failures)
                if origin is CopyOrigin.WAIT:
                    waiting()
                    self._changed.wait()
            self._count(archive, origin, 1)

        failed = True
        try:
            yield archive.servers[origin] if isinstance(origin, str) else None
            failed = False
        finally:
            with self._changed:
                self._count(archive, origin, -1)
                if failed and isinstance(origin, str):
                    archive.failures += 1
                    archive.fetching.pop(origin, None)
                self._changed.notify_all()

    def add(self, digest: str, machine: str, server: ArchiveServer) -> None:
        """A machine has the archive, and serves it."""
        with self._changed:
            archive = self._archives.setdefault(digest, _Archive())
            archive.fetching[machine], archive.servers[machine] = 0, server
            self._changed.notify_all()

    def close(self) -> None:
        """Ends the servers; machines that wait get the archive from here."""
        with self._changed:
            self._closed = True
            servers = [
                server for archive in self._archives.values() for server in archive.servers.values()
            ]
            self._archives.clear()
            self._changed.notify_all()
        for server in servers:
            server.stop()

    @staticmethod
    def _count(archive: _Archive, origin: str | CopyOrigin, change: int) -> None:
        if isinstance(origin, CopyOrigin):
            archive.sending += change
        elif origin in archive.fetching:
            archive.fetching[origin] += change
