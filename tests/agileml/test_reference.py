"""The reference run against a plain implementation, and what its sums depend on."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from agileml.errors import BadArgument, NotFinite, TrainerFailed
from agileml.params.commit import Declarations
from agileml.params.deltas import Aggregation
from agileml.params.layout import Array, Params
from agileml.params.view import RowSelection
from agileml.reference import iterate, model_digest, run
from agileml.trainer import chunk_rng, initial_model
from tests.agileml.models import same_bits
from tests.agileml.toys import Decades, Largest, Momentum, Scripted

TRAINERS = [Decades(), Decades(batch=7), Decades(lengths=(5, 0, 40)), Momentum(), Largest()]


class PlainView:
    """A chunk's view of copies of whole arrays."""

    def __init__(self, params: Params, by: Aggregation) -> None:
        self.params = params
        self.by = by
        self.own = {
            name: np.full_like(array, by.identity(array.dtype)) for name, array in params.items()
        }

    def read(self, name: str, rows: RowSelection = None) -> Array:
        everything: Array = self.by.ufunc(self.params[name], self.own[name])
        return everything if rows is None else everything[rows]

    def update(self, name: str, rows: RowSelection, delta: Array, *, owned: bool = False) -> None:
        del owned
        numbered = np.arange(len(self.own[name]))[slice(None) if rows is None else rows]
        for row, values in zip(numbered, delta, strict=True):
            self.own[name][row] = self.by.ufunc(self.own[name][row], values.astype(np.float32))


def written_out(
    trainer: Decades, clocks: int, seed: int, shuffle: np.random.Generator | None = None
) -> Params:
    """Without layouts, deltas or buffers; with `shuffle`, contributions are summed in random
    order."""
    params = initial_model(trainer, seed)
    by = Declarations.of(trainer).aggregation
    slots = {name: [np.zeros_like(array) for _ in range(2)] for name, array in params.items()}
    for clock in range(1, clocks + 1):
        chunks = []
        for number, shard in enumerate(trainer.shards()):
            batch = trainer.batch or max(len(shard), 1)
            batches = max(1, -(-len(shard) // batch))
            low = (clock - 1) % batches * batch
            high = min(len(shard), low + batch)
            for lo in range(low, high, trainer.chunk):
                view = PlainView(params, by)
                rng = chunk_rng(seed, clock, number, lo)
                trainer.step(shard, lo, min(high, lo + trainer.chunk), view, clock, rng)
                chunks.append(view.own)
        if shuffle is not None:
            chunks = [chunks[place] for place in shuffle.permutation(len(chunks))]
        for name in params:
            summed = chunks[0][name].copy()
            for chunk in chunks[1:]:
                summed = by.ufunc(summed, chunk[name])
            if isinstance(trainer, Momentum):
                trainer.apply(name, params[name], summed, slots[name], clock)
            else:
                params[name] = by.ufunc(params[name], summed)
    return params


@pytest.mark.parametrize(
    "trainer", TRAINERS, ids=lambda trainer: f"{trainer.name}-{type(trainer).__name__}"
)
@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("partitions", [1, 8, 90])
def test_the_reference_equals_a_plain_implementation(
    trainer: Decades, deterministic: bool, partitions: int
) -> None:
    expected = written_out(trainer, 3, seed=4)
    model = run(trainer, 3, 4, deterministic, partitions)
    assert model.keys() == expected.keys()
    assert all(same_bits(model[name], expected[name]) for name in expected)


def test_another_order_of_summation_changes_the_bits() -> None:
    digests = {
        model_digest(written_out(Decades(), 1, 4, np.random.default_rng(seed) if seed else None))
        for seed in range(4)
    }
    assert len(digests) == 4


def test_the_seed_determines_the_model() -> None:
    assert model_digest(run(Decades(), 2, 1)) == model_digest(run(Decades(), 2, 1))
    assert model_digest(run(Decades(), 2, 1)) != model_digest(run(Decades(), 2, 2))


def test_clock_0_is_the_initial_model() -> None:
    assert model_digest(run(Decades(), 0, 3)) == model_digest(initial_model(Decades(), 3))
    with pytest.raises(BadArgument, match="clocks is -1"):
        run(Decades(), -1, 3)


def test_clocks_have_their_loss() -> None:
    seen = list(islice(iterate(Decades(), 1), 3))
    assert [clock for clock, _, _ in seen] == [0, 1, 2]
    assert len({loss for _, _, loss in seen}) == 3


def test_a_loss_is_the_mean_over_items_not_over_shards() -> None:
    trainer = Scripted(
        shards=lambda: [range(1), range(3), range(0)],
        loss=lambda _, sample: float(len(sample[0])),
    )
    assert next(iterate(trainer, 0))[2] == (1 * 1 + 3 * 3) / 4


def test_errors_in_apply_are_reported() -> None:
    trainer = Scripted(step=lambda *given: given[3].update("w", None, np.ones(4)))
    trainer.apply = lambda _name, values, *_rest: values.fill(np.nan)  # type: ignore[attr-defined]
    with pytest.raises(NotFinite, match="scripted, clock 1, parameter 'w': apply produced NaN"):
        run(trainer, 1, 0)
    trainer.apply = lambda _name, _values, update, *_rest: update.fill(0)  # type: ignore[attr-defined]
    with pytest.raises(
        TrainerFailed, match=r"scripted, clock 1, parameter 'w': apply: ValueError: .*read-only"
    ):
        run(trainer, 1, 0)


def test_the_digest_covers_names_types_shapes_and_numbers() -> None:
    base: Params = {"a": np.arange(6, dtype=np.float32), "b": np.zeros(2)}
    others: list[Params] = [
        {"a": base["a"], "c": base["b"]},
        {"a": base["a"].view(np.int32), "b": base["b"]},
        {"a": base["a"].reshape(2, 3), "b": base["b"]},
        {"a": base["a"], "b": -base["b"]},
    ]
    assert len({model_digest(params) for params in [base, *others]}) == 5
    assert model_digest(base) == model_digest(dict(reversed(base.items())))
    strided = np.repeat(base["a"], 2)[::2]
    assert model_digest({"a": strided, "b": base["b"]}) == model_digest(base)
