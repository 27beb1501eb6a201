"""Stores the data folders of a job in its bucket: what is there already is not sent again."""

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from math import ceil
from pathlib import Path

from agileml.runtime.blob_store import file_pieces
from pricing_data.units import counted
from spotctl.agent.cloud_parts import clouds_by_scheme
from spotctl.agent.data.locations import StoreIdentity, place_of
from spotctl.agent.data.sets import CONNECTIONS, FILES, DataSet, SetLocation, describe, gigabytes
from spotctl.agent.data.stores import Bucket, StoreRefused
from spotctl.agent.errors import AgentError, TransferFailed
from spotctl.agent.files import replace_json
from spotctl.clouds.wiring import buckets_of
from spotctl.files.job.data_places import bucket_of, stored_folders, written_places
from spotctl.files.job.programs import Command
from spotctl.files.job.spec import JobSpec
from spotctl.home.callbacks import never
from spotctl.home.cloud import cloud_of
from spotctl.home.config import Settings
from spotctl.home.errors import BadRequest, Interrupted
from spotctl.home.installation import installation_id
from spotctl.home.paths import Paths
from spotctl.home.wall_clock import wall_us
from spotctl.run.environment import LAUNCHER
from spotctl.run.stored_data.regional import reserved
from spotctl.run.stored_data.removing import DataUse, DataUses, claim, store_lock

_ATTEMPTS = 3
"""How often a folder is described before it counts as one that keeps changing."""

_SAY_SECONDS = 15.0
_LOOK_SECONDS = 1.0
_WAIT_SECONDS = 5.0
_GIB = 1 << 30
_SPARE_GIB, _USED_GIB = 10, 150
"""Room that the smallest disk of a cloud's choice has for data and checkpoints; and what an image
with drivers and an environment with PyTorch take at most."""
_SAVE_SECONDS = 30.0
_SETTLED_NS = 2 * 10**9
"""A file that changed this shortly before it was read may change again within the same tick of the
file system's clock: it is read again the next time."""

_KEY_DIGITS = 24


def store_data(
    spec: JobSpec,
    settings: Settings,
    say: Callable[[str], object],
    is_stopped: Callable[[], bool] = never,
    identity: StoreIdentity = LAUNCHER,
) -> JobSpec:
    """The job with its local data in its bucket, where the machines fetch them, and with those of
    its `data_buckets` where copies can be made; other jobs unchanged.

    TransferFailed: the data cannot be read or stored. Nothing has been rented then, and what is
    stored already is not sent again by the next launch.
    """
    folders = stored_folders(spec)
    if not folders and not spec.data_buckets:
        return _with_room(spec, 0, say)

    def check() -> None:
        if is_stopped():
            raise Interrupted(
                "stopped before anything was rented; the next launch sends only the data that is "
                "missing"
            )

    home = Paths(settings.home).data
    stored = dict[str, str]()
    uses = DataUses(home)
    own = installation_id(settings.home)
    with store_lock(home, to_remove=False):
        for name, path in folders.items():
            storing = _Storing(
                name, Path(path), bucket_of(spec), own, uses, say, check, spec.image.disk_gib
            )
            stored[name] = str(storing.store(home, spec.name, identity))
        places = {*stored.values()}
        data_bytes = sum(use.size for use in uses.all() if str(use.location) in places)
        spec = replace(spec, data={**spec.data, **stored})
        return reserved(_with_room(spec, data_bytes, say), home, own, say, identity)


def _with_room(spec: JobSpec, data_bytes: int, say: Callable[[str], object]) -> JobSpec:
    """The job with disks that hold its data and two of its checkpoints, one of which is being
    written; unchanged if it names a size, if those take little, or where machines have no disks of
    their own."""
    clouds = map(cloud_of, spec.resources.clouds)
    if spec.image.disk_gib is not None or any(cloud.job is None for cloud in clouds):
        return spec

    kept = spec.program.checkpoint if isinstance(spec.program, Command) else None
    saved = 0 if kept is None else 2 * (kept.size or 0)
    contents = ceil((data_bytes + saved) / _GIB)
    if contents <= _SPARE_GIB:
        return spec

    gib = _USED_GIB + contents
    say(
        f"machines get disks of {gib} GiB: {_USED_GIB} for their image and environment, {contents} "
        "for data and checkpoints; image.disk_gib sets another size"
    )
    return replace(spec, image=replace(spec.image, disk_gib=gib))


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
                known = KnownDigests(home, self.source, self.check)
                try:
                    listed = describe(self.source, known.digest)
                except FileNotFoundError as error:
                    raise DataChanged(error.filename) from error
                known.keep()
                if self.disk_gib is not None and listed.size > self.disk_gib * _GIB:
                    raise BadRequest(
                        f"data {self.source}: has {gigabytes(listed.size)}, and the machines' disk "
                        f"only {self.disk_gib} GiB: raise image.disk_gib"
                    )
                location = SetLocation(self.bucket, listed.digest)
                # Noted before anything is sent: `spotctl gc` then knows of it, however this ends.
                self.uses.note(DataUse(location, listed.size, job, wall_us()))
                place = place_of(self.bucket, identity)
                assert place is not None
                self._send(listed, place.bucket)
            except DataChanged as error:
                changed = error
            except StoreRefused as error:
                raise TransferFailed(
                    f"data {self.source}: cannot be stored in {self.bucket}: {error}"
                ) from error
            else:
                return location
        raise TransferFailed(
            f"data {self.source}: {changed} keeps changing; launch again when nothing writes to it"
        )

    def _send(self, listed: DataSet, bucket: Bucket) -> None:
        is_said = False

        def wait() -> None:
            nonlocal is_said
            if not is_said:
                self.say(f"data {self.name}: waits while old data is removed from {self.bucket}")
                is_said = True
            self.check()
            time.sleep(_WAIT_SECONDS)

        claim(bucket, listed.digest, listed.content(), self.installation, wait)
        present = {key.removeprefix(FILES) for key in bucket.list(FILES)}
        paths = {file.digest: path for path, file in listed.files.items()}
        missing = {
            digest: size for digest, size in listed.contents.items() if digest not in present
        }
        folder = self.source.parent
        _send_files(
            bucket,
            {digest: (folder / paths[digest], size) for digest, size in missing.items()},
            self,
        )

        files = counted(len(listed.files), "file")
        size = gigabytes(listed.size)
        sent = "nothing to send"
        if missing:
            sent = f"{len(missing)} of them sent, {gigabytes(sum(missing.values()))}"

        self.say(f"data {self.name}: {files}, {size}, in {self.bucket}; {sent}")


def _send_files(bucket: Bucket, files: Mapping[str, tuple[Path, int]], storing: _Storing) -> None:
    total = sum(size for _, size in files.values())
    sent = dict.fromkeys(files, 0)
    ended = threading.Event()

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        pending = set[Future[None]]()
        for digest, (path, _) in files.items():
            pieces = partial(_checked_pieces, path, digest, sent, ended)
            pending.add(pool.submit(bucket.write, FILES + digest, pieces))
        try:
            say_at = time.monotonic() + _SAY_SECONDS
            while pending:
                done, pending = wait(pending, _LOOK_SECONDS, FIRST_EXCEPTION)
                for future in done:
                    future.result()
                storing.check()
                if pending and time.monotonic() > say_at:
                    so_far = gigabytes(sum(sent.values()))
                    storing.say(f"data {storing.name}: {so_far} of {gigabytes(total)} sent")
                    say_at = time.monotonic() + _SAY_SECONDS
        except BaseException:
            ended.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _checked_pieces(
    path: Path, digest: str, sent: dict[str, int], ended: threading.Event
) -> Iterator[bytes]:
    """The content of a file, whose bytes are counted in `sent`. DataChanged, before its last piece
    can count: it is not what was described."""
    hashed = hashlib.sha256()
    sent[digest] = 0
    try:
        for piece in file_pieces(path):
            if ended.is_set():
                raise DataChanged(path)
            hashed.update(piece)
            yield piece
            sent[digest] += len(piece)
    except OSError as error:
        raise DataChanged(os.fspath(path)) from error

    if hashed.hexdigest() != digest:
        raise DataChanged(os.fspath(path))


class DataChanged(Exception):
    """A file changed, or went away, while it was read."""


class KnownDigests:
    """The digests of one folder, in a file below `home`. A file counts as unchanged with the same
    size, number and times; no program can set the time of its last change."""

    def __init__(self, home: Path, folder: Path, is_stopped: Callable[[], None]) -> None:
        key = hashlib.sha256(os.fsencode(folder)).hexdigest()[:_KEY_DIGITS]
        self._file = home / "digests" / f"{key}.json"
        self._check = is_stopped
        self._known: dict[str, list[object]] = {}
        self._met: dict[str, list[object]] = {}
        self._saved_at = time.monotonic()
        # A damaged file costs time: all is read again.
        with suppress(OSError, ValueError, TypeError):
            self._known = dict(json.loads(self._file.read_bytes()))

    def digest(self, name: str, path: Path, status: os.stat_result) -> str:
        """The SHA-256 of a file. DataChanged: it changes meanwhile."""
        stamp = [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
        known = self._known.get(name)
        if known is not None and known[:-1] == stamp:
            self._met[name] = known
            return str(known[-1])

        read_at = time.time_ns()
        hashed = hashlib.sha256()
        size = 0
        for piece in file_pieces(path):
            self._check()
            hashed.update(piece)
            size += len(piece)

        if size != status.st_size:
            raise DataChanged(os.fspath(path))

        if max(status.st_mtime_ns, status.st_ctime_ns) < read_at - _SETTLED_NS:
            self._known[name] = self._met[name] = [*stamp, hashed.hexdigest()]
        if time.monotonic() > self._saved_at + _SAVE_SECONDS:
            self._save(self._known)
        return hashed.hexdigest()

    def keep(self) -> None:
        """Stores what is known of the files that were met; the others are gone."""
        self._save(self._met)

    def _save(self, values: dict[str, list[object]]) -> None:
        # Without room for the file, the next launch reads all again.
        with suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            replace_json(self._file, dict(values))
        self._saved_at = time.monotonic()


def prepare_places(spec: JobSpec, *, fresh: bool) -> None:
    """Removes a command's checkpoints if the job is finished or starts `fresh`; otherwise it
    resumes from them. Removes the parts of files that killed machines, or launches, have left where
    the job writes: they would be billed for ever."""
    program = spec.program
    if isinstance(program, Command) and program.checkpoint is not None:
        from spotctl.agent.checkpoints.stored import discard_checkpoints

        try:
            discard_checkpoints(program.checkpoint.path, fresh=fresh, who=LAUNCHER)
        except AgentError as error:
            raise BadRequest(f"{spec.name}: {error}") from error

    for location in sorted(written_places(spec)):
        drop_abandoned_parts(location, LAUNCHER)


def drop_abandoned_parts(location: str, who: StoreIdentity) -> None:
    """Removes parts of objects that were left below a location more than a day ago, as far as `who`
    may.
    """
    scheme, _, rest = location.partition("://")
    name, _, prefix = rest.partition("/")
    before = datetime.now(UTC) - timedelta(days=1)
    cloud = clouds_by_scheme()[scheme]
    with suppress(StoreRefused):
        buckets_of(cloud).drop_abandoned(
            name, f"{prefix.strip('/')}/".lstrip("/"), before, who(cloud)
        )
