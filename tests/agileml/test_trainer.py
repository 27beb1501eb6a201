"""The contract with user code: declarations, work, random generators, and the errors when it is
violated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from agileml import train
from agileml.errors import AgileMLError, BadTrainer, NotFinite, TrainerFailed
from agileml.reference import run
from agileml.trainer import (
    chunk_rng,
    init_rng,
    initial_model,
    plan_of,
    preload,
    sample_of,
    shards_of,
)
from tests.agileml.toys import Decades, Scripted


def test_the_longest_shard_has_ten_chunks_by_default() -> None:
    trainer = Scripted(shards=lambda: [range(95), range(200), range(0)])
    plan = plan_of(trainer, trainer.shards())
    assert (plan.chunk_items, [plan.chunks(shard, 1) for shard in range(3)]) == (20, [5, 10, 1])


def test_a_declared_chunk_and_batch_are_kept() -> None:
    trainer = Decades(lengths=(20, 8), chunk=3, batch=10)
    plan = plan_of(trainer, trainer.shards())
    assert [plan.bounds(0, clock, chunk) for clock in (1, 2, 3) for chunk in (0, 3)] == [
        (0, 3), (9, 10), (10, 13), (19, 20), (0, 3), (9, 10)
    ]  # fmt: skip
    assert plan.items(1, 2) == (0, 8)


def test_no_two_chunks_share_a_generator() -> None:
    keys = [
        (seed, clock, shard, lo)
        for seed in (0, 1)
        for clock in (1, 2)
        for shard in (0, 1)
        for lo in (0, 1)
    ]
    draws = {chunk_rng(*key).integers(2**62) for key in keys} | {
        init_rng(seed).integers(2**62) for seed in (0, 1)
    }
    assert len(draws) == len(keys) + 2
    assert chunk_rng(3, 1, 2, 5).integers(2**62) == chunk_rng(3, 1, 2, 5).integers(2**62)


def test_the_sample_has_equally_many_items_of_every_shard() -> None:
    pieces = sample_of([range(10), range(3), range(0)], 12)
    assert [(piece.lo, piece.hi) for piece in pieces] == [(0, 4), (0, 3), (0, 0)]


def test_a_shard_with_load_is_loaded() -> None:
    loaded = []

    class Lazy:
        def __len__(self) -> int:
            return 1

        def load(self) -> None:
            loaded.append(self)

    shard = Lazy()
    preload(Scripted(), shard, 0)
    preload(Scripted(), range(3), 1)
    assert loaded == [shard]


def test_an_error_while_a_shard_loads_names_the_shard() -> None:
    class Broken(list[int]):
        def load(self) -> None:
            raise OSError("no such bucket")

    with pytest.raises(
        TrainerFailed,
        match=r"scripted, shard 3: load: OSError: no such bucket \(.*_trainer.py, line \d",
    ):
        preload(Scripted(), Broken(), 3)


@pytest.mark.parametrize(
    ("shards", "problem"),
    [
        (list, r"scripted: shards\(\) returned no shards"),
        (lambda: iter([range(3)]), r"scripted: shards\(\) returned list_iterator; return a list"),
        (
            lambda: 1 / 0,
            r"scripted: shards: ZeroDivisionError: .*test_trainer.py, line \d+, in <lambda>",
        ),
    ],
)
def test_shards_are_checked(shards: Callable[[], Any], problem: str) -> None:
    with pytest.raises(AgileMLError, match=problem):
        shards_of(Scripted(shards=shards))


def test_a_shard_needs_a_length() -> None:
    with pytest.raises(BadTrainer, match=r"scripted: shard 1 is int, which has no len\(\)"):
        plan_of(Scripted(), [range(3), 5])  # type: ignore[list-item]


def counting(dtype: str, update: Any) -> Scripted:  # noqa: ANN401
    """Adds the same to a number in every item."""
    return Scripted(
        init=lambda _: {"w": np.zeros((1,), dtype)},
        step=lambda *given: given[3].update("w", None, np.array([update])),
    )


def test_integers_too_narrow_for_sums_are_refused_by_name() -> None:
    with pytest.raises(
        BadTrainer, match="scripted, parameter 'w' holds int8, which sums of updates soon overflow"
    ):
        train(counting("i1", np.int8(1)), "1+1", "sim", clocks=1)
    largest = counting("i1", np.int8(1))
    largest.aggregation = "max"  # type: ignore[attr-defined]
    assert train(largest, "1+1", "sim", clocks=1).model["w"].tolist() == [1]


@pytest.mark.parametrize(
    ("dtype", "update", "problem"),
    [
        (
            "i2",
            np.int16(20_000),
            r"a sum of updates is beyond the range of int16, -32768 to 32767; give it a wider",
        ),
        (
            "u4",
            np.uint32(3_000_000_000),
            r"a sum of updates is beyond the range of uint32, 0 to 4294967295",
        ),
        (
            "i2",
            np.int64(70_000),
            r"parameter 'w': an update of int64 has numbers beyond the range of int16",
        ),
    ],
)
def test_integers_that_leave_their_range_end_the_job(dtype: str, update: Any, problem: str) -> None:  # noqa: ANN401
    with pytest.raises(BadTrainer, match=problem):
        train(counting(dtype, update), "1+1", "sim", clocks=2)


def test_the_initial_model_is_a_copy() -> None:
    kept = np.zeros(4)
    initial_model(Scripted(init=lambda _: {"w": kept}), 0)["w"][:] = 1
    assert not kept.any()


def divide(*_: object) -> float:
    return 1 / 0


@pytest.mark.parametrize(
    ("functions", "error", "problem"),
    [
        ({"init": lambda _: {}}, BadTrainer, "scripted: init returned no parameters"),
        ({"init": lambda _: [1]}, BadTrainer, "scripted: init returned no parameters"),
        ({"init": lambda _: {"w": 3}}, BadTrainer, "parameter 'w' is a int"),
        (
            {"init": lambda _: {"w": np.array([np.nan])}},
            NotFinite,
            "scripted, clock 0, parameter 'w': init returned NaN",
        ),
        ({"init": divide}, TrainerFailed, "scripted: init: ZeroDivisionError: division by zero"),
        ({"shards": list}, BadTrainer, r"scripted: shards\(\) returned no shards"),
        (
            {"step": divide},
            TrainerFailed,
            "scripted, clock 1, shard 0, items 0 to 1: ZeroDivisionError",
        ),
        (
            {"step": lambda *given: given[3].update("w", None, np.ones(3))},
            BadTrainer,
            "scripted, clock 1, parameter 'w'",
        ),
        ({"loss": lambda *_: float("nan")}, NotFinite, "scripted, clock 0: the loss is nan"),
        (
            {"loss": lambda *_: None},
            BadTrainer,
            "scripted, clock 0: loss returned None; it must be a number",
        ),
        ({"loss": divide}, TrainerFailed, "scripted, clock 0: loss: ZeroDivisionError"),
        (
            {"loss": lambda params, _: params.read("v")},
            BadTrainer,
            "scripted, clock 0, parameter 'v': no such parameter",
        ),
    ],
)
def test_a_violated_contract_is_reported_in_one_line(
    functions: dict[str, Any], error: type[AgileMLError], problem: str
) -> None:
    with pytest.raises(error, match=problem) as caught:
        run(Scripted(**functions), 2, seed=0)
    assert "\n" not in str(caught.value)
