"""Files that commands write besides their tables, and numbers in JSON."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import isfinite
from pathlib import Path

from spotctl.home.errors import BadRequest

PICTURES = (".png", ".svg")


@contextmanager
def output_folder(folder: Path) -> Iterator[None]:
    """Creates the folder if needed; whatever cannot be written into it is a bad request."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise BadRequest(f"--out {folder}: {error.strerror or error}") from error


def check_picture(path: Path, suffixes: Sequence[str] = PICTURES) -> None:
    """Refuses a file name without the suffix of a known format, before any work is done."""
    if path.suffix.lower() not in suffixes:
        *others, last = suffixes
        raise BadRequest(f"plot to {path}: the name must end with {', '.join(others)} or {last}")


def save_rows(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Writes a CSV file: the keys of the first row, and a line for each row."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else ())
        writer.writeheader()
        writer.writerows(rows)


def finite(value: float) -> float | None:
    """The number, or None, which is null in JSON, for one that JSON does not have."""
    return value if isfinite(value) else None
