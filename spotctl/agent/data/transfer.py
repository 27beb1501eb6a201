"""Copies data to a machine before the program starts, and outputs from it after the program has
ended.

What a program has made is worth more than some minutes: while an object store does not work, a
machine waits for it.
"""

import errno
import hashlib
import os
import shutil
import stat
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from agileml.runtime.blob_store import file_pieces
from agileml.runtime.ground import locked, refilled, replaced
from spotctl.agent.data.locations import MACHINE, ObjectBlobStore, StoreIdentity, place_of
from spotctl.agent.data.sets import (
    WHOLE,
    DataSet,
    SetLocation,
    build,
    describe,
    fetch_set,
    kept_set,
    read_whole,
)
from spotctl.agent.data.stores import StoreRefused, StoreUnavailable
from spotctl.agent.errors import AgentError, TransferFailed

PATIENCE_SECONDS = 480.0
"""How long a store may fail."""

_PAUSE_SECONDS = 5.0
"""Between attempts; an attempt itself repeats its requests for a quarter of a minute."""

_LOOK_SECONDS = 0.1

T = TypeVar("T")


def is_temporary(error: BaseException | None) -> bool:
    """Whether the cause of an error is a store that may soon work again."""
    while error is not None and not isinstance(error, StoreUnavailable):
        error = error.__cause__
    return error is not None


def patiently(
    act: Callable[[], T],
    say: Callable[[str], object],
    is_leaving: Callable[[], bool] = lambda: False,
) -> T:
    """Carries out an action, again and again while the store is unavailable; says so once.

    A machine that `is_leaving` has no time to wait for a store.
    """
    give_up, is_said = time.monotonic() + PATIENCE_SECONDS, False
    while True:
        try:
            return act()
        except AgentError as error:
            if not is_temporary(error) or time.monotonic() >= give_up or is_leaving():
                raise
            if not is_said:
                say(f"{error}; trying again")
                is_said = True
        again_at = time.monotonic() + _PAUSE_SECONDS
        while time.monotonic() < again_at and not is_leaving():
            time.sleep(_LOOK_SECONDS)


FolderListing = tuple[tuple[str, int, int, int], ...]
"""The files below a folder: name, size, modification time and inode."""


_WHOLE = {".metadata"}
"""The file that PyTorch writes last into the folder of a distributed checkpoint, and needs to load
it."""

_LEFT_OUT = set[Path]()
"""The paths of which this process has said that they are not copied."""


def listing(folder: Path, *, unfinished: bool = False) -> FolderListing:
    """The files in a folder; names that begin with a dot, which are still being written, only with
    `unfinished`.

    A link to a file elsewhere is left out, or a program would have files copied that it may not
    read itself, and so are pipes and devices, whose reading has no end.
    """
    entries, inside = [], folder.resolve()
    for root, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if unfinished or not name.startswith(".")]
        for name in files:
            if unfinished or not name.startswith(".") or name in _WHOLE:
                path = Path(root, name)
                try:
                    status = path.stat()
                    is_own = not path.is_symlink() or inside in Path(os.path.realpath(path)).parents
                except OSError as error:
                    # It was just removed, or is a link to itself.
                    if error.errno not in (errno.ENOENT, errno.ELOOP):
                        raise
                    continue
                if not is_own or not stat.S_ISREG(status.st_mode):
                    # A trial only counts what is unfinished.
                    if not unfinished and path not in _LEFT_OUT:
                        _LEFT_OUT.add(path)
                        why = "it is no file, or a link out of its folder; copy the file there"
                        sys.stderr.write(f"spotctl: {path} is not copied: {why}\n")
                    continue
                entries.append(
                    (
                        path.relative_to(folder).as_posix(),
                        status.st_size,
                        status.st_mtime_ns,
                        status.st_ino,
                    )
                )

    return tuple(sorted(entries))


def local_copy(
    location: str,
    cache: Path,
    who: StoreIdentity = MACHINE,
    near: str = "",
    say: Callable[[str], object] = lambda _: None,
) -> Path:
    """The path of data on this machine: copied to the cache once, and again only if the data has
    changed.

    It is read at `near`, if there is a whole copy of it, and otherwise at its own location, which
    is then said. TransferFailed: the data does not exist, or cannot be copied.
    """
    kept = _kept_copy(location, cache, who, near, say)
    # The time of the last use, by which `spotctl gc` finds copies that no job needs.
    with suppress(OSError):
        os.utime(kept.parent)
    return kept


def _kept_copy(
    location: str, cache: Path, who: StoreIdentity, near: str, say: Callable[[str], object]
) -> Path:
    if (stored := SetLocation.parse(location)) is not None:
        _copy_near_set(SetLocation.parse(near), stored, cache, who, say)
        place = _place(stored.bucket, who)
        assert place is not None
        try:
            with locked(cache / ".lock"):
                return fetch_set(place.bucket, stored.digest, cache)
        except OSError as error:
            raise TransferFailed(f"data {stored}: {_reason(error)}") from error

    if (place := _place(location, who)) is not None:
        return _copy_objects(location, place, cache)

    source = Path(location)
    try:
        listed = described(source)
        named = location.encode(errors="surrogateescape") + listed.content()
        kept = cache / hashlib.sha256(named).hexdigest()[:24] / source.name
        # Machines on one computer share its cache.
        with locked(cache / ".lock"):
            if not kept.exists():
                # A copy that exists is complete: it is made elsewhere, and renamed.
                contents = {path: source.parent / path for path in listed.files}
                with refilled(kept.parent) as new:
                    build(listed, contents, new)
    except OSError as error:
        raise TransferFailed(
            f"data {location}: cannot be copied to {cache}: {error.strerror or error}"
        ) from error

    return kept


def described(source: Path) -> DataSet:
    """The parts of data on this computer. TransferFailed: there is none, or a part is no file, or
    cannot be read.
    """
    if not source.exists():
        raise TransferFailed(
            f"data {source}: there is no such file or folder; correct it in the job file"
        )
    return describe(source, _stamp)


def _stamp(_: str, path: Path, status: os.stat_result) -> str:  # noqa: ARG001 - see `DigestOf`
    """Stands for the content of a file of this computer, which need not be read to see that it has
    changed.
    """
    return f"{status.st_mtime_ns} {status.st_ino}"


def deliver(folder: Path, destination: str, who: StoreIdentity = MACHINE) -> None:
    """Copies outputs to their destination, each file whole or not at all. TransferFailed: a file
    cannot be written.
    """
    if (place := _place(destination, who)) is not None:
        try:
            for name, *_ in listing(folder):
                place.bucket.write(place.prefix + name, partial(file_pieces, folder / name))
        except OSError as error:
            raise TransferFailed(f"output {destination}: cannot be written: {error}") from error
        return

    target = Path(destination)
    try:
        files = listing(folder)
        target.mkdir(parents=True, exist_ok=True)
        # A file with holes may be larger than any disk.
        if sum(size for _, size, *_ in files) > shutil.disk_usage(target).free:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        for name, *_ in files:
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with replaced(path) as part:
                shutil.copyfile(folder / name, part)
    except OSError as error:
        message = f"output {target}: cannot be written: {error.strerror or error}; make room there"
        raise TransferFailed(message) from error


def _place(location: str, who: StoreIdentity = MACHINE) -> ObjectBlobStore | None:
    try:
        return place_of(location, who)
    except StoreRefused as error:
        raise TransferFailed(str(error)) from error


def _copy_near_set(
    near: SetLocation | None,
    stored: SetLocation,
    cache: Path,
    who: StoreIdentity,
    say: Callable[[str], object],
) -> None:
    """Copies a data set from a bucket near this machine, unless it is here. If that fails, what has
    arrived is kept, and the rest is missing."""
    if near is None:
        return
    try:
        with locked(cache / ".lock"):
            if not kept_set(cache, near.digest).exists():
                place = place_of(near.bucket, who)
                assert place is not None
                read_whole(place.bucket, WHOLE + near.digest)
                fetch_set(place.bucket, near.digest, cache)
    except StoreRefused as error:
        say(
            f"no copy of the data can be read in {near.bucket} ({error}): reads it in "
            f"{stored.bucket}"
        )
    except OSError:
        # The disk, not the store: the way of data without a copy says what is wrong.
        return


def _reason(error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return "the machine's disk is full: set a larger one, such as image: {disk_gib: 200}"
    return str(error)


def _copy_objects(location: str, place: ObjectBlobStore, cache: Path) -> Path:
    """Copies the objects below a prefix, or one object, to the cache once, and returns their
    path."""
    kept = (
        cache
        / hashlib.sha256(location.encode()).hexdigest()[:24]
        / location.rstrip("/").rpartition("/")[2]
    )

    try:
        with locked(cache / ".lock"):
            if kept.exists():
                return kept

            # To a temporary folder, which is renamed: a copy that exists is complete.
            with refilled(kept.parent) as new:
                top, single = new / kept.name, place.prefix.rstrip("/")
                keys = [key for key in place.bucket.list(place.prefix) if not key.endswith("/")]
                files = {key: top / key[len(place.prefix) :] for key in keys}
                if not files and single and place.bucket.exists(single):
                    files = {single: top}
                if not files:
                    problem = "there is no such object, and none below it"
                    raise StoreRefused(f"{problem}; correct it in the job file")

                for key, path in files.items():
                    if not path.is_relative_to(top) or ".." in path.parts:
                        raise StoreRefused(f"the object {key} has a name that cannot be a file's")
                    path.parent.mkdir(parents=True, exist_ok=True)
                    with path.open("wb") as file:
                        file.writelines(place.bucket.get(key))
    except OSError as error:
        raise TransferFailed(f"data {location}: {_reason(error)}") from error

    return kept
