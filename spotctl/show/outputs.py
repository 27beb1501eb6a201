"""The folder that `--out` names."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spotctl.home.errors import BadRequest


@contextmanager
def output_folder(folder: Path) -> Iterator[None]:
    """Creates the folder if needed; whatever cannot be written into it is a bad request."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise BadRequest(f"--out {folder}: {error.strerror or error}") from error
