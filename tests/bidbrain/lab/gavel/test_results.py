"""Results of a simulated cluster."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from bidbrain.gavel.problem import Cluster
from bidbrain.lab.gavel.dispatch import ByShares
from bidbrain.lab.gavel.engine import simulate
from bidbrain.lab.gavel.results import finish_time_fairness, job_results, summarize
from bidbrain.lab.gavel.workload import ClusterSimulation
from tests.bidbrain.gavel.clusters import (
    Whim,
    integrated_fairness,
    random_scenario,
    scenario,
    workload,
)
from tests.bidbrain.lab.gavel.test_dispatch import play


@given(seed=st.integers(0, 10**6))
@settings(max_examples=25)
def test_finish_time_fairness_equals_a_walk_through_time(seed: int) -> None:
    asked = random_scenario(seed, sharing=False)
    outcome = simulate(asked, ByShares(asked, Whim()))
    walked = integrated_fairness(asked, outcome.finish, outcome.end, 2.0)
    found = finish_time_fairness(outcome)[list(asked.measured)]
    jct = (outcome.finish - asked.workload.arrival)[list(asked.measured)]
    # A step of the walk is two seconds, so every event may be off by that.
    slack = 2.0 * (4 + 2 * len(asked.workload.names))
    assert np.abs(jct / found - jct / np.array(walked)).max() <= slack


def test_results_per_job_and_in_total() -> None:
    work = workload([[1.0, 2.0], [1.0, 0.0]], [3600, 7200], scale=[1, 2], arrival=[0, 3600])
    work = replace(work, slo_factor=np.array([1.5, np.inf]))
    cluster = Cluster(("a", "b"), np.array([2.0, 1.0]), np.array([0.5, 3.0]))
    asked = ClusterSimulation(work, cluster, range(2))
    outcome = play(asked)
    first, second = job_results(outcome)
    assert (first.jct_seconds, first.slo_seconds, first.slo_met, first.moves) == (
        1800,
        2700,
        True,
        0,
    )
    assert (second.jct_seconds, second.slo_seconds, second.slo_met) == (7200, None, None)
    assert (first.cost_usd, second.cost_usd) == pytest.approx((1.5, 2.0))
    found = summarize(outcome)
    assert (found.average_jct_seconds, found.makespan_seconds, found.slo_violations) == (
        4500,
        10800,
        0,
    )
    assert found.cost_usd == pytest.approx(3.5)
    assert found.utilization == pytest.approx((1800 + 2 * 7200) / (3 * 10800))
    late = replace(
        asked,
        workload=replace(work, slo_factor=np.array([0.9, 0.9])),
        cluster=replace(cluster, usd_per_hour=None),
    )
    strict = summarize(play(late))
    assert (strict.slo_violations, strict.cost_usd) == (2, None)


def test_only_measured_jobs_count_and_the_simulation_ends_with_them() -> None:
    asked = replace(
        scenario(workload([[1.0]] * 4, [360, 720, 360, 99999]), [4]), measured=range(1, 3)
    )
    outcome = play(asked)
    assert [result.job for result in job_results(outcome)] == ["1", "2"]
    assert summarize(outcome).average_jct_seconds == 540
    assert np.isinf(outcome.finish[3])
    assert outcome.end == 720
