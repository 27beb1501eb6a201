"""The record of a job's starts: a line for each, in a file of a fixed size that is overwritten in place.

It has a line for a start even if the disk is full, Python is missing or another file of the job is damaged.
`supervise.sh` writes the begin and the end of a start, and a night adds whether it was reported, and why it failed.
"""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from pricing_data.units import SECOND
from spotctl.agent.files import sync_folder
from spotctl.home.errors import BadRequest

SLOTS = 400
"""As many starts are kept: at one per night, those of more than a year."""
LINE_BYTES = 256
_LONGEST_WHY = 150
_CURE = "remove it; the next start makes a new one"

_LINE = re.compile(
    r"number=(?P<number>[1-9]\d{0,8}) began=(?P<began>\d{1,12}) pid=(?P<pid>\d{1,9})"
    r"(?: ended=(?P<ended>\d{1,12}) status=(?P<status>\d{1,3}))? reported=(?P<reported>yes|no)(?: why=(?P<why>.*))?"
)
_NOT_KEPT = re.compile(r"[^A-Za-z0-9 ._:/()=,;@-]")
"""Characters that a shell or JSON would have to quote."""


@dataclass(frozen=True, slots=True)
class NightStart:
    """A scheduled start. `why` says why it failed, unless the record of the night does; `reported`: in a message.

    Moments in seconds since 1970. `ended` is None while it goes on, and after a kill that nothing survived.
    """

    number: int
    began: int
    pid: int
    ended: int | None = None
    status: int | None = None
    reported: bool = False
    why: str = ""

    @property
    def began_us(self) -> int:
        return self.began * SECOND

    @property
    def is_alive(self) -> bool:
        """Whether its process exists."""
        if self.ended is not None:
            return False
        if self.pid == os.getpid():
            return True
        if not Path("/proc/self").exists():
            return _answers(self.pid)
        try:
            words = Path("/proc", str(self.pid), "cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
        return b"nightly" in words and b"run" in words

    def line(self) -> bytes:
        ending = "" if self.ended is None else f" ended={self.ended} status={self.status}"
        why = " ".join(_NOT_KEPT.sub("", " ".join(self.why.split())).split())[:_LONGEST_WHY]
        text = f"number={self.number} began={self.began} pid={self.pid}{ending} reported={_YES[self.reported]}"
        return f"{text} why={why}".encode() if why else text.encode()


_YES = {True: "yes", False: "no"}


@dataclass(frozen=True, slots=True)
class StartRecord:
    """The file with the starts of a job."""

    path: Path

    def create(self) -> None:
        """Reserves the space for all lines, unless that was done."""
        if self.path.exists():
            return
        new = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        try:
            with new.open("xb") as file:
                new.chmod(0o600)
                file.write(_padded(b"") * SLOTS)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.path)
        finally:
            new.unlink(missing_ok=True)
        sync_folder(self.path.parent)

    def read(self) -> tuple[list[NightStart], int]:
        """The starts, oldest first, and the number of lines that cannot be read. BadRequest: no line can be."""
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return [], 0
        except OSError as error:
            raise BadRequest(f"{self.path}: cannot be read: {error.strerror}; {_CURE}") from None
        lines = [content[at : at + LINE_BYTES] for at in range(0, len(content), LINE_BYTES)]
        starts = [_parsed(line) for line in lines]
        known = {start.number: start for start in starts if start is not None}
        written = sum(1 for line in lines if line.strip())
        damaged = written - sum(1 for start in starts if start is not None)
        return [known[number] for number in sorted(known)], damaged + abs(SLOTS - len(lines))

    def begin(self, now: int) -> NightStart:
        """Records a start of this process, which no script supervises."""
        self.create()
        starts, _ = self.read()
        start = NightStart(starts[-1].number + 1 if starts else 1, now // SECOND, os.getpid())
        self.write(start)
        return start

    def write(self, start: NightStart) -> None:
        with self.path.open("r+b", buffering=0) as file:
            file.seek(start.number % SLOTS * LINE_BYTES)
            file.write(_padded(start.line()))
            os.fsync(file.fileno())

    def mark_reported(self, starts: Iterable[NightStart]) -> None:
        for start in starts:
            self.write(replace(start, reported=True))

    def note(self, number: int, now: int, status: int | None, *, reported: bool, why: str) -> None:
        """Adds to a start whether it was reported, why it failed, and with a status that it has ended."""
        start = next((start for start in self.read()[0] if start.number == number), None)
        if start is not None:
            ended = None if status is None else now // SECOND
            self.write(replace(start, ended=ended, status=status, reported=reported, why=why))


def _padded(line: bytes) -> bytes:
    return line.ljust(LINE_BYTES - 1) + b"\n"


def _parsed(line: bytes) -> NightStart | None:
    match = _LINE.fullmatch(line.decode("ascii", "replace").rstrip())
    if match is None:
        return None
    number, began, pid, ended, status, reported, why = match.groups()
    ended_at, code = (None, None) if ended is None else (int(ended), int(status))
    return NightStart(int(number), int(began), int(pid), ended_at, code, reported == "yes", why or "")


def _answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
