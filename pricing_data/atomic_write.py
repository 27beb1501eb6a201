"""The ground shelf of prices: files that are replaced in one step, and the lock of their store.

A new file is written under a name that does not count, and then gets the name of the old one. So
after a full disk or a kill, the old file is still there and whole; a reader never sees a part.
What cannot be written is said in words of a user, who named the file.

No other module below spotctl calls `flock` or renames a file (tests/test_ground_shelf.py).
`agileml.runtime.ground` is the same for AgileML, for machines and for spotctl's own files: AgileML
stands alone, and prices know nothing of it.
"""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pricing_data.errors import BadInput, PricingDataError


class WriteFailed(PricingDataError):
    """A file could not be written; its previous content is intact."""


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """A temporary file to write to; it replaces `path` if the block ends without an error."""
    temporary = path.with_name(f".{os.getpid()}-{path.name}")
    try:
        yield temporary
        temporary.replace(path)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise BadInput(f"cannot write {path}: {_why(error)}") from error
    except OSError as error:
        raise WriteFailed(
            f"cannot write {path}: {_why(error)}; its previous content is intact"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def locked(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Holds a lock, after a call of `on_wait` if another process holds it. The system releases it
    if the process dies."""
    with path.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def move(source: Path, target: Path) -> None:
    """Gives a whole file or folder the name by which it counts, in one step."""
    source.replace(target)


def sync(path: Path) -> None:
    """Flushes a file, or the names in a folder, to the disk: what another file lists must be there
    before, so that a power failure cannot empty it."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _why(error: OSError) -> str:
    """The operating system's message, without what libraries add to it."""
    if error.errno:
        return os.strerror(error.errno)
    return str(error)
