"""Where a node computes: its parameter cache, the chunk at hand, and what the clocks have added up to.

One chunk at a time: whoever runs it has the chunk_runner for itself, and between chunks the worker has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from time import perf_counter

from agileml.errors import AgileMLError
from agileml.params.declarations import Declarations
from agileml.params.reads import MissingRows, RowsRead, Wanted
from agileml.params.view import CacheView, ChunkView, ParamCache, WriteBack
from agileml.protocol.actions import Compute
from agileml.protocol.messages import Entry
from agileml.trainer import Piece, Shard, Trainer, loss_of, preload, run_chunk, sample_of


@dataclass(frozen=True, slots=True)
class Done:
    """A chunk has been computed: how long it took, and the loss before it where it was asked for.

    If rows that it reads were `missed`, of these partitions, then it is still to be done.
    """

    task: Compute
    seconds: float
    loss_sum: float
    loss_count: int
    missed: frozenset[int] = frozenset()


class ChunkRunner:
    """Runs chunks of a trainer against a cache."""

    def __init__(
        self, trainer: Trainer, shards: Sequence[Shard], cache: ParamCache, *, seed: int, ordered: bool, sample: int
    ) -> None:
        declared = Declarations.of(trainer)
        self.cache = cache
        self._trainer = trainer
        self._shards = shards
        self._seed = seed
        self._ordered = ordered
        self._sample = sample_of(shards, sample) if sample else []
        self._chunk = ChunkView(cache, declared.name, declared.aggregation)
        self._reader = CacheView(cache, declared.name)
        self._sums = WriteBack(cache.layout, declared.aggregation)
        self._apart: dict[int, dict[int, list[Entry]]] = {}
        self._loaded: set[int] = set()
        self._reads = RowsRead(cache.layout, [len(shard) for shard in shards])

    def run(self, task: Compute, timer: Callable[[], float] = perf_counter) -> Done:
        """Computes a chunk and adds its updates to those of its clock."""
        started = timer()
        shard = self._shards[task.shard]
        if task.shard not in self._loaded:
            # Which shards come here is known when they do; the thread that computes fetches them, none waits but it.
            preload(shard)
            self._loaded.add(task.shard)
        self._chunk.learning = self._reader.learning = self._reads.learning(task.shard)
        try:
            loss, count = self._loss(task)
            run_chunk(self._trainer, Piece(shard, task.low, task.high), task.shard, self._chunk, task.clock, self._seed)
        except (MissingRows, AgileMLError):
            # Rows that are missing are the reason for whatever the user's code made of it.
            if not self.cache.missed:
                raise
        if self.cache.missed:
            return self._missed(task)
        self._reads.passed(task.shard, task.low, task.high)
        self._keep(task)
        return Done(task, timer() - started, loss * count, count)

    def _missed(self, task: Compute) -> Done:
        """The chunk counts for nothing, whatever the user's code did when rows were missing."""
        missed = frozenset(self.cache.missed)
        self.cache.missed.clear()
        self._reads.distrust(missed)
        return Done(task, 0.0, 0.0, 0, missed)

    def _keep(self, task: Compute) -> None:
        if self._ordered:
            clock = self._apart.setdefault(task.clock, {})
            for partition, delta in self._chunk.harvest().items():
                clock.setdefault(partition, []).append(Entry(task.shard, task.chunk, delta))
        else:
            self._sums.collect(task.clock, self._chunk)

    def wanted(self, shards: Set[int]) -> list[Wanted | None]:
        """By partition, the rows that work on these shards reads as far as is known; None for a whole partition."""
        return self._reads.wanted(shards)

    def _loss(self, task: Compute) -> tuple[float, int]:
        """The mean loss over this shard's part of the sample, and how large that is; once per shard and clock."""
        piece = self._sample[task.shard] if self._sample and task.chunk == 0 else None
        if piece is None or not len(piece):
            return 0.0, 0
        return loss_of(self._trainer, self._reader, [piece], task.clock), len(piece)

    def take(self, clock: int) -> dict[int, tuple[Entry, ...]]:
        """What the chunks of a clock have brought so far, by partition; the chunk_runner forgets it."""
        if self._ordered:
            return {partition: tuple(entries) for partition, entries in self._apart.pop(clock, {}).items()}
        return {partition: (Entry(-1, -1, delta),) for partition, delta in self._sums.take(clock).items()}
