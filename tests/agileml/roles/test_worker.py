"""The worker by harness."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from agileml.errors import InvalidTransition
from agileml.params.deltas import Delta, RowDelta
from agileml.params.layout import Layout
from agileml.params.view import ParamCache
from agileml.protocol.actions import Action, Chunk, Compute, Send
from agileml.protocol.messages import (
    Adopted,
    Enter,
    Evaluate,
    GiveShard,
    Limit,
    Pull,
    Push,
    Reads,
    Recover,
    Snapshot,
    Table,
    TakeShard,
    WorkDone,
)
from agileml.roles.chunk_runner import ChunkRunner, WorkResult
from agileml.roles.contributions import Position
from agileml.roles.worker import Worker, WorkerState
from agileml.trainer import initial_model, plan_of
from agileml.work import CountedWork, Ranges
from tests.agileml.toys import Scripted

TRAINER = Scripted(
    shards=lambda: [range(4)] * 3,
    init=lambda _: {"w": np.zeros(4)},
    step=lambda *given: given[3].read("w"),
)
TRAINER.chunk = 2  # type: ignore[attr-defined]
PLAN = plan_of(TRAINER, TRAINER.shards())
LAYOUT = Layout.cut(initial_model(TRAINER, 0), 2)
ALL = Ranges(((0, 2),))
"""All chunks of a shard in a clock."""

TABLE = Table(1, ("p", "q"), ("", ""), ("w", "w", "v"))


class Harness:
    """A worker whose chunks finish when the test says so."""

    def __init__(self, slack: int | None = 0, keeps: int = 8, trainer: Scripted = TRAINER) -> None:
        self.out: list[Action] = []
        cache = ParamCache(Layout.cut(initial_model(trainer, 0), 2))
        chunk_runner = ChunkRunner(trainer, trainer.shards(), cache, seed=0, ordered=True, sample=0)
        self.worker = Worker(
            "w",
            CountedWork(plan_of(trainer, trainer.shards())),
            chunk_runner,
            slack,
            keeps,
            self.out,
        )

    def state(self) -> WorkerState:
        return self.worker.state

    def receive(self, *orders: Any) -> list[Action]:  # noqa: ANN401
        for order in orders:
            self.worker.receive(order)
        return self._actions()

    def finish(self, task: Compute) -> list[Action]:
        self.worker.receive(self.worker.chunk_runner.run(task.work, lambda: 0.0))
        return self._actions()

    def work(self, actions: list[Action]) -> list[Action]:
        """Finishes chunks as long as the worker starts new ones."""
        result = list(actions)
        while isinstance(result[-1] if result else None, Compute):
            result += self.finish(result[-1])  # type: ignore[arg-type]
        return result

    def _actions(self) -> list[Action]:
        actions = list(self.out)
        self.out.clear()
        return actions


def snapshot(partition: int, version: int, stable: int = 0) -> Snapshot:
    values: Delta = [
        RowDelta(None, np.zeros(segment.rows)) for segment in LAYOUT.partitions[partition]
    ]
    return Snapshot(1, partition, version, stable, values)


def recover(epoch: int = 1, clock: int = 0, limit: int = 9, table: Table = TABLE) -> Recover:
    return Recover(epoch, clock, table, ("init", "init"), limit)


def begun(**options: Any) -> tuple[Harness, Compute]:  # noqa: ANN401
    """A worker at its first chunk."""
    harness = Harness(**options)
    assert harness.receive(recover()) == [
        Send("p", Pull(1, "w", 0, 0)),
        Send("q", Pull(1, "w", 1, 0)),
    ]
    assert harness.receive(snapshot(0, 0)) == []
    (task,) = harness.receive(snapshot(1, 0))
    assert task == Compute(Chunk(1, 1, 0, 0, 0, 2, 0))
    assert isinstance(task, Compute)
    return harness, task


def tasks(actions: list[Action]) -> list[tuple[int, int, int]]:
    chunks = [
        one.work for one in actions if isinstance(one, Compute) and isinstance(one.work, Chunk)
    ]
    return [(chunk.clock, chunk.shard, chunk.chunk) for chunk in chunks]


def positions(harness: Harness) -> dict[int, Position]:
    return {shard: left.position for shard, left in harness.worker.shards.items()}


def pushes(actions: list[Action]) -> list[tuple[str, Push]]:
    return [
        (one.to, one.message)
        for one in actions
        if isinstance(one, Send) and isinstance(one.message, Push)
    ]


def test_chunks_are_computed_furthest_behind_first_and_sent_by_clock() -> None:
    harness, task = begun()
    result = harness.work([task])
    assert tasks(result) == [(1, 0, 0), (1, 1, 0), (1, 0, 1), (1, 1, 1)]
    done = [
        one.message for one in result if isinstance(one, Send) and isinstance(one.message, WorkDone)
    ]
    assert [(one.clock, one.chunks) for one in done] == [(1, 4)]
    sent = pushes(result)
    assert [(to, push.covers, push.want) for to, push in sent] == [
        (n, ((0, 0, 2), (1, 0, 2)), 1) for n in "pq"
    ]
    # It waits for version 1, which it requested with the push.
    assert positions(harness) == {0: Position(2, 0), 1: Position(2, 0)}
    assert harness.receive(snapshot(0, 1)) == []
    assert harness.receive(snapshot(1, 1)) == [Compute(Chunk(1, 2, 0, 0, 0, 2, 0))]


def test_no_clock_after_the_limit() -> None:
    harness, task = begun()
    harness.receive(Limit(1, 1))
    sent = pushes(harness.work([task]))
    assert [push.want for _, push in sent] == [-1, -1]
    assert harness.receive(snapshot(0, 1), snapshot(1, 1)) == []
    assert harness.receive(Limit(1, 2)) == [Compute(Chunk(1, 2, 0, 0, 0, 2, 0))]


def test_a_shard_is_given_away_between_clocks_or_at_once() -> None:
    harness, task = begun()
    # Orders wait for the current chunk; afterwards its shard is in the middle of a clock.
    assert harness.receive(GiveShard(1, 0, "v", now=False), GiveShard(1, 1, "u", now=True)) == []
    result = harness.finish(task)
    assert result == [Send("u", TakeShard(1, 1, 1, ALL)), Compute(Chunk(1, 1, 0, 1, 2, 4, 0))]
    result = harness.finish(Compute(Chunk(1, 1, 0, 1, 2, 4, 0)))
    assert result[0] == Send("v", TakeShard(1, 0, 2, ALL))
    assert [push.covers for _, push in pushes(result)] == [((0, 0, 2),)] * 2
    assert harness.worker.idle


def test_a_shard_is_continued_where_it_was() -> None:
    harness, task = begun()
    result = harness.receive(TakeShard(1, 2, 1, Ranges(((1, 2),))))
    assert result == []
    result = harness.work(harness.finish(task))
    assert result[0].message == Adopted("w", 1, 2)  # type: ignore[union-attr]
    assert tasks(result) == [(1, 1, 0), (1, 0, 1), (1, 1, 1), (1, 2, 1)]
    assert pushes(result)[0][1].covers == ((0, 0, 2), (1, 0, 2), (2, 1, 2))


def test_a_shard_that_is_missing_cannot_be_given_away() -> None:
    harness = Harness()
    harness.receive(Enter(1, TABLE, 9, 0))
    with pytest.raises(InvalidTransition, match="w is to give shard 2 to v, but does not have it"):
        harness.receive(GiveShard(1, 2, "v", now=False))
    # The order may cross with a shard that was promised before.
    assert harness.receive(GiveShard(1, 2, "v", now=True)) == []


def test_a_version_that_contains_the_current_clock_is_refused() -> None:
    harness = Harness()
    harness.receive(recover(), snapshot(0, 1))
    with pytest.raises(
        InvalidTransition, match="belongs to clock 1, but the node has seen version 1"
    ):
        harness.receive(snapshot(1, 1))


def test_a_late_older_version_is_ignored() -> None:
    harness, task = begun()
    harness.work([task])
    assert harness.receive(snapshot(0, 1), snapshot(0, 0)) == []
    assert harness.worker.chunk_runner.cache.clocks == [1, 0]
    assert harness.receive(snapshot(1, 1)) == [Compute(Chunk(1, 2, 0, 0, 0, 2, 0))]


@pytest.mark.parametrize(("slack", "ahead"), [(0, 1), (1, 2), (2, 3)])
def test_slack_is_how_far_a_worker_runs_ahead(slack: int, ahead: int) -> None:
    harness, task = begun(slack=slack)
    assert max(one.work.clock for one in harness.work([task]) if isinstance(one, Compute)) == ahead


def test_without_a_bound_a_worker_waits_for_nothing() -> None:
    harness, task = begun(slack=None)
    assert max(one.work.clock for one in harness.work([task]) if isinstance(one, Compute)) == 9


def test_finished_work_is_sent_again_after_a_rollback_instead_of_redone() -> None:
    harness, task = begun()
    harness.work([task])
    result = harness.receive(recover(epoch=2))
    assert [(push.epoch, push.covers, push.want) for _, push in pushes(result)] == [
        (2, ((0, 0, 2), (1, 0, 2)), -1)
    ] * 2
    assert positions(harness) == {0: Position(2, 0), 1: Position(2, 0)}


def test_work_of_an_unfinished_clock_is_kept() -> None:
    harness, task = begun()
    (following,) = harness.finish(task)
    assert isinstance(following, Compute)
    assert harness.receive(recover(epoch=2)) == []
    # The current chunk is finished first; the chunks done so far are not repeated.
    result = harness.finish(following)
    assert [push.covers for _, push in pushes(result)] == [((0, 0, 1), (1, 0, 1))] * 2
    assert positions(harness) == {0: Position(1, 1), 1: Position(1, 1)}


def test_contributions_are_kept_until_stable_up_to_a_limit() -> None:
    harness, task = begun(slack=None, keeps=3)
    harness.work([task])
    assert [one.clock for one in harness.worker.contributions.kept] == [7, 8, 9]
    harness.receive(snapshot(0, 8, stable=8))
    assert [one.clock for one in harness.worker.contributions.kept] == [9]


# -- rows that are read ----------------------------------------------------------------------------


def reading(*rows: int) -> tuple[Harness, Compute, list[int]]:
    """A worker with one shard that reads these rows; the returned list of rows may be changed."""
    read = list(rows)
    trainer = Scripted(
        shards=lambda: [range(2)] * 2,
        init=lambda _: {"w": np.zeros((40, 8))},
        step=lambda *given: given[3].read("w", read),
    )
    harness = Harness(trainer=trainer)
    table = Table(1, ("p", "q"), ("", ""), ("w", "v"))
    harness.receive(recover(table=table), rows_of(0, 0), rows_of(1, 0))
    task = Compute(Chunk(1, 1, 0, 0, 0, 1, 0))
    return harness, task, read


def rows_of(partition: int, version: int, *rows: int) -> Snapshot:
    """All rows, or some."""
    part = (
        RowDelta(np.array(rows, np.int32), np.zeros((len(rows), 8)))
        if rows
        else RowDelta(None, np.zeros((20, 8)))
    )
    return Snapshot(1, partition, version, 0, [part])


def reads_in(actions: list[Action]) -> list[tuple[str, int, list[list[int]] | None]]:
    found = [
        (one.to, one.message)
        for one in actions
        if isinstance(one, Send) and isinstance(one.message, Reads)
    ]
    return [
        (
            to,
            reads.partition,
            None
            if reads.rows is None
            else [rows.tolist() for rows in reads.rows if rows is not None],
        )
        for to, reads in found
    ]


def test_after_the_first_pass_each_owner_is_sent_the_reads_once() -> None:
    harness, task, _ = reading(1, 3, 25)
    result = harness.work([task])
    assert reads_in(result) == [("p", 0, [[1, 3]]), ("q", 1, [[5]])]
    names = [
        type(one.message).__name__ for one in result if isinstance(one, Send) and one.to == "p"
    ]
    assert names == ["Reads", "Push"]
    harness.receive(rows_of(0, 1, 1, 3))
    (task,) = harness.receive(rows_of(1, 1, 5))  # type: ignore[assignment]
    assert isinstance(task, Compute)
    assert reads_in(harness.work([task])) == []
    # A new owner has not received the reads.
    harness.worker.context.table = Table(2, ("p", "r"), ("", ""), ("w", "v"))
    harness.receive(rows_of(0, 2, 1, 3))
    (task,) = harness.receive(rows_of(1, 2, 5))  # type: ignore[assignment]
    assert isinstance(task, Compute)
    assert reads_in(harness.work([task])) == [("r", 1, [[5]])]


def test_missing_rows_lead_to_a_whole_pull_and_a_repeated_chunk() -> None:
    harness, task, read = reading(1, 3, 25)
    harness.work([task])
    harness.receive(rows_of(0, 1, 1, 3))
    (task,) = harness.receive(rows_of(1, 1, 5))  # type: ignore[assignment]
    assert isinstance(task, Compute)
    read.append(26)
    assert harness.finish(task) == [Send("q", Pull(1, "w", 1, 1))]
    # A snapshot that was sent for another reason may arrive first.
    assert harness.receive(rows_of(1, 1, 5)) == [task]
    assert harness.finish(task) == [Send("q", Pull(1, "w", 1, 1))]
    assert harness.receive(rows_of(1, 1)) == [task]
    result = harness.work([task])
    assert reads_in(result) == [("q", 1, None)]
    assert [push.covers for _, push in pushes(result)] == [((0, 0, 2),)] * 2
    # The reads are sent again after a whole pull.
    harness.receive(rows_of(0, 2, 1, 3))
    (task,) = harness.receive(rows_of(1, 2, 5))  # type: ignore[assignment]
    assert isinstance(task, Compute)
    assert harness.finish(task) == [Send("q", Pull(1, "w", 1, 2))]
    (task,) = harness.receive(rows_of(1, 2))  # type: ignore[assignment]
    assert isinstance(task, Compute)
    assert reads_in(harness.work([task])) == [("q", 1, None)]


def test_a_new_shard_is_read_with_whole_partitions_at_first() -> None:
    harness, task, read = reading(1, 3, 25)
    harness.work([task])
    harness.receive(TakeShard(1, 1, 2, Ranges(((0, 2),))), rows_of(0, 1, 1, 3))
    (task,) = harness.receive(rows_of(1, 1, 5))  # type: ignore[assignment]
    assert isinstance(task, Compute)
    read[:] = [2]
    result = harness.finish(task)
    assert result == [Send("p", Pull(1, "w", 0, 1))]
    (task,) = harness.receive(rows_of(0, 1))  # type: ignore[assignment]
    assert isinstance(task, Compute)
    # After another pass the reads of both shards are known.
    assert reads_in(harness.work([task])) == [("p", 0, [[1, 2, 3]]), ("q", 1, [[5]])]


def test_in_a_new_epoch_reads_are_sent_again() -> None:
    harness, task, _ = reading(1, 3, 25)
    harness.work([task])
    harness.receive(recover(epoch=2, clock=1, table=Table(2, ("p", "q"), ("", ""), ("w", "v"))))
    harness.receive(rows_of(0, 1))
    (task,) = harness.receive(rows_of(1, 1))  # type: ignore[assignment]
    assert isinstance(task, Compute)
    assert reads_in(harness.work([task])) == [("p", 0, [[1, 3]]), ("q", 1, [[5]])]


def test_a_worker_goes_through_its_states() -> None:
    harness = Harness()
    assert harness.state() is WorkerState.IDLE
    harness.receive(recover(limit=1))
    assert harness.state() is WorkerState.WAITING
    (task,) = harness.receive(snapshot(0, 0), snapshot(1, 0))
    assert harness.state() is WorkerState.COMPUTING
    harness.work([task])
    assert harness.state() is WorkerState.IDLE
    # The loss has no sample here, so that there is nothing to compute.
    assert harness.receive(Evaluate(1, 1)) == []
    assert harness.state() is WorkerState.EVALUATED
    harness.receive(recover(epoch=2, limit=1))
    assert harness.state() is WorkerState.IDLE


def test_a_result_of_no_work_is_refused() -> None:
    harness, task = begun()
    harness.work([task])
    with pytest.raises(InvalidTransition, match=r"w is WAITING and does not expect WorkResult\("):
        harness.worker.receive(WorkResult(task.work, 0.5, 3.0, 2))


def test_a_result_counts_for_its_clock() -> None:
    harness, task = begun()
    harness.worker.receive(WorkResult(task.work, 0.5, 3.0, 2))
    tally = harness.worker.contributions.open[1]
    assert (tally.chunks, tally.seconds, tally.loss_sum, tally.loss_count) == (
        {0: Ranges(((0, 1),))},
        0.5,
        3.0,
        2,
    )
