"""Writing a file so that a full disk or a kill leaves the old one, never half of a new one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pricing_data.errors import BadInput, PricingDataError


class CannotWrite(PricingDataError):
    """A file could not be written; what stood there before still does."""


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """A neighbour to write to, which takes the place of `path` when the block ends well."""
    neighbour = path.with_name(f".{os.getpid()}-{path.name}")
    try:
        yield neighbour
        neighbour.replace(path)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise BadInput(f"cannot write {path}: {_why(error)}") from error
    except OSError as error:
        raise CannotWrite(f"cannot write {path}: {_why(error)}; what stood there before is unharmed") from error
    finally:
        neighbour.unlink(missing_ok=True)


def _why(error: OSError) -> str:
    """The system's own words: libraries wrap them in theirs."""
    return os.strerror(error.errno) if error.errno else str(error)
