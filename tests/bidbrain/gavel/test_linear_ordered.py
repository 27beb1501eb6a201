"""Policies that serve jobs in an order, and the baselines."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from bidbrain.gavel.linear import fifo_policy, shortest_job_first_policy
from bidbrain.gavel.policies import POLICIES, policy_named
from tests.bidbrain.gavel.dense import Dense
from tests.bidbrain.gavel.problems import assert_valid, problem, random_problem, with_pairs


@pytest.mark.parametrize("seed", range(60))
def test_fifo_is_the_optimum_of_a_dense_program(seed: int) -> None:
    rng = np.random.default_rng(seed)
    asked = random_problem(rng)
    if seed % 3 == 0:
        asked = with_pairs(asked, rng)
    found = fifo_policy(asked)
    assert_valid(asked, found)
    dense = Dense(asked)
    alone = dense.throughput[:, : dense.m * dense.n].max(axis=1)
    best = np.where(alone > 0, alone, dense.throughput.max(axis=1))
    weight = dense.m - asked.jobs.arrival
    gain = (weight[:, None] * dense.throughput / np.where(best > 0, best, 1)[:, None]).sum(axis=0)
    assert found.objective == pytest.approx(dense.maximum(gain), rel=1e-6, abs=1e-9)


def test_the_first_jobs_get_their_fastest_type() -> None:
    found = fifo_policy(problem([[4, 1], [4, 2], [8, 4], [4, 1]], [1, 1], arrival=[3, 1, 2, 0]))
    assert found.shares.tolist() == [[0, 0], [0, 1], [0, 0], [1, 0]]


def test_jobs_that_arrive_together_keep_their_order() -> None:
    found = fifo_policy(problem([[1], [1], [1]], [2], arrival=[5, 5, 5]))
    assert found.shares.ravel().tolist() == [1, 1, 0]


def test_the_shortest_job_gets_its_fastest_type_even_if_others_gain_more() -> None:
    asked = problem([[10, 9.9], [10, 0.1], [10, 0.1]], [1, 1], steps=[10, 100, 200])
    found = shortest_job_first_policy(asked)
    assert found.objective == pytest.approx(1.0)
    assert found.shares[0].tolist() == [1, 0]
    assert_valid(asked, found)


@pytest.mark.parametrize("name", ["isolated", "proportional", "random-packing"])
@pytest.mark.parametrize("seed", range(25))
def test_baselines_are_valid_and_deterministic(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    asked = with_pairs(random_problem(rng), rng)
    found, again = (policy_named(name)(asked) for _ in range(2))
    assert_valid(asked, found)
    assert np.array_equal(found.shares, again.shares)


def test_no_policy_depends_on_the_order_of_jobs() -> None:
    """The objective is the same for any order of the jobs; X may differ in ties."""
    t = np.array([[4.0, 1.0], [3.0, 2.0], [8.0, 3.0]])
    steps, arrival = np.array([100.0, 50.0, 300.0]), np.array([2.0, 0.0, 1.0])
    for name in set(POLICIES) - {"random-packing"}:
        values = set()
        for order in permutations(range(3)):
            rows = list(order)
            asked = problem(
                t[rows], [1, 1], prices=[2, 1], steps=steps[rows], arrival=arrival[rows]
            )
            found = policy_named(name)(replace(asked, budget_usd=10.0))
            assert_valid(asked, found)
            values.add(round(found.objective, 6))
        assert len(values) == 1, name
