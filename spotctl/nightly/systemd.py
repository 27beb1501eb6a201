"""Nightly jobs as user units of systemd: a timer, and the service that it starts."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import time
from pathlib import Path

from spotctl.errors import BadRequest

_SERVICE = """\
[Unit]
Description=spotctl nightly run of {name}
# A run that is killed again and again is given up.
StartLimitIntervalSec=6h
StartLimitBurst=5

[Service]
Type=oneshot
ExecStart={command}
# Killed, by want of memory or by hand, it is started again and goes on with its run.
Restart=on-abnormal
RestartSec=30
# The machines of a local market are processes; they outlive the runner, so that it finds them again.
KillMode=process
# Asked to end, it writes a checkpoint and gives everything back.
TimeoutStopSec=180
"""

_TIMER = """\
[Unit]
Description=spotctl nightly timer of {name}

[Timer]
{calendar}
# A night that the computer slept through begins when it wakes; after its deadline it is only told of.
Persistent=true
AccuracySec=1s

[Install]
WantedBy=timers.target
"""


def service(name: str, command: Sequence[str]) -> str:
    """The service that runs one night."""
    return _SERVICE.format(name=name, command=" ".join(map(_quoted, command)))


def timer(name: str, faces: Sequence[time]) -> str:
    """The timer. On a day that skips a time of day, systemd does nothing: then a second one is when it is begun."""
    return _TIMER.format(name=name, calendar="\n".join(f"OnCalendar=*-*-* {face:%H:%M:%S}" for face in faces))


def _quoted(word: str) -> str:
    """A word of a command line, with nothing left that systemd reads as its own."""
    if "\n" in word:
        raise BadRequest(f"{word!r}: has a line break, which no unit can hold; use another path")
    for special, written in (("\\", "\\\\"), ('"', '\\"'), ("%", "%%"), ("$", "$$")):
        word = word.replace(special, written)
    return f'"{word}"'


@dataclass(frozen=True, slots=True)
class Units:
    """The two units of a job."""

    name: str

    @property
    def timer(self) -> str:
        """The timer's name."""
        return f"spotctl-nightly-{self.name}.timer"

    @property
    def service(self) -> str:
        """The service's name."""
        return f"spotctl-nightly-{self.name}.service"


@dataclass(frozen=True, slots=True)
class UserManager:
    """The user's own systemd, behind `systemctl --user`."""

    folder: Path

    @staticmethod
    def of_this_user() -> UserManager:
        """Where this user's units are kept."""
        base = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
        return UserManager(base / "systemd" / "user")

    def answers(self) -> bool:
        """Whether one runs."""
        return shutil.which("systemctl") is not None and not self._run("show-environment").returncode

    def has(self, units: Units) -> bool:
        """Whether the timer is there."""
        return (self.folder / units.timer).exists()

    def install(self, units: Units, service_text: str, timer_text: str) -> None:
        """Writes the units and starts the timer."""
        if not self.answers():
            raise BadRequest(
                "no systemd of this user answers (systemctl --user); log in as the user rather than by su or sudo, or"
                " give --scheduler cron"
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        for unit, text in ((units.service, service_text), (units.timer, timer_text)):
            part = self.folder / f".{unit}.part"
            part.write_text(text, "utf-8")
            part.replace(self.folder / unit)
        self._must("daemon-reload")
        self._must("enable", units.timer)
        # A timer that runs already goes by its new hours only when it is started anew.
        self._must("restart", units.timer)

    def remove(self, units: Units) -> None:
        """Stops the timer and removes the units. A night that is being run goes on to its end."""
        if not self.has(units) and not (self.folder / units.service).exists():
            return
        if self.answers():
            self._must("disable", "--now", units.timer)
        for unit in (units.timer, units.service):
            (self.folder / unit).unlink(missing_ok=True)
        if self.answers():
            self._must("daemon-reload")

    def _must(self, *words: str) -> None:
        ran = self._run(*words)
        if ran.returncode:
            said = " ".join(ran.stderr.split()) or f"it ended with status {ran.returncode}"
            raise BadRequest(f"systemctl --user {' '.join(words)}: {said}")

    def _run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["systemctl", "--user", *words], capture_output=True, text=True, check=False)  # noqa: S607 - the systemctl of this system


def linger() -> str:
    """Lets this user's timers run while the user is not logged in; what is left for a person to do, if anything."""
    user = getpass.getuser()
    if Path("/var/lib/systemd/linger", user).exists():
        return ""
    if shutil.which("loginctl") is not None:
        ran = subprocess.run(["loginctl", "enable-linger"], capture_output=True, check=False)  # noqa: S607
        if not ran.returncode:
            return ""
    return (
        f"while you are not logged in, this timer sleeps; once, as an administrator: sudo loginctl enable-linger {user}"
    )
