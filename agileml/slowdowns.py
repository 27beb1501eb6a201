"""Slow machines to order: patterns that make work take longer, for tests, benches and chaos specs.

A pattern is a value; `Slowness` applies all patterns of a job to one node. What it draws depends on
the seed, the node and the clock or time, so that every engine slows the same nodes.
"""

import csv
import gzip
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import numpy as np

from agileml.errors import BadArgument

SLOW_POINTS = 10
"""Moments of a clock at which a slow worker may become slow."""

LONGEST_SLOW_CLOCKS = 2.0
"""The longest time for which it stays slow, in clocks."""

USUAL_PERCENTILE = 10
"""Percentile of recorded times that counts as the time of a machine that is not slowed."""


@dataclass(frozen=True, slots=True)
class SlowWorker:
    """At each of ten points of a clock, with this chance, a worker gets slower by `by` for up to
    two clocks.
    """

    chance: float
    by: float


@dataclass(frozen=True, slots=True)
class Disrupt:
    """In every period of `seconds`, this share of machines is slower by `by`."""

    share: float
    seconds: float
    by: float


@dataclass(frozen=True, slots=True)
class PowerLaw:
    """The time of a worker's clock has density t ** -alpha from its usual time on."""

    alpha: float


@dataclass(frozen=True, slots=True)
class Uneven:
    """Half of the workers get the fraction `heavy` of the work."""

    heavy: float


@dataclass(frozen=True, slots=True)
class SlowServer:
    """This many servers have only this fraction of their bandwidth, until a second of the job."""

    count: int
    to: float
    until: float


@dataclass(frozen=True, slots=True)
class Replay:
    """Recorded times: by worker, how many times as long as usual each of its clocks takes. Both
    repeat.
    """

    factors: tuple[tuple[float, ...], ...]

    @classmethod
    def read(cls, path: Path) -> "Replay":
        """Reads a table with the columns worker, time and batch_time_norm (.csv or .csv.gz)."""
        try:
            with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
                rows = []
                for row in csv.DictReader(file):
                    took = float(row["batch_time_norm"])
                    rows.append((int(row["worker"]), int(row["time"]), took))
        except (OSError, EOFError, UnicodeDecodeError) as error:
            raise BadArgument(
                f"replay {path}: {getattr(error, 'strerror', None) or error}"
            ) from error
        except (KeyError, ValueError, TypeError) as error:
            raise BadArgument(
                f"replay {path}: no table with the numbers worker, time and batch_time_norm: "
                f"{error}"
            ) from error

        if not rows:
            raise BadArgument(f"replay {path}: the table is empty")

        all_times = [took for _, _, took in rows]
        usual = max(1e-9, float(np.percentile(all_times, USUAL_PERCENTILE)))
        by_worker: dict[int, list[tuple[int, float]]] = {}
        for worker, time, took in rows:
            factor = max(1.0, took / usual)
            by_worker.setdefault(worker, []).append((time, factor))
        factors = []
        for _, times in sorted(by_worker.items()):
            factors.append(tuple(factor for _, factor in sorted(times)))
        return cls(tuple(factors))


Slowdown = SlowWorker | Disrupt | PowerLaw | Uneven | SlowServer | Replay


def uneven_share(slowdowns: Sequence[Slowdown]) -> float:
    """The fraction of the work that half of the workers get; 0 for an even split."""
    return next((slowdown.heavy for slowdown in slowdowns if isinstance(slowdown, Uneven)), 0.0)


class Slowness:
    """Computes how much longer the work of one node takes, and remembers how far the node is in its
    clock.
    """

    def __init__(self, slowdowns: Sequence[Slowdown], seed: int, node: str) -> None:
        self._slowdowns = slowdowns
        self._seed = seed
        self._name = crc32(node.encode())
        digits = re.search(r"\d+$", node)
        if digits:
            self._number = int(digits[0])
        else:
            self._number = self._name
        self._clock = 0
        self._done = 0
        self._before = 0
        self._seconds = self._usual = 0.0
        self._until: dict[int, float] = {}
        self._kept: dict[int, tuple[int, float]] = {}

    def factor(self, clock: int, seconds: float, now: float) -> float:
        """How many times as long as usual, which is `seconds`, a chunk of this clock takes that
        begins now.
        """
        if clock > self._clock:
            self._clock = clock
            self._before = self._done
            self._done = 0
            self._usual = self._seconds
            self._seconds = 0.0

        points = range(0)
        if self._before:
            points = range(
                self._done * SLOW_POINTS // self._before,
                (self._done + 1) * SLOW_POINTS // self._before,
            )

        self._done += 1
        self._seconds += seconds
        factor = 1.0
        for number, slowdown in enumerate(self._slowdowns):
            factor *= self._of(number, slowdown, points, now)
        return factor

    def _of(self, number: int, slowdown: Slowdown, points: range, now: float) -> float:
        match slowdown:
            case SlowWorker():
                for point in points:
                    chance = self._rng(number, self._clock, point)
                    if chance.random() < slowdown.chance:
                        self._until[number] = (
                            now + chance.uniform(0, LONGEST_SLOW_CLOCKS) * self._usual
                        )
                return 1 + slowdown.by * (now < self._until.get(number, 0.0))
            case Disrupt():
                return 1 + slowdown.by * (
                    self._drawn(number, int(now / slowdown.seconds)) < slowdown.share
                )
            case PowerLaw():
                return float((1 - self._drawn(number, self._clock)) ** (-1 / (slowdown.alpha - 1)))
            case Replay():
                times = slowdown.factors[self._number % len(slowdown.factors)]
                return times[self._clock % len(times)]
        return 1.0

    def _drawn(self, number: int, period: int) -> float:
        """The number that a pattern draws for a period, kept for its other chunks."""
        if self._kept.get(number, (-1, 0.0))[0] != period:
            self._kept[number] = period, self._rng(number, period).random()
        return self._kept[number][1]

    def _rng(self, *about: int) -> np.random.Generator:
        seed_sequence = np.random.SeedSequence(self._seed, spawn_key=(self._name, *about))
        return np.random.Generator(np.random.PCG64(seed_sequence))
