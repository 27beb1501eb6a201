"""The cost policies against dense programs and hand-solved cases."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import linprog

from bidbrain.arrays import Floats
from bidbrain.gavel.linear import (
    makespan_within_budget_policy,
    max_throughput_policy,
    min_cost_policy,
)
from bidbrain.gavel.min_cost_slo import min_cost_slo_policy
from bidbrain.gavel.policies import Agnostic, Policy, policy_named
from bidbrain.gavel.problem import AllocationProblem, BadProblem
from bidbrain.lp import CannotHold
from tests.bidbrain.gavel.dense import Dense
from tests.bidbrain.gavel.problems import assert_valid, problem, random_problem, with_pairs


@pytest.mark.parametrize("seed", range(60))
def test_min_cost_and_max_throughput_are_optima_of_dense_programs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    asked = random_problem(rng)
    if seed % 3 == 0:
        asked = with_pairs(asked, rng)
    assert asked.cluster.usd_per_hour is not None
    prices: tuple[tuple[Policy, Floats], ...] = (
        (min_cost_policy, asked.cluster.usd_per_hour),
        (max_throughput_policy, np.ones(len(asked.cluster.types))),
    )
    for policy, price in prices:
        found = policy(asked)
        assert_valid(asked, found)
        dense = Dense(asked)
        per_price = dense.throughput / np.tile(price, dense.size // dense.n)
        alone = per_price[:, : dense.m * dense.n].max(axis=1, initial=0)
        best = np.where(alone > 0, alone, per_price.max(axis=1, initial=0))
        gain = (per_price / np.where(best > 0, best, 1)[:, None]).sum(axis=0)
        assert found.objective == pytest.approx(dense.maximum(gain) or 0.0, rel=1e-6, abs=1e-9)


def test_each_job_gets_time_where_it_is_cheapest_for_it() -> None:
    found = min_cost_policy(problem([[40, 10], [100, 60]], [2, 2], prices=[2, 1]))
    assert found.shares == pytest.approx(np.array([[1, 0], [0, 1]]))
    assert found.notes["sum_of_steps_per_dollar"] == pytest.approx(3600 * (40 / 2 + 60))


def over_all_intervals(asked: AllocationProblem, jobs: list[int]) -> float | None:
    """The least dollars, a variable for each (job, type, interval between deadlines); None if not
    all can be kept.
    """
    left = (asked.jobs.slo_seconds - asked.jobs.elapsed_seconds)[jobs]
    ends = np.unique(left)
    lengths = np.diff(np.concatenate([[0.0], ends]))
    m, n, k = len(jobs), len(asked.cluster.types), len(ends)
    t, scale, price = (
        asked.jobs.throughputs[jobs],
        asked.jobs.scale[jobs],
        asked.cluster.usd_per_hour,
    )
    assert price is not None
    allowed = (
        (t > 0)[:, :, None]
        & (left[:, None, None] >= ends)
        & (scale[:, None] <= asked.cluster.workers)[:, :, None]
    )
    job, kind, interval = np.nonzero(allowed)
    # Rows are the jobs' work, their time in each interval, and the workers of each type in each
    # interval.
    rows = np.concatenate([job, m + job * k + interval, m + m * k + kind * k + interval])
    work = -t[job, kind] / asked.jobs.steps[jobs][job]
    values = np.concatenate([work, 1 / lengths[interval], scale[job] / lengths[interval]])
    matrix = sparse.csr_array(
        (values, (rows, np.tile(np.arange(len(job)), 3))), shape=(m + m * k + n * k, len(job))
    )
    most = np.concatenate([-np.ones(m), np.ones(m * k), np.repeat(asked.cluster.workers, k)])
    found: Any = linprog(scale[job] * price[kind] / 3600, A_ub=matrix, b_ub=most, method="highs-ds")  # type: ignore[call-overload]
    assert found.status in {0, 2}
    return None if found.fun is None else float(found.fun)


def test_an_impossible_deadline_is_distinguished_from_a_crowded_out_one() -> None:
    found = min_cost_slo_policy(
        problem([[10, 1]], [1, 1], prices=[4, 1], steps=[3600], slo_seconds=[359])
    )
    (said,) = found.infeasible
    assert (
        "359 s are left, but alone on its fastest type it takes 360 s; set slo_seconds to at least "
        "360" in said
    )
    assert found.cost_usd == pytest.approx(4 * 0.1)


def test_deadlines_that_cannot_all_be_kept_are_given_up_one_by_one() -> None:
    asked = problem(
        [[1], [1], [1]], [1], prices=[1], steps=[100, 100, 100], slo_seconds=[150, 150, 1000]
    )
    found = min_cost_slo_policy(asked)
    assert len(found.infeasible) == 1
    assert "cannot be kept together with the others" in found.infeasible[0]
    assert "it lacks 0.0139 h on 't0': add workers, or give it 200 s or more" in found.infeasible[0]


def test_jobs_without_deadlines_use_the_remaining_workers() -> None:
    asked = problem(
        [[1, 3], [1, 2]], [1, 1], prices=[1, 1], steps=[300, 300], slo_seconds=[100, np.inf]
    )
    found = min_cost_slo_policy(asked)
    assert found.shares == pytest.approx(np.array([[0, 1], [1, 0]]), abs=1e-7)
    assert found.cost_usd == pytest.approx((100 + 150) / 3600)


@pytest.mark.parametrize("seed", range(40))
def test_makespan_within_budget_is_where_the_papers_bisection_ends(seed: int) -> None:
    rng = np.random.default_rng(seed)
    asked = random_problem(rng, holes=0)
    jobs, price = asked.jobs, asked.cluster.usd_per_hour
    assert price is not None
    dense = Dense(asked)
    work = np.where(dense.runs, jobs.steps, 0.0)
    hourly = np.tile(price, dense.m) * np.repeat(jobs.scale, dense.n)
    cost = np.array([b[1] is None for b in dense.bounds]) * hourly / 3600
    cheapest = 0.0
    for m in np.flatnonzero(dense.runs):
        usable = dense.throughput[m] > 0
        cheapest += work[m] * (cost[usable] / dense.throughput[m, usable]).min()
    budget = float(max(1e-9, cheapest) * rng.uniform(1.01, 3))
    found = makespan_within_budget_policy(replace(asked, budget_usd=budget))
    if not dense.runs.any():
        assert found.objective == 0
        return
    assert_valid(asked, found)
    assert found.cost_usd is not None
    assert found.cost_usd <= budget * (1 + 1e-6)

    def possible(span: float) -> bool:
        rows = np.vstack(
            [-dense.throughput[dense.runs] * span / work[dense.runs, None], cost * span / budget]
        )
        return (
            dense.maximum(np.zeros(dense.size), rows, np.append(-np.ones(dense.runs.sum()), 1.0))
            is not None
        )

    assert possible(found.objective * (1 + 1e-5))
    assert not possible(found.objective * (1 - 1e-4))


def test_within_a_budget_short_jobs_finish_next_to_a_very_long_one() -> None:
    """Twelve decades between the jobs: the plan still includes the short ones."""
    asked = problem(
        [[1e6, 1], [1, 1e6], [1e-4, 1e-3]], [1, 1], prices=[1, 1], steps=[1e3, 1e4, 1e9]
    )
    found = makespan_within_budget_policy(replace(asked, budget_usd=1e12))
    assert found.objective == pytest.approx(1e9 / 1e-3)
    assert found.hours is not None
    done = (found.hours * 3600 * asked.jobs.throughputs).sum(axis=1)
    assert done == pytest.approx(asked.jobs.steps, rel=1e-6)
    assert found.effective_throughput * found.objective == pytest.approx(asked.jobs.steps, rel=1e-6)


def test_a_batch_without_steps_costs_nothing() -> None:
    found = makespan_within_budget_policy(
        replace(problem([[1]], [1], prices=[1], steps=[0]), budget_usd=1.0)
    )
    assert (found.objective, found.cost_usd) == (0.0, 0.0)
    assert found.hours is not None
    assert not found.hours.any()


def test_fairness_weights_do_not_affect_policies_that_maximize_a_sum() -> None:
    """The paper's objectives have no weights there."""
    for policy in (min_cost_policy, max_throughput_policy):
        plain, heavy = (
            problem([[4, 1], [4, 2]], [1, 1], prices=[1, 1], weight=[w, 1]) for w in (1, 9)
        )
        assert policy(plain).objective == policy(heavy).objective == pytest.approx(1.5)


def test_an_insufficient_budget_is_refused_with_the_least_cost() -> None:
    asked = replace(problem([[1, 2]], [1, 1], prices=[1, 4], steps=[3600]), budget_usd=0.5)
    with pytest.raises(CannotHold, match=r"budget_usd: 0\.5 is too low: .* at least 1 dollars"):
        makespan_within_budget_policy(asked)


@pytest.mark.parametrize("name", ["min-cost", "min-cost-slo", "makespan-within-budget"])
def test_missing_prices_are_refused(name: str) -> None:
    with pytest.raises(BadProblem, match="prices: missing"):
        policy_named(name)(replace(problem([[1]], [1]), budget_usd=1.0))
    with pytest.raises(BadProblem, match=r"prices\.t0: 0 is not a price"):
        policy_named(name)(replace(problem([[1]], [1], prices=[0]), budget_usd=1.0))


def test_a_missing_budget_is_refused() -> None:
    with pytest.raises(BadProblem, match="budget_usd: missing"):
        makespan_within_budget_policy(problem([[1]], [1], prices=[1]))


def test_agnostic_cost_policies_pay_real_time() -> None:
    asked = problem(
        [[1, 3], [1, 2]], [1, 3], prices=[1, 2], steps=[300, 300], slo_seconds=[900, np.inf]
    )
    for policy in (min_cost_policy, min_cost_slo_policy):
        assert_valid(asked, Agnostic(policy)(asked))
