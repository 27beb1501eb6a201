"""Nightly jobs as systemd user units: a timer, and the service that it starts."""

import getpass
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import time
from pathlib import Path

from spotctl.home.errors import BadRequest

_SERVICE = """\
[Unit]
Description=spotctl nightly run of {name}
# Give up on a run that is killed again and again.
StartLimitIntervalSec=6h
StartLimitBurst=5

[Service]
Type=oneshot
ExecStart={command}
# After a kill (out of memory, or by hand) it is started again and resumes its run.
Restart=on-abnormal
RestartSec=30
# The script reports a night that was killed; systemd must not stop it when memory is short.
OOMPolicy=continue
# Machines of the local market are processes that must outlive the runner, so that it can resume.
KillMode=process
# Time to write a checkpoint and return all machines.
TimeoutStopSec=180
"""

_TIMER = """\
[Unit]
Description=spotctl nightly timer of {name}

[Timer]
{calendar}
# A night that the computer slept through starts when it wakes up; after its deadline it is only reported.
Persistent=true
AccuracySec=1s

[Install]
WantedBy=timers.target
"""


def service(name: str, command: Sequence[str]) -> str:
    return _SERVICE.format(name=name, command=" ".join(map(quoted, command)))


def timer(name: str, times: Sequence[time]) -> str:
    """The timer. On days that skip a time of day systemd does not fire, so there are several times."""
    return _TIMER.format(name=name, calendar="\n".join(f"OnCalendar=*-*-* {at:%H:%M:%S}" for at in times))


def quoted(word: str) -> str:
    """A word of a command line, with systemd's special characters escaped."""
    if "\n" in word:
        raise BadRequest(f"{word!r}: has a line break, which systemd units do not allow; use another path")
    for special, escaped in (("\\", "\\\\"), ('"', '\\"'), ("%", "%%"), ("$", "$$")):
        word = word.replace(special, escaped)
    return f'"{word}"'


def timer_unit(name: str) -> str:
    """The name of a job's timer."""
    return f"spotctl-nightly-{name}.timer"


def service_unit(name: str) -> str:
    """The name of the service that a job's timer starts."""
    return f"spotctl-nightly-{name}.service"


@dataclass(frozen=True, slots=True)
class UserManager:
    """The systemd manager of the user, accessed with `systemctl --user`."""

    folder: Path

    @staticmethod
    def of_this_user() -> "UserManager":
        base = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
        return UserManager(base / "systemd" / "user")

    def is_running(self) -> bool:
        """Whether systemd answers for this user."""
        return shutil.which("systemctl") is not None and not self._run("show-environment").returncode

    def has(self, name: str) -> bool:
        return (self.folder / timer_unit(name)).exists()

    def service_text(self, name: str) -> str:
        """The service of a job; empty if there is none."""
        path = self.folder / service_unit(name)
        return path.read_text("utf-8", "replace") if path.exists() else ""

    def install(self, name: str, service_text: str, timer_text: str) -> None:
        """Writes the units and starts the timer."""
        if not self.is_running():
            raise BadRequest(
                "systemctl --user does not answer; log in as the user instead of using su or sudo, or use"
                " --scheduler cron"
            )
        self._check_own(name, service_text)
        self.folder.mkdir(parents=True, exist_ok=True)
        for unit, text in ((service_unit(name), service_text), (timer_unit(name), timer_text)):
            part = self.folder / f".{unit}.part"
            part.write_text(text, "utf-8")
            part.replace(self.folder / unit)
        self._must("daemon-reload")
        self._must("enable", timer_unit(name))
        # A running timer picks up a new schedule only after a restart.
        self._must("restart", timer_unit(name))

    def remove(self, name: str) -> None:
        """Stops the timer and removes the units. A run in progress is not stopped."""
        if not self.has(name) and not (self.folder / service_unit(name)).exists():
            return
        if self.is_running():
            self._must("disable", "--now", timer_unit(name))
        for unit in (timer_unit(name), service_unit(name)):
            (self.folder / unit).unlink(missing_ok=True)
        if self.is_running():
            self._must("daemon-reload")

    def _check_own(self, name: str, service_text: str) -> None:
        """A unit of another home is not replaced."""
        home = re.compile(r'"--home" ("(?:[^"\\]|\\.)*")')
        path = self.folder / service_unit(name)
        theirs = home.search(self.service_text(name))
        ours = home.search(service_text)
        if theirs is not None and ours is not None and theirs[1] != ours[1]:
            raise BadRequest(
                f"{path}: belongs to a nightly job of the same name in another home, {theirs[1]}; use another name, or"
                f" remove it first: spotctl --home {theirs[1]} nightly rm {name}"
            )

    def _must(self, *arguments: str) -> None:
        ran = self._run(*arguments)
        if ran.returncode:
            error = " ".join(ran.stderr.split()) or f"exit status {ran.returncode}"
            raise BadRequest(f"systemctl --user {' '.join(arguments)}: {error}")

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["systemctl", "--user", *arguments], capture_output=True, text=True, check=False)  # noqa: S607 - the systemctl of this system


def linger() -> str:
    """Enables timers while the user is not logged in. Returns what the user has to do for it, if anything."""
    user = getpass.getuser()
    if Path("/var/lib/systemd/linger", user).exists():
        return ""
    if shutil.which("loginctl") is not None:
        ran = subprocess.run(["loginctl", "enable-linger"], capture_output=True, check=False)  # noqa: S607
        if not ran.returncode:
            return ""
    return f"timers only run while you are logged in; to change that, run once: sudo loginctl enable-linger {user}"
