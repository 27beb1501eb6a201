"""Small JSON files that other processes read while they are replaced, and locks between processes."""

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

from spotctl.agent.errors import BrokenProtocol

T = TypeVar("T")


def replace_json(path: Path, value: dict[str, Any], *, lasting: bool = False) -> None:
    """Replaces a file atomically; with `lasting`, it also survives a crash of the machine."""
    # The process id keeps the files of two writers apart, such as a killed runner and its successor.
    new = path.with_name(f".{path.name}.{os.getpid()}")
    with new.open("w") as file:
        json.dump(value, file)
        if lasting:
            file.flush()
            os.fsync(file.fileno())
    new.replace(path)
    if lasting:
        sync_folder(path.parent)


@contextmanager
def exclusive(lock: Path) -> Iterator[None]:
    """Holds a lock that one process at a time can hold, and that is released when the process ends."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Flushes a folder's entries to disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class Watched(Generic[T]):
    """A JSON file that is parsed again only when it was replaced."""

    def __init__(self, path: Path, parse: Callable[[dict[str, Any]], T | None]) -> None:
        self._path, self._parse = path, parse
        self._stamp: tuple[int, int, int] | None = None
        self._value: T | None = None

    def value(self) -> T | None:
        """The current content; None without a file. BrokenProtocol: the content is not valid."""
        try:
            status = self._path.stat()
            stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
            if stamp != self._stamp:
                self._value = self._parse(json.loads(self._path.read_text()))
                self._stamp = stamp
        except (FileNotFoundError, NotADirectoryError):
            self._value = self._stamp = None
        except (ValueError, TypeError, KeyError) as error:
            raise BrokenProtocol(f"{self._path}: is not valid ({error})") from None
        return self._value
