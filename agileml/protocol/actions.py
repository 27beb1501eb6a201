"""Actions: what a role asks its engine to do. Roles affect the world in no other way."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from operator import attrgetter
from typing import Any

from agileml.errors import InvalidTransition
from agileml.protocol.messages import Version

CONTROLLER = "controller"

JOB_LOOP = "job-loop"
"""The name of the process that runs the job loop: it speaks for the machines."""


@dataclass(frozen=True, slots=True)
class Send:
    """Deliver a message, after everything sent to the same receiver before."""

    to: str
    message: object


@dataclass(frozen=True, slots=True)
class Chunk:
    """One call of `Trainer.step`: items low..high-1 of shard `data` in a clock; `chunk` is its
    number there.

    `shard` is the number by which the work is dealt out, another one than `data` where shards
    rotate.
    """

    epoch: int
    clock: int
    shard: int
    chunk: int
    low: int
    high: int
    data: int

    @property
    def items(self) -> int:
        """Number of items, by which the `sim` engine computes how long the work takes."""
        return self.high - self.low


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One call of `Trainer.loss` on the final model: the first `items` items of the shard
    `data`."""

    epoch: int
    clock: int
    data: int
    items: int


WorkUnit = Chunk | Evaluation
"""A piece of work that a worker computes in one go. Only `ChunkRunner.run` tells the kinds
apart."""


@dataclass(frozen=True, slots=True)
class Compute:
    """Run a piece of work and report the result. A worker asks for one at a time."""

    work: WorkUnit


@dataclass(frozen=True, slots=True)
class Save:
    """Write a partition's version to storage that outlives the node."""

    epoch: int
    partition: int
    version: Version


@dataclass(frozen=True, slots=True)
class Fetch:
    """Read a partition's version back from that storage."""

    epoch: int
    partition: int
    clock: int


@dataclass(frozen=True, slots=True)
class Exit:
    """End the node."""

    reason: str


Action = Send | Compute | Save | Fetch | Exit


class State(Enum):
    """A state of a machine. Its hash is its identity, as a machine looks its state up for every
    message.
    """

    __hash__ = object.__hash__


class Transition:
    """The method that handles a message, of the machine or of a `part` of it, and the other states
    that may follow.
    """

    def __init__(
        self, method: Callable[..., None], to: frozenset[State] = frozenset(), part: str = ""
    ) -> None:
        self.to = to
        name = method.__name__
        self.method: Callable[[object], Callable[[Any], None]] = attrgetter(
            f"{part}.{name}" if part else name
        )
        """Finds that method of a machine."""

    def check(self, name: str, before: State, after: State, message: object) -> None:
        """InvalidTransition if the state that follows is not in the table."""
        if after is not before and after not in self.to:
            raise InvalidTransition(
                f"{name} cannot go from {before.name} to {after.name} on {message!r}"
            )
