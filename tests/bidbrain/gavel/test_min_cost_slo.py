"""The least cost at which deadlines are kept."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bidbrain.gavel.min_cost_slo import min_cost_slo_policy
from bidbrain.gavel.problem import AllocationProblem
from tests.bidbrain.gavel.problems import assert_valid, problem
from tests.bidbrain.gavel.test_linear_cost import over_all_intervals


def hurried(rng: np.random.Generator) -> AllocationProblem:
    """Jobs with deadlines, tight and loose, on few workers."""
    count = int(rng.integers(1, 8))
    t = 10 ** rng.uniform(-1, 1, (count, 3)) * (rng.random((count, 3)) > 0.1)
    t[:, 0] = np.maximum(t[:, 0], 0.1)
    steps = 10 ** rng.uniform(2, 4, count)
    slack = rng.uniform(0.8, 6, count)
    return problem(
        t,
        rng.integers(1, 4, 3),
        prices=rng.uniform(0.2, 3, 3),
        steps=steps,
        slo_seconds=np.where(rng.random(count) < 0.8, slack * steps / t.max(axis=1), np.inf),
        elapsed_seconds=np.zeros(count),
    )


@pytest.mark.parametrize("seed", range(80))
def test_min_cost_slo_is_the_optimum_over_all_intervals(seed: int) -> None:
    asked = hurried(np.random.default_rng(seed))
    found = min_cost_slo_policy(asked)
    assert_valid(asked, found)
    assert found.hours is not None
    jobs, price = asked.jobs, asked.cluster.usd_per_hour
    assert price is not None
    # Every job is done, on one type at a time, before a deadline that is kept.
    assert (found.hours * 3600 * jobs.throughputs).sum(axis=1) == pytest.approx(
        jobs.steps.tolist(), rel=1e-5
    )
    given_up = {
        m
        for m, name in enumerate(jobs.ids)
        for line in found.infeasible
        if line.startswith(f"job {name!r}:")
    }
    kept = [
        m for m in range(len(jobs.ids)) if np.isfinite(jobs.slo_seconds[m]) and m not in given_up
    ]
    assert (found.hours.sum(axis=1)[kept] * 3600 <= jobs.slo_seconds[kept] * (1 + 1e-6)).all()
    least = over_all_intervals(asked, kept) if kept else 0.0
    assert least is not None
    free = [m for m in range(len(jobs.ids)) if m not in kept]
    with np.errstate(divide="ignore"):
        cheapest = (
            jobs.scale[:, None] * price / 3600 * jobs.steps[:, None] / jobs.throughputs
        ).min(axis=1)
    assert found.cost_usd == pytest.approx(least + cheapest[free].sum(), rel=2e-6)
    # No deadline was given up that could have been kept together with the others.
    for m in given_up:
        assert over_all_intervals(asked, sorted([*kept, m])) is None


@pytest.mark.parametrize("seed", range(60))
def test_over_twelve_decades_of_prices_the_cost_is_the_least(seed: int) -> None:
    """One type costs up to a trillion times as much as the whole plan."""
    rng = np.random.default_rng(seed)
    asked = hurried(rng)
    cluster, jobs = asked.cluster, asked.jobs
    prices = 10 ** rng.uniform(-6, 6, len(cluster.types))
    slo = jobs.steps / jobs.throughputs.max(axis=1) * rng.uniform(1, 4, len(jobs.ids))
    asked = replace(
        asked, cluster=replace(cluster, usd_per_hour=prices), jobs=replace(jobs, slo_seconds=slo)
    )
    found = min_cost_slo_policy(asked)
    assert found.cost_usd is not None
    if found.infeasible:
        return
    # In units of the plan, so that the other solver can tell small costs from zero.
    in_units = replace(asked, cluster=replace(cluster, usd_per_hour=prices / found.cost_usd))
    assert over_all_intervals(in_units, list(range(len(jobs.ids)))) == pytest.approx(1.0, rel=1e-5)


def test_only_the_passed_deadline_is_given_up_and_reported_with_what_it_would_take() -> None:
    asked = problem(
        [[10, 1], [10, 1]],
        [1, 1],
        prices=[4, 1],
        steps=[3600, 3600],
        slo_seconds=[1000, 4000],
        elapsed_seconds=[1200, 0],
    )
    found = min_cost_slo_policy(asked)
    assert len(found.infeasible) == 1
    assert "job 'j0': its deadline cannot be kept: -200 s are left" in found.infeasible[0]
    assert "set slo_seconds to at least 1560" in found.infeasible[0]
    assert found.hours is not None
    # 3600 steps in 4000 s: on t1 as long as that leaves time for the rest on t0, where a step costs
    # the same or less.
    assert found.hours[1].sum() * 3600 <= 4000 * (1 + 1e-9)
