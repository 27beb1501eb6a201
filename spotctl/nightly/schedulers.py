"""Schedulers of nightly jobs: a marked block each in the user's crontab, whose rest is never
changed, or user units of systemd.
"""

import getpass
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import time
from pathlib import Path

from agileml.runtime.ground import replaced
from spotctl.home.errors import BadRequest

LONGEST_LINE = 990
"""Cron silently truncates lines of more than 1000 characters."""

_PID_FILES = (Path("/run/crond.pid"), Path("/var/run/crond.pid"), Path("/run/cron.pid"))


def with_block(table: bytes, name: str, block: bytes) -> bytes:
    """The crontab with this block: in place of the old one of the same name, or at the end."""
    span = _span(table, name)
    if span is None:
        joint = b"" if not table or table.endswith(b"\n") else b"\n"
        return table + joint + block
    return table[: span[0]] + block + table[span[1] :]


def without_block(table: bytes, name: str) -> bytes:
    span = _span(table, name)
    return table if span is None else table[: span[0]] + table[span[1] :]


def block_of(table: bytes, name: str) -> bytes:
    """The lines of a job, with their marks; empty if it has none."""
    span = _span(table, name)
    return b"" if span is None else table[span[0] : span[1]]


def block(name: str, at: time, line: str) -> bytes:
    """The crontab lines of a job; `name` may be followed by its home: ` of /home/...`."""
    # An unescaped % ends the command, even within quotes.
    line = f"{at.minute} {at.hour} * * * {line}".replace("%", r"\%")
    if "\n" in line or len(os.fsencode(line)) > LONGEST_LINE:
        raise BadRequest(
            f"{name}: its crontab line is too long for cron or has a line break; use shorter paths"
        )
    begin, end = _marks(name)
    return begin + os.fsencode(f"{line}\n") + end


def supervised(name: str, supervisor: Path, command: Sequence[str]) -> str:
    """The line that has a script start a command.

    If the script is gone, with the home perhaps, the line itself says so: to syslog, and by cron's
    mail.
    """
    start = (
        f's={shlex.quote(str(supervisor))}; [ -s "$s" ] && exec /bin/sh "$s" {shlex.join(command)}'
    )
    lost = f'm="spotctl nightly {name} did not start: $s is gone"'
    return f'{start}; {lost}; logger -t spotctl -p user.err "$m"; echo "$m"; exit 127'


def _marks(name: str) -> tuple[bytes, bytes]:
    begin = (
        f"# >>> spotctl nightly {name} (removed by: spotctl nightly rm {name.partition(' ')[0]})\n"
    )
    return begin.encode(), f"# <<< spotctl nightly {name}\n".encode()


def _span(table: bytes, name: str) -> tuple[int, int] | None:
    begin, end = _marks(name)
    begins = re.search(rb"^" + re.escape(begin), table, re.MULTILINE)
    if begins is None:
        return None

    last = re.compile(rb"^" + re.escape(end), re.MULTILINE).search(table, begins.end())
    if last is None:
        raise BadRequest(
            f"crontab: the block of {name} has no end line {end.decode().strip()!r}; fix it: "
            "crontab -e"
        )

    return begins.start(), last.end()


@dataclass(frozen=True, slots=True)
class Crontab:
    """The crontab of the current user, accessed with the `crontab` command."""

    program: str = "crontab"

    def is_there(self) -> bool:
        """Whether the `crontab` command is installed."""
        return shutil.which(self.program) is not None

    def read(self) -> bytes:
        """The whole crontab; empty if there is none."""
        ran = self._run("-l")
        if ran.returncode == 0:
            return ran.stdout
        if b"no crontab for" in ran.stderr:
            return b""
        raise BadRequest(f"crontab -l: {_error_text(ran)}")

    def write(self, before: bytes, after: bytes) -> None:
        """Replaces the crontab, unless it has changed since `before` was read."""
        if after == before:
            return
        if self.read() != before:
            raise BadRequest(
                "crontab: it was changed by another program in the meantime; try again"
            )

        ran = self._run("-", stdin=after) if after else self._run("-r")
        if ran.returncode:
            raise BadRequest(f"crontab: not changed: {_error_text(ran)}")
        if self.read() != after:
            raise BadRequest(
                "crontab: it does not contain what was written; check with: crontab -l"
            )

    def _run(self, argument: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        try:
            return subprocess.run(
                [self.program, argument],
                input=stdin,
                capture_output=True,
                check=False,
                env={**os.environ, "LC_ALL": "C"},
            )
        except OSError as error:
            raise BadRequest(
                f"{self.program}: {error.strerror}; install cron, or use --scheduler systemd"
            ) from None


def daemon_runs() -> bool | None:
    """Whether a cron daemon is running on this computer; None if unknown."""
    pid_files = [path for path in _PID_FILES if path.exists()]
    if not pid_files:
        return False if Path("/etc/debian_version").exists() else None
    return any(Path("/proc", path.read_text().strip()).exists() for path in pid_files)


def _error_text(ran: subprocess.CompletedProcess[bytes]) -> str:
    return " ".join(ran.stderr.decode(errors="replace").split()) or f"exit status {ran.returncode}"


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
    """The timer. On days that skip a time of day systemd does not fire, so there are several
    times."""
    return _TIMER.format(
        name=name, calendar="\n".join(f"OnCalendar=*-*-* {at:%H:%M:%S}" for at in times)
    )


def quoted(word: str) -> str:
    """A word of a command line, with systemd's special characters escaped."""
    if "\n" in word:
        raise BadRequest(
            f"{word!r}: has a line break, which systemd units do not allow; use another path"
        )
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
        return (
            shutil.which("systemctl") is not None and not self._run("show-environment").returncode
        )

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
                "systemctl --user does not answer; log in as the user instead of using su or sudo, "
                "or use --scheduler cron"
            )

        # A unit of another home is not replaced.
        home = re.compile(r'"--home" ("(?:[^"\\]|\\.)*")')
        theirs = home.search(self.service_text(name))
        ours = home.search(service_text)
        if theirs is not None and ours is not None and theirs[1] != ours[1]:
            raise BadRequest(
                f"{self.folder / service_unit(name)}: belongs to a nightly job of the same name in "
                "another home,"
                f" {theirs[1]}; use another name, or remove it first: spotctl --home {theirs[1]} "
                f"nightly rm {name}"
            )

        self.folder.mkdir(parents=True, exist_ok=True)
        for unit, text in ((service_unit(name), service_text), (timer_unit(name), timer_text)):
            with replaced(self.folder / unit) as part:
                part.write_text(text, "utf-8")

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

    def _must(self, *arguments: str) -> None:
        ran = self._run(*arguments)
        if ran.returncode:
            error = " ".join(ran.stderr.split()) or f"exit status {ran.returncode}"
            raise BadRequest(f"systemctl --user {' '.join(arguments)}: {error}")

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["systemctl", "--user", *arguments],  # noqa: S607
            capture_output=True,
            text=True,
            check=False,
        )


def linger() -> str:
    """Enables timers while the user is not logged in. Returns what the user has to do for it, if
    anything.
    """
    user = getpass.getuser()
    if Path("/var/lib/systemd/linger", user).exists():
        return ""
    if shutil.which("loginctl") is not None:
        ran = subprocess.run(["loginctl", "enable-linger"], capture_output=True, check=False)  # noqa: S607
        if not ran.returncode:
            return ""
    return (
        "timers only run while you are logged in; to change that, run once: sudo loginctl "
        f"enable-linger {user}"
    )
