"""The state of a nightly job: a folder with its installation, its last night, logs and reports.

Only the owner can read the folder, because its environment file holds secrets.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, time, tzinfo
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from spotctl.agent.files import replace_json
from spotctl.home.errors import BadRequest
from spotctl.log.store import is_running
from spotctl.nightly.hours import Hours, day_of
from spotctl.nightly.night_log import delete_old
from spotctl.nightly.starts import StartRecord

_CURE = "remove it, then run spotctl nightly install again"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Installed:
    """A nightly job. `file` is the job file itself, not a copy: the next night runs what it then contains.

    `path` is the PATH at installation, because timers know no virtual environment. `webhook` and `heartbeat` are
    those of the job file, for nights in which the file cannot be read. `metrics` is the file or the port where each
    night publishes its figures, empty for none.
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

    @staticmethod
    def of_json(stored: Mapping[str, Any]) -> "Installed":
        deadline = stored["deadline"]
        hours = Hours(time.fromisoformat(stored["at"]), None if deadline is None else time.fromisoformat(deadline))
        optional = (stored.get("webhook"), stored.get("heartbeat"), stored.get("metrics", ""))
        return Installed(stored["name"], Path(stored["file"]), hours, stored["scheduler"], stored["path"], *optional)


class NightRecord(msgspec.Struct, frozen=True, rename={"begin": "begin_us", "since": "since_us", "reported": "told"}):
    """The last night. Written before anything is rented, and again once its message was sent.

    `begin` is that of the night (microseconds UTC). Runs that began at `since` or later belong to it; `since` is before
    `begin` if the night continued a run of an earlier one. `spent` is in nano-dollar-seconds; `replayed` if it is the
    replayed money of the local market, None if unknown.
    """

    day: date
    begin: int
    since: int
    reported: bool = False
    outcome: str = ""
    spent: int | None = None
    replayed: bool | None = None


class LastResult(msgspec.Struct, frozen=True, rename={"end": "end_us", "success": "success_us"}):
    """How the last reported night ended; kept while the next night goes on. Moments in microseconds UTC.

    `spent` is in nano-dollar-seconds; `success` is the end of the last night in which the job was done.
    """

    end: int
    done: bool
    spent: int | None
    success: int | None


@dataclass(frozen=True, slots=True)
class StateDir:
    """The state folder of one nightly job."""

    home: Path
    name: str

    @property
    def folder(self) -> Path:
        return self.home / "nightly" / self.name

    @property
    def environment(self) -> Path:
        """The environment file with variables and secrets, written by the owner."""
        return self.folder / "environment"

    @property
    def logs(self) -> Path:
        """The folder with a log per night."""
        return self.folder / "logs"

    @property
    def reports(self) -> Path:
        """The folder with a cost report per night."""
        return self.folder / "reports"

    @property
    def starts(self) -> StartRecord:
        """The record of the starts by a timer."""
        return StartRecord(self.folder / "starts")

    @property
    def supervisor(self) -> Path:
        """The script that a timer runs."""
        return self.folder / "supervise"

    @property
    def addresses(self) -> Path:
        """The file with the addresses of messages."""
        return self.folder / "addresses"

    @property
    def installed(self) -> Installed | None:
        """The installation; None if the job is not installed."""
        path = self.folder / "installed.json"
        stored = _read(path, dict[str, Any])
        try:
            return None if stored is None else Installed.of_json(stored)
        except (KeyError, TypeError, ValueError) as error:
            raise BadRequest(f"{path}: is damaged ({type(error).__name__}: {error}); {_CURE}") from None

    def install(self, nightly: Installed) -> None:
        self._create()
        replace_json(self.folder / "installed.json", nightly.to_json(), lasting=True)

    def uninstall(self) -> None:
        """Removes the record of the installation. Logs, reports and the environment file stay."""
        for path in (self.folder / "installed.json", self.starts.path, self.supervisor, self.addresses):
            path.unlink(missing_ok=True)

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
        """The begin of the last night that was skipped, and reported, because the job was running."""
        stored = _read(self.folder / "skipped.json", dict[str, int])
        return None if stored is None else stored["begin_us"]

    def record_skipped(self, begin: int) -> None:
        replace_json(self.folder / "skipped.json", {"begin_us": begin}, lasting=True)

    @property
    def installed_at(self) -> int:
        """When the installation was last written, on this computer's clock."""
        return (self.folder / "installed.json").stat().st_mtime_ns // 1000

    @property
    def is_running(self) -> bool:
        """Whether a process attends to a night of the job."""
        return is_running(self.folder, self.name)

    def record(self, night: NightRecord) -> None:
        replace_json(self.folder / "night.json", msgspec.to_builtins(night), lasting=True)

    def delete_old(self, today: date, zone: tzinfo) -> None:
        """Deletes logs and reports of nights long ago, but not of those whose failure was not reported."""
        starts, _ = self.starts.read()
        kept = {day_of(start.began_us, zone) for start in starts if start.status != 0 and not start.reported}
        for folder in (self.logs, self.reports):
            delete_old(folder, today, kept)

    def _create(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.folder.chmod(0o700)


def state_dirs(home: Path) -> list[StateDir]:
    """The state folders of all installed nightly jobs, also of those whose installation cannot be read."""
    names = {path.parent.name for file in ("installed.json", "starts") for path in (home / "nightly").glob(f"*/{file}")}
    return [StateDir(home, name) for name in sorted(names)]


def installed(state_dir: StateDir) -> Installed:
    """The installation of a job that must have one."""
    nightly = state_dir.installed
    if nightly is None:
        home = state_dir.home
        known = ", ".join(folder.name for folder in state_dirs(home)) or "none"
        raise BadRequest(f"no nightly job named {state_dir.name!r} is installed under {home}; installed: {known}")
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
