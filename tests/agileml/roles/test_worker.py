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
    Evaluate,
    Limit,
    Pull,
    Push,
    Recover,
    Snapshot,
    Table,
)
from agileml.roles.chunk_runner import ChunkRunner
from agileml.roles.worker import Worker, WorkerState
from agileml.trainer import initial_model, plan_of
from agileml.work import CountedWork
from tests.agileml.toys import Scripted

TRAINER = Scripted(
    shards=lambda: [range(4)] * 3,
    init=lambda _: {"w": np.zeros(4)},
    step=lambda *given: given[3].read("w"),
)
TRAINER.chunk = 2  # type: ignore[attr-defined]
PLAN = plan_of(TRAINER, TRAINER.shards())
LAYOUT = Layout.cut(initial_model(TRAINER, 0), 2)

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


def pushes(actions: list[Action]) -> list[tuple[str, Push]]:
    return [
        (one.to, one.message)
        for one in actions
        if isinstance(one, Send) and isinstance(one.message, Push)
    ]


def test_no_clock_after_the_limit() -> None:
    harness, task = begun()
    harness.receive(Limit(1, 1))
    sent = pushes(harness.work([task]))
    assert [push.want for _, push in sent] == [-1, -1]
    assert harness.receive(snapshot(0, 1), snapshot(1, 1)) == []
    assert harness.receive(Limit(1, 2)) == [Compute(Chunk(1, 2, 0, 0, 0, 2, 0))]


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


def test_contributions_are_kept_until_stable_up_to_a_limit() -> None:
    harness, task = begun(slack=None, keeps=3)
    harness.work([task])
    assert [one.clock for one in harness.worker.contributions.kept] == [7, 8, 9]
    harness.receive(snapshot(0, 8, stable=8))
    assert [one.clock for one in harness.worker.contributions.kept] == [9]


# -- rows that are read ----------------------------------------------------------------------------


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
