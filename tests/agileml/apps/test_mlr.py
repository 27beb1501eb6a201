"""Logistic regression, and what its data have in common with those of ratings."""

from __future__ import annotations

from itertools import pairwise
from math import log

import numpy as np
import pytest

from agileml.apps.mf import MatrixFactorization
from agileml.apps.mlr import LogisticRegression
from agileml.errors import BadArgument
from agileml.params.layout import Array, Params
from agileml.params.view import CacheView
from agileml.trainer import Piece, Trainer, initial_model
from tests.agileml.apps.test_mf import SMALL_MF, cache_of, losses, updates_of

SMALL_MLR = LogisticRegression(classes=3, features=4, examples=200, parts=3)


def slope(
    trainer: Trainer, params: Params, piece: Piece, name: str, place: tuple[int, ...]
) -> float:
    """Central difference of the summed loss of a piece."""
    seen = []
    for step in (1e-4, -1e-4):
        moved = {each: array.astype(np.float64) for each, array in params.items()}
        moved[name][place] += step
        seen.append(trainer.loss(CacheView(cache_of(moved), "app"), [piece]) * len(piece))
    return (seen[0] - seen[1]) / 2e-4


@pytest.mark.parametrize(
    ("trainer", "factor"),
    # The step of the factorization omits the factor 2 of the derivative; a row's step is the mean
    # of its entries.
    [
        (SMALL_MF, {"users": -30 / 900 / 2, "items": -20 / 900 / 2}),
        (SMALL_MLR, {"weights": -1 / 198}),
    ],
    ids=["mf", "mlr"],
)
def test_a_step_follows_the_gradient_of_the_loss(
    trainer: Trainer, factor: dict[str, float]
) -> None:
    rng = np.random.default_rng(3)
    params: Params = {
        name: array + 0.3 * rng.standard_normal(array.shape)
        for name, array in initial_model(trainer, 1).items()
    }
    params = {name: array.astype(np.float32) for name, array in params.items()}
    piece = Piece(trainer.shards()[1], 5, 40)
    moved = updates_of(trainer, params, piece)
    for name, updates in moved.items():
        places = [tuple(int(rng.integers(size)) for size in updates.shape) for _ in range(12)]
        places.append(tuple(np.unravel_index(np.abs(updates).argmax(), updates.shape)))  # type: ignore[arg-type]
        expected = [factor[name] * slope(trainer, params, piece, name, place) for place in places]
        assert np.allclose([updates[place] for place in places], expected, rtol=0.02, atol=2e-5)
        assert np.abs(expected).max() > 1e-3


def test_logistic_regression_learns_its_classes() -> None:
    seen = losses(LogisticRegression(examples=3000, features=20, parts=4), 30)
    assert seen[0] == pytest.approx(log(10), rel=1e-6)
    assert seen[-1] < 0.7
    assert all(after < before for before, after in pairwise(seen))


@pytest.mark.parametrize(
    "trainer",
    [
        MatrixFactorization(rank=4, users=200, items=100, ratings=12_000, parts=4, batch=500),
        LogisticRegression(examples=3000, features=20, parts=4, batch=100),
    ],
    ids=["mf", "mlr"],
)
def test_training_with_batches_converges(trainer: Trainer) -> None:
    seen = losses(trainer, 60)
    assert seen[-1] < 0.3 * seen[0]


def contents(shard: object) -> list[Array]:
    seen = shard.ratings if hasattr(shard, "ratings") else shard.examples  # type: ignore[attr-defined]
    values = (getattr(seen, name) for name in type(seen).__slots__)
    return [value for value in values if isinstance(value, np.ndarray)]


@pytest.mark.parametrize("app", [MatrixFactorization, LogisticRegression])
def test_data_depend_on_the_seed_and_the_shard(
    app: type[MatrixFactorization] | type[LogisticRegression],
) -> None:
    one, again, other = app(seed=1).shards(), app(seed=1).shards(), app(seed=2).shards()
    again[3].load()
    for mine, theirs in zip(contents(one[3]), contents(again[3]), strict=True):
        assert np.array_equal(mine, theirs)
        assert len(mine) == len(one[3])
    assert not np.array_equal(contents(one[3])[-1], contents(other[3])[-1])
    assert not np.array_equal(contents(one[3])[-1], contents(one[4])[-1])


def test_shards_contain_all_items() -> None:
    app = MatrixFactorization(users=10, items=5, ratings=103, parts=4)
    shards = app.shards()
    assert sum(map(len, shards)) == 103
    for shard, users in zip(shards, ({0, 1}, {2, 3, 4}, {5, 6}, {7, 8, 9}), strict=True):
        assert set(shard.ratings.users) == users
    assert sum(map(len, LogisticRegression(examples=103, parts=4).shards())) == 103


def test_too_many_parts_are_refused() -> None:
    with pytest.raises(BadArgument, match="mf: parts is 20; it must be at most 10"):
        MatrixFactorization(users=10, parts=20)
    with pytest.raises(BadArgument, match="mlr: parts is 20; it must be at most 10"):
        LogisticRegression(examples=10, parts=20)
