"""Policies that others are compared with."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from bidbrain.arrays import Floats
from bidbrain.gavel.baselines import (
    allox_policy,
    isolated_policy,
    proportional_policy,
    random_packing_policy,
)
from bidbrain.gavel.policies import POLICIES, UnknownPolicy, policy_named
from bidbrain.gavel.problem import BadProblem, Pairs
from tests.bidbrain.gavel.problems import assert_valid, problem


def test_every_policy_is_found_by_its_name() -> None:
    assert len(POLICIES) == 14
    with pytest.raises(
        UnknownPolicy, match="policy 'best' is unknown \\(known: max-min-fairness, makespan"
    ):
        policy_named("best")


def least_total_completion(duration: Floats, workers: list[int]) -> float:
    """Tries every assignment of jobs to queues; within a queue the shortest go first."""
    machines = [j for j, count in enumerate(workers) for _ in range(count)]
    least = np.inf
    for choice in product(range(len(machines)), repeat=len(duration)):
        total = 0.0
        for w, j in enumerate(machines):
            mine = np.sort(duration[[m for m, c in enumerate(choice) if c == w], j])
            total += np.cumsum(mine).sum()
        least = min(least, float(total))
    return least


@pytest.mark.parametrize("seed", range(12))
def test_allox_has_the_least_average_completion_time_of_all_queues(seed: int) -> None:
    rng = np.random.default_rng(seed)
    workers = [[1, 1], [2, 1], [1, 2]][seed % 3]
    asked = problem(rng.uniform(0.2, 3, (5, 2)), workers, steps=rng.uniform(10, 100, 5))
    found = allox_policy(asked)
    assert_valid(asked, found)
    assert set(found.shares.ravel().tolist()) <= {0.0, 1.0}
    duration = asked.jobs.steps[:, None] / asked.jobs.throughputs
    assert found.objective == pytest.approx(least_total_completion(duration, workers) / 5)


def test_allox_never_puts_a_job_where_it_cannot_run() -> None:
    asked = problem([[1, 0], [0, 1], [1, 0], [0, 0]], [1, 1], steps=[5, 1, 1, 1])
    found = allox_policy(asked)
    assert found.shares.tolist() == [[0, 0], [0, 1], [1, 0], [0, 0]]
    assert found.objective == pytest.approx((1 + 6 + 1) / 3)
    with pytest.raises(
        BadProblem, match="job 'j0': scale 2: allox supports only jobs of one worker"
    ):
        allox_policy(problem([[1]], [2], scale=[2]))


def test_isolated_and_proportional_shares() -> None:
    asked = problem([[1, 1], [1, 1]], [3, 1])
    assert isolated_policy(asked).shares == pytest.approx(np.array([[0.75, 0.25]] * 2))
    heavy = problem([[1, 1], [1, 1], [1, 1]], [1, 1], weight=[1, 2, 1])
    assert proportional_policy(heavy).shares.sum(axis=1) == pytest.approx([0.5, 1.0, 0.5])
    assert isolated_policy(heavy).shares.sum() == pytest.approx(2.0)
    wide = problem([[1], [1]], [3], scale=[2, 1])
    assert proportional_policy(wide).shares.ravel() == pytest.approx([1.0, 1.0])
    assert isolated_policy(wide).shares.ravel() == pytest.approx([0.75, 1.0])


def test_random_packing_pairs_jobs_only_when_workers_are_scarce() -> None:
    pairs = Pairs(np.array([[0, 1]]), np.array([[[0.9, 0.9]]]))
    crowded = random_packing_policy(replace(problem([[1], [1]], [1]), pairs=pairs))
    assert crowded.shares.ravel().tolist() == [0, 0, 1]
    roomy = random_packing_policy(replace(problem([[1], [1]], [2]), pairs=pairs))
    assert roomy.shares.ravel().tolist() == [1, 1, 0]
    waiting = random_packing_policy(problem([[1], [1]], [1]), seed=1)
    assert waiting.shares.sum() == pytest.approx(1.0)
    assert (waiting.shares > 0.2).all()
