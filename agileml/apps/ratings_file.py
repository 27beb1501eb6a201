"""Ratings from a text file: a user, an item and a number in each row."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from hashlib import file_digest
from math import isfinite
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from agileml.errors import BadArgument

SEPARATORS = ("::", "\t", ";", ",")
"""Between the columns; the first that a row contains."""


@dataclass(frozen=True, slots=True)
class RatingTable:
    """Ratings sorted by user, as numbers of users and items, in units of standard deviations from their mean."""

    users: NDArray[np.intp]
    items: NDArray[np.intp]
    values: NDArray[np.float32]
    mean: float
    deviation: float

    @property
    def user_count(self) -> int:
        return int(self.users.max()) + 1

    @property
    def item_count(self) -> int:
        return int(self.items.max()) + 1


@lru_cache(maxsize=1)
def read_ratings(file: str) -> RatingTable:
    """Reads a file of rows `user,item,rating`; further columns, and a first row without a number, are ignored.

    Users and items are numbered in the order in which they first appear. Columns may also be separated by `;`, a tab
    or `::`. BadArgument names the row that cannot be read.
    """
    user_numbers: dict[str, int] = {}
    item_numbers: dict[str, int] = {}
    rows = [
        (user_numbers.setdefault(user, len(user_numbers)), item_numbers.setdefault(item, len(item_numbers)), rating)
        for user, item, rating in _rows(Path(file))
    ]
    if not rows:
        raise BadArgument(f"{file}: no ratings; each row has a user, an item and a rating, such as 17,42,3.5")
    users, items, values = (np.array(column) for column in zip(*rows, strict=True))
    mean, deviation = float(values.mean()), float(values.std()) or 1.0
    order = np.argsort(users, kind="stable")
    return RatingTable(
        users[order].astype(np.intp),
        items[order].astype(np.intp),
        ((values - mean) / deviation)[order].astype(np.float32),
        mean,
        deviation,
    )


def content_digest(file: str) -> bytes:
    """A digest of a file's content. Raises BadArgument if it cannot be read."""
    try:
        with Path(file).open("rb") as content:
            return file_digest(content, "sha256").digest()
    except OSError as error:
        raise _unreadable(file, error) from None


def _unreadable(file: Path | str, error: OSError) -> BadArgument:
    return BadArgument(f"{file}: {error.strerror or error}; name a file of rows such as 17,42,3.5")


def _rows(path: Path) -> Iterator[tuple[str, str, float]]:
    try:
        with path.open(encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, start=1):
                row = line.strip()
                if row and (read := _row(row, f"{path}, row {number}", header=number == 1)) is not None:
                    yield read
    except OSError as error:
        raise _unreadable(path, error) from None
    except UnicodeDecodeError:
        raise BadArgument(f"{path}: it is not a text file in UTF-8") from None


def _row(row: str, where: str, *, header: bool) -> tuple[str, str, float] | None:
    separator = next((each for each in SEPARATORS if each in row), ",")
    fields = [field.strip() for field in row.split(separator)]
    problem = BadArgument(f"{where}: {row[:60]!r}; expected a user, an item and a number, such as 17,42,3.5")
    if len(fields) < 3 or not fields[0] or not fields[1]:
        raise problem
    try:
        rating = float(fields[2])
    except ValueError:
        if header:
            return None
        raise problem from None
    if not isfinite(rating):
        raise problem
    return fields[0], fields[1], rating
