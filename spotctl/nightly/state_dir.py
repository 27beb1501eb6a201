"""The state of a nightly job: a folder with its installation, its starts, its last night, logs and
reports.

Only the owner can read the folder, because its environment file holds secrets.

The record of starts is a file of a fixed size with a line for each, which are overwritten in place.
It has a line for a start even if the disk is full, Python is missing or another file of the job is
damaged. `supervise.sh` writes the begin and the end of a start, and a night adds whether it was
reported, and why it failed.
"""

import os
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, time, timedelta, tzinfo
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from agileml.runtime.ground import replaced
from pricing_data.units import SECOND
from spotctl.agent.files import replace_json
from spotctl.home.errors import BadRequest
from spotctl.home.paths import KEPT_DAYS
from spotctl.nightly.hours import Hours, day_of

SLOTS = 400
"""As many starts are kept: at one per night, those of more than a year."""
LINE_BYTES = 256
_LONGEST_WHY = 150
_CURE_OF_STARTS = "remove it; the next start makes a new one"

_LINE = re.compile(
    r"number=(?P<number>[1-9]\d{0,8}) began=(?P<began>\d{1,12}) pid=(?P<pid>\d{1,9})"
    r"(?: ended=(?P<ended>\d{1,12}) status=(?P<status>\d{1,3}))? reported=(?P<reported>yes|no)(?: why=(?P<why>.*))?"
)
_NOT_KEPT = re.compile(r"[^A-Za-z0-9 ._:/()=,;@-]")
"""Characters that a shell or JSON would have to quote."""


@dataclass(frozen=True, slots=True)
class NightStart:
    """A scheduled start. `why` says why it failed, unless the record of the night does; `reported`:
    in a message.

    Moments in seconds since 1970. `ended` is None while it goes on, and after a kill that nothing
    survived.
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
            try:
                # Another user's process exists, too.
                with suppress(PermissionError):
                    os.kill(self.pid, 0)
            except ProcessLookupError:
                return False
            return True

        try:
            words = Path("/proc", str(self.pid), "cmdline").read_bytes().split(b"\0")
        except OSError:
            return False

        return b"nightly" in words and b"run" in words

    def line(self) -> bytes:
        text = f"number={self.number} began={self.began} pid={self.pid}"
        if self.ended is not None:
            text += f" ended={self.ended} status={self.status}"
        text += " reported=yes" if self.reported else " reported=no"

        # Before and after what is not kept, spaces may come to stand together.
        spaced = " ".join(self.why.split())
        why = " ".join(_NOT_KEPT.sub("", spaced).split())
        if why:
            text += f" why={why[:_LONGEST_WHY]}"
        return text.encode()


@dataclass(frozen=True, slots=True)
class StartRecord:
    """The file with the starts of a job."""

    path: Path

    def create(self) -> None:
        """Reserves the space for all lines, unless that was done."""
        if self.path.exists():
            return
        with replaced(self.path, lasting=True) as new:
            new.touch(0o600)
            new.write_bytes(b"\n".rjust(LINE_BYTES) * SLOTS)

    def read(self) -> tuple[list[NightStart], int]:
        """The starts, oldest first, and the number of lines that cannot be read. BadRequest: no
        line can be.
        """
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return [], 0
        except OSError as error:
            raise BadRequest(
                f"{self.path}: cannot be read: {error.strerror}; {_CURE_OF_STARTS}"
            ) from None

        lines = [content[at : at + LINE_BYTES] for at in range(0, len(content), LINE_BYTES)]
        known = dict[int, NightStart]()
        damaged = abs(SLOTS - len(lines))
        for line in filter(bytes.strip, lines):
            match = _LINE.fullmatch(line.decode("ascii", "replace").rstrip())
            if match is None:
                damaged += 1
                continue

            number, began, pid, ended, status, reported, why = match.groups()
            ended_at, code = (None, None) if ended is None else (int(ended), int(status))
            known[int(number)] = NightStart(
                int(number), int(began), int(pid), ended_at, code, reported == "yes", why or ""
            )

        return [known[number] for number in sorted(known)], damaged

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
            file.write(start.line().ljust(LINE_BYTES - 1) + b"\n")
            os.fsync(file.fileno())

    def note(self, number: int, now: int, status: int | None, *, reported: bool, why: str) -> None:
        """Adds to a start whether it was reported, why it failed, and with a status that it has
        ended.
        """
        start = next((start for start in self.read()[0] if start.number == number), None)
        if start is not None:
            ended = None if status is None else now // SECOND
            self.write(replace(start, ended=ended, status=status, reported=reported, why=why))


_CURE = "remove it, then run spotctl nightly install again"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Installed:
    """A nightly job. `file` is the job file itself, not a copy: the next night runs what it then
    contains.

    `path` is the PATH at installation, because timers know no virtual environment. `webhook` and
    `heartbeat` are those of the job file, for nights in which the file cannot be read. `metrics` is
    the file or the port where each night publishes its figures, empty for none.
    """

    name: str
    file: Path
    hours: Hours
    scheduler: str
    path: str
    webhook: str | None = None
    heartbeat: str | None = None
    metrics: str = ""

    def to_json(self) -> dict[str, Any]:
        deadline = self.hours.deadline
        return {
            "name": self.name,
            "file": str(self.file),
            "at": f"{self.hours.at:%H:%M}",
            "deadline": None if deadline is None else f"{deadline:%H:%M}",
            "scheduler": self.scheduler,
            "path": self.path,
            "webhook": self.webhook,
            "heartbeat": self.heartbeat,
            "metrics": self.metrics,
        }


class NightRecord(
    msgspec.Struct,
    frozen=True,
    rename={"begin": "begin_us", "since": "since_us", "reported": "told"},
):
    """The last night. Written before anything is rented, and again once its message was sent.

    `begin` is that of the night (microseconds UTC). Runs that began at `since` or later belong to
    it; `since` is before `begin` if the night continued a run of an earlier one. `spent` is in
    nano-dollar-seconds; `replayed` if it is the replayed money of the local market, None if
    unknown.
    """

    day: date
    begin: int
    since: int
    reported: bool = False
    outcome: str = ""
    spent: int | None = None
    replayed: bool | None = None


class LastResult(msgspec.Struct, frozen=True, rename={"end": "end_us", "success": "success_us"}):
    """How the last reported night ended; kept while the next night goes on. Moments in microseconds
    UTC.

    `spent` is in nano-dollar-seconds; `success` is the end of the last night in which the job was
    done.
    """

    end: int
    done: bool
    spent: int | None
    success: int | None


class StateDir:
    """The state folder of one nightly job."""

    def __init__(self, home: Path, name: str) -> None:
        self.home = home
        self.name = name
        self.folder = home / "nightly" / name
        self.environment = self.folder / "environment"
        """The environment file with variables and secrets, written by the owner."""
        self.logs = self.folder / "logs"
        """The folder with a log per night."""
        self.reports = self.folder / "reports"
        """The folder with a cost report per night."""
        self.starts = StartRecord(self.folder / "starts")
        """The record of the starts by a timer."""
        self.supervisor = self.folder / "supervise"
        """The script that a timer runs."""
        self.addresses = self.folder / "addresses"
        """The file with the addresses of messages."""

    @property
    def installed(self) -> Installed | None:
        """The installation; None if the job is not installed."""
        path = self.folder / "installed.json"
        stored = _read(path, dict[str, Any])
        if stored is None:
            return None

        try:
            deadline = stored["deadline"]
            until = None if deadline is None else time.fromisoformat(deadline)
            return Installed(
                stored["name"],
                Path(stored["file"]),
                Hours(time.fromisoformat(stored["at"]), until),
                stored["scheduler"],
                stored["path"],
                stored.get("webhook"),
                stored.get("heartbeat"),
                stored.get("metrics", ""),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise BadRequest(
                f"{path}: is damaged ({type(error).__name__}: {error}); {_CURE}"
            ) from None

    def install(self, nightly: Installed) -> None:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.folder.chmod(0o700)
        replace_json(self.folder / "installed.json", nightly.to_json(), lasting=True)

    def uninstall(self) -> None:
        """Removes the record of the installation. Logs, reports and the environment file stay."""
        (self.folder / "installed.json").unlink(missing_ok=True)
        self.starts.path.unlink(missing_ok=True)
        self.supervisor.unlink(missing_ok=True)
        self.addresses.unlink(missing_ok=True)

    @property
    def last(self) -> NightRecord | None:
        """The last night; None before the first one."""
        return _read(self.folder / "night.json", NightRecord)

    @property
    def result(self) -> LastResult | None:
        """How the last reported night ended; None before the first one."""
        return _read(self.folder / "result.json", LastResult)

    def record_result(self, end: int, *, done: bool, spent: int | None) -> None:
        before = self.result
        success = end if done else None if before is None else before.success
        result = LastResult(end, done, spent, success)
        replace_json(self.folder / "result.json", msgspec.to_builtins(result), lasting=True)

    @property
    def skipped(self) -> int | None:
        """The begin of the last night that was skipped, and reported, because the job was
        running."""
        stored = _read(self.folder / "skipped.json", dict[str, int])
        return None if stored is None else stored["begin_us"]

    def record_skipped(self, begin: int) -> None:
        replace_json(self.folder / "skipped.json", {"begin_us": begin}, lasting=True)

    def record(self, night: NightRecord) -> None:
        replace_json(self.folder / "night.json", msgspec.to_builtins(night), lasting=True)

    def delete_old(self, today: date, zone: tzinfo) -> None:
        """Deletes logs and reports of nights long ago, but not of those whose failure was not
        reported.
        """
        starts, _ = self.starts.read()
        kept = {
            day_of(start.began_us, zone)
            for start in starts
            if start.status != 0 and not start.reported
        }

        for path in (*self.logs.glob("????-??-??.*"), *self.reports.glob("????-??-??.*")):
            with suppress(ValueError, OSError):
                day = date.fromisoformat(path.stem)
                if day < today - timedelta(days=KEPT_DAYS) and day not in kept:
                    path.unlink()


def state_dirs(home: Path) -> list[StateDir]:
    """The state folders of all installed nightly jobs, also of those whose installation cannot be
    read.
    """
    names = set[str]()
    for file in ("installed.json", "starts"):
        for path in (home / "nightly").glob(f"*/{file}"):
            names.add(path.parent.name)
    return [StateDir(home, name) for name in sorted(names)]


def installed(state_dir: StateDir) -> Installed:
    """The installation of a job that must have one."""
    nightly = state_dir.installed
    if nightly is None:
        home = state_dir.home
        known = ", ".join(folder.name for folder in state_dirs(home)) or "none"
        raise BadRequest(
            f"no nightly job named {state_dir.name!r} is installed under {home}; installed: {known}"
        )
    return nightly


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadRequest(f"{path}: cannot be read: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise BadRequest(f"{path}: is damaged ({error}); {_CURE}") from None
