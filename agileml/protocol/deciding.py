"""Messages by which late work is left out of a clock, with backup workers, and by which updates are clipped."""

from dataclasses import dataclass

from agileml.work.covers import Cover


@dataclass(frozen=True, slots=True)
class Contributed:
    """To the controller: these chunks of a clock that is not decided yet are on their way to the servers."""

    node: str
    epoch: int
    clock: int
    covers: tuple[Cover, ...]


@dataclass(frozen=True, slots=True)
class Accept:
    """From the controller: these chunks make up the clock. Workers abandon the others, and servers drop them."""

    epoch: int
    clock: int
    covers: tuple[Cover, ...]


@dataclass(frozen=True, slots=True)
class SquareOfPart:
    """To the controller: the squared norm of all updates of a clock to a partition, which waits for `SquareOfAll`."""

    node: str
    epoch: int
    partition: int
    clock: int
    square: float


@dataclass(frozen=True, slots=True)
class SquareOfAll:
    """From the controller: the squared norm of all updates of a clock, by which they are clipped."""

    epoch: int
    clock: int
    square: float


@dataclass(frozen=True, slots=True)
class GradientSums:
    """Sums over the contributions to a clock, as a partition's server saw them.

    `weighted_squares`: the squared norm of each, divided by its items; `square`: the squared norm of their sum;
    `along`: the inner product of their sum with that of the clock before, or None where the server did not see that.
    """

    contributions: int
    weighted_squares: float
    square: float
    along: float | None = None
