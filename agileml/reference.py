"""The reference run: one process, no servers, all contributions summed in the order of clock, shard
and chunk.

Distributed runs are compared with it. In deterministic mode the two models agree bit for bit.
"""

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import islice

import numpy as np

from agileml.errors import BadArgument
from agileml.params.commit import CommitRule, Declarations
from agileml.params.deltas import Delta, accumulate, scaled
from agileml.params.layout import Array, Layout, Params, PartitionState
from agileml.params.view import CacheView, ChunkView, ParamCache, WriteBack
from agileml.params.wire import wire_of
from agileml.trainer import (
    SAMPLE_ITEMS,
    Piece,
    Shard,
    Trainer,
    initial_model,
    loss_of,
    plan_of,
    run_chunk,
    sample_of,
    shards_of,
)
from agileml.work import Accepted, WorkPlan

ClockDeltas = dict[int, Delta]
"""Deltas by partition."""


def replay(
    trainer: Trainer,
    log: Sequence[Accepted],
    seed: int,
    partitions: int | None = 1,
    wire: str | None = None,
) -> Params:
    """The model of a deterministic job with these decisions about its clocks, as its iteration log
    has them.

    BadArgument if they name chunks that the trainer does not have.
    """
    plan = plan_of(trainer, shards_of(trainer))
    for accepted in log:
        known = plan.accept_all(accepted.clock)
        if not all(
            known.of_shard(shard).covers(first, last) for shard, first, last in accepted.covers
        ):
            raise BadArgument(
                f"clock {accepted.clock} of the log has chunks that {type(trainer).__name__} does "
                "not have; replay it with the trainer and the arguments of that run"
            )

    by_clock = {accepted.clock: accepted for accepted in log}
    iterations = iterate(trainer, seed, True, partitions, accepted=by_clock, wire=wire)
    _, params, _ = next(islice(iterations, len(log), None))
    return params


def run(
    trainer: Trainer, clocks: int, seed: int, deterministic: bool = True, partitions: int | None = 1
) -> Params:
    """The model after a number of clocks."""
    if clocks < 0:
        raise BadArgument(f"clocks is {clocks}; it must be at least 0")
    iterations = iterate(trainer, seed, deterministic, partitions)
    _, params, _ = next(islice(iterations, clocks, None))
    return params


def iterate(
    trainer: Trainer,
    seed: int,
    deterministic: bool = True,
    partitions: int | None = 1,
    sample_items: int = SAMPLE_ITEMS,
    accepted: Mapping[int, Accepted] | None = None,
    wire: str | None = None,
) -> Iterator[tuple[int, Params, float]]:
    """Yields clock 0, the initial model, and then one clock after another without end: its number,
    the model itself, valid until the next clock is requested, and its loss.

    A clock is made up of its `accepted` chunks, by default all. `wire` is that of `JobSettings`;
    losses are those of the parameters as they travel.

    Deterministic mode keeps the delta of each chunk and sums them, as servers do; otherwise updates
    are aggregated immediately, as a worker does.
    """
    model = initial_model(trainer, seed)
    shards = list(shards_of(trainer))
    rule = CommitRule(Layout.cut(model, partitions), Declarations.of(trainer))
    worker = _ReferenceWorker(trainer, shards, rule, seed, wire)
    states = [rule.initial(number, model) for number in range(len(rule.layout))]
    clock = 0

    while True:
        worker.fill(states, clock)
        yield clock, worker.model.arrays, worker.loss(clock, sample_items)
        clock += 1
        counted = (accepted or {}).get(clock) or worker.plan.accept_all(clock)
        summed = worker.summed(counted) if deterministic else worker.aggregated(counted)
        scale = worker.plan.scale(counted)
        updates = [scaled(summed.get(number), scale) for number in range(len(states))]
        parts = list(zip(states, updates, strict=True))
        square = (
            sum(rule.square(number, *part) for number, part in enumerate(parts))
            if rule.clips_together
            else None
        )
        states = [
            rule.advance(number, *part, clock, square)[0] for number, part in enumerate(parts)
        ]


class _ReferenceWorker:
    """Does the work of all workers of a job."""

    def __init__(
        self,
        trainer: Trainer,
        shards: Sequence[Shard],
        rule: CommitRule,
        seed: int,
        wire: str | None,
    ) -> None:
        declared = rule.declared
        self.trainer = trainer
        self.shards = shards
        self.rule = rule
        self.seed = seed
        self.plan: WorkPlan = plan_of(trainer, shards)
        self.cache = ParamCache(
            rule.layout, wire_of(wire or declared.wire, rule.layout, declared.name)
        )
        if self.cache.wire is None:
            self.model = self.cache
        else:
            self.model = ParamCache(rule.layout)
        self.view = ChunkView(self.cache, declared.name, declared.aggregation)
        self.reader = CacheView(self.cache, declared.name)
        self.write_back = WriteBack(rule.layout, declared.aggregation)

    def fill(self, states: Sequence[PartitionState], clock: int) -> None:
        for number, state in enumerate(states):
            model = self.rule.model(number, state)
            self.model.fill(number, model, clock)
            if self.cache.wire is not None:
                self.cache.fill(number, self.cache.wire.state(number, model, clock), clock)

    def loss(self, clock: int, sample_items: int) -> float:
        # Piece by piece, as in a job, where every worker has a part of the sample.
        pieces = [piece for piece in sample_of(self.shards, sample_items) if len(piece)]
        total = sum(
            loss_of(self.trainer, self.reader, [piece], clock) * len(piece) for piece in pieces
        )
        return total / sum(map(len, pieces))

    def summed(self, accepted: Accepted) -> ClockDeltas:
        totals: ClockDeltas = {}
        for _ in self._chunks(accepted):
            for partition, delta in self._travelled(self.view.own.take(), accepted.clock).items():
                totals[partition] = accumulate(
                    totals.get(partition), delta, self.rule.declared.aggregation
                )
        return totals

    def aggregated(self, accepted: Accepted) -> ClockDeltas:
        for _ in self._chunks(accepted):
            self.write_back.collect(accepted.clock, self.view)
        return self._travelled(self.write_back.take(accepted.clock), accepted.clock)

    def _travelled(self, deltas: ClockDeltas, clock: int) -> ClockDeltas:
        wire = self.cache.wire
        if wire is None:
            return deltas
        return {
            number: wire.received(number, wire.delta(number, delta, clock))
            for number, delta in deltas.items()
        }

    def _chunks(self, accepted: Accepted) -> Iterator[None]:
        clock = accepted.clock
        for number, first, last in accepted.covers:
            for chunk in range(first, last):
                lo, hi = self.plan.bounds(number, clock, chunk)
                piece = Piece(self.shards[number], lo, hi)
                run_chunk(self.trainer, piece, number, self.view, clock, self.seed)
                yield


def model_digest(params: Mapping[str, Array]) -> str:
    """SHA-256 of the model's names, types, shapes and numbers; independent of the order of the
    arrays.
    """
    digest = sha256()
    for name, array in sorted(params.items()):
        digest.update(repr((name, array.dtype.str, array.shape)).encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
