"""Which data the jobs of this home use in buckets, and the removal of what no job has used for
long.

That is data sets that no other home uses either, and copies for machines that are processes of this
computer.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import groupby
from math import inf
from operator import attrgetter
from pathlib import Path
from typing import Any

from agileml.runtime.ground import locked, move
from pricing_data.units import DAY
from spotctl.agent.data.locations import StoreIdentity, place_of
from spotctl.agent.data.sets import (
    CONNECTIONS,
    FILES,
    FOLDER,
    SETS,
    WHOLE,
    DataSet,
    SetLocation,
    read_whole,
)
from spotctl.agent.data.stores import Bucket, NoSuchObject, StoreRefused
from spotctl.agent.files import replace_json
from spotctl.files.job.data_places import copy_in
from spotctl.home.config import Settings
from spotctl.home.errors import BadRequest
from spotctl.home.installation import installation_id
from spotctl.home.paths import Paths
from spotctl.home.wall_clock import wall_us
from spotctl.log.statuses import read_log
from spotctl.run.environment import LAUNCHER

_BATCH = 1000
"""Files that are removed before a home says again that it removes files; that takes much less than
an hour."""

USERS = f"{FOLDER}/users/"
"""Below it, SHA256/INSTALLATION says that a home uses a data set."""

COLLECTING = f"{FOLDER}/collecting/"
"""Below it, INSTALLATION says that a home removes files, and since when, in seconds since 1970."""

COLLECTING_SECONDS = 3600
"""How long a home may remove files; an older object was left by one that was killed."""


def unused_data(settings: Settings, days: int) -> list[DataUse]:
    """The data sets of this home that no job has used for this many days, and that no run of this
    home needs.
    """
    uses = DataUses(Paths(settings.home).data).all()
    going = _jobs_going(settings) if uses else None
    if going is None:
        return []

    needed = {
        place
        for spec in going
        for location in spec.get("data", {}).values()
        for place in (
            location,
            *(
                copy_in(bucket.rstrip("/"), location)
                for bucket in spec.get("data_buckets", {}).values()
            ),
        )
    }

    before = wall_us() - days * DAY
    return [use for use in uses if use.used < before and str(use.location) not in needed]


def _jobs_going(settings: Settings) -> list[dict[str, Any]] | None:
    """The jobs of runs that have not ended; None if a damaged log may have lost one."""
    log = read_log(settings)
    if log.damage:
        return None
    return [
        state.began.spec for state in log.latest if state.ended is None and state.began is not None
    ]


def remove_data(
    settings: Settings, unused: Sequence[DataUse], identity: StoreIdentity = LAUNCHER
) -> list[str]:
    """Removes data sets; returns what could not be removed. BadRequest: a launch is storing
    data."""
    home = Paths(settings.home).data
    failures = list[str]()
    by_bucket = attrgetter("location.bucket")
    ordered = sorted(unused, key=by_bucket)
    with store_lock(home, to_remove=True):
        # A launch may have used some of it since it was listed.
        still = {use.location: use for use in DataUses(home).all()}
        unchanged = [use for use in ordered if still.get(use.location) == use]
        for name, group in groupby(unchanged, by_bucket):
            try:
                place = place_of(name, identity)
                assert place is not None
                locations = [use.location for use in group]
                digests = [location.digest for location in locations]
                _remove_sets(place.bucket, installation_id(settings.home), digests)
                DataUses(home).forget(locations)
            except StoreRefused as error:
                failures.append(f"data in {name}: not all was removed: {error}")

    return failures


def _remove_sets(bucket: Bucket, installation: str, digests: Iterable[str]) -> None:
    """Gives up this home's use of data sets in a bucket, and removes what no home uses, also if an
    earlier removal left it.

    A launch names its data set before it reads which files are there, and the removal says that it
    goes on before it reads which data sets are named: one of the two sees the other.
    """
    bucket.put(COLLECTING + installation, str(int(time.time())).encode())
    try:
        _delete(bucket, installation, [user_key(digest, installation) for digest in digests])
        used = {key.removeprefix(USERS).partition("/")[0] for key in bucket.list(USERS)}
        named = {key.removeprefix(SETS) for key in bucket.list(SETS)}
        if abandoned := sorted(named - used):
            shared = set[str]()
            for digest in named & used:
                shared |= set(DataSet.of(read_whole(bucket, SETS + digest)).contents)
            for digest in abandoned:
                # The list goes last: if this ends early, it says what is left.
                bucket.delete(WHOLE + digest)
                own = set(DataSet.of(read_whole(bucket, SETS + digest)).contents) - shared
                _delete(bucket, installation, [FILES + name for name in own])
                bucket.delete(SETS + digest)
    finally:
        bucket.delete(COLLECTING + installation)


def _delete(bucket: Bucket, installation: str, keys: Sequence[str]) -> None:
    for first in range(0, len(keys), _BATCH):
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            for _ in pool.map(bucket.delete, keys[first : first + _BATCH]):
                pass
        # It goes on.
        bucket.put(COLLECTING + installation, str(int(time.time())).encode())


def unused_copies(settings: Settings, days: int) -> list[tuple[Path, int, int]]:
    """The copies in the home's cache that no job has used for this many days: the folder of each,
    its bytes, and when a job last used it, in microseconds UTC. None while a run on this computer
    may need one.
    """
    cache = Paths(settings.home).cache
    before = wall_us() - days * DAY
    if not cache.is_dir():
        return []

    folders = [
        folder for folder in sorted(cache.iterdir()) if folder.is_dir() and _used(folder) < before
    ]
    going = _jobs_going(settings) if folders else None
    if going is None or any(spec["resources"]["clouds"] == ["local"] for spec in going):
        return []

    copies = list[tuple[Path, int, int]]()
    for folder in folders:
        files = (Path(root, name) for root, _, names in os.walk(folder) for name in names)
        size = sum(file.lstat().st_size for file in files)
        copies.append((folder, size, _used(folder)))
    return copies


def remove_copies(settings: Settings, copies: Sequence[tuple[Path, int, int]]) -> list[str]:
    """Removes copies, unless a job has used them since; returns what could not be removed."""
    failures = list[str]()
    with locked(Paths(settings.home).cache / ".lock"):
        for folder, _, used in copies:
            try:
                if _used(folder) == used:
                    # Without its name, it is no copy any more, however the removal ends.
                    leaving = folder.with_name(f".{folder.name.lstrip('.')}")
                    move(folder, leaving)
                    shutil.rmtree(leaving)
            except OSError as error:
                failures.append(f"data {folder}: not all was removed: {error.strerror or error}")

    return failures


def _used(folder: Path) -> int:
    """The folder's time, which each use sets."""
    return folder.stat().st_mtime_ns // 1000


def missing_sets(bucket: str, locations: Iterable[SetLocation], identity: StoreIdentity) -> int:
    """How many data sets a bucket no longer has. StoreRefused: this identity may not read it."""
    place = place_of(bucket, identity)
    assert place is not None
    present = set(place.bucket.list(SETS))
    return sum(SETS + location.digest not in present for location in locations)


def claim(
    bucket: Bucket, digest: str, listed: bytes, installation: str, wait: Callable[[], object]
) -> None:
    """Names a data set, with the list of its files, as used by a home, so that no home removes
    files that this one counts on. `wait` is called while a removal goes on.

    A removal first says that it goes on, and then reads what is in use: one of the two sees the
    other.
    """
    while True:
        bucket.put(user_key(digest, installation), str(wall_us()).encode())
        bucket.write(SETS + digest, [listed])
        latest = time.time() - COLLECTING_SECONDS
        goes_on = False
        for key in bucket.list(COLLECTING):
            # The object says when the removal began; it is gone once the removal has ended.
            with suppress(NoSuchObject, ValueError):
                goes_on |= int(read_whole(bucket, key)) > latest
        if not goes_on:
            return
        wait()


def user_key(digest: str, installation: str) -> str:
    return f"{USERS}{digest}/{installation}"


@dataclass(frozen=True, slots=True)
class DataUse:
    """A data set in a bucket: its bytes, the job that used it last, and when that was, in
    microseconds UTC.

    `may_lack`: the bucket is one of a job's `data_buckets`, which get a copy when a machine is
    rented near them.
    """

    location: SetLocation
    size: int
    job: str
    used: int
    may_lack: bool = False


class DataUses:
    """The record of one home."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "sets.json"
        self._lock = folder / ".lock"

    def all(self) -> list[DataUse]:
        """BadRequest: the record cannot be read."""
        try:
            uses = list[DataUse]()
            for text, value in json.loads(self._file.read_bytes()).items():
                location = SetLocation.parse(text)
                if location is None:
                    raise ValueError(f"{text!r} is no place of data")
                size = int(str(value["size"]))
                used = int(str(value["used"]))
                may_lack = value.get("may_lack") is True
                uses.append(DataUse(location, size, str(value["job"]), used, may_lack))
            return uses
        except FileNotFoundError:
            return []
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise BadRequest(
                f"{self._file}: is damaged ({error}): remove it; launches write it again"
            ) from None

    def note(self, use: DataUse) -> None:
        """Notes that a job uses a data set."""
        with locked(self._lock):
            known = {known.location: known for known in self.all()}
            self._write({**known, use.location: use})

    def forget(self, locations: Collection[SetLocation]) -> None:
        with locked(self._lock):
            self._write({use.location: use for use in self.all() if use.location not in locations})

    def _write(self, uses: Mapping[SetLocation, DataUse]) -> None:
        values = {
            str(use.location): {
                "size": use.size,
                "job": use.job,
                "used": use.used,
                "may_lack": use.may_lack,
            }
            for use in uses.values()
        }
        replace_json(self._file, values, lasting=True)


@contextmanager
def store_lock(home: Path, *, to_remove: bool) -> Iterator[None]:
    """Keeps this home from removing data while any number of launches store some, and from storing
    it `to_remove` some.

    BadRequest: data is to be removed, and a launch stores some at this moment. A launch waits for
    the end of a removal.
    """
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    seconds = 0.0 if to_remove else inf
    with ExitStack() as held:
        try:
            held.enter_context(locked(home / ".storing", shared=not to_remove, seconds=seconds))
        except BlockingIOError:
            raise BadRequest(
                "a launch of this home is storing data: remove old data when that has ended"
            ) from None
        yield
