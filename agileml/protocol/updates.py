"""Messages between workers and servers: contributions to a clock, and parameters."""

from dataclasses import dataclass

from agileml.params.deltas import Delta, Rows
from agileml.work.covers import Cover
from agileml.work.ranges import Ranges


@dataclass(frozen=True, slots=True)
class UpdateEntry:
    """Summed updates to one partition: of one chunk (`shard`, `chunk`), or of all covers of its push (-1)."""

    shard: int
    chunk: int
    delta: Delta


@dataclass(frozen=True, slots=True)
class PartitionUpdate:
    """The part of a push that belongs to one partition."""

    partition: int
    entries: tuple[UpdateEntry, ...]


@dataclass(frozen=True, slots=True)
class Push:
    """A worker's contribution to a clock.

    `want` requests the rows that the worker reads of each of these partitions, once it has that version (-1: no).
    """

    epoch: int
    worker: str
    clock: int
    covers: tuple[Cover, ...]
    parts: tuple[PartitionUpdate, ...]
    want: int


@dataclass(frozen=True, slots=True)
class Pull:
    """Request a whole partition once it has committed version `at_least`; with `exact`, that version and no later one.

    A server that was asked for an exact version has committed it.
    """

    epoch: int
    worker: str
    partition: int
    at_least: int
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Reads:
    """The rows of a partition that a worker reads, by segment (None: all rows of it); None for the whole partition.

    A server that has not received this message sends whole partitions.
    """

    epoch: int
    worker: str
    partition: int
    rows: list[Rows | None] | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The rows of a version that a worker reads; it must treat all other rows as unknown.

    Contributions up to clock `stable` need not be kept any longer.
    """

    epoch: int
    partition: int
    version: int
    stable: int
    values: Delta
    exact: bool = False
    waited: float | None = None
    """How long the worker's push waited at the server until the version was complete; None if not timed."""


@dataclass(frozen=True, slots=True)
class TakeShard:
    """From worker to worker: take over a shard, with the chunks of this clock that are left to compute."""

    epoch: int
    shard: int
    clock: int
    chunks: Ranges
