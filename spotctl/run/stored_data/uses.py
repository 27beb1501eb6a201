"""`DataUses`: the data sets that this home has stored, with their last use; and the marks of homes in a bucket."""

import fcntl
import json
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from spotctl.agent.blobs.bucket import NoSuchObject, ObjectBucket
from spotctl.agent.blobs.identity import StoreIdentity
from spotctl.agent.blobs.locations import place_of
from spotctl.agent.blobs.objects import write
from spotctl.agent.data_sets import FOLDER, SETS, SetLocation, read_whole
from spotctl.agent.files import exclusive, replace_json
from spotctl.home.errors import BadRequest
from spotctl.home.wall_clock import wall_us

USERS = f"{FOLDER}/users/"
"""Below it, SHA256/INSTALLATION says that a home uses a data set."""

COLLECTING = f"{FOLDER}/collecting/"
"""Below it, INSTALLATION says that a home removes files, and since when, in seconds since 1970."""

COLLECTING_SECONDS = 3600
"""How long a home may remove files; an older object was left by one that was killed."""


def missing_sets(bucket: str, locations: Iterable[SetLocation], identity: StoreIdentity) -> int:
    """How many data sets a bucket no longer has. StoreRefused: this identity may not read it."""
    place = place_of(bucket, identity)
    assert place is not None
    present = set(place.bucket.list(SETS))
    return sum(SETS + location.digest not in present for location in locations)


def claim(bucket: ObjectBucket, digest: str, listed: bytes, installation: str, wait: Callable[[], object]) -> None:
    """Names a data set, with the list of its files, as used by a home, so that no home removes files that this one
    counts on. `wait` is called while a removal goes on.

    A removal first says that it goes on, and then reads what is in use: one of the two sees the other.
    """
    while True:
        bucket.put(user_key(digest, installation), str(wall_us()).encode())
        write(bucket, SETS + digest, [listed])
        if not _is_collecting(bucket):
            return
        wait()


def _is_collecting(bucket: ObjectBucket) -> bool:
    return any(_since(bucket, key) > time.time() - COLLECTING_SECONDS for key in bucket.list(COLLECTING))


def _since(bucket: ObjectBucket, key: str) -> float:
    """When the removal that an object announces began; 0 once it has ended."""
    try:
        return int(read_whole(bucket, key))
    except (NoSuchObject, ValueError):
        return 0


def user_key(digest: str, installation: str) -> str:
    return f"{USERS}{digest}/{installation}"


@dataclass(frozen=True, slots=True)
class DataUse:
    """A data set in a bucket: its bytes, the job that used it last, and when that was, in microseconds UTC.

    `may_lack`: the bucket is one of a job's `data_buckets`, which get a copy when a machine is rented near them.
    """

    location: SetLocation
    size: int
    job: str
    used: int
    may_lack: bool = False


class DataUses:
    """The record of one home."""

    def __init__(self, folder: Path) -> None:
        self._file, self._lock = folder / "sets.json", folder / ".lock"

    def all(self) -> list[DataUse]:
        """BadRequest: the record cannot be read."""
        try:
            values = json.loads(self._file.read_bytes())
            return [_use(location, value) for location, value in values.items()]
        except FileNotFoundError:
            return []
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise BadRequest(f"{self._file}: is damaged ({error}): remove it; launches write it again") from None

    def note(self, use: DataUse) -> None:
        """Notes that a job uses a data set."""
        with exclusive(self._lock):
            known = {known.location: known for known in self.all()}
            self._write({**known, use.location: use})

    def forget(self, locations: Collection[SetLocation]) -> None:
        with exclusive(self._lock):
            self._write({use.location: use for use in self.all() if use.location not in locations})

    def _write(self, uses: Mapping[SetLocation, DataUse]) -> None:
        values = {
            str(use.location): {"size": use.size, "job": use.job, "used": use.used, "may_lack": use.may_lack}
            for use in uses.values()
        }
        replace_json(self._file, values, lasting=True)


def _use(text: str, value: Mapping[str, object]) -> DataUse:
    location = SetLocation.parse(text)
    if location is None:
        raise ValueError(f"{text!r} is no place of data")
    size, used, may_lack = int(str(value["size"])), int(str(value["used"])), value.get("may_lack") is True
    return DataUse(location, size, str(value["job"]), used, may_lack)


@contextmanager
def while_storing(home: Path) -> Iterator[None]:
    """Keeps this home from removing data meanwhile; any number of launches may store at the same time."""
    with _held(home, fcntl.LOCK_SH):
        yield


@contextmanager
def while_removing(home: Path) -> Iterator[None]:
    """Keeps this home from storing data meanwhile. BadRequest: it does at this moment."""
    try:
        with _held(home, fcntl.LOCK_EX | fcntl.LOCK_NB):
            yield
    except BlockingIOError:
        raise BadRequest("a launch of this home is storing data: remove old data when that has ended") from None


@contextmanager
def _held(home: Path, how: int) -> Iterator[None]:
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(home / ".storing", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, how)
        yield
    finally:
        os.close(descriptor)
