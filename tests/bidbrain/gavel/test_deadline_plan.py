"""Plans of many deadlines."""

from __future__ import annotations

import numpy as np
import pytest

from bidbrain.gavel.deadline_plan import DeadlineProgram
from bidbrain.gavel.min_cost_slo import min_cost_slo_policy
from tests.bidbrain.gavel.problems import assert_valid
from tests.bidbrain.gavel.test_deadline_packing import batch, colliding


@pytest.mark.parametrize(("count", "workers"), [(90, 2), (150, 8), (150, 90)])
def test_many_deadlines_are_planned_with_what_the_rest_would_take(count: int, workers: int) -> None:
    asked = colliding(np.random.default_rng(count + workers), count, workers)
    found = min_cost_slo_policy(asked)
    assert_valid(asked, found)
    assert found.hours is not None
    jobs = asked.jobs
    given_up = {
        m
        for m, name in enumerate(jobs.ids)
        for line in found.infeasible
        if line.startswith(f"job {name!r}:")
    }
    assert len(given_up) == len(found.infeasible)
    assert (len(given_up) > 0) == (workers < 90)
    kept = sorted(set(range(count)) - given_up)
    assert (found.hours.sum(axis=1)[kept] * 3600 <= jobs.slo_seconds[kept] * (1 + 1e-6)).all()
    assert (found.hours * 3600 * jobs.throughputs).sum(axis=1) == pytest.approx(
        jobs.steps.tolist(), rel=1e-5
    )
    if workers == 90:
        whole = batch(asked)
        assert found.cost_usd == pytest.approx(
            DeadlineProgram(whole, count).cheapest(np.arange(count)).usd, rel=0.02
        )
