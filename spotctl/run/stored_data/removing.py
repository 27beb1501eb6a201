"""Removes data that no job of this home has used for long: data sets that no other home uses either, and copies for
machines that are processes of this computer."""

import os
import shutil
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from pricing_data.units import DAY
from spotctl.agent.blobs.bucket import ObjectBucket, StoreRefused
from spotctl.agent.blobs.identity import StoreIdentity
from spotctl.agent.blobs.locations import place_of
from spotctl.agent.data_sets import CONNECTIONS, FILES, SETS, WHOLE, DataSet, read_whole
from spotctl.agent.files import exclusive
from spotctl.clouds.installation import installation_id
from spotctl.files.job.data_buckets import copy_in
from spotctl.home.config import Settings
from spotctl.home.paths import Paths
from spotctl.home.wall_clock import wall_us
from spotctl.log.statuses import read_log
from spotctl.run.launcher_identity import LAUNCHER
from spotctl.run.stored_data.uses import COLLECTING, USERS, DataUse, DataUses, user_key, while_removing

_BATCH = 1000
"""Files that are removed before a home says again that it removes files; that takes much less than an hour."""


def unused_data(settings: Settings, days: int) -> list[DataUse]:
    """The data sets of this home that no job has used for this many days, and that no run of this home needs."""
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
            *(copy_in(bucket.rstrip("/"), location) for bucket in spec.get("data_buckets", {}).values()),
        )
    }
    before = wall_us() - days * DAY
    return [use for use in uses if use.used < before and str(use.location) not in needed]


def _jobs_going(settings: Settings) -> list[dict[str, Any]] | None:
    """The jobs of runs that have not ended; None if a damaged log may have lost one."""
    log = read_log(settings)
    if log.damage:
        return None
    return [state.began.spec for state in log.latest if state.ended is None and state.began is not None]


def remove_data(settings: Settings, unused: Sequence[DataUse], identity: StoreIdentity = LAUNCHER) -> list[str]:
    """Removes data sets; returns what could not be removed. BadRequest: a launch is storing data."""
    home, failures = Paths(settings.home).data, list[str]()
    ordered = sorted(unused, key=_bucket)
    with while_removing(home):
        # A launch may have used some of it since it was listed.
        still = {use.location: use for use in DataUses(home).all()}
        for name, group in groupby((use for use in ordered if still.get(use.location) == use), _bucket):
            try:
                place = place_of(name, identity)
                assert place is not None
                locations = [use.location for use in group]
                digests = [location.digest for location in locations]
                _Removal(place.bucket, installation_id(settings.home)).remove(digests)
                DataUses(home).forget(locations)
            except StoreRefused as error:
                failures.append(f"data in {name}: not all was removed: {error}")
    return failures


def _bucket(use: DataUse) -> str:
    return use.location.bucket


@dataclass(frozen=True, slots=True)
class _Removal:
    """Removes data sets from one bucket.

    A launch names its data set before it reads which files are there, and the removal says that it goes on before it
    reads which data sets are named: one of the two sees the other.
    """

    bucket: ObjectBucket
    installation: str

    def remove(self, digests: Iterable[str]) -> None:
        """Gives up this home's use of data sets, and removes what no home uses, also if an earlier removal left it."""
        self._announce()
        try:
            self._delete([user_key(digest, self.installation) for digest in digests])
            used = {key.removeprefix(USERS).partition("/")[0] for key in self.bucket.list(USERS)}
            named = {key.removeprefix(SETS) for key in self.bucket.list(SETS)}
            if abandoned := sorted(named - used):
                shared = set[str]().union(*(self._files(digest) for digest in named & used))
                for digest in abandoned:
                    # The list goes last: if this ends early, it says what is left.
                    self.bucket.delete(WHOLE + digest)
                    self._delete([FILES + name for name in self._files(digest) - shared])
                    self.bucket.delete(SETS + digest)
        finally:
            self.bucket.delete(COLLECTING + self.installation)

    def _announce(self) -> None:
        self.bucket.put(COLLECTING + self.installation, str(int(time.time())).encode())

    def _files(self, digest: str) -> set[str]:
        return set(DataSet.of(read_whole(self.bucket, SETS + digest)).contents)

    def _delete(self, keys: Sequence[str]) -> None:
        for first in range(0, len(keys), _BATCH):
            with ThreadPoolExecutor(CONNECTIONS) as pool:
                for _ in pool.map(self.bucket.delete, keys[first : first + _BATCH]):
                    pass
            self._announce()


@dataclass(frozen=True, slots=True)
class UnusedCopy:
    """A copy in the home's cache: its bytes, and when a job last used it, in microseconds UTC."""

    folder: Path
    size: int
    used: int


def unused_copies(settings: Settings, days: int) -> list[UnusedCopy]:
    """The copies that no job has used for this many days; none while a run on this computer may need one."""
    cache, before = Paths(settings.home).cache, wall_us() - days * DAY
    if not cache.is_dir():
        return []
    folders = [folder for folder in sorted(cache.iterdir()) if folder.is_dir() and _used(folder) < before]
    going = _jobs_going(settings) if folders else None
    if going is None or any(spec["resources"]["clouds"] == ["local"] for spec in going):
        return []
    return [UnusedCopy(folder, _size(folder), _used(folder)) for folder in folders]


def remove_copies(settings: Settings, copies: Sequence[UnusedCopy]) -> list[str]:
    """Removes copies, unless a job has used them since; returns what could not be removed."""
    failures = list[str]()
    with exclusive(Paths(settings.home).cache / ".lock"):
        for copy in copies:
            try:
                if _used(copy.folder) == copy.used:
                    # Without its name, it is no copy any more, however the removal ends.
                    leaving = copy.folder.with_name(f".{copy.folder.name.lstrip('.')}")
                    copy.folder.rename(leaving)
                    shutil.rmtree(leaving)
            except OSError as error:
                failures.append(f"data {copy.folder}: not all was removed: {error.strerror or error}")
    return failures


def _used(folder: Path) -> int:
    """The folder's time, which each use sets."""
    return folder.stat().st_mtime_ns // 1000


def _size(folder: Path) -> int:
    return sum(Path(root, name).lstat().st_size for root, _, names in os.walk(folder) for name in names)
