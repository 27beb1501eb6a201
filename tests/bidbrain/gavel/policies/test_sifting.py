"""Programs solved for their undecided groups against the same programs solved whole."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from bidbrain.arrays import Floats
from bidbrain.gavel.policies.sifting import Groups, LevelObjective, PriceStart, excess, sift
from bidbrain.lp import CannotHold
from tests.bidbrain.gavel.dense import Dense
from tests.bidbrain.gavel.problems import problem

COUNT = 90


def groups(rng: np.random.Generator) -> Groups:
    """More groups than are solved as they are, on two to four types; some do not run everywhere,
    some are alike.
    """
    types = int(rng.integers(2, 5))
    progress = rng.uniform(0.1, 1, (COUNT, types)) * (
        rng.random((COUNT, types)) >= rng.choice([0.0, 0.3])
    )
    if rng.random() < 0.3:
        progress = np.round(progress, 1)
    progress[:, 0] = np.where(progress.max(axis=1) > 0, progress[:, 0], 1.0)
    progress /= progress.max(axis=1, keepdims=True)
    workers = rng.dirichlet(np.ones(types)) * COUNT * rng.uniform(0.2, 1.5)
    return Groups(progress, rng.choice([1.0, 1.0, 2.0, 7.0], COUNT), workers)


def whole(asked: Groups, wanted: LevelObjective) -> float | None:
    """The optimum by another solver front end."""
    dense = Dense(problem(asked.progress, asked.workers + 1e3), extra=1)
    dense.caps[COUNT:] = asked.workers
    dense.limits[COUNT:] *= np.repeat(asked.held, asked.progress.shape[1])
    if not wanted.gain_z:
        dense.bounds[-1] = (0, 0)
    levels = np.hstack([-dense.throughput, wanted.slope[:, None]])
    gain = np.append(wanted.gain @ dense.throughput, wanted.gain_z)
    return dense.maximum(gain, levels, -wanted.base)


def value(asked: Groups, wanted: LevelObjective, z: float, shares: Floats) -> float:
    return float(wanted.gain_z * z + wanted.gain @ (asked.progress * shares).sum(axis=1))


@pytest.mark.parametrize("seed", range(40))
def test_the_optimum_is_that_of_the_whole_program(seed: int) -> None:
    rng = np.random.default_rng(seed)
    asked, nothing = groups(rng), np.zeros(COUNT)
    need = rng.uniform(0.1, 1, COUNT) * (rng.random(COUNT) < 0.9)
    raised = sift(asked, LevelObjective(nothing, need, nothing, float(need.sum())))
    # A level that most groups only just reach, and all that is left for progress.
    level = np.minimum(need * raised.z * rng.choice([0.3, 1 - 1e-7]), asked.progress.max(axis=1))
    spread = LevelObjective(level, nothing, rng.choice([0.0, 1.0, 3.0], COUNT), 0.0)
    # Some stay where they are, the others rise from there.
    onward = LevelObjective(level * 0.5, need * (rng.random(COUNT) < 0.5), nothing, 1.0)
    for wanted in (LevelObjective(nothing, need, nothing, 1.0), spread, onward):
        found = sift(asked, wanted)
        best = whole(asked, wanted)
        assert best is not None
        assert value(asked, wanted, found.z, found.shares) == pytest.approx(
            best, rel=1e-7, abs=1e-9
        )
        assert (found.shares >= -1e-9).all()
        assert (found.shares.sum(axis=1) <= 1 + 1e-9).all()
        assert (asked.held @ found.shares <= asked.workers * (1 + 1e-9)).all()
        reached = (asked.progress * found.shares).sum(axis=1)
        assert (reached >= wanted.base + wanted.slope * found.z - 1e-8).all()


@pytest.mark.parametrize("seed", range(10))
def test_a_start_from_other_prices_ends_at_the_same_optimum(seed: int) -> None:
    rng = np.random.default_rng(seed)
    asked, nothing = groups(rng), np.zeros(COUNT)
    wanted = LevelObjective(nothing, rng.uniform(0.1, 1, COUNT), nothing, 1.0)
    start = PriceStart(rng.uniform(0, 3, len(asked.workers)), float(rng.uniform(0, 2)))
    assert sift(asked, wanted, start).z == pytest.approx(sift(asked, wanted).z, rel=1e-9)


@pytest.mark.parametrize("seed", range(10))
def test_prices_prove_which_levels_cannot_be_reached(seed: int) -> None:
    rng = np.random.default_rng(seed)
    asked, nothing = groups(rng), np.zeros(COUNT)
    need = rng.uniform(0.1, 1, COUNT)
    found = sift(asked, LevelObjective(nothing, need, nothing, 1.0))
    if not found.prices.any():
        return
    most = asked.progress.max(axis=1)
    assert excess(asked, np.minimum(need * found.z * 1.001, most), found.prices) > 0
    assert excess(asked, need * found.z * 0.999, found.prices) < 0


@pytest.mark.parametrize("seed", range(10))
def test_workers_of_earlier_stages_are_passed_on(seed: int) -> None:
    """Least cost of all work, by stages: each group uses the workers until its own stage."""
    rng = np.random.default_rng(seed)
    asked, stages, nothing = groups(rng), 5, np.zeros(COUNT)
    types, stage = asked.progress.shape[1], rng.integers(0, stages, COUNT)
    workers = np.column_stack(
        [rng.uniform(0.1, 1, (stages, types)) * asked.workers, np.full(stages, np.inf)]
    )
    progress, cost = (
        np.column_stack([asked.progress, np.ones(COUNT)]),
        rng.uniform(0.1, 1, (COUNT, types + 1)),
    )
    cost[:, -1] = 10.0
    found = sift(
        Groups(progress, asked.held, workers, stage, cost),
        LevelObjective(np.ones(COUNT), nothing, nothing, 0.0),
    )
    cells = np.arange(progress.size) // (types + 1)
    rows, bounds = [], []
    for k in range(stages):
        for j in range(types):
            held = np.zeros(progress.shape)
            held[stage <= k, j] = asked.held[stage <= k]
            rows.append(held.ravel())
            bounds.append(workers[: k + 1, j].sum())
    time, work = (
        (cells == np.arange(COUNT)[:, None]).astype(float),
        np.zeros((COUNT, progress.size)),
    )
    work[cells, np.arange(progress.size)] = progress.ravel()
    best = linprog(
        cost.ravel(),
        A_ub=np.vstack([rows, time, -work]),
        b_ub=np.concatenate([bounds, np.ones(COUNT), -np.ones(COUNT)]),
        bounds=[(0, None if can else 0) for can in (progress > 0).ravel()],
        method="highs-ds",
    )
    assert best.fun is not None
    assert (cost * found.shares).sum() == pytest.approx(best.fun, rel=1e-7)


def test_levels_beyond_reach_are_refused() -> None:
    asked = groups(np.random.default_rng(0))
    level = asked.progress.max(axis=1)
    with pytest.raises(CannotHold):
        sift(
            Groups(asked.progress, asked.held, asked.workers / 100),
            LevelObjective(level, 0 * level, level, 0.0),
        )
