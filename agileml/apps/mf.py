"""Matrix factorization by stochastic gradient descent, on generated ratings of low rank or on those
of a file.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import isfinite
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from agileml.apps.code import unreadable
from agileml.apps.registry import number, text, whole
from agileml.errors import BadArgument
from agileml.params.layout import Params
from agileml.trainer import ParamReader, ParamView, Sample, random_generator

SEPARATORS = ("::", "\t", ";", ",")
"""Between the columns; the first that a row contains."""


@dataclass(frozen=True, slots=True)
class Ratings:
    """Ratings as numbers of users and items, in units of `deviation` from their `mean`: sorted by
    user in a file, and in random order in a shard, so that every batch is representative.
    """

    users: NDArray[np.intp]
    items: NDArray[np.intp]
    values: NDArray[np.float32]
    mean: float = 0.0
    deviation: float = 1.0


@lru_cache(maxsize=1)
def read_ratings(file: str) -> Ratings:
    """Reads a file of rows `user,item,rating`; further columns, and a first row without a number,
    are ignored.

    Users and items are numbered in the order in which they first appear. Columns may also be
    separated by `;`, a tab or `::`. BadArgument names the row that cannot be read.
    """
    user_numbers: dict[str, int] = {}
    item_numbers: dict[str, int] = {}
    rows = [
        (
            user_numbers.setdefault(user, len(user_numbers)),
            item_numbers.setdefault(item, len(item_numbers)),
            rating,
        )
        for user, item, rating in _rows(Path(file))
    ]

    if not rows:
        raise BadArgument(
            f"{file}: no ratings; each row has a user, an item and a rating, such as 17,42,3.5"
        )

    users, items, values = (np.array(column) for column in zip(*rows, strict=True))
    mean = float(values.mean())
    deviation = float(values.std()) or 1.0
    order = np.argsort(users, kind="stable")
    return Ratings(
        users[order].astype(np.intp),
        items[order].astype(np.intp),
        ((values - mean) / deviation)[order].astype(np.float32),
        mean,
        deviation,
    )


def _rows(path: Path) -> Iterator[tuple[str, str, float]]:
    try:
        with path.open(encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, start=1):
                row = line.strip()
                if (
                    row
                    and (read := _row(row, f"{path}, row {number}", header=number == 1)) is not None
                ):
                    yield read
    except OSError as error:
        raise unreadable(path, error) from None
    except UnicodeDecodeError:
        raise BadArgument(f"{path}: it is not a text file in UTF-8") from None


def _row(row: str, where: str, *, header: bool) -> tuple[str, str, float] | None:
    separator = next((each for each in SEPARATORS if each in row), ",")
    fields = [field.strip() for field in row.split(separator)]
    problem = BadArgument(
        f"{where}: {row[:60]!r}; expected a user, an item and a number, such as 17,42,3.5"
    )
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


Floats = NDArray[np.float32]
_INITIAL_SCALE = 0.3
"""Size of the initial factors relative to the true ones: not 0, where the gradient vanishes."""


class RatingShard:
    """The ratings of some users; generated on first use, the same on every node."""

    def __init__(self, app: "MatrixFactorization", number: int, users: range, count: int) -> None:
        self._app = app
        self._number = number
        self._users = users
        self._count = count

    def __len__(self) -> int:
        return self._count

    @cached_property
    def ratings(self) -> Ratings:
        app = self._app
        rng = random_generator(app.seed, (1, self._number))
        true_users, true_items = _true_factors(app.seed, app.users, app.items, app.rank)
        users = rng.integers(self._users.start, self._users.stop, self._count)
        items = rng.integers(0, app.items, self._count)
        values = (true_users[users] * true_items[items]).sum(axis=1)
        noise = app.noise * rng.standard_normal(self._count, dtype=np.float32)
        return Ratings(users, items, values + noise.astype(np.float32))

    def load(self) -> None:
        """Generates the ratings in advance."""
        self.ratings  # noqa: B018 - the property generates them


class FileShard(RatingShard):
    """Consecutive ratings of a file, in random order."""

    def __init__(self, table: Ratings, part: slice, rng: np.random.Generator) -> None:
        order = rng.permutation(np.arange(part.start, part.stop))
        self._count = len(order)
        self.ratings = Ratings(table.users[order], table.items[order], table.values[order])


@dataclass(frozen=True, slots=True)
class MatrixFactorization:
    """Approximates a users x items matrix with `ratings` known entries by the product of two
    factors of `rank` columns.

    The loss is the mean squared error. Generated entries have a variance of about 1 plus that of
    the noise. With a `file`, they and the numbers of users and items come from there; they are
    learned in units of standard deviations from their mean, which the model contains as `scale`,
    and the loss is in the units of the file.
    """

    rank: int = whole(16, "columns of the factors")
    users: int = whole(2000, "rows of the matrix")
    items: int = whole(1000, "columns of the matrix")
    ratings: int = whole(200_000, "known entries of the matrix")
    parts: int = whole(16, "number of shards that the input is split into")
    batch: int = whole(0, "entries per shard and clock; 0 for all", least=0)
    rate: float = number(1.0, "step size, for the mean gradient of a row")
    regularization: float = number(0.01, "weight of the penalty on large factors", inclusive=True)
    noise: float = number(0.1, "standard deviation of the noise on the ratings", inclusive=True)
    seed: int = whole(0, "seed of the generated ratings", least=0)
    file: str = text("", "file of rows user,item,rating, instead of generated ratings")

    name = "mf"

    def __post_init__(self) -> None:
        if self.file:
            return
        if self.parts > min(self.users, self.ratings):
            raise BadArgument(
                f"mf: parts is {self.parts}; it must be at most {min(self.users, self.ratings)},"
                " because every part needs a user and a rating"
            )

    def init(self, rng: np.random.Generator) -> Params:
        """Random factors of `_INITIAL_SCALE` times the size of the true ones."""
        users, items, _ = self._sizes()
        scale = np.float32(_INITIAL_SCALE * self.rank**-0.25)
        model = dict[str, Floats]()
        for name, rows in (("users", users), ("items", items)):
            model[name] = scale * rng.standard_normal((rows, self.rank), dtype=np.float32)
        if self.file:
            table = read_ratings(self.file)
            model["scale"] = np.array([[table.mean, table.deviation]], np.float32)
        return model

    def shards(self) -> Sequence[RatingShard]:
        """The users and the ratings in equal parts."""
        if self.file:
            table = read_ratings(self.file)
            count = len(table.values)
            if self.parts > count:
                raise BadArgument(
                    f"mf: parts is {self.parts}; it must be at most {count}, the number of ratings "
                    f"in {self.file}"
                )
            bounds = [count * part // self.parts for part in range(self.parts + 1)]
            shards: list[RatingShard] = []
            for part in range(self.parts):
                rng = random_generator(self.seed, (1, part))
                shards.append(FileShard(table, slice(bounds[part], bounds[part + 1]), rng))
            return shards

        users = [self.users * part // self.parts for part in range(self.parts + 1)]
        ratings = [self.ratings * part // self.parts for part in range(self.parts + 1)]
        shards = []
        for part in range(self.parts):
            own = range(users[part], users[part + 1])
            count = ratings[part + 1] - ratings[part]
            shards.append(RatingShard(self, part, own, count))
        return shards

    def step(
        self,
        shard: RatingShard,
        lo: int,
        hi: int,
        params: ParamView,
        clock: int,
        rng: np.random.Generator,
    ) -> None:
        """One gradient step over the chunk's entries, in both factors at once."""
        del clock, rng
        seen = shard.ratings
        users = seen.users[lo:hi]
        items = seen.items[lo:hi]
        left = params.read("users", users)
        right = params.read("items", items)
        error = (seen.values[lo:hi] - (left * right).sum(axis=1))[:, None]
        shrink = np.float32(self.regularization)
        user_count, item_count, _ = self._sizes()
        params.update("users", users, self._rate(user_count) * (error * right - shrink * left))
        params.update("items", items, self._rate(item_count) * (error * left - shrink * right))

    def loss(self, params: ParamReader, sample: Sample) -> float:
        """Mean squared error."""
        total = 0.0
        for piece in sample:
            seen = piece.shard.ratings
            part = slice(piece.lo, piece.hi)
            left = params.read("users", seen.users[part])
            right = params.read("items", seen.items[part])
            total += float(
                np.square(seen.values[part] - (left * right).sum(axis=1)).sum(dtype=np.float64)
            )

        unit = read_ratings(self.file).deviation ** 2 if self.file else 1.0
        return unit * total / sum(map(len, sample))

    def _sizes(self) -> tuple[int, int, int]:
        """The numbers of users, items and ratings."""
        if not self.file:
            return self.users, self.items, self.ratings
        table = read_ratings(self.file)
        users = int(table.users.max()) + 1
        items = int(table.items.max()) + 1
        return users, items, len(table.values)

    def _rate(self, rows: int) -> np.float32:
        """Step size per entry, given that the steps of all entries of a row in a clock are
        summed."""
        _, _, ratings = self._sizes()
        clock_entries = min(self.batch or ratings, ratings // self.parts) * self.parts
        return np.float32(self.rate / max(1.0, clock_entries / rows))


@lru_cache(maxsize=1)
def _true_factors(seed: int, users: int, items: int, rank: int) -> tuple[Floats, Floats]:
    """Computed once for all shards of a node."""
    rng = random_generator(seed, (0,))
    scale = np.float32(rank**-0.25)
    return (
        scale * rng.standard_normal((users, rank), dtype=np.float32),
        scale * rng.standard_normal((items, rank), dtype=np.float32),
    )
