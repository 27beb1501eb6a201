"""The properties that the dissertation proves of its policies (section 5.4.4), on random
problems."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from bidbrain.gavel.baselines import isolated_policy
from bidbrain.gavel.fairness import (
    finish_time_fairness_policy,
    makespan_policy,
    max_min_fairness_policy,
)
from bidbrain.gavel.hierarchical import hierarchical_policy
from bidbrain.gavel.linear import fifo_policy, max_throughput_policy
from bidbrain.gavel.policies import POLICIES, Agnostic, policy_named
from tests.bidbrain.gavel.dense import Dense
from tests.bidbrain.gavel.problems import assert_valid, problem, random_problem, with_pairs

seeds = st.integers(0, 2**32 - 1)
SLACK = 1 + 1e-6


@given(seeds)
@settings(max_examples=60)
def test_sharing_incentive(seed: int) -> None:
    """Each policy's objective is at least as good as with 1/n of each type for every job."""
    asked = random_problem(np.random.default_rng(seed), holes=0)
    alone = isolated_policy(asked)
    assert max_min_fairness_policy(asked).objective * SLACK >= alone.objective
    runs = alone.effective_throughput > 0
    if not runs.any():
        return
    slowest = (asked.jobs.steps[runs] / alone.effective_throughput[runs]).max()
    assert makespan_policy(asked).objective <= slowest * SLACK
    assert finish_time_fairness_policy(asked).objective <= SLACK
    best = np.where(
        runs,
        (asked.jobs.throughputs * (asked.jobs.scale[:, None] <= asked.cluster.workers)).max(axis=1),
        1,
    )
    weight = len(runs) - asked.jobs.arrival
    assert (
        fifo_policy(asked).objective * SLACK
        >= (weight * alone.effective_throughput / best)[runs].sum()
    )


@given(seeds)
@settings(max_examples=60)
def test_colocation_is_never_worse(seed: int) -> None:
    rng = np.random.default_rng(seed)
    asked = random_problem(rng, holes=0)
    shared = with_pairs(asked, rng)
    for policy, sign in (
        (max_min_fairness_policy, 1),
        (max_throughput_policy, 1),
        (fifo_policy, 1),
        (makespan_policy, -1),
    ):
        apart, together = policy(asked), policy(shared)
        assert_valid(shared, together)
        assert sign * together.objective >= sign * apart.objective - 1e-6 * abs(apart.objective)


@given(seeds)
@settings(max_examples=40)
def test_water_filling_and_max_min_are_pareto_efficient(seed: int) -> None:
    """No job can have more unless another has less."""
    asked = random_problem(np.random.default_rng(seed), spread=1.5)
    for policy in (hierarchical_policy, max_min_fairness_policy):
        found = policy(asked)
        dense = Dense(asked)
        runs = found.effective_throughput > 0
        if not runs.any():
            continue
        best = dense.throughput.max(axis=1)[runs]
        floor = found.effective_throughput[runs] / best * (1 - 1e-9)
        total = (dense.throughput[runs] / best[:, None]).sum(axis=0)
        most = dense.maximum(total, -dense.throughput[runs] / best[:, None], -floor)
        assert most is not None
        # Even if each job keeps what it has, the total cannot grow. The tolerance is that of a
        # level, 1e-7, times the exchange rate between one job's progress and another's.
        assert most <= (found.effective_throughput[runs] / best).sum() + 1e-3


@given(seeds)
@settings(max_examples=40)
def test_on_identical_workers_policies_reduce_to_the_classic_ones(seed: int) -> None:
    """With one type, shares do not depend on throughputs, and the agnostic form loses nothing."""
    rng = np.random.default_rng(seed)
    count, workers = int(rng.integers(1, 8)), int(rng.integers(1, 6))
    asked = problem(
        10 ** rng.uniform(-3, 3, (count, 1)), [workers], weight=rng.choice([1.0, 2.0], count)
    )
    alike = replace(asked, jobs=replace(asked.jobs, throughputs=np.ones((count, 1))))
    for policy in (max_min_fairness_policy, hierarchical_policy):
        x = policy(asked).shares
        assert x == pytest.approx(policy(alike).shares, abs=1e-5)
        assert Agnostic(policy)(asked).shares == pytest.approx(x, abs=1e-5)
    level = max_min_fairness_policy(asked).objective
    assert level == pytest.approx(
        min(workers / asked.jobs.weight.sum(), 1 / asked.jobs.weight.max())
    )


@given(seeds, st.sampled_from(sorted(set(POLICIES) - {"allox"})), st.booleans())
@example(seed=360, name="hierarchical", agnostic=False)
@settings(max_examples=120)
def test_every_allocation_is_valid(seed: int, name: str, agnostic: bool) -> None:
    rng = np.random.default_rng(seed)
    asked = with_pairs(random_problem(rng, spread=float(rng.choice([1, 9, 18]))), rng)
    slo = (
        asked.jobs.steps
        / np.maximum(asked.jobs.throughputs.max(axis=1), 1e-9)
        * rng.uniform(0.5, 9, len(asked.jobs.ids))
    )
    asked = replace(asked, budget_usd=1e15, jobs=replace(asked.jobs, slo_seconds=slo))
    found = policy_named(name, agnostic=agnostic)(asked)
    assert_valid(asked, found)
    assert np.isfinite(found.objective)
    assert np.isfinite(found.effective_throughput).all()
