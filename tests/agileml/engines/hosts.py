"""Hosts for tests: network and mount namespaces of this computer, connected by a bridge. They share
no folder.

Each host has an address of its own, and a file system of its own at the folder of the test. They
need root.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

TOOLS = ("unshare", "nsenter", "ip", "mount")


@contextmanager
def hosts(count: int, folder: Path) -> Iterator[list[Host]]:
    """Hosts 10.77.0.1 and so on; `folder` has other content on each of them. Skips the test where
    there cannot be any.

    In CI and `make ray` it fails instead: nothing else would show that training between machines
    works.
    """
    with ExitStack() as stack:
        try:
            switch = Switch()
            stack.callback(switch.end)
            started = []
            for number in range(1, count + 1):
                started.append(Host(switch, number, folder))
                stack.callback(started[-1].kill)
        except (OSError, subprocess.CalledProcessError) as error:
            reason = (
                f"hosts cannot be made of namespaces here: {error} {getattr(error, 'stderr', '')}"
            )
            if os.environ.get("CI") or os.environ.get("SPOTCTL_TEST_RAY"):
                pytest.fail(reason)
            pytest.skip(reason)
        yield started


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, text=True)


class _Holder:
    """A process that keeps namespaces alive. They end with the last process in them."""

    def __init__(self, *flags: str) -> None:
        if missing := [tool for tool in TOOLS if not shutil.which(tool)]:
            raise FileNotFoundError(f"{missing[0]} is not installed")
        self.process = subprocess.Popen(
            ["unshare", *flags, sys.executable, "-c", "print(flush=True); input()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        # It says so when it is in its namespaces.
        if not self.process.stdout.readline():
            _, errors = self.process.communicate()
            raise OSError(errors.strip())

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()

    @property
    def pid(self) -> str:
        return str(self.process.pid)

    def enter(self, *flags: str) -> list[str]:
        return ["nsenter", "-t", self.pid, *flags, "--"]


class Switch(_Holder):
    """What connects the hosts."""

    def __init__(self) -> None:
        super().__init__("--net")
        _run(*self.enter("-n"), "ip", "link", "add", "br0", "type", "bridge")
        _run(*self.enter("-n"), "ip", "link", "set", "br0", "up")


class Host(_Holder):
    """A host. Its processes are those in its network namespace."""

    def __init__(self, switch: Switch, number: int, folder: Path) -> None:
        super().__init__("--net", "--mount")
        self.address = f"10.77.0.{number}"
        self._switch, self._port, self.folder = switch, f"port{number}", folder
        _run(
            "ip",
            "link",
            "add",
            self._port,
            "netns",
            switch.pid,
            "type",
            "veth",
            "peer",
            "eth0",
            "netns",
            self.pid,
        )
        _run(*switch.enter("-n"), "ip", "link", "set", self._port, "master", "br0", "up")
        _run(*self.enter("-n"), "ip", "address", "add", f"{self.address}/24", "dev", "eth0")
        for interface in ("lo", "eth0"):
            _run(*self.enter("-n"), "ip", "link", "set", interface, "up")
        _run(*self.enter("-m"), "mount", "-t", "tmpfs", "tmpfs", str(folder))

    def command(self, *words: str) -> list[str]:
        """A command that runs on this host, in its own folder."""
        script = f'cd "{self.folder}" && export TMPDIR="{self.folder}" && exec "$@"'
        return [*self.enter("-n", "-m"), "sh", "-c", script, "on-host", *words]

    def write(self, name: str, content: str) -> Path:
        """Writes a file, for its owner alone, that no other host has."""
        script = 'mkdir -p "$(dirname "$0")" && umask 077 && cat > "$0"'
        path = self.folder / name
        subprocess.run(
            [*self.command("sh", "-c", script, str(path))], input=content, text=True, check=True
        )
        assert not path.exists()
        return path

    def cut(self) -> None:
        """Pulls the plug: packets to and from the host are lost, and nothing says so."""
        _run(*self._switch.enter("-n"), "ip", "link", "set", self._port, "down")

    def plug_in(self) -> None:
        """Plugs the cable in again."""
        _run(*self._switch.enter("-n"), "ip", "link", "set", self._port, "up")

    def limit(self, rate: str) -> None:
        """What the host sends passes at this rate from now on; needs `tc`."""
        shape = ("tbf", "rate", rate, "burst", "64kb", "latency", "400ms")
        _run(*self.enter("-n"), "tc", "qdisc", "replace", "dev", "eth0", "root", *shape)

    @property
    def sent_bytes(self) -> int:
        """What the host has sent to others."""
        words = [*self.enter("-n"), "ip", "-json", "-statistics", "link", "show", "eth0"]
        (link,) = json.loads(subprocess.check_output(words))
        return int(link["stats64"]["tx"]["bytes"])

    def ignore(self, other: Host) -> None:
        """Drops packets to another host, and those from it."""
        for host, peer in ((self, other), (other, self)):
            _run(*host.enter("-n"), "ip", "route", "add", "blackhole", f"{peer.address}/32")

    def processes(self) -> Iterator[int]:
        """Process ids, without that of this host's holder."""
        network = Path(f"/proc/{self.pid}/ns/net").readlink()
        for path in Path("/proc").glob("[0-9]*/ns/net"):
            pid = int(path.parts[2])
            try:
                if path.readlink() == network and pid != self.process.pid:
                    yield pid
            except OSError:
                continue

    def kill_where(self, descriptor: str, target: str) -> int:
        """Kills the processes of which a descriptor is open for this file; how many there were."""
        found = [pid for pid in self.processes() if _opened(pid, descriptor).endswith(target)]
        for pid in found:
            os.kill(pid, signal.SIGKILL)
        return len(found)

    def kill(self) -> None:
        """The whole host dies at once, without saying goodbye to anyone."""
        if self.process.poll() is not None:
            return
        self.cut()
        while pids := list(self.processes()):
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            time.sleep(0.01)
        self.end()


def _opened(pid: int, descriptor: str) -> str:
    try:
        return str(Path(f"/proc/{pid}/fd/{descriptor}").readlink())
    except OSError:
        return ""
