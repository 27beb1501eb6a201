"""Nightly jobs in the user's crontab: a marked block each. The rest of the file is never changed."""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import time
from pathlib import Path

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


def has_block(table: bytes, name: str) -> bool:
    return _span(table, name) is not None


def block(name: str, at: time, line: str) -> bytes:
    """The crontab lines of a job; `name` may be followed by its home: ` of /home/...`."""
    # An unescaped % ends the command, even within quotes.
    line = f"{at.minute} {at.hour} * * * {line}".replace("%", r"\%")
    if "\n" in line or len(os.fsencode(line)) > LONGEST_LINE:
        raise BadRequest(f"{name}: its crontab line is too long for cron or has a line break; use shorter paths")
    begin, end = _marks(name)
    return begin + os.fsencode(f"{line}\n") + end


def supervised(name: str, supervisor: Path, command: Sequence[str]) -> str:
    """The line that has a script start a command.

    If the script is gone, with the home perhaps, the line itself says so: to syslog, and by cron's mail.
    """
    start = f's={shlex.quote(str(supervisor))}; [ -s "$s" ] && exec /bin/sh "$s" {shlex.join(command)}'
    lost = f'm="spotctl nightly {name} did not start: $s is gone"'
    return f'{start}; {lost}; logger -t spotctl -p user.err "$m"; echo "$m"; exit 127'


def lines_of_block(table: bytes, name: str) -> bytes:
    """The lines between the marks of a job; empty if it has none."""
    span = _span(table, name)
    return b"" if span is None else b"".join(table[span[0] : span[1]].splitlines(keepends=True)[1:-1])


def _marks(name: str) -> tuple[bytes, bytes]:
    begin = f"# >>> spotctl nightly {name} (removed by: spotctl nightly rm {name.partition(' ')[0]})\n"
    return begin.encode(), f"# <<< spotctl nightly {name}\n".encode()


def _span(table: bytes, name: str) -> tuple[int, int] | None:
    begin, end = _marks(name)
    begins = re.search(rb"^" + re.escape(begin), table, re.MULTILINE)
    if begins is None:
        return None
    last = re.compile(rb"^" + re.escape(end), re.MULTILINE).search(table, begins.end())
    if last is None:
        raise BadRequest(f"crontab: the block of {name} has no end line {end.decode().strip()!r}; fix it: crontab -e")
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
            raise BadRequest("crontab: it was changed by another program in the meantime; try again")
        ran = self._run("-", stdin=after) if after else self._run("-r")
        if ran.returncode:
            raise BadRequest(f"crontab: not changed: {_error_text(ran)}")
        if self.read() != after:
            raise BadRequest("crontab: it does not contain what was written; check with: crontab -l")

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
            raise BadRequest(f"{self.program}: {error.strerror}; install cron, or use --scheduler systemd") from None


def daemon_runs() -> bool | None:
    """Whether a cron daemon is running on this computer; None if unknown."""
    pid_files = [path for path in _PID_FILES if path.exists()]
    if not pid_files:
        return False if Path("/etc/debian_version").exists() else None
    return any(Path("/proc", path.read_text().strip()).exists() for path in pid_files)


def _error_text(ran: subprocess.CompletedProcess[bytes]) -> str:
    return " ".join(ran.stderr.decode(errors="replace").split()) or f"exit status {ran.returncode}"
