"""The interior point against the same program in another solver."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bidbrain.gavel.policies import interior, policy_named
from bidbrain.gavel.policies.interior import EXACT, Levels, center, with_free_workers
from bidbrain.gavel.problem import AllocationProblem
from bidbrain.lp import SolverFailed
from tests.bidbrain.gavel.dense import Dense
from tests.bidbrain.gavel.problems import problem


def random_program(seed: int) -> Levels | None:
    """Up to 60 jobs on one to four types; speeds and needs over many decades, some jobs alike or
    without need.
    """
    rng = np.random.default_rng(seed)
    jobs, types, decades = (
        int(rng.integers(1, 60)),
        int(rng.integers(1, 5)),
        float(rng.choice([0.3, 2, 6, 12])),
    )
    speed = 10 ** rng.uniform(-decades / 2, decades / 2, (jobs, types)) * (
        rng.random((jobs, types)) >= rng.choice([0, 0.2])
    )
    speed[rng.integers(0, jobs, jobs // 3)] = speed[0]
    held = rng.choice([1.0, 1.0, 2.0, 4.0], jobs)
    workers = rng.integers(0, rng.choice([5, 60]), types).astype(float)
    speed = np.where(held[:, None] <= workers, speed, 0.0)
    best = speed.max(axis=1)
    need = 10 ** rng.uniform(-min(decades, 9), 0, jobs) * (best > 0) * (rng.random(jobs) >= 0.1)
    progress = speed / np.where(best > 0, best, 1.0)[:, None]
    return Levels(progress, need, held, workers) if need.any() else None


def whole(asked: Levels) -> float:
    """The level by a dense program."""
    dense = Dense(problem(asked.progress, asked.workers, scale=asked.held), extra=1)
    return dense.least(asked.need)


@pytest.mark.parametrize("block", range(10))
def test_the_level_is_the_optimum_and_the_shares_are_valid(block: int) -> None:
    for seed in range(20 * block, 20 * block + 20):
        program = random_program(seed)
        if program is None:
            continue
        found = center(program, EXACT)
        best = whole(program)
        needs = program.need > 0
        reached = (program.progress * found.shares).sum(axis=1)[needs] / program.need[needs]
        assert reached.min() == pytest.approx(best, rel=1e-7), seed
        assert found.shares.min() >= 0
        assert found.shares.sum(axis=1).max() <= 1 + 1e-9
        assert (program.held @ found.shares <= program.workers + 1e-9).all()
        assert (found.prices * program.need).sum() == pytest.approx(1.0, rel=1e-6)


def test_alike_jobs_get_the_same_and_the_rest_is_spread() -> None:
    """One job limits the level; the other two can use the rest, and get equal parts of it."""
    program = Levels(
        np.array([[0.0, 1.0], [1.0, 0.1], [1.0, 0.1]]),
        np.array([1.0, 0.2, 0.2]),
        np.ones(3),
        np.array([1.0, 1.0]),
    )
    found = center(program, EXACT)
    assert found.level == pytest.approx(1.0)
    assert found.shares[1] == pytest.approx(found.shares[2])
    assert 0.2 < found.shares[1, 0] < 0.5


def test_free_workers_go_to_idle_jobs_the_fastest_first() -> None:
    shares = np.array([[0.5, 0.0], [0.5, 0.0], [0.0, 0.0]])
    filled = with_free_workers(
        shares, np.array([[1.0, 0.5], [1.0, 0.2], [0.0, 1.0]]), np.ones(3), np.array([1.0, 1.2])
    )
    assert filled == pytest.approx(np.array([[0.5, 0.2], [0.5, 0.0], [0.0, 1.0]]))


def different_jobs(count: int, scale: int = 1) -> AllocationProblem:
    speeds = np.random.default_rng(0).uniform(1, 9, (count, 2))
    return problem(speeds, [count / 8, count / 4], scale=np.full(count, scale))


def test_where_no_job_can_run_the_level_is_zero() -> None:
    """Many different jobs, each of which needs more workers than there are."""
    allocation = policy_named("max-min-fairness")(different_jobs(320, scale=1000))
    assert allocation.objective == 0.0
    assert not allocation.shares.any()


def test_a_gap_that_does_not_close_is_left_to_the_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = different_jobs(310)
    expected = policy_named("max-min-fairness")(asked).objective
    monkeypatch.setattr(interior, "_MAX_STEPS", 1)
    ones = np.ones((2, 1))
    with pytest.raises(SolverFailed, match="not reached within 1e-07"):
        center(Levels(ones, np.array([1.0, 0.5]), np.ones(2), np.ones(1)), EXACT)
    for centered in (False, True):
        allocation = policy_named("max-min-fairness")(replace(asked, centered=centered))
        assert allocation.objective == pytest.approx(expected, rel=1e-6)
