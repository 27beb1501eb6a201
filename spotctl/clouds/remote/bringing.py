"""Copies missing archives to a booted machine over an open connection, and starts the machine's agent."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from spotctl.agent import layout
from spotctl.agent.rented import AgentStart
from spotctl.clouds.errors import Unanswered, Unusable
from spotctl.clouds.remote.bundle import Archive, platform_tag
from spotctl.clouds.remote.ssh import SshConnection, StepFailed

LEAST_PYTHON = (3, 11)
TRANSFER_SECONDS = 1800.0

_OUR_PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
_VERSION = 'import sys, platform; print(*sys.version_info[:2], platform.machine(), sep=" ")'

_PROBE = f"""
cd {layout.ROOT} 2>/dev/null || exit 0
for state in ready agent/started agent/ended; do [ ! -e $state ] || echo "$state"; done
for name in bundles/* jobs/*; do echo "$name"; done
for name in {_OUR_PYTHON} python3; do
  path=$(command -v $name) && echo "python $path $($path -I -S -c {shlex.quote(_VERSION)})" && break
done
"""

_RECEIVE = """
umask 022
cd {root} && part=$(mktemp -d incoming/XXXXXXXX) || exit 1
trap 'rm -rf "$part"' EXIT
cat >"$part/archive"
if ! echo "{digest}  $part/archive" | sha256sum -c --status; then
  echo "the transfer was damaged" >&2
  exit 1
fi
mkdir "$part/unpacked" && {unpack} || exit 1
mv -T "$part/unpacked" {target} 2>/dev/null || [ -d {target} ]
"""


@dataclass(frozen=True, slots=True)
class Archives:
    """The archives for a machine: our code, perhaps packages, perhaps the job's folder."""

    code: Archive
    packages: Archive | None
    job: Archive | None


@dataclass(frozen=True, slots=True)
class MachineContents:
    """The files on a machine. `python` is the path of its Python, `tag` that Python's version and processor."""

    names: frozenset[str]
    python: str = ""
    version: tuple[int, int] = (0, 0)
    tag: str = ""


class Bringing:
    """Prepares one machine. `progress` is called with the current step, for messages about a slow machine."""

    def __init__(self, machine: str, ssh: SshConnection, progress: Callable[[str], None]) -> None:
        self._machine, self._ssh, self._progress = machine, ssh, progress

    def bring(self, archives: Callable[[], Archives], start: Callable[[Archives], AgentStart]) -> None:
        """Copies missing archives, and starts the agent unless it was started. Unanswered: not possible yet.

        Unusable: its image does not suit.
        """
        contents = self._probe()
        if self._is_started(contents):
            return
        self._check_python(contents)
        self._progress("packing what it needs")
        needed = archives()
        if needed.packages is not None and contents.tag != platform_tag():
            raise Unusable(
                f"{self._machine}: it has Python {contents.tag} and this computer {platform_tag()}, so this computer's"
                " packages do not run there; use an image with this Python, or launch from a computer like the image"
            )
        for archive, what in ((needed.code, "spotctl's code"), (needed.packages, "packages")):
            if archive is not None:
                self._send(archive, what, f"bundles/{archive.digest}", contents)
        if needed.job is not None:
            self._send(needed.job, "the job's folder", f"jobs/{needed.job.digest}", contents)
        self._progress("starting its agent")
        self._start(contents, start(needed))

    def _probe(self) -> MachineContents:
        names, python = set(), ("", "0", "0", "")
        for line in self._ssh.run(_PROBE).splitlines():
            words = line.split()
            if len(words) == 5 and words[0] == "python":
                python = (words[1], words[2], words[3], words[4])
            else:
                names.add(line)
        path, major, minor, processor = python
        return MachineContents(frozenset(names), path, (int(major), int(minor)), f"{major}.{minor} {processor}")

    def _is_started(self, contents: MachineContents) -> bool:
        """Whether the agent was started. Unanswered: the machine has not booted yet, or its agent has ended."""
        if "agent/ended" in contents.names:
            raise Unanswered(f"{self._machine}: its agent has ended, so the machine is ending")
        if "ready" not in contents.names:
            raise Unanswered(f"{self._machine}: its start-up script has not finished; try again")
        return "agent/started" in contents.names

    def _check_python(self, contents: MachineContents) -> None:
        if contents.version < LEAST_PYTHON:
            least = ".".join(map(str, LEAST_PYTHON))
            there = f"Python {contents.version[0]}.{contents.version[1]}" if contents.python else "no Python"
            raise Unusable(f"{self._machine}: it has {there}, and spotctl needs {least} or later: use another image")

    def _send(self, archive: Archive, what: str, target: str, contents: MachineContents) -> None:
        if target in contents.names:
            return
        self._progress(f"sending {what} ({archive.path.stat().st_size / (1 << 20):.1f} MiB)")
        unpack = (
            'tar -xzf "$part/archive" -C "$part/unpacked"'
            if archive.path.name.endswith(".tar.gz")
            else f'{shlex.quote(contents.python)} -I -S -m zipfile -e "$part/archive" "$part/unpacked"'
        )
        command = _RECEIVE.format(root=layout.ROOT, digest=archive.digest, unpack=unpack, target=target)
        self._ssh.run(command, archive.path, TRANSFER_SECONDS)

    def _start(self, contents: MachineContents, start: AgentStart) -> None:
        code = f"{layout.BUNDLES}/{start.bundles[0]}"
        service = f"{shlex.quote(contents.python)} -E -s -S -m spotctl.agent.rented"
        answer = self._ssh.run(f"cd {code} && exec env -i {service}", json.dumps(start.to_json()).encode())
        if answer.strip() != "running":
            raise StepFailed(f"{self._machine}: its agent did not start: {answer.strip()[:300]}")


def start_of(
    machine: str, index: int, link_secret: bytes, secrets: Mapping[str, str], archives: Archives
) -> AgentStart:
    """The options for the start of the agent's service."""
    bundles = tuple(archive.digest for archive in (archives.code, archives.packages) if archive is not None)
    job = "" if archives.job is None else archives.job.digest
    return AgentStart(machine, index, link_secret.hex(), secrets, bundles, job)
