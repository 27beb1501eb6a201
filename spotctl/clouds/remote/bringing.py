"""Copies to a booted machine what it lacks, over an open connection, and starts its agent."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from spotctl.agent import layout
from spotctl.agent.rented import AgentStart
from spotctl.clouds.errors import Unanswered
from spotctl.clouds.remote.bundle import Archive, platform_tag
from spotctl.clouds.remote.ssh import SshConnection

LEAST_PYTHON = (3, 11)
TRANSFER_SECONDS = 1800.0

_HERE = f"python{sys.version_info.major}.{sys.version_info.minor}"
_VERSION = 'import sys, platform; print(*sys.version_info[:2], platform.machine(), sep=" ")'

_PROBE = f"""
cd {layout.ROOT} 2>/dev/null || exit 0
for state in ready agent/started agent/ended; do [ ! -e $state ] || echo "$state"; done
for name in bundles/* jobs/*; do echo "$name"; done
for name in {_HERE} python3; do
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
    """What a machine needs: our code, perhaps packages, perhaps the job's folder."""

    code: Archive
    packages: Archive | None
    job: Archive | None


@dataclass(frozen=True, slots=True)
class Found:
    """What is on a machine already. `python` is the path of its Python, `tag` that Python's version and processor."""

    names: frozenset[str]
    python: str = ""
    version: tuple[int, int] = (0, 0)
    tag: str = ""


class Bringing:
    """Prepares one machine. `progress` is called with the current step, for messages about a slow machine."""

    def __init__(self, machine: str, ssh: SshConnection, progress: Callable[[str], None]) -> None:
        self._machine, self._ssh, self._progress = machine, ssh, progress

    def bring(self, archives: Callable[[], Archives], start: Callable[[Archives], AgentStart]) -> None:
        """Copies what is missing, and starts the agent unless it was started. Unanswered: not possible (yet)."""
        found = self._found()
        if self._state(found):
            return
        self._check_python(found)
        self._progress("packing what it needs")
        needed = archives()
        if needed.packages is not None and found.tag != platform_tag():
            raise Unanswered(
                f"{self._machine}: it has Python {found.tag} and this computer {platform_tag()}, so this computer's"
                " packages do not run there; use an image with this Python, or launch from a computer like the image"
            )
        for archive, what in ((needed.code, "spotctl's code"), (needed.packages, "packages")):
            if archive is not None:
                self._send(archive, what, f"bundles/{archive.digest}", found)
        if needed.job is not None:
            self._send(needed.job, "the job's folder", f"jobs/{needed.job.digest}", found)
        self._progress("starting its agent")
        self._start(found, start(needed))

    def _found(self) -> Found:
        names, python = set(), ("", "0", "0", "")
        for line in self._ssh.run(_PROBE).splitlines():
            words = line.split()
            if len(words) == 5 and words[0] == "python":
                python = (words[1], words[2], words[3], words[4])
            else:
                names.add(line)
        path, major, minor, processor = python
        return Found(frozenset(names), path, (int(major), int(minor)), f"{major}.{minor} {processor}")

    def _state(self, found: Found) -> bool:
        if "agent/ended" in found.names:
            raise Unanswered(f"{self._machine}: its agent has ended, so the machine is ending")
        if "ready" not in found.names:
            raise Unanswered(f"{self._machine}: its start-up script has not finished; try again")
        return "agent/started" in found.names

    def _check_python(self, found: Found) -> None:
        if found.version < LEAST_PYTHON:
            least = ".".join(map(str, LEAST_PYTHON))
            there = f"Python {found.version[0]}.{found.version[1]}" if found.python else "no Python"
            raise Unanswered(f"{self._machine}: it has {there}, and spotctl needs {least} or later: use another image")

    def _send(self, archive: Archive, what: str, target: str, found: Found) -> None:
        if target in found.names:
            return
        self._progress(f"sending {what} ({archive.path.stat().st_size / (1 << 20):.1f} MiB)")
        unpack = (
            'tar -xzf "$part/archive" -C "$part/unpacked"'
            if archive.path.name.endswith(".tar.gz")
            else f'{shlex.quote(found.python)} -I -S -m zipfile -e "$part/archive" "$part/unpacked"'
        )
        command = _RECEIVE.format(root=layout.ROOT, digest=archive.digest, unpack=unpack, target=target)
        self._ssh.run(command, archive.path, TRANSFER_SECONDS)

    def _start(self, found: Found, start: AgentStart) -> None:
        code = f"{layout.BUNDLES}/{start.bundles[0]}"
        service = f"{shlex.quote(found.python)} -E -s -S -m spotctl.agent.rented"
        said = self._ssh.run(f"cd {code} && exec env -i {service}", json.dumps(start.to_json()).encode())
        if said.strip() != "running":
            raise Unanswered(f"{self._machine}: its agent did not start: {said.strip()[:300]}")


def start_of(
    machine: str, index: int, link_secret: bytes, secrets: Mapping[str, str], archives: Archives
) -> AgentStart:
    """The options with which the agent's service is started."""
    bundles = tuple(one.digest for one in (archives.code, archives.packages) if one is not None)
    job = "" if archives.job is None else archives.job.digest
    return AgentStart(machine, index, link_secret.hex(), secrets, bundles, job)
