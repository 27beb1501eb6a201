"""Copies missing archives to a booted machine over an open connection, and starts the machine's
agent.

Each machine gets an archive from this computer only as often as needed, else from another machine
(`Spreading`).
"""

from __future__ import annotations

import json
import secrets
import shlex
import threading
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from enum import Enum
from functools import partial

from agileml.transport.certificates import HOSTNAME, certificate_and_key
from spotctl.agent import layout
from spotctl.agent.link.wire import SECRET_BYTES
from spotctl.agent.rented import AgentStart
from spotctl.clouds.errors import ProviderError, Unanswered, Unusable
from spotctl.clouds.remote.bundle import Archive, Packages
from spotctl.clouds.remote.platforms import (
    MIN_PYTHON,
    PROBE,
    MachinePlatform,
    here,
    preferred,
    pythons_in,
)
from spotctl.clouds.remote.ssh import SshConnection, StepFailed

FETCH_SECONDS = 1800.0

SPREAD_BYTES = 4 << 20
"""Larger archives are copied from one machine to the others."""

_WHEELS, _PEER = "spotctl.agent.data.wheel_files", "spotctl.agent.data.peer_files"
_MIB = 1 << 20
_TAR = 'tar -xzf "$part/archive" -C "$part/unpacked"'
_ZIP = '{python} -I -S -m zipfile -e "$part/archive" "$part/unpacked"'

_PROBE = f"""
cd {layout.ROOT} 2>/dev/null || exit 0
for state in ready agent/started agent/ended; do [ ! -e $state ] || echo "$state"; done
for name in bundles/* jobs/*; do echo "$name"; done
{PROBE}
"""

_RECEIVE = """
umask 022
cd {root} && part=$(mktemp -d incoming/XXXXXXXX) || exit 1
trap 'rm -rf "$part"' EXIT
{fill}
if ! echo "{digest}  $part/archive" | sha256sum -c --status; then
  echo "the transfer was damaged" >&2
  exit 1
fi
mkdir "$part/unpacked" && {unpack} || exit 1
{keep}
mv -T "$part/unpacked" {target} 2>/dev/null || [ -d {target} ]
"""


Archives = tuple[Archive, Archive | None, Callable[[MachinePlatform], Packages] | None]
"""The archives for a machine: our code, perhaps the job's folder, perhaps packages for the machine's
platform."""


@dataclass(frozen=True, slots=True)
class _Copy:
    """An archive for a place on the machine."""

    archive: Archive
    what: str
    target: str


class Bringing:
    """Prepares one machine. `progress` is called with the current step, for messages about a slow
    machine.

    Large archives that other machines of this process have are fetched there.
    """

    def __init__(
        self,
        machine: str,
        ssh: SshConnection,
        spreading: Spreading,
        progress: Callable[[str], None],
    ) -> None:
        self._machine, self._ssh, self._spreading, self._progress = (
            machine,
            ssh,
            spreading,
            progress,
        )

    def bring(
        self,
        archives: Callable[[], Archives],
        index: int,
        secret: bytes,
        secrets: Mapping[str, str],
    ) -> None:
        """Copies missing archives, and starts the agent unless it was started. Unanswered: not
        possible yet.

        Unusable: its image does not suit. `index` is the machine's number, `secret` that of its
        link; `secrets` are variables of payloads.
        """
        lines = self._ssh.run(_PROBE).splitlines()
        names = frozenset(lines)
        if "agent/ended" in names:
            raise Unanswered(f"{self._machine}: its agent has ended, so the machine is ending")
        if "ready" not in names:
            raise Unanswered(f"{self._machine}: its start-up script has not finished; try again")
        if "agent/started" in names:
            return

        chosen = preferred(pythons_in(lines), here())
        if chosen is None or chosen[1].python < MIN_PYTHON:
            least = ".".join(map(str, MIN_PYTHON))
            present = "no Python" if chosen is None else str(chosen[1])
            problem = (
                f"{self._machine}: it has {present}, and spotctl needs {least} or later: use "
                "another image"
            )
            raise Unusable(problem)

        python, there = chosen
        self._progress("packing what it needs")
        code, job, packages_for = archives()
        packages = None
        if packages_for is not None:
            # They may be missing, which is said before anything is copied.
            packages = packages_for(there)

        self._bring(_Copy(code, "spotctl's code", f"bundles/{code.digest}"), code, names, python)
        bundles: tuple[str, ...] = (code.digest,)
        if packages is not None:
            self._bring_packages(packages, code, names, python)
            bundles = (code.digest, packages.digest)
        if job is not None:
            copy = _Copy(job, "the job's folder", f"jobs/{job.digest}")
            self._bring(copy, code, names, python)

        self._progress("starting its agent")
        job_digest = "" if job is None else job.digest
        start = AgentStart(self._machine, index, secret.hex(), secrets, bundles, job_digest)
        service = f"cd {layout.BUNDLES}/{code.digest} && exec env -i {shlex.quote(python)} -E -s -S"
        answer = self._ssh.run(
            f"{service} -m spotctl.agent.rented", json.dumps(asdict(start)).encode()
        )
        if answer.strip() != "running":
            raise StepFailed(f"{self._machine}: its agent did not start: {answer.strip()[:300]}")

    def _bring_packages(
        self, packages: Packages, code: Archive, present: Set[str], python: str
    ) -> None:
        """From the package index if the machine reaches it, else from here."""
        target = f"bundles/{packages.digest}"
        if target in present:
            return

        if packages.wheels and all(wheel.is_public for wheel in packages.wheels):
            self._progress("fetching packages from the package index")
            given = {
                "name": packages.digest,
                "wheels": [(wheel.url, wheel.sha256) for wheel in packages.wheels],
            }
            words = _module(python, code, _WHEELS)
            with suppress(StepFailed):
                self._ssh.run(words, json.dumps(given).encode(), FETCH_SECONDS)
                return

        self._progress("packing packages for it")
        self._bring(_Copy(packages.pack(), "packages", target), code, present, python)

    def _bring(self, copy: _Copy, code: Archive, present: Set[str], python: str) -> None:
        """From another machine that has it, if it is large, else from here."""
        if copy.target in present:
            return
        if copy.archive.path.stat().st_size < SPREAD_BYTES:
            self._send(copy, python, keep=False)
            return
        while not self._is_copied(copy, code, python):
            pass

    def _is_copied(self, copy: _Copy, code: Archive, python: str) -> bool:
        """Makes a copy when it is this machine's turn; False if the other machine did not give
        it."""
        server: ArchiveServer | None = None
        waiting = f"waiting for {copy.what}, which another machine of the run gets first"
        try:
            with self._spreading.turn(
                copy.archive.digest, partial(self._progress, waiting)
            ) as server:
                if server is None:
                    self._send(copy, python, keep=True)
                else:
                    self._progress(f"fetching {copy.what} from another machine of the run")
                    fill = (
                        f"({_module(python, code, _PEER)} fetch {layout.ROOT}/$part/archive) || "
                        "exit 1"
                    )
                    given = json.dumps(server.given).encode() + b"\n"
                    self._ssh.run(
                        self._receive(copy, python, fill, keep=True), given, FETCH_SECONDS
                    )
                # Lets other machines fetch it here; one that cannot serve it has it all the same. A
                # fresh certificate tells those that this launcher sends.
                certificate, key = certificate_and_key(secrets.token_bytes(SECRET_BYTES))
                own = {"certificate": certificate.decode(), "key": key.decode(), "name": HOSTNAME}
                command = (
                    f"{_module(python, code, _PEER)} serve {layout.ROOT}/{copy.target}.archive"
                )
                with suppress(ProviderError):
                    line, stop = self._ssh.serve(command, json.dumps(own).encode() + b"\n")
                    host, port = line.split()
                    serving = ArchiveServer({**own, "host": host, "port": int(port)}, stop)
                    self._spreading.add(copy.archive.digest, self._machine, serving)
        except StepFailed:
            if server is None:
                raise
            return False

        return True

    def _send(self, copy: _Copy, python: str, *, keep: bool) -> None:
        whole = copy.archive.path.stat().st_size / _MIB
        note = f"sending {copy.what} ({{:.1f}} of {whole:.1f} MiB)"
        self._progress(note.format(0))
        command = self._receive(copy, python, 'cat >"$part/archive"', keep=keep)
        self._ssh.send(
            command, copy.archive.path, lambda sent: self._progress(note.format(sent / _MIB))
        )

    def _receive(self, copy: _Copy, python: str, fill: str, *, keep: bool) -> str:
        """The commands that take an archive, from where `fill` says, and unpack it."""
        unpack = _ZIP.format(python=shlex.quote(python))
        if copy.archive.path.name.endswith(".tar.gz"):
            unpack = _TAR
        kept = f'mv "$part/archive" {copy.target}.archive' if keep else ""
        return _RECEIVE.format(
            root=layout.ROOT,
            digest=copy.archive.digest,
            fill=fill,
            unpack=unpack,
            keep=kept,
            target=copy.target,
        )


def _module(python: str, code: Archive, name: str) -> str:
    """The command that runs a module of our code on a machine."""
    return f"cd {layout.BUNDLES}/{code.digest} && exec {shlex.quote(python)} -E -s -S -m {name}"


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
