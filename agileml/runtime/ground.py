"""The ground shelf: locks between processes, and files and folders that are replaced in one step.

A process may be killed at any moment, and disks get full. So a file or a folder is written under
a name that does not count, next to its own, and gets its own name once it is whole: a reader sees
the old content or the new one, never a part of it. With `lasting`, the same holds for a machine
that crashes: the content is on the disk before the name is, and the name before the call returns.
A lock belongs to an open file, so the system releases it when its process ends, by whatever
signal: after a kill there is nothing to clean up.

No other module calls `flock` or renames a file (tests/test_ground_shelf.py). There are two such
shelves, because AgileML stands alone and machines get no other package: this one is for `agileml`,
for the agent, and for what spotctl keeps for itself; `pricing_data.atomic_write` is for prices, and
for files that a user names, whose errors it words.
"""

import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path


def take_lock(path: Path, *, shared: bool = False, seconds: float = inf) -> int:
    """The descriptor of a lock that this process holds now, until the descriptor is closed.

    A shared lock keeps out exclusive ones only. BlockingIOError: others held it all these seconds.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    give_up = time.monotonic() + seconds
    try:
        if seconds == inf:
            fcntl.flock(descriptor, kind)
            return descriptor
        while True:
            try:
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= give_up:
                    raise
                time.sleep(seconds / 100)
            else:
                return descriptor
    except BaseException:
        os.close(descriptor)
        raise


@contextmanager
def locked(path: Path, *, shared: bool = False, seconds: float = inf) -> Iterator[None]:
    """Holds a lock (see `take_lock`); makes its folder if it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = take_lock(path, shared=shared, seconds=seconds)
    try:
        yield
    finally:
        os.close(descriptor)


def is_locked(path: Path) -> bool:
    """Whether a process holds a lock exclusively. Looking locks shared, so two that look at the
    same time never take each other for a holder."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False

    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)

    return False


@contextmanager
def replaced(path: Path, *, lasting: bool = False, over: bool = True) -> Iterator[Path]:
    """A free name to write a file to, which takes the place of `path` if the block ends without an
    error. FileExistsError: the file exists, and shall not be written `over`."""
    # Of its own for each writer, such as a killed runner and its successor, or containers that
    # share the folder and number their processes alike; hidden, and without the suffix by which
    # others look for files.
    new = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        yield new
        if lasting:
            sync(new)
        if over:
            new.replace(path)
        else:
            # Unlike a rename, a hard link never replaces a file that was created in between.
            path.hardlink_to(new)
        if lasting:
            sync(path.parent)
    finally:
        new.unlink(missing_ok=True)


@contextmanager
def refilled(folder: Path) -> Iterator[Path]:
    """An empty folder to fill, which takes the place of `folder` if the block ends without an
    error. What a killed process left of it is dropped, so only one may fill it at a time."""
    new = folder.with_name(f".{folder.name}")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    try:
        yield new
        shutil.rmtree(folder, ignore_errors=True)
        new.rename(folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def move(source: Path, target: Path) -> Path:
    """Gives a whole file or folder the name by which it counts, in one step; returns its path."""
    return source.replace(target)


def sync(path: Path) -> None:
    """Flushes a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
