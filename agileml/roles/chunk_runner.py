"""Runs the trainer's code on a node and collects its updates by clock.

The runner and the worker share the parameter cache and never use it at the same time: the runner while a piece of work
is computed, the worker between two pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache
from math import ceil
from time import perf_counter

from agileml.errors import AgileMLError
from agileml.params.declarations import Declarations
from agileml.params.deltas import Delta
from agileml.params.reads import MissingRows, RowsRead, WantedRows
from agileml.params.view import CacheView, ChunkView, ParamCache, WriteBack
from agileml.protocol.actions import Action, Chunk, Evaluation, Send, WorkUnit
from agileml.protocol.messages import Table, UpdateEntry
from agileml.trainer import Piece, Shard, Trainer, loss_of, preload, run_chunk
from agileml.work import sampled_items


@dataclass(slots=True)
class WorkerContext:
    """The worker's node, where its actions go, its epoch, the last clock to work on, and the routes."""

    node: str
    out: list[Action]
    epoch: int = 0
    limit: int = 0
    table: Table = field(default_factory=lambda: Table(0, (), (), ()))

    def send(self, to: str, message: object) -> None:
        """Sends a message."""
        self.out.append(Send(to, message))


LOSS_PER_GRADIENT, LOSS_SHARE = 1 / 3, 0.1


@dataclass(frozen=True, slots=True)
class WorkResult:
    """A finished piece of work: its seconds, and the loss before it where the chunk belongs to the loss sample.

    If it read rows that the node does not have, of the partitions in `missed`, it counts as not done.
    """

    work: WorkUnit
    seconds: float
    loss_sum: float
    loss_count: int
    missed: frozenset[int] = frozenset()


class _Updates:
    """The updates of chunks by clock; with `ordered`, those of each chunk are kept separate."""

    def __init__(self, cache: ParamCache, declared: Declarations, *, ordered: bool) -> None:
        self.view = ChunkView(cache, declared.name, declared.aggregation)
        self._wire = cache.wire
        self._ordered = ordered
        self._sums = WriteBack(cache.layout, declared.aggregation)
        self._separate: dict[int, dict[int, list[UpdateEntry]]] = {}

    def keep(self, chunk: Chunk) -> None:
        """Adds the updates of a chunk, which has been computed against the view, to its clock."""
        if self._ordered:
            clock = self._separate.setdefault(chunk.clock, {})
            for partition, delta in self._sent(self.view.take(), chunk.clock).items():
                clock.setdefault(partition, []).append(UpdateEntry(chunk.data, chunk.chunk, delta))
        else:
            self._sums.collect(chunk.clock, self.view)

    def take(self, clock: int) -> dict[int, tuple[UpdateEntry, ...]]:
        """Removes and returns the updates of a clock so far, by partition."""
        if self._ordered:
            return {partition: tuple(entries) for partition, entries in self._separate.pop(clock, {}).items()}
        sums = self._sent(self._sums.take(clock), clock)
        return {partition: (UpdateEntry(-1, -1, delta),) for partition, delta in sums.items()}

    def _sent(self, deltas: dict[int, Delta], clock: int) -> dict[int, Delta]:
        """Updates by partition, as they travel."""
        wire = self._wire
        if wire is None:
            return deltas
        return {partition: wire.delta(partition, delta, clock) for partition, delta in deltas.items()}


def loss_interval(sample: int, computed: int) -> int:
    """Clocks from one loss to the next, so that losses take a tenth of the time of training or less.

    The loss of an item takes about a third of the time of its gradient; a clock computes gradients of `computed` items.
    """
    return max(1, ceil(LOSS_PER_GRADIENT * sample / (LOSS_SHARE * max(1, computed))))


@lru_cache(maxsize=8)
def _sample(lengths: tuple[int, ...], items: int, batch: int) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """By shard, its items in the loss sample; the shards that have any; and the clocks from one loss to the next.

    Kept, because in a simulation a thousand nodes ask for the same.
    """
    counts = tuple(sampled_items(lengths, items))
    sampled = tuple(number for number, count in enumerate(counts) if count)
    computed = sum(min(length, batch or length) for length in lengths)
    return counts, sampled, loss_interval(sum(counts), computed)


class _Losses:
    """The loss over a sample of the items of each shard."""

    def __init__(
        self, trainer: Trainer, shards: Sequence[Shard], lengths: tuple[int, ...], reader: CacheView, sample: int
    ) -> None:
        declared = Declarations.of(trainer)
        self.reader = reader
        self._trainer, self._shards = trainer, shards
        self._counts, self.sampled, interval = _sample(lengths, sample, declared.batch)
        self._every = declared.loss_every or interval

    def is_due(self, clock: int) -> bool:
        """Whether the loss before a clock is computed."""
        return (clock - 1) % self._every == 0

    def items(self, shard: int) -> int:
        """The items of a shard in the sample."""
        return self._counts[shard]

    def mean(self, shard: int, clock: int) -> float:
        """The mean over a shard's part of the sample."""
        piece = Piece(self._shards[shard], 0, self._counts[shard])
        return loss_of(self._trainer, self.reader, [piece], clock)


class ChunkRunner:
    """Computes the work of one node against its cache. With `ordered`, the updates of chunks are kept separate."""

    def __init__(
        self, trainer: Trainer, shards: Sequence[Shard], cache: ParamCache, *, seed: int, ordered: bool, sample: int
    ) -> None:
        declared = Declarations.of(trainer)
        self.cache = cache
        self._trainer = trainer
        self._shards = shards
        self._seed = seed
        self._updates = _Updates(cache, declared, ordered=ordered)
        lengths = tuple(map(len, shards))
        self._losses = _Losses(trainer, shards, lengths, CacheView(cache, declared.name), sample)
        self._loaded: set[int] = set()
        self._reads = RowsRead(cache.layout, lengths)

    @property
    def sampled(self) -> tuple[int, ...]:
        """The shards with items in the loss sample."""
        return self._losses.sampled

    def run(self, work: WorkUnit, timer: Callable[[], float] = perf_counter) -> WorkResult:
        """Computes a piece of work: a chunk, whose updates are added to those of its clock, or the final loss."""
        if work.data not in self._loaded:
            # On this thread, so that loading data delays nothing but the computation.
            preload(self._trainer, self._shards[work.data], work.data)
            self._loaded.add(work.data)
        return self._run_chunk(work, timer) if isinstance(work, Chunk) else self._evaluate(work, timer)

    def evaluation(self, epoch: int, clock: int, shard: int) -> Evaluation:
        """Computes the final loss on one of the `sampled` shards."""
        return Evaluation(epoch, clock, shard, self._losses.items(shard))

    def _evaluate(self, work: Evaluation, timer: Callable[[], float]) -> WorkResult:
        """The cache must hold the whole model."""
        started = timer()
        self._losses.reader.learning = None
        loss = self._losses.mean(work.data, work.clock)
        return WorkResult(work, timer() - started, loss * work.items, work.items)

    def _run_chunk(self, chunk: Chunk, timer: Callable[[], float]) -> WorkResult:
        started = timer()
        shard, view = self._shards[chunk.data], self._updates.view
        view.learning = self._losses.reader.learning = self._reads.learning(chunk.data)
        try:
            loss, count = self._loss(chunk)
            piece = Piece(shard, chunk.low, chunk.high)
            run_chunk(self._trainer, piece, chunk.data, view, chunk.clock, self._seed)
        except (MissingRows, AgileMLError):
            # After missing rows, any error of the user's code is a consequence of them.
            if not self.cache.missed:
                raise
        if self.cache.missed:
            return self._missed(chunk)
        self._reads.passed(chunk.data, chunk.low, chunk.high)
        self._updates.keep(chunk)
        return WorkResult(chunk, timer() - started, loss * count, count)

    def _missed(self, chunk: Chunk) -> WorkResult:
        """Discards the chunk."""
        missed = frozenset(self.cache.missed)
        self.cache.missed.clear()
        self._reads.distrust(missed)
        return WorkResult(chunk, 0.0, 0.0, 0, missed)

    def wanted(self, shards: Set[int]) -> list[WantedRows | None]:
        """By partition, the rows that work on these shards is known to read; None for a whole partition."""
        return self._reads.wanted(shards)

    def _loss(self, chunk: Chunk) -> tuple[float, int]:
        """Mean loss over this shard's part of the sample and the size of that part; once per shard and clock."""
        count = self._losses.items(chunk.data) if chunk.chunk == 0 and self._losses.is_due(chunk.clock) else 0
        return (self._losses.mean(chunk.data, chunk.clock), count) if count else (0.0, 0)

    def take(self, clock: int) -> dict[int, tuple[UpdateEntry, ...]]:
        """Removes and returns the updates of a clock so far, by partition."""
        return self._updates.take(clock)
