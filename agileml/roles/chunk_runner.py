"""Runs the trainer's code on a node and collects its updates by clock.

The runner and the worker share the parameter cache and never use it at the same time: the runner
while a piece of work is computed, the worker between two pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import ceil
from time import perf_counter

from agileml.errors import AgileMLError
from agileml.params.commit import Declarations
from agileml.params.deltas import Delta
from agileml.params.reads import MissingRows, RowsRead
from agileml.params.view import CacheView, ChunkView, ParamCache, WriteBack
from agileml.protocol.actions import Action, Chunk, Send, WorkUnit
from agileml.protocol.messages import Table, UpdateEntry
from agileml.trainer import Piece, Shard, Trainer, loss_of, preload, run_chunk
from agileml.work import sampled_items


@dataclass(slots=True)
class WorkerContext:
    """The worker's node, where its actions go, its epoch, the last clock to work on, and the
    routes.
    """

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
    """A finished piece of work: its seconds, and the loss before it where the chunk belongs to the
    loss sample.

    If it read rows that the node does not have, of the partitions in `missed`, it counts as not
    done.
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
            for partition, delta in self._sent(self.view.own.take(), chunk.clock).items():
                clock.setdefault(partition, []).append(UpdateEntry(chunk.data, chunk.chunk, delta))
        else:
            self._sums.collect(chunk.clock, self.view)

    def take(self, clock: int) -> dict[int, tuple[UpdateEntry, ...]]:
        """Removes and returns the updates of a clock so far, by partition."""
        if self._ordered:
            return {
                partition: tuple(entries)
                for partition, entries in self._separate.pop(clock, {}).items()
            }
        sums = self._sent(self._sums.take(clock), clock)
        return {partition: (UpdateEntry(-1, -1, delta),) for partition, delta in sums.items()}

    def _sent(self, deltas: dict[int, Delta], clock: int) -> dict[int, Delta]:
        """Updates by partition, as they travel."""
        wire = self._wire
        if wire is None:
            return deltas
        return {
            partition: wire.delta(partition, delta, clock) for partition, delta in deltas.items()
        }


@lru_cache(maxsize=8)
def _sample(lengths: tuple[int, ...], items: int, batch: int) -> tuple[Mapping[int, int], int]:
    """By shard, its items in the loss sample, if it has any; and the clocks from one loss to the
    next.

    Kept, because in a simulation a thousand nodes ask for the same.
    """
    sampled = {shard: count for shard, count in enumerate(sampled_items(lengths, items)) if count}
    # Losses take a tenth of the time of training or less; that of an item takes about a third of
    # its gradient's.
    computed = sum(min(length, batch or length) for length in lengths)
    interval = max(
        1, ceil(LOSS_PER_GRADIENT * sum(sampled.values()) / (LOSS_SHARE * max(1, computed)))
    )
    return sampled, interval


class ChunkRunner:
    """Computes the work of one node against its cache. With `ordered`, the updates of chunks are
    kept separate.
    """

    def __init__(
        self,
        trainer: Trainer,
        shards: Sequence[Shard],
        cache: ParamCache,
        *,
        seed: int,
        ordered: bool,
        sample: int,
    ) -> None:
        declared = Declarations.of(trainer)
        self.cache = cache
        self._trainer = trainer
        self._shards = shards
        self._seed = seed
        self.updates = _Updates(cache, declared, ordered=ordered)
        lengths = tuple(map(len, shards))
        self.sampled, interval = _sample(lengths, sample, declared.batch)
        """By shard, its items in the loss sample, if it has any."""
        self._loss_every = declared.loss_every or interval
        self._loss_view = CacheView(cache, declared.name)
        self._loaded: set[int] = set()
        self.reads = RowsRead(cache.layout, lengths)

    def run(self, work: WorkUnit, timer: Callable[[], float] = perf_counter) -> WorkResult:
        """Computes a piece of work: a chunk, whose updates are added to those of its clock, or the
        final loss.
        """
        if work.data not in self._loaded:
            # On this thread, so that loading data delays nothing but the computation.
            preload(self._trainer, self._shards[work.data], work.data)
            self._loaded.add(work.data)

        if isinstance(work, Chunk):
            return self._run_chunk(work, timer)

        # The cache holds the whole model.
        started = timer()
        self._loss_view.learning = None
        loss = self._mean_loss(work.data, work.clock)
        return WorkResult(work, timer() - started, loss * work.items, work.items)

    def _mean_loss(self, shard: int, clock: int) -> float:
        """The mean over a shard's part of the sample."""
        piece = Piece(self._shards[shard], 0, self.sampled[shard])
        return loss_of(self._trainer, self._loss_view, [piece], clock)

    def _run_chunk(self, chunk: Chunk, timer: Callable[[], float]) -> WorkResult:
        started = timer()
        shard = self._shards[chunk.data]
        view = self.updates.view
        view.learning = self._loss_view.learning = self.reads.learning(chunk.data)

        # The loss before a clock, over the part of the sample in this shard: once per shard and
        # clock.
        is_due = chunk.chunk == 0 and (chunk.clock - 1) % self._loss_every == 0
        count = self.sampled.get(chunk.data, 0) if is_due else 0
        try:
            loss = self._mean_loss(chunk.data, chunk.clock) if count else 0.0
            piece = Piece(shard, chunk.low, chunk.high)
            run_chunk(self._trainer, piece, chunk.data, view, chunk.clock, self._seed)
        except (MissingRows, AgileMLError):
            # After missing rows, any error of the user's code is a consequence of them.
            if not self.cache.missed:
                raise

        if self.cache.missed:
            # The chunk is discarded.
            missed = frozenset(self.cache.missed)
            self.cache.missed.clear()
            self.reads.distrust(missed)
            return WorkResult(chunk, 0.0, 0.0, 0, missed)

        self.reads.passed(chunk.data, chunk.low, chunk.high)
        self.updates.keep(chunk)
        return WorkResult(chunk, timer() - started, loss * count, count)
