"""Plans of many colliding deadlines against enumerated subsets, each decided by a dense program
over all intervals.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from bidbrain.gavel.deadline_packing import FreeTime, lateness, packed
from bidbrain.gavel.deadline_plan import DeadlineBatch, near_cheapest
from bidbrain.gavel.min_cost_slo import min_cost_slo_policy
from bidbrain.gavel.problem import AllocationProblem
from tests.bidbrain.gavel.problems import assert_valid, problem
from tests.bidbrain.gavel.test_linear_cost import over_all_intervals


def colliding(rng: np.random.Generator, count: int, workers: int) -> AllocationProblem:
    """Jobs that meet their deadlines alone, but not together."""
    t = rng.uniform(1, 10, (count, 1)) * rng.uniform(0.2, 1, (count, 2))
    steps = 10 ** rng.uniform(3, 4.5, count)
    slo = steps / t.max(axis=1) * rng.uniform(1.1, 6, count)
    scale = rng.choice([1, 1, 2], count)
    return problem(
        t, [workers, workers + 1], prices=[1, 3], steps=steps, slo_seconds=slo, scale=scale
    )


def batch(asked: AllocationProblem) -> DeadlineBatch:
    jobs, cluster = asked.jobs, asked.cluster
    assert cluster.usd_per_hour is not None
    alone = np.where(
        jobs.scale[:, None] <= cluster.workers, jobs.steps[:, None] / jobs.throughputs, np.inf
    )
    scale = jobs.scale.astype(np.float64)
    return DeadlineBatch(
        jobs.ids,
        jobs.slo_seconds,
        alone,
        scale,
        cluster.types,
        cluster.workers,
        cluster.usd_per_hour / 3600,
    )


def most_kept(asked: AllocationProblem) -> int:
    """The largest number of deadlines that can be kept together."""
    jobs = range(len(asked.jobs.ids))
    sizes = range(len(jobs), 0, -1)
    return next(
        (
            n
            for n in sizes
            if any(
                over_all_intervals(asked, list(kept)) is not None for kept in combinations(jobs, n)
            )
        ),
        0,
    )


@pytest.mark.parametrize("seed", range(25))
def test_plans_are_possible_and_nearly_the_best(seed: int) -> None:
    rng = np.random.default_rng(seed)
    asked = colliding(rng, int(rng.integers(4, 8)), 2)
    whole = batch(asked)
    (late, price, least_usd), best = lateness(whole), most_kept(asked)
    # Never fewer than can be kept, nor more dollars than all cost: these are bounds.
    assert len(whole.left) - late.sum() >= best - 1e-6
    if not late.any():
        assert least_usd <= near_cheapest(whole, 0.0).usd * (1 + 1e-9)
    kept, plan, done = packed(whole, late, price)
    assert best - 1 <= len(kept) <= best
    assert (done[kept] == 1).all()
    assert (plan.seconds / whole.alone[kept]).sum(axis=1) == pytest.approx(
        np.ones(len(kept)), rel=1e-6
    )
    assert (plan.seconds.sum(axis=1) <= whole.left[kept] * (1 + 1e-9)).all()
    least = over_all_intervals(asked, kept.tolist())
    assert least is not None
    assert plan.usd >= least * (1 - 1e-6)
    assert (plan.rates.sum(axis=1) <= 1 + 1e-9).all()
    assert (whole.scale[kept] @ plan.rates <= whole.workers + 1e-9).all()


def test_over_many_seeds_hardly_a_deadline_is_given_up_needlessly() -> None:
    lost = deadlines = 0
    for seed in range(100, 140):
        asked = colliding(np.random.default_rng(seed), 6, 2)
        whole = batch(asked)
        lost += most_kept(asked) - len(packed(whole, *lateness(whole)[:2])[0])
        deadlines += 6
    assert lost <= 0.02 * deadlines


@pytest.mark.parametrize(("count", "workers"), [(66, 12), (80, 12), (110, 18)])
def test_no_plan_of_a_hundred_deadlines_costs_less(count: int, workers: int) -> None:
    asked = colliding(np.random.default_rng([count, 8]), count, workers)
    found = min_cost_slo_policy(asked)
    assert_valid(asked, found)
    assert (found.infeasible, found.exact) == ((), True)
    assert found.cost_usd == pytest.approx(over_all_intervals(asked, list(range(count))), rel=2e-6)


@pytest.mark.parametrize("count", [30, 70])
def test_the_plan_costs_little_more_than_the_exact_one(count: int) -> None:
    whole = batch(colliding(np.random.default_rng(count), count, count // 5))
    kept, plan, _ = packed(whole, *lateness(whole)[:2])
    assert len(kept) == count
    assert (
        near_cheapest(whole, 0.0).usd * (1 - 1e-6)
        <= plan.usd
        <= near_cheapest(whole, 0.0).usd * 1.1
    )


def test_jobs_that_did_not_fit_are_tried_again_by_exact_programs() -> None:
    """Where jobs were placed one by one, moving others makes room for more."""
    more = 0
    for seed in range(4):
        asked = colliding(np.random.default_rng([seed, 7]), 80, 2)
        placed, _, _ = packed(batch(asked), *lateness(batch(asked))[:2])
        answer = min_cost_slo_policy(asked)
        kept = len(asked.jobs.ids) - len(answer.infeasible)
        assert kept >= len(placed)
        more += kept - len(placed)
        assert_valid(asked, answer)
    assert more >= 2


def test_free_time_is_the_same_after_a_job_was_put_and_taken_out() -> None:
    whole = batch(colliding(np.random.default_rng(0), 6, 2))
    time = FreeTime(whole, np.sort(whole.left))
    before = time.free.copy()
    for m in range(6):
        seconds = time.put(m, whole.usd_per_second)
        assert seconds is not None
        assert (time.free < before - 1e-9).any()
        time.take_out(m, seconds)
        assert time.free == pytest.approx(before)


def test_a_job_that_does_not_fit_changes_nothing() -> None:
    whole = batch(problem([[1.0], [1.0]], [1], prices=[1], steps=[80, 80], slo_seconds=[100, 100]))
    time = FreeTime(whole, np.array([100.0]))
    assert time.put(0, whole.usd_per_second) is not None
    before = time.free.copy()
    assert time.put(1, whole.usd_per_second) is None
    assert (time.free == before).all()
    assert time.most_done(np.array([1])) == pytest.approx([0.25])
