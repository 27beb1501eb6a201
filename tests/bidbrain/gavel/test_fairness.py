"""The max-min policies against dense programs, by hand, and from call to call."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bidbrain.gavel.baselines import isolated_shares
from bidbrain.gavel.fairness import (
    finish_time_fairness_policy,
    makespan_policy,
    max_min_fairness_policy,
)
from bidbrain.gavel.policies import Agnostic, Policy
from bidbrain.gavel.problem import AllocationProblem
from tests.bidbrain.gavel.dense import Dense, equal_share
from tests.bidbrain.gavel.problems import assert_valid, problem, random_problem, with_pairs

SEEDS = range(100)


def test_the_published_three_jobs() -> None:
    found = max_min_fairness_policy(problem([[40, 10], [12, 4], [100, 50]], [1, 1]))
    assert found.shares == pytest.approx(
        np.array([[0.4545, 0], [0.4545, 0.0909], [0.0909, 0.9091]]), abs=1e-4
    )
    assert found.effective_throughput == pytest.approx([18.1818, 5.8182, 54.5455], abs=1e-3)


def test_weights_and_scales_share_one_type_in_proportion() -> None:
    found = max_min_fairness_policy(
        problem([[7], [7], [7]], [2], weight=[1, 2, 1], scale=[1, 1, 2])
    )
    # scale / w x is equal: x = z, 2 z, z / 2, and z + 2 z + 2 z / 2 = 2.
    assert found.shares.ravel() == pytest.approx([0.5, 1.0, 0.25])


@pytest.mark.parametrize("seed", SEEDS)
def test_max_min_fairness_is_the_optimum_of_a_dense_program(seed: int) -> None:
    rng = np.random.default_rng(seed)
    asked = random_problem(rng)
    if seed % 3 == 0:
        asked = with_pairs(asked, rng)
    found = max_min_fairness_policy(asked)
    assert_valid(asked, found)
    need = asked.jobs.weight * equal_share(asked) / asked.jobs.scale
    assert found.objective == pytest.approx(Dense(asked, extra=1).least(need), rel=1e-6)
    runs = need > 0
    if runs.any():
        assert (found.effective_throughput[runs] / need[runs]).min() == pytest.approx(
            found.objective, rel=1e-6
        )


@pytest.mark.parametrize("seed", SEEDS)
def test_makespan_is_the_optimum_of_a_dense_program(seed: int) -> None:
    rng = np.random.default_rng(1000 + seed)
    asked = random_problem(rng)
    if seed % 3 == 0:
        asked = with_pairs(asked, rng)
    found = makespan_policy(asked)
    assert_valid(asked, found)
    rate = Dense(asked, extra=1).least(asked.jobs.steps)
    assert found.objective == pytest.approx(1 / rate if rate else 0.0, rel=1e-6)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("policy", [makespan_policy, finish_time_fairness_policy])
def test_jobs_with_very_different_needs_all_get_their_level(policy: Policy, seed: int) -> None:
    """Nine decades between the steps of the jobs: the smallest job is done in time as well."""
    rng = np.random.default_rng(4000 + seed)
    asked = random_problem(rng)
    asked = replace(
        asked, jobs=replace(asked.jobs, steps=10 ** rng.uniform(0, 9, len(asked.jobs.ids)))
    )
    if seed % 3 == 0:
        asked = with_pairs(asked, rng)
    found, runs = policy(asked), Dense(asked).runs
    assert_valid(asked, found)
    jobs, alone = asked.jobs, (asked.jobs.throughputs * isolated_shares(asked)).sum(axis=1)
    left = jobs.steps[runs] / found.effective_throughput[runs]
    past = jobs.elapsed_seconds[runs]
    rho = (past + left) / (past + jobs.steps[runs] / alone[runs])
    missed = (left if policy is makespan_policy else rho).max(initial=0.0)
    assert missed <= found.objective * (1 + 1e-6)


@pytest.mark.sampled(15)
@pytest.mark.parametrize("seed", range(40))
def test_finish_time_fairness_is_where_a_bisection_ends(seed: int) -> None:
    asked = random_problem(np.random.default_rng(2000 + seed))
    found = finish_time_fairness_policy(asked)
    assert_valid(asked, found)
    dense = Dense(asked, extra=1)
    if not dense.runs.any():
        assert found.objective == 0
        return
    jobs = asked.jobs
    isolated = jobs.elapsed_seconds + jobs.steps / np.where(
        dense.runs, (jobs.throughputs * isolated_shares(asked)).sum(axis=1), 1.0
    )
    low, high = (jobs.elapsed_seconds / isolated)[dense.runs].max(), 1e3
    for _ in range(60):
        rho = (low + high) / 2
        need = np.where(
            dense.runs, jobs.steps / np.maximum(rho * isolated - jobs.elapsed_seconds, 1e-300), 0.0
        )
        low, high = (low, rho) if dense.least(need) >= 1 else (rho, high)
    assert found.objective == pytest.approx(high, rel=1e-6)


@pytest.mark.parametrize("seed", range(60))
def test_no_plan_has_a_smaller_finish_time_ratio_where_jobs_do_not_run_everywhere(
    seed: int,
) -> None:
    """The share that a job is compared with is 1/n of every type, also of those on which it has no
    throughput.
    """
    rng = np.random.default_rng(3000 + seed)
    asked = random_problem(rng, holes=float(rng.choice([0.3, 0.5])), most_jobs=14)
    workers = rng.integers(0, 20, len(asked.cluster.types)).astype(np.float64)
    asked = replace(asked, cluster=replace(asked.cluster, workers=workers))
    dense, jobs = Dense(asked, extra=1), asked.jobs
    if not dense.runs.any():
        return
    part = workers / len(jobs.ids) / jobs.scale[:, None]
    part /= np.maximum(1.0, part.sum(axis=1))[:, None]
    alone = (jobs.throughputs * part * (jobs.scale[:, None] <= workers)).sum(axis=1)
    isolated = jobs.elapsed_seconds + jobs.steps / np.where(dense.runs, alone, 1.0)
    found = finish_time_fairness_policy(asked)
    left = jobs.steps[dense.runs] / found.effective_throughput[dense.runs]
    rho = float(((jobs.elapsed_seconds[dense.runs] + left) / isolated[dense.runs]).max())
    assert rho == pytest.approx(found.objective, rel=1e-6)
    less = np.where(dense.runs, rho * (1 - 1e-6) * isolated - jobs.elapsed_seconds, 1.0)
    assert less.min() <= 0 or dense.least(np.where(dense.runs, jobs.steps / less, 0.0)) < 1


def test_finish_time_fairness_slows_no_job_down_on_identical_workers() -> None:
    found = finish_time_fairness_policy(problem([[2], [3], [5]], [3], steps=[10, 20, 30]))
    assert found.objective == pytest.approx(1.0)


@pytest.mark.parametrize("count", [63, 64, 150])
def test_many_jobs_have_the_optimum_and_leave_no_worker_idle(count: int) -> None:
    rng = np.random.default_rng(3)
    t = rng.uniform(1, 10, (count, 1)) * np.sort(rng.uniform(0.2, 1, (count, 3)), axis=1)
    for workers in ([40, 40, 40], [200, 200, 200], [30, 60, 300]):
        asked = problem(t, workers)
        found = max_min_fairness_policy(asked)
        assert_valid(asked, found)
        dense = Dense(asked, extra=1)
        assert found.objective == pytest.approx(dense.least(equal_share(asked)), rel=1e-7)
        assert found.shares.sum() == pytest.approx(min(count, sum(workers)))


def test_capacity_left_by_the_bottleneck_is_distributed() -> None:
    """One job can use only the slow type: the others are not held at its level."""
    asked = problem([[0, 1], [10, 1], [10, 1]], [2, 1])
    found = max_min_fairness_policy(asked)
    assert found.shares[1:].sum() == pytest.approx(2.0)


LIFTING: list[Policy] = [
    max_min_fairness_policy,
    makespan_policy,
    finish_time_fairness_policy,
    Agnostic(max_min_fairness_policy),
]


@pytest.mark.parametrize("policy", LIFTING)
class TestDegenerate:
    def test_a_job_that_fits_nowhere_is_named_and_the_others_have_their_optimum(
        self, policy: Policy
    ) -> None:
        asked = problem(
            [[1.0, 2.0], [0.0, 0.0], [3.0, 1.0], [1.0, 1.0]], [2, 2], scale=[1, 1, 1, 4]
        )
        found = policy(asked)
        assert [line.split(" runs ")[0] for line in found.infeasible] == ["job 'j1'", "job 'j3'"]
        assert "add 't0' workers or lower its scale" in found.infeasible[1]
        assert found.shares[[1, 3]].sum() == 0
        assert found.objective > 0
        assert found.shares[[0, 2]].sum() == pytest.approx(2.0)

    def test_no_workers_and_no_jobs(self, policy: Policy) -> None:
        none = policy(problem([[1.0, 2.0]], [0, 0]))
        assert (none.objective, none.shares.sum(), len(none.infeasible)) == (0.0, 0.0, 1)
        empty = policy(problem(np.zeros((0, 2)), [1, 1]))
        assert empty.shares.shape == (0, 2)

    def test_identical_jobs_get_the_same(self, policy: Policy) -> None:
        found = policy(problem([[3.0, 1.0]] * 5, [1, 2]))
        assert found.effective_throughput == pytest.approx(
            np.full(5, found.effective_throughput[0])
        )

    def test_throughputs_over_nine_decades(self, policy: Policy) -> None:
        asked = problem([[1e9, 1.0], [1.0, 1e9], [1e-3, 1e6]], [1, 1], steps=[1e9, 1e9, 1e6])
        assert_valid(asked, policy(asked))


def test_agnostic_policies_see_neither_type_nor_speed() -> None:
    asked = problem([[40, 10], [12, 4], [100, 50]], [1, 3])
    found = Agnostic(max_min_fairness_policy)(asked)
    assert_valid(asked, found)
    assert found.shares == pytest.approx(np.array([[0.25, 0.75]] * 3))
    assert found.effective_throughput == pytest.approx(
        (asked.jobs.throughputs @ [0.25, 0.75]).tolist()
    )


def test_time_since_the_start_counts_for_finish_times() -> None:
    base = problem([[1], [1]], [1], steps=[100, 100])
    late: AllocationProblem = replace(
        base,
        jobs=replace(base.jobs, elapsed_seconds=np.array([200.0, 0]), isolated_seconds=np.zeros(2)),
    )
    found = finish_time_fairness_policy(late)
    # (200 + 100 / x) / 200 = (100 / (1 - x)) / 200 where 2 x^2 = 1.
    assert found.shares[:, 0] == pytest.approx([np.sqrt(0.5), 1 - np.sqrt(0.5)], abs=1e-6)
