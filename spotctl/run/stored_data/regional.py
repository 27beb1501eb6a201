"""Copies of a job's data in the buckets of its regions: made once, when a machine is rented there.

A bucket in which a copy cannot be made costs a line, and the machines near it read the job's first
bucket.
"""

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from agileml.runtime.blob_store import BlobBytes
from pricing_data.units import counted
from spotctl.agent.cloud_parts import clouds_by_scheme
from spotctl.agent.data.locations import StoreIdentity, place_of
from spotctl.agent.data.sets import (
    CONNECTIONS,
    FILES,
    WHOLE,
    DataSet,
    SetLocation,
    gigabytes,
    set_content,
)
from spotctl.agent.data.stores import Bucket, StoreRefused, StoreUnavailable
from spotctl.clouds.wiring import buckets_of
from spotctl.files.job.data_places import bucket_at, copy_in
from spotctl.files.job.spec import JobSpec
from spotctl.home.callbacks import unheard
from spotctl.home.wall_clock import wall_us
from spotctl.log.state import RunState
from spotctl.run.stored_data.removing import DataUse, DataUses, claim, user_key

_WAIT_SECONDS = 5.0
_CLOSE_SECONDS = 10.0


class _Stopped(Exception):
    """The run has ended: the next one goes on."""


def reserved(
    spec: JobSpec,
    home: Path,
    installation: str,
    say: Callable[[str], object],
    identity: StoreIdentity,
) -> JobSpec:
    """The job with those of its `data_buckets` in which this home may keep copies of the data; the
    others are said.

    This home names the data sets as used there, so that it, and no other home, removes what a
    runner elsewhere copies.
    """
    buckets = dict(spec.data_buckets)
    for region, bucket in spec.data_buckets.items():
        for name, location in spec.data.items():
            first = SetLocation.parse(location)
            near = SetLocation.parse(copy_in(bucket.rstrip("/"), location))
            if first is None or near is None:
                continue
            try:
                _reserve(first, near, spec.name, DataUses(home), installation, identity)
            except StoreRefused as error:
                say(
                    f"data {name}: no copy in {near.bucket}, machines in {region} read "
                    f"{first.bucket}: {error}"
                )
                buckets.pop(region)
                break

    return replace(spec, data_buckets=buckets)


def _reserve(
    first: SetLocation,
    near: SetLocation,
    job: str,
    uses: DataUses,
    installation: str,
    identity: StoreIdentity,
) -> None:
    listed = DataSet.of(set_content(_bucket(first, identity), first.digest))
    earlier = next((use for use in uses.all() if use.location == near), None)
    may_lack = earlier is None or earlier.may_lack

    # Noted before anything is sent: `spotctl gc` then knows of it, however this ends.
    uses.note(DataUse(near, listed.size, job, wall_us(), may_lack))
    try:
        _bucket(near, identity).put(user_key(near.digest, installation), str(wall_us()).encode())
    except StoreUnavailable:
        raise
    except StoreRefused:
        if earlier is None:
            uses.forget([near])
        raise


def copy_set(
    first: SetLocation,
    near: SetLocation,
    installation: str,
    identity: StoreIdentity,
    check: Callable[[float], object] = unheard,
) -> Mapping[str, int]:
    """Copies a data set to another bucket, as far as it is not there; returns the sizes of the
    files that were not there before, by digest. Its mark `WHOLE` comes last.

    `check` waits for the seconds that it is given, and raises if the copy is to end.
    StoreRefused: one of the buckets refuses it.
    """
    source = _bucket(first, identity)
    target = _bucket(near, identity)
    content = set_content(source, first.digest)
    listed = DataSet.of(content)
    claim(target, listed.digest, content, installation, lambda: check(_WAIT_SECONDS))
    present = {key.removeprefix(FILES) for key in target.list(FILES)}
    missing = {digest: size for digest, size in listed.contents.items() if digest not in present}

    scheme, _, from_bucket = first.bucket.partition("://")
    other, _, to_bucket = near.bucket.partition("://")
    cloud = clouds_by_scheme()[scheme]

    def copy(digest: str) -> None:
        check(0.0)
        if scheme == other:
            # Within one store, the store itself copies.
            buckets_of(cloud).copy(FILES + digest, from_bucket, to_bucket, identity(cloud))
        else:
            target.write(FILES + digest, lambda: _checked(source, digest, check))

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        pending = [pool.submit(copy, digest) for digest in missing]
        try:
            for future in pending:
                future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise

    target.put(WHOLE + near.digest, str(wall_us()).encode())
    return missing


def _checked(source: Bucket, digest: str, check: Callable[[float], object]) -> Iterator[BlobBytes]:
    """The content of a file. StoreRefused, before its last piece can count: it is damaged."""
    hashed = hashlib.sha256()
    for piece in source.get(FILES + digest):
        check(0.0)
        hashed.update(piece)
        yield piece

    if hashed.hexdigest() != digest:
        raise StoreRefused(
            f"{FILES}{digest} is damaged: remove it from the bucket, and launch the job again"
        )


def _bucket(location: SetLocation, identity: StoreIdentity) -> Bucket:
    place = place_of(location.bucket, identity)
    assert place is not None
    return place.bucket


class RegionalCopies:
    """Copies a run's data to the buckets of the regions of its machines, each in a thread: that may
    take long.
    """

    def __init__(
        self,
        spec: JobSpec,
        installation: str,
        identity: StoreIdentity,
        say: Callable[[str], object],
    ) -> None:
        self._spec = spec
        self._installation = installation
        self._identity = identity
        self._say = say

        self._seen = set[str]()
        self._threads: dict[str, threading.Thread] = {}
        self._whole = set[str]()
        self._lines: list[str] = []
        self._ended = threading.Event()

    def look(self, state: RunState) -> None:
        """Begins copies for machines that were rented since the last look, and says what has become
        of others.
        """
        if not self._spec.data_buckets:
            return

        for held in () if state.stopping is not None else state.alive:
            if held.id in self._seen:
                continue
            self._seen.add(held.id)
            market = state.allocations[held.allocation].market
            bucket = bucket_at(self._spec, market.cloud, market.region)
            earlier = self._threads.get(bucket)
            if bucket and bucket not in self._whole and (earlier is None or not earlier.is_alive()):
                # A daemon: a request that does not end keeps no process from ending.
                self._threads[bucket] = threading.Thread(
                    target=self._copy,
                    args=(bucket, market.region),
                    name=f"copy to {bucket}",
                    daemon=True,
                )
                self._threads[bucket].start()

        while self._lines:
            self._say(self._lines.pop(0))

    def close(self) -> None:
        """Ends copies that go on; the next run makes them whole."""
        self._ended.set()
        for thread in self._threads.values():
            thread.join(_CLOSE_SECONDS)

    def _copy(self, bucket: str, region: str) -> None:
        for name, location in self._spec.data.items():
            first = SetLocation.parse(location)
            near = SetLocation.parse(copy_in(bucket, location))
            if first is None or near is None:
                continue
            try:
                copied = copy_set(first, near, self._installation, self._identity, self._check)
            except _Stopped:
                return
            # Whatever is wrong, the machines read the first bucket.
            except Exception as error:  # noqa: BLE001
                self._lines.append(
                    f"data {name}: no copy in {bucket}, machines in {region} read {first.bucket}: "
                    f"{error}"
                )
                return
            if copied:
                size = gigabytes(sum(copied.values()))
                files = counted(len(copied), "file")
                self._lines.append(
                    f"data {name}: {files}, {size}, copied to {bucket} for machines in {region}"
                )
        self._whole.add(bucket)

    def _check(self, seconds: float) -> None:
        if self._ended.wait(seconds):
            raise _Stopped
