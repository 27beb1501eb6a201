"""A computer that systemd has booted: namespaces with the files of this computer, whose changes
nothing else sees.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, CompletedProcess

SYSTEMD = Path("/lib/systemd/systemd")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_RUNTIME = "/run/user/0"
_UP = ("running", "degraded")
_BOOT_SECONDS = 120.0

_BOOT = """\
set -e
mount -t tmpfs tmpfs "$1"
cd "$1"
mkdir upper work root
mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root
cd root
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 none sys/fs/cgroup
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs dev
for device in null:1:3 zero:1:5 full:1:7 random:1:8 urandom:1:9; do
  IFS=: read -r name major minor <<END
$device
END
  mknod -m 666 "dev/$name" c "$major" "$minor"
done
mkdir -p dev/pts dev/shm
# Else /tmp would be emptied, which has this test's files.
mkdir -p etc/tmpfiles.d
ln -sf /dev/null etc/tmpfiles.d/tmp.conf
ip link set lo up
container=namespaces exec chroot . "$2" --system --unit=basic.target --log-target=journal --show-status=0
"""
"""From $1, an empty folder, to the program $2 as process 1."""


@dataclass(frozen=True)
class Booted:
    """Process 1 of the computer, as others see it."""

    pid: int

    def run(self, *words: str | Path) -> CompletedProcess[str]:
        """Runs a command there, as root, whose own systemd is running."""
        inside = (
            "nsenter",
            f"--target={self.pid}",
            "--mount",
            "--pid",
            "--uts",
            "--ipc",
            "--net",
            "--cgroup",
        )
        home = ("HOME=/root", f"XDG_RUNTIME_DIR={_RUNTIME}", "SPOTCTL_HOME=/root/spotctl")
        own = (f"PATH={_PATH}", "LC_ALL=C.UTF-8", *home)
        command = (
            *inside,
            f"--root=/proc/{self.pid}/root",
            "--wd=/",
            "env",
            "-i",
            *own,
            *map(str, words),
        )
        return subprocess.run(
            command, stdin=DEVNULL, capture_output=True, text=True, check=False, timeout=300
        )

    def spotctl(self, *words: str | Path) -> CompletedProcess[str]:
        """Runs spotctl there."""
        return self.run(sys.executable, "-P", "-m", "spotctl", *words)

    def state(self) -> str:
        """The state that systemd reports, such as running; empty if it does not answer."""
        return self.run("systemctl", "is-system-running").stdout.strip()


def why_not() -> str:
    """The reason why this computer can boot no systemd; empty if it can try."""
    needed = [
        name for name in ("unshare", "nsenter", "ip", "systemctl") if shutil.which(name) is None
    ]
    if os.geteuid() != 0:
        return "needs root"
    return (
        f"needs {needed[0]}"
        if needed
        else ("" if SYSTEMD.exists() else "no systemd is installed here")
    )


@contextmanager
def booted(folder: Path) -> Iterator[Booted | None]:
    """The computer, with a systemd of its user root; None if systemd does not start."""
    words = (
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--uts",
        "--ipc",
        "--net",
        "--cgroup",
    )
    script = ("sh", "-c", _BOOT, "sh", str(folder), str(SYSTEMD))
    with subprocess.Popen(
        [*words, *script], stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL
    ) as outer:
        try:
            yield _started(outer)
        finally:
            outer.kill()


def _started(outer: subprocess.Popen[bytes]) -> Booted | None:
    """Process 1, once it is up and a systemd of root answers."""

    def first() -> list[int]:
        children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children")
        return [int(child) for child in children.read_text().split()] if children.exists() else []

    give_up = time.monotonic() + _BOOT_SECONDS
    while not any(Booted(pid).state() in _UP for pid in first()):
        if outer.poll() is not None or time.monotonic() > give_up:
            return None
        time.sleep(0.2)
    computer = Booted(first()[0])
    started = computer.run("systemctl", "start", "user@0.service")
    return computer if started.returncode == 0 else None
