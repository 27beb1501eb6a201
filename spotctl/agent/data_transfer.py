"""Files brought to a machine and from it: data before the program starts, outputs after it has ended."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spotctl.agent.errors import TransferFailed

Signature = tuple[tuple[str, int, int, int], ...]
"""The files below a folder by name, size, time of change and number."""


def signature(folder: Path) -> Signature:
    """What is in a folder now. Whatever has a name that begins with a dot is still being written, and left out."""
    found = []
    for root, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            if not name.startswith("."):
                path = Path(root, name)
                try:
                    status = path.stat()
                except FileNotFoundError:
                    continue
                found.append((path.relative_to(folder).as_posix(), status.st_size, status.st_mtime_ns, status.st_ino))
    return tuple(sorted(found))


def copy(files: Signature, source: Path, target: Path) -> None:
    """Copies the files of a signature from one folder to another."""
    for name, *_ in files:
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / name, path)


def staged(location: str, cache: Path) -> Path:
    """Where the data of a place lies on this machine: brought there once, and again only when it has changed."""
    source = Path(location)
    if not source.exists():
        raise TransferFailed(f"data {location}: there is no such file or folder; correct it in the job file")
    files = signature(source) if source.is_dir() else _alone(source)
    key = hashlib.sha256(repr((location, files)).encode()).hexdigest()[:24]
    kept = cache / key / source.name
    try:
        with _one_at_a_time(cache):
            if not kept.exists():
                _bring(files, source, kept)
    except OSError as error:
        raise TransferFailed(f"data {location}: cannot be brought to {cache}: {error.strerror or error}") from error
    return kept


def deliver(folder: Path, target: Path) -> None:
    """Brings what a program has left in its folder to where it is wanted, each file whole or not at all."""
    try:
        for name, *_ in signature(folder):
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_name(f".{path.name}.{os.getpid()}")
            shutil.copyfile(folder / name, part)
            part.replace(path)
    except OSError as error:
        message = f"output {target}: cannot be written: {error.strerror or error}; make room there"
        raise TransferFailed(message) from error


def _alone(path: Path) -> Signature:
    status = path.stat()
    return ((path.name, status.st_size, status.st_mtime_ns, status.st_ino),)


def _bring(files: Signature, source: Path, kept: Path) -> None:
    """Beside first, so that a copy that is there is whole."""
    beside = kept.parent.with_name(f".{kept.parent.name}")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    copy(files, source if source.is_dir() else source.parent, beside / kept.name if source.is_dir() else beside)
    # An empty folder is data, too.
    if source.is_dir():
        (beside / kept.name).mkdir(exist_ok=True)
    shutil.rmtree(kept.parent, ignore_errors=True)
    beside.rename(kept.parent)


@contextmanager
def _one_at_a_time(cache: Path) -> Iterator[None]:
    """Machines of one computer share its cache."""
    cache.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(cache / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
