"""Which versions and rows a worker asks for."""

from __future__ import annotations

import numpy as np

from agileml.params.deltas import RowDelta
from agileml.protocol.actions import Action, Chunk, Compute, Send
from agileml.protocol.messages import (
    Pull,
    Reads,
    Snapshot,
    Table,
    TakeShard,
)
from agileml.work import Ranges
from tests.agileml.roles.test_worker import Harness, pushes, recover
from tests.agileml.toys import Scripted


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
