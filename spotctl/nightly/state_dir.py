"""What is kept of a nightly job: a folder under the home with how it was installed, how its last night went, and logs.

The folder is for its owner alone: the environment file in it holds secrets.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, time
from pathlib import Path
from typing import Any, TypeVar

from spotctl.agent.files import replace_json
from spotctl.errors import BadRequest
from spotctl.nightly.hours import Hours

_CURE = "remove it; spotctl nightly install writes it anew"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Installed:
    """A nightly job. `file` is the job file itself, not a copy of it: what is edited by day runs at night.

    `path` is where programs are looked for; timers know of no virtual environment. `webhook` is what the job file said,
    for the night in which it cannot be read.
    """

    name: str
    file: Path
    hours: Hours
    scheduler: str
    path: str
    webhook: str | None = None

    def to_json(self) -> dict[str, Any]:
        """As it is kept."""
        deadline = self.hours.deadline
        return {
            "name": self.name,
            "file": str(self.file),
            "at": f"{self.hours.at:%H:%M}",
            "deadline": None if deadline is None else f"{deadline:%H:%M}",
            "scheduler": self.scheduler,
            "path": self.path,
            "webhook": self.webhook,
        }

    @staticmethod
    def of_json(kept: Mapping[str, Any]) -> Installed:
        """As it was kept."""
        deadline = kept["deadline"]
        hours = Hours(time.fromisoformat(kept["at"]), None if deadline is None else time.fromisoformat(deadline))
        return Installed(kept["name"], Path(kept["file"]), hours, kept["scheduler"], kept["path"], kept.get("webhook"))


@dataclass(frozen=True, slots=True)
class Kept:
    """The last night: written before anything is rented, and once it was told of. `spent` is nano-dollar-seconds.

    `begin` is the night's (microseconds UTC). Runs of the job that began at `since` or later are this night's: one of
    an earlier night that goes on began before it.
    """

    day: date
    begin: int
    since: int
    told: bool = False
    outcome: str = ""
    spent: int | None = None

    def to_json(self) -> dict[str, Any]:
        """As it is kept."""
        return {
            "day": self.day.isoformat(),
            "begin_us": self.begin,
            "since_us": self.since,
            "told": self.told,
            "outcome": self.outcome,
            "spent": self.spent,
        }

    @staticmethod
    def of_json(kept: Mapping[str, Any]) -> Kept:
        """As it was kept."""
        day = date.fromisoformat(kept["day"])
        return Kept(day, kept["begin_us"], kept["since_us"], kept["told"], kept["outcome"], kept["spent"])


@dataclass(frozen=True, slots=True)
class StateDir:
    """The folder of one nightly job."""

    home: Path
    name: str

    @property
    def folder(self) -> Path:
        """All that is kept of it."""
        return self.home / "nightly" / self.name

    @property
    def environment(self) -> Path:
        """Variables that the job needs, secrets among them, written by its owner."""
        return self.folder / "environment"

    @property
    def logs(self) -> Path:
        """One file a night."""
        return self.folder / "logs"

    @property
    def reports(self) -> Path:
        """One file a night."""
        return self.folder / "reports"

    @property
    def installed(self) -> Installed | None:
        """How it was installed; None if it is not."""
        path = self.folder / "installed.json"
        found = _read(path)
        return None if found is None else _parsed(path, lambda: Installed.of_json(found))

    def install(self, nightly: Installed) -> None:
        """Keeps how it is installed."""
        self.make()
        replace_json(self.folder / "installed.json", nightly.to_json(), lasting=True)

    def uninstall(self) -> None:
        """Forgets it. Logs, reports and the environment file stay: somebody wrote them, or may want to read them."""
        (self.folder / "installed.json").unlink(missing_ok=True)

    @property
    def last(self) -> Kept | None:
        """The last night; None before the first."""
        path = self.folder / "night.json"
        found = _read(path)
        return None if found is None else _parsed(path, lambda: Kept.of_json(found))

    def keep(self, night: Kept) -> None:
        """Keeps how far a night is."""
        replace_json(self.folder / "night.json", night.to_json(), lasting=True)

    def make(self) -> None:
        """Makes the folder."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.folder.chmod(0o700)


def rooms(home: Path) -> list[StateDir]:
    """The nightly jobs that are installed."""
    found = (StateDir(home, path.parent.name) for path in sorted((home / "nightly").glob("*/installed.json")))
    return list(found)


def installed(home: Path, name: str) -> tuple[StateDir, Installed]:
    """The nightly job of a name."""
    room = StateDir(home, name)
    found = room.installed
    if found is None:
        known = ", ".join(one.name for one in rooms(home)) or "none"
        raise BadRequest(f"no nightly job named {name!r} is installed under {home}; installed: {known}")
    return room, found


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise BadRequest(f"{path}: is damaged ({error}); {_CURE}") from None
    if not isinstance(found, dict):
        raise BadRequest(f"{path}: is damaged; {_CURE}")
    return found


def _parsed(path: Path, parse: Callable[[], T]) -> T:
    try:
        return parse()
    except (KeyError, TypeError, ValueError) as error:
        raise BadRequest(f"{path}: is damaged ({type(error).__name__}: {error}); {_CURE}") from None
