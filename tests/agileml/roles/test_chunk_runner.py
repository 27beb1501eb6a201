"""Chunks that are computed from the rows that have arrived."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from agileml.errors import InvalidTransition
from agileml.params.deltas import Delta, RowDelta
from agileml.params.layout import Layout
from agileml.params.view import ParamCache
from agileml.protocol.actions import Chunk
from agileml.roles.chunk_runner import ChunkRunner, WorkResult
from agileml.trainer import ParamView
from agileml.work import Ranges
from tests.agileml.params.test_reads import ReadLog
from tests.agileml.roles.test_worker import begun
from tests.agileml.schedules import Schedule
from tests.agileml.toys import Decades, Scripted, Settled


def swallowed(params: ParamView) -> None:
    try:
        params.read("w", [3])
    except BaseException:  # noqa: BLE001 - what a user's code should not do
        params.update("w", [3], np.ones(1))


def mistaken(params: ParamView) -> None:
    try:
        params.read("w", [3])
    except BaseException as error:
        raise RuntimeError("cannot read") from error


@pytest.mark.parametrize("reads", [lambda params: params.read("w", [3]), swallowed, mistaken])
@pytest.mark.parametrize("ordered", [True, False])
def test_a_chunk_with_missing_rows_is_discarded(
    reads: Callable[[ParamView], None], ordered: bool
) -> None:
    def step(*given: Any) -> None:  # noqa: ANN401
        given[3].update("w", [0], np.ones(1))
        reads(given[3])

    trainer = Scripted(step=step, init=lambda _: {"w": np.zeros(4)})
    cache = ParamCache(Layout.cut({"w": np.zeros(4)}, 1))
    chunk_runner = ChunkRunner(trainer, trainer.shards(), cache, seed=0, ordered=ordered, sample=0)
    some: Delta = [RowDelta(np.array([0, 1], np.int32), np.zeros(2))]
    cache.assign(0, some, 0)
    assert chunk_runner.run(Chunk(1, 1, 0, 0, 0, 10, 0)).missed == {0}
    assert chunk_runner.updates.take(1) == {}
    cache.fill(0, [np.zeros(4)], 0)
    assert chunk_runner.run(Chunk(1, 1, 0, 0, 0, 10, 0)).missed == frozenset()
    ((entry,),) = chunk_runner.updates.take(1).values()
    assert entry.delta[0] is not None


@pytest.mark.parametrize("kind", [Settled, Decades])
@pytest.mark.parametrize("seed", range(3, 3 + 3 * 211, 211))
def test_models_equal_the_reference(
    kind: type[Decades], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = ReadLog(monkeypatch)
    Schedule(seed, kind).run()
    assert ledger.oldest == 0
    assert ledger.done > 0


@pytest.mark.parametrize("slack", [1, 2])
@pytest.mark.parametrize("seed", range(7, 7 + 2 * 211, 211))
def test_with_slack_no_row_is_staler_than_the_bound(
    seed: int, slack: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = ReadLog(monkeypatch)
    Schedule(seed, Decades, slack=slack).run()
    assert 0 < ledger.oldest <= slack
    assert ledger.some > 0


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
