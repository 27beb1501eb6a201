"""The home of a run whose runner lives elsewhere, and the copy of its event log in the object
store.

The home has a key of its own for the run's machines, and its own log. It is made next to the
launcher's, serves the launcher until the first reliable machine answers, and is then copied to that
machine. The launcher's own ssh key stays where it is.

The copy of the log grows with it and outlives every machine. It consists of segments, objects of up
to `SEGMENT_ROWS` rows, named by the epoch of their runner (`fence`) and by the number of their
first row. If two epochs have the same row, the later epoch counts: a runner that was cut off may
still add rows that were never part of the run.
"""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from threading import Event, Lock
from typing import Any

from agileml.runtime.blob_store import BlobStore
from agileml.runtime.ground import refilled
from spotctl.agent.data.locations import MACHINE, StoreIdentity, place_of
from spotctl.agent.errors import AgentError
from spotctl.home.cloud import cloud_of, rented_clouds
from spotctl.home.config import Settings
from spotctl.home.installation import installation_id, read_or_create
from spotctl.home.paths import Paths
from spotctl.log.event_json import from_json, to_json
from spotctl.log.events import RunBegan
from spotctl.log.loss import rows_written
from spotctl.log.state import LogRow
from spotctl.log.store import EventLog
from spotctl.run.remote_runner.fence import Superseded
from spotctl.run.work import resume_state

SEGMENT_ROWS = 500
OUTPUT_SECONDS, _TIMES_AS_LONG = 30.0, 10.0
_FOLDER = "log/"


def new_home(job: str, settings: Settings) -> Settings:
    """Settings with a new home for a run of a job, in which no other run is under way."""
    folder = Paths(settings.home).elsewhere(job)
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True, mode=0o700)
    read_or_create(folder / "installation", installation_id(settings.home).encode())
    prices = settings.price_store.absolute()
    prices.mkdir(parents=True, exist_ok=True)
    (folder / "prices").symlink_to(prices, target_is_directory=True)

    # What is copied to machines is packed once, and not for every run.
    archives = archives_of(settings.home.absolute())
    archives.mkdir(parents=True, exist_ok=True, mode=0o700)
    archives_of(folder).parent.mkdir(mode=0o700)
    archives_of(folder).symlink_to(archives, target_is_directory=True)

    with EventLog(Paths(settings.home).log) as known, EventLog(Paths(folder).log) as log:
        for run, began in known.runs().items():
            if began.job == job:
                add_missing(log, run, known.of_run(run))

    return replace(settings, home=folder)


def archives_of(home: Path) -> Path:
    """The folder of the archives that a home copies to machines."""
    return home / "machines" / "archives"


def copy_home(settings: Settings, run: str, workdir: str, into: Path) -> None:
    """Copies the home of a run to a folder that is sent to a machine, where the job's folder is
    `workdir`.
    """
    home = settings.home
    into_paths = Paths(into)
    into.mkdir(parents=True, mode=0o700)
    shutil.copy2(home / "installation", into / "installation")
    shutil.copytree(home / "prices", into / "prices")
    keys = into / "machines"
    keys.mkdir(mode=0o700)
    for name in ("ssh.key", "link.key"):
        shutil.copy2(home / "machines" / name, keys / name)
    shutil.copytree(home / "machines" / "known_hosts", keys / "known_hosts")
    (into / "config.toml").write_text(config_text(settings))

    with EventLog(Paths(home).log) as log, EventLog(into_paths.log) as new:
        for row in (row for name in log.runs() for row in log.of_run(name)):
            event = row.event
            if row.run == run and isinstance(event, RunBegan):
                # Only the owner can read the folder.
                folder = f"/tmp/{Path(event.folder).name}"  # noqa: S108
                event = replace(event, spec={**event.spec, "workdir": workdir}, folder=folder)
            new.append(row.run, row.at, event)


def config_text(settings: Settings) -> str:
    """The settings for a runner on a machine, as a file. JSON's strings, lists and numbers are also
    TOML's.

    Addresses of services are left out, because networks differ.
    """
    clouds = {cloud: cloud_of(cloud).settings_of_machines for cloud in rented_clouds()}
    sections = list[tuple[str, Mapping[str, Any]]]()
    for of_cloud in clouds.values():
        # Single settings that hold on a machine as well, which lacks the SDK's variables for them.
        variables = of_cloud.variables.items()
        named = {
            name: settings.text(name) or os.environ.get(variable) for name, variable in variables
        }
        if any(named.values()):
            sections.append(("", {**named, **of_cloud.on_machines}))

    for cloud, of_cloud in clouds.items():
        table: Any = settings.table(cloud, of_cloud.table)
        values = {field.name: getattr(table, field.name) for field in fields(table)}
        # A runner on a machine reaches the others at private addresses.
        private = {"private_ssh": True} if "private_ssh" in values else {}
        sections.append((f"[{cloud}]", {**values, **private}))

    lines = list[str]()
    for head, stated in sections:
        lines += [head] if head else []
        for name, value in stated.items():
            if value is not None:
                lines.append(f"{name} = {_toml(value)}")
    return "\n".join(lines) + "\n"


def restore_rendezvous(source: Path, folder: Path) -> None:
    """Puts the rendezvous folder of a run where its log says, on another computer."""
    if folder.exists():
        resume_state.check_rendezvous(folder)
        return
    with refilled(folder) as part:
        shutil.copytree(source, part, dirs_exist_ok=True)
        part.chmod(0o700)


def _toml(value: object) -> str:
    if isinstance(value, Mapping):
        return (
            "{" + ", ".join(f"{_toml(name)} = {_toml(item)}" for name, item in value.items()) + "}"
        )
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)


def to_line(row: LogRow) -> bytes:
    """A row in the copy: its time and its event."""
    kind = type(row.event).__name__
    body = json.loads(to_json(row.event))
    return json.dumps({"at": row.at, "kind": kind, "body": body}).encode() + b"\n"


def from_line(line: bytes) -> LogRow:
    """A copied row, which has no position in a log of this computer, and names no run: all are of
    the one.
    """
    values = json.loads(line)
    return LogRow(0, "", values["at"], from_json(values["kind"], json.dumps(values["body"])))


class LogCopy:
    """Reads the copy of one run's log."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store
        self._full: dict[str, list[LogRow]] = {}

    def rows(self) -> list[LogRow]:
        """All rows so far. Raises StoreRefused or UnreadableBlob."""
        segments = dict[tuple[int, int], list[LogRow]]()
        for name in self._store.list(_FOLDER):
            rows = self._full.get(name)
            if rows is None:
                rows = [from_line(line) for line in b"".join(self._store.get(name)).splitlines()]
            if len(rows) == SEGMENT_ROWS:
                # Nothing is added to a full segment, so it is read once.
                self._full[name] = rows

            epoch, _, first = name.removeprefix(_FOLDER).partition("-")
            segments[int(epoch), int(first)] = rows
        return join_segments(segments)


def join_segments(segments: Mapping[tuple[int, int], Sequence[LogRow]]) -> list[LogRow]:
    """The rows of segments, given by epoch and first row, up to the first row that is missing."""
    merged: list[LogRow] = []
    for (_, first), rows in sorted(segments.items()):
        if first <= len(merged):
            merged[first:] = rows
    return merged


class LogCopier:
    """Writes the copy while the run of an epoch goes on; the first `start` rows are in segments of
    earlier epochs.

    Its methods may be called from any thread.
    """

    def __init__(self, store: BlobStore, path: Path, run: str, epoch: int, start: int) -> None:
        self._store = store
        self._path = path
        self._run = run
        self._epoch = epoch
        self._lock = Lock()
        self._skip = start
        self._after = 0
        self._first = start
        self._segment = list[LogRow]()
        self._changed = False

    def copy(self) -> None:
        """Adds the new rows of the log. Raises OSError; the next call then copies the rows that are
        missing.
        """
        with self._lock:
            with EventLog(self._path) as log:
                new = log.of_run(self._run, self._after)
            for row in new:
                self._after = row.id
                if self._skip:
                    self._skip -= 1
                else:
                    self._segment.append(row)
                    self._changed = True
            while self._changed:
                part = self._segment[:SEGMENT_ROWS]
                name = f"{_FOLDER}{self._epoch:06d}-{self._first:08d}"
                self._store.put(name, [to_line(row) for row in part])
                if len(part) == SEGMENT_ROWS:
                    self._first += SEGMENT_ROWS
                    del self._segment[:SEGMENT_ROWS]
                self._changed = bool(len(part) == SEGMENT_ROWS and self._segment)


class OutputCopier:
    """Copies what the machines of a run have printed to the run's place, so that it outlives the
    runner's machine.

    Files are copied whole: the larger they are, the more seldom. That may take long, so it has a
    thread of its own. `hold` makes sure that this is still the runner, and raises Superseded if it
    is not: one that stood still must not overwrite what its successor has copied.
    """

    def __init__(self, folder: Path, location: str, hold: Callable[[], None]) -> None:
        self._folder = folder
        self._location = f"{location}/output"
        self._hold = hold
        self._sizes: dict[str, int] = {}
        self._lock = Lock()

    def run(self, stop: Event) -> None:
        """Copies until `stop` is set, or another runner has taken over. What fails is tried
        again."""
        took = 0.0
        while not stop.wait(max(OUTPUT_SECONDS, _TIMES_AS_LONG * took)):
            begun = time.monotonic()
            try:
                with suppress(OSError, AgentError):
                    self.copy()
            except Superseded:
                return
            took = time.monotonic() - begun

    def copy(self) -> None:
        """Copies the files that have grown. Raises OSError or Superseded."""
        place = place_of(self._location, MACHINE)
        assert place is not None
        with self._lock:
            for path in self._folder.glob("*"):
                if path.stat().st_size != self._sizes.get(path.name):
                    content = path.read_bytes()
                    self._hold()
                    place.bucket.write(place.prefix + path.name, [content])
                    self._sizes[path.name] = len(content)


def fetch_output(location: str, folder: Path, who: StoreIdentity) -> None:
    """Fetches what `OutputCopier` has copied. Raises OSError."""
    place = place_of(f"{location}/output", who)
    assert place is not None
    for key in place.bucket.list(place.prefix):
        path = folder / key.rpartition("/")[2]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(place.bucket.get(key)))


def add_missing(log: EventLog, run: str, rows: Iterable[LogRow]) -> int:
    """Appends to a log the rows of a run that the log lacks; returns how many. What a repair
    dropped is not added.
    """
    known = rows_written(log.of_run(run))
    new = list(rows)[known:]
    for row in new:
        log.append(run, row.at, row.event)
    return len(new)
