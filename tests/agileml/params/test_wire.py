"""Numbers that travel in 16 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import agileml
from agileml import reference
from agileml.core.events import Iteration
from agileml.errors import AgileMLError, BadArgument, BadTrainer, NotFinite
from agileml.params.deltas import RowDelta
from agileml.params.layout import Array, Layout
from agileml.params.wire import HalfWire, wire_of
from agileml.reference import model_digest
from agileml.trainer import ParamView
from tests.agileml.toys import Decades, Largest, Momentum

HALVES = ("bf16", "fp16")


def wire(name: str, **params: Array) -> HalfWire:
    made = wire_of(name, Layout.cut(params, 1), "app")
    assert made is not None
    return made


def there_and_back(name: str, values: Array) -> Array:
    given = wire(name, w=values)
    (part,) = given.received(0, [RowDelta(None, given.state(0, [values], 1)[0])])
    assert part is not None
    return part.values


@pytest.mark.parametrize(("name", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_rounding_is_that_of_torch(name: str, dtype: torch.dtype) -> None:
    drawn = np.random.default_rng(1).integers(0, 2**32, 50_000, np.uint32).view(np.float32)
    ties = (np.arange(20_000, dtype=np.uint32) * 0x8000 + 0x3F800000).view(np.float32)
    values = np.concatenate([drawn, ties])
    expected = torch.from_numpy(values).to(dtype).float().numpy()
    fit = np.isfinite(expected)
    found = there_and_back(name, values[fit])
    assert found.dtype == np.float32
    assert np.array_equal(found, expected[fit])
    # What is rounded once is rounded for good.
    assert np.array_equal(there_and_back(name, found), found)


@pytest.mark.parametrize("name", HALVES)
def test_what_is_not_a_number_stays_so_and_what_is_0_keeps_its_sign(name: str) -> None:
    found = there_and_back(
        name, np.array([np.nan, -np.inf, np.inf, 0.0, -0.0, -1e-42, 1.0], np.float32)
    )
    assert np.array_equal(
        found, np.array([np.nan, -np.inf, np.inf, 0, 0, found[5], 1], np.float32), equal_nan=True
    )
    # The last is an update, though a small one, and -0.0 stands for none.
    assert np.signbit(found[3:6]).tolist() == [False, True, found[5] != 0]


@pytest.mark.parametrize("name", HALVES)
def test_whole_numbers_and_short_ones_travel_as_they_are(name: str) -> None:
    for values in (
        np.array([70_001], np.int64),
        np.array([40_001], np.uint16),
        np.array([1.0009765625], np.float16),
    ):
        found = there_and_back(name, values)
        assert (found.dtype, found.tolist()) == (values.dtype, values.tolist())
    assert there_and_back(name, np.array([0.1])).dtype == np.float64


@pytest.mark.parametrize(
    ("kind", "name"), [(Decades, "fp16"), (Momentum, "bf16"), (Largest, "bf16")]
)
def test_evictions_change_no_bit_and_half_the_bytes_travel(kind: type[Decades], name: str) -> None:
    full: list[Iteration] = []
    half: list[Iteration] = []
    options: dict[str, Any] = {"nodes": "1+3", "engine": "sim", "clocks": 5, "deterministic": True}
    trainer = kind(lengths=(12,) * 5)
    agileml.train(trainer, listener=full.append, **options)
    undisturbed = agileml.train(trainer, wire=name, listener=half.append, **options)
    chaos = "at clock 2 kill 1; at clock 3 evict half warn 5s; at clock 4 join 1"
    disturbed = agileml.train(trainer, wire=name, chaos=chaos, **options)
    assert (disturbed.failures, disturbed.evictions) == (1, 1)
    assert model_digest(disturbed.model) == model_digest(undisturbed.model)
    assert disturbed.loss == undisturbed.loss
    alone = list(
        zip(range(6), reference.iterate(trainer, 0, partitions=8, wire=name), strict=False)
    )[-1][1]
    assert model_digest(alone[1]) == model_digest(undisturbed.model)
    assert half[-1].sums.pulled * 2 == full[-1].sums.pulled
    # Row numbers keep their 32 bits.
    assert half[-1].sums.pushed < 0.6 * full[-1].sums.pushed


class Growing(Decades):
    """Its parameter doubles with each clock, from 1."""

    def step(
        self,
        shard: range,
        lo: int,
        hi: int,
        params: ParamView,
        clock: int,
        rng: np.random.Generator,
    ) -> None:
        del hi, rng
        if shard.start == lo == 0:
            first = np.float32(1 if clock == 1 else params.read("sparse")[0, 0])
            params.update("sparse", [0], np.array([[first, 0]], np.float32))


@pytest.mark.parametrize("deterministic", [True, False])
def test_a_number_that_does_not_fit_is_named(deterministic: bool) -> None:
    with pytest.raises(
        AgileMLError, match=r"decades, clock 17, parameter 'sparse': 65536 does not fit into fp16"
    ):
        agileml.train(
            Growing(lengths=(6, 6)),
            engine="sim",
            clocks=30,
            deterministic=deterministic,
            wire="fp16",
        )
    assert (
        agileml.train(
            Growing(lengths=(6, 6)),
            engine="sim",
            clocks=20,
            deterministic=deterministic,
            wire="bf16",
        ).clocks
        == 20
    )


def test_an_update_that_does_not_fit_is_named() -> None:
    with pytest.raises(
        NotFinite, match=r"app, clock 3, parameter 'w': -70000 does not fit into fp16"
    ):
        wire("fp16", w=np.zeros((4, 1))).delta(
            0, [RowDelta(np.array([2], np.int32), np.array([[-7e4]]))], 3
        )


def test_the_trainer_declares_it_and_the_job_decides() -> None:
    class Declared(Decades):
        wire = "bf16"

    declared, decided, neither = (
        model_digest(
            agileml.train(trainer, "1+1", "sim", clocks=2, deterministic=True, wire=given).model
        )
        for trainer, given in ((Declared(), None), (Decades(), "bf16"), (Declared(), "fp32"))
    )
    assert declared == decided != neither
    assert neither == model_digest(reference.run(Decades(), 2, 0))
    Declared.wire = "int8"
    with pytest.raises(BadTrainer, match="decades: wire is 'int8'; choose one of fp32, bf16, fp16"):
        agileml.train(Declared(), engine="sim", clocks=1)
    with pytest.raises(BadArgument, match="wire is 'int8'; choose one of fp32, bf16, fp16"):
        agileml.train(Decades(), engine="sim", clocks=1, wire="int8")
