"""Replacing a file in one step: after a full disk or a kill, the old file is still there and whole."""

import os
from collections.abc import Iterator
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
        raise WriteFailed(f"cannot write {path}: {_why(error)}; its previous content is intact") from error
    finally:
        temporary.unlink(missing_ok=True)


def _why(error: OSError) -> str:
    """The operating system's message, without what libraries add to it."""
    return os.strerror(error.errno) if error.errno else str(error)
