"""Stores the data folders of a job in its bucket: what is there already is not sent again."""

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path

from agileml.runtime.blob_store import file_pieces
from pricing_data.units import counted
from spotctl.agent.blobs.bucket import ObjectBucket, StoreRefused
from spotctl.agent.blobs.identity import StoreIdentity
from spotctl.agent.blobs.locations import place_of
from spotctl.agent.blobs.objects import write
from spotctl.agent.data_parts import describe
from spotctl.agent.data_sets import CONNECTIONS, FILES, DataSet, SetLocation, gigabytes
from spotctl.agent.errors import TransferFailed
from spotctl.clouds.installation import installation_id
from spotctl.files.job.reach import bucket_of, stored_folders
from spotctl.files.job.spec import JobSpec
from spotctl.home.config import Settings
from spotctl.home.errors import BadRequest, Interrupted
from spotctl.home.paths import Paths
from spotctl.home.wall_clock import wall_us
from spotctl.run.launcher_identity import LAUNCHER
from spotctl.run.stored_data.digests import DataChanged, KnownDigests
from spotctl.run.stored_data.regional import reserved
from spotctl.run.stored_data.uses import DataUse, DataUses, claim, while_storing

_ATTEMPTS = 3
"""How often a folder is described before it counts as one that keeps changing."""

_SAY_SECONDS = 15.0
_LOOK_SECONDS = 1.0
_WAIT_SECONDS = 5.0
_GIB = 1 << 30


def store_data(
    spec: JobSpec,
    settings: Settings,
    say: Callable[[str], object],
    is_stopped: Callable[[], bool] = lambda: False,
    identity: StoreIdentity = LAUNCHER,
) -> JobSpec:
    """The job with its local data in its bucket, where the machines fetch them, and with those of its `data_buckets`
    where copies can be made; other jobs unchanged.

    TransferFailed: the data cannot be read or stored. Nothing has been rented then, and what is stored already is not
    sent again by the next launch.
    """
    folders = stored_folders(spec)
    if not folders and not spec.data_buckets:
        return spec

    def check() -> None:
        if is_stopped():
            raise Interrupted("stopped before anything was rented; the next launch sends only the data that is missing")

    home, stored = Paths(settings.home).data, dict[str, str]()
    uses, own = DataUses(home), installation_id(settings.home)
    with while_storing(home):
        for name, path in folders.items():
            storing = _Storing(name, Path(path), bucket_of(spec), own, uses, say, check, spec.image.disk_gib)
            stored[name] = str(storing.store(home, spec.name, identity))
        return reserved(replace(spec, data={**spec.data, **stored}), home, own, say, identity)


@dataclass(frozen=True, slots=True)
class _Storing:
    """One folder on its way. `check` raises if the user wants to stop."""

    name: str
    source: Path
    bucket: str
    installation: str
    uses: DataUses
    say: Callable[[str], object]
    check: Callable[[], None]
    disk_gib: int | None

    def store(self, home: Path, job: str, identity: StoreIdentity) -> SetLocation:
        for _ in range(_ATTEMPTS):
            try:
                listed = self._described(home)
                self._check_disk(listed)
                location = SetLocation(self.bucket, listed.digest)
                # Noted before anything is sent: `spotctl gc` then knows of it, however this ends.
                self.uses.note(DataUse(location, listed.size, job, wall_us()))
                place = place_of(self.bucket, identity)
                assert place is not None
                self._send(listed, place.bucket)
            except DataChanged as error:
                changed = error
            except StoreRefused as error:
                raise TransferFailed(f"data {self.source}: cannot be stored in {self.bucket}: {error}") from error
            else:
                return location
        raise TransferFailed(f"data {self.source}: {changed} keeps changing; launch again when nothing writes to it")

    def _described(self, home: Path) -> DataSet:
        known = KnownDigests(home, self.source, self.check)
        try:
            listed = describe(self.source, known.digest)
        except FileNotFoundError as error:
            raise DataChanged(error.filename) from error
        known.keep()
        return listed

    def _check_disk(self, listed: DataSet) -> None:
        if self.disk_gib is not None and listed.size > self.disk_gib * _GIB:
            raise BadRequest(
                f"data {self.source}: has {gigabytes(listed.size)}, and the machines' disk only {self.disk_gib} GiB:"
                " raise image.disk_gib"
            )

    def _send(self, listed: DataSet, bucket: ObjectBucket) -> None:
        self._claim(listed, bucket)
        present = {key.removeprefix(FILES) for key in bucket.list(FILES)}
        paths = {file.digest: path for path, file in listed.files.items()}
        missing = {digest: size for digest, size in listed.contents.items() if digest not in present}
        folder = self.source.parent
        _send_files(bucket, {digest: (folder / paths[digest], size) for digest, size in missing.items()}, self)
        files, size = counted(len(listed.files), "file"), gigabytes(listed.size)
        sent = f"{len(missing)} of them sent, {gigabytes(sum(missing.values()))}" if missing else "nothing to send"
        self.say(f"data {self.name}: {files}, {size}, in {self.bucket}; {sent}")

    def _claim(self, listed: DataSet, bucket: ObjectBucket) -> None:
        is_said = False

        def wait() -> None:
            nonlocal is_said
            if not is_said:
                self.say(f"data {self.name}: waits while old data is removed from {self.bucket}")
                is_said = True
            self.check()
            time.sleep(_WAIT_SECONDS)

        claim(bucket, listed.digest, listed.content(), self.installation, wait)


def _send_files(bucket: ObjectBucket, files: Mapping[str, tuple[Path, int]], storing: _Storing) -> None:
    progress = _Progress(sum(size for _, size in files.values()))

    def send(digest: str, path: Path) -> None:
        write(bucket, FILES + digest, _checked_pieces(path, digest, progress, ended))

    ended = threading.Event()
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        pending = {pool.submit(send, digest, path) for digest, (path, _) in files.items()}
        try:
            _wait(pending, progress, storing)
        except BaseException:
            ended.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _wait(pending: set[Future[None]], progress: "_Progress", storing: _Storing) -> None:
    say_at = time.monotonic() + _SAY_SECONDS
    while pending:
        done, pending = wait(pending, _LOOK_SECONDS, FIRST_EXCEPTION)
        for future in done:
            future.result()
        storing.check()
        if pending and time.monotonic() > say_at:
            storing.say(f"data {storing.name}: {gigabytes(progress.sent)} of {gigabytes(progress.total)} sent")
            say_at = time.monotonic() + _SAY_SECONDS


@dataclass(slots=True)
class _Progress:
    total: int
    sent: int = 0


def _checked_pieces(path: Path, digest: str, progress: _Progress, ended: threading.Event) -> Iterator[bytes]:
    """The content of a file. DataChanged, before its last piece can count: it is not what was described."""
    hashed = hashlib.sha256()
    try:
        for piece in file_pieces(path):
            if ended.is_set():
                raise DataChanged(path)
            hashed.update(piece)
            yield piece
            # Threads may lose some of it to each other; it is only said.
            progress.sent += len(piece)
    except OSError as error:
        raise DataChanged(os.fspath(path)) from error
    if hashed.hexdigest() != digest:
        raise DataChanged(os.fspath(path))
