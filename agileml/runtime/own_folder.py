"""A temporary folder of one process. If the process is killed, the next one that needs such a folder removes it."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from agileml.transport.addresses import LONGEST_UNIX_PATH

_LONGEST_NAME = len("/controller.sock")
_PREFIX = "agileml-join-"
_LOCK = "lock"
_SHORT = Path("/tmp")  # noqa: S108 - for a new folder, with an unpredictable name


def short_folder(prefix: str = "agileml-", longest_name: int = _LONGEST_NAME) -> Path:
    """A new folder for its owner alone, with a path short enough for Unix sockets in it."""
    folder = tempfile.mkdtemp(prefix=prefix)
    if len(os.fsencode(folder)) + longest_name <= LONGEST_UNIX_PATH:
        return Path(folder)
    Path(folder).rmdir()
    return Path(tempfile.mkdtemp(prefix=prefix, dir=_SHORT))


@contextmanager
def own_folder(longest_name: int = _LONGEST_NAME) -> Iterator[Path]:
    """A folder that exists as long as this process or a fork of it. Folders of killed processes are removed.

    `longest_name` is the length of the longest path of a socket in it.
    """
    _remove_abandoned()
    folder = short_folder(_PREFIX, longest_name)
    try:
        # The file is named once it is locked, so that another process cannot take the folder for an abandoned one.
        with (folder / f"{_LOCK}.new").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            Path(lock.name).rename(folder / _LOCK)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned() -> None:
    for place in {Path(tempfile.gettempdir()), _SHORT}:
        for lock in place.glob(f"{_PREFIX}*/{_LOCK}"):
            # Another user's, or one that is being removed.
            with suppress(OSError), lock.open() as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)
