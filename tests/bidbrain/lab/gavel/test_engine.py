"""Rounds: time, steps and accounts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from bidbrain.arrays import Floats, Ints
from bidbrain.lab.gavel.dispatch import ByShares, InOrder
from bidbrain.lab.gavel.engine import simulate
from bidbrain.lab.gavel.results import utilization
from bidbrain.lab.gavel.rounds import RoundCandidates
from bidbrain.lab.gavel.workload import BadWorkload, ClusterSimulation
from tests.bidbrain.gavel.clusters import (
    Whim,
    random_scenario,
    scenario,
    workload,
)
from tests.bidbrain.lab.gavel.test_dispatch import play

ROUND = 360.0


def test_a_job_alone_takes_its_steps_over_its_throughput() -> None:
    outcome = play(scenario(workload([[2.0]], [7210]), [1]))
    assert outcome.finish.tolist() == [3605]
    assert len(outcome.round_start) == 11
    assert utilization(outcome) == 1


def test_a_job_does_whole_steps_and_the_round_ends_with_them() -> None:
    """At 0.011 steps per second three fit into a round, in 273 seconds; at 0.001 one takes almost
    three rounds.
    """
    outcome = play(scenario(workload([[0.011], [0.001]], [7, 1]), [2]))
    assert outcome.finish == pytest.approx([1000 + 4 / 0.011, 1000])
    assert outcome.round_end == pytest.approx([1000, 1000 + 3 / 0.011, 1000 + 4 / 0.011])


def test_two_jobs_on_one_worker_take_turns() -> None:
    outcome = play(scenario(workload([[1.0], [1.0]], [720, 720]), [1]))
    assert outcome.finish.tolist() == [3 * ROUND, 4 * ROUND]
    assert outcome.moves.tolist() == [1, 1]


def test_moving_costs_the_time_of_a_checkpoint() -> None:
    """The same two jobs, 10 seconds at each return: 350 steps in those rounds, and the last ones in
    one more round.
    """
    asked = scenario(workload([[1.0], [1.0]], [720, 720]), [1], checkpoint_seconds=10)
    outcome = play(asked)
    # Rounds: 0, 1, 0 after a move, 1 after a move, then the last 10 steps of each, the second's
    # after 10 seconds more.
    assert sorted(outcome.finish.tolist()) == [4 * ROUND + 20, 4 * ROUND + 40]
    assert play(scenario(workload([[1.0]], [720]), [1], checkpoint_seconds=10)).finish.tolist() == [
        720
    ]


class Watched:
    """A dispatcher that checks its every decision."""

    def __init__(self, inner: ByShares | InOrder, asked: ClusterSimulation) -> None:
        self.inner, self.asked = inner, asked
        self.patience = inner.patience
        self.allocations = 0

    def dispatch(
        self, now: float, active: Ints, steps_left: Floats, *, changed: bool
    ) -> RoundCandidates:
        chosen = self.inner.dispatch(now, active, steps_left, changed=changed)
        self.allocations = self.inner.allocations
        held = np.bincount(chosen.type, chosen.scale, len(self.asked.cluster.types))
        assert (held <= self.asked.cluster.workers).all()
        jobs = [m for m in [*chosen.first.tolist(), *chosen.second.tolist()] if m >= 0]
        assert len(jobs) == len(set(jobs))
        assert set(jobs) <= set(active.tolist())
        assert (self.asked.workload.arrival[jobs] <= now).all()
        assert (steps_left[jobs] > 0).all()
        return chosen

    def book_round(self, seconds: Floats, finished: Ints) -> None:
        self.inner.book_round(seconds, finished)


@given(seed=st.integers(0, 10**6), sharing=st.booleans(), queue=st.booleans())
@settings(max_examples=60)
def test_no_round_holds_too_many_workers_or_a_job_twice(
    seed: int, sharing: bool, queue: bool
) -> None:
    asked = random_scenario(seed, sharing=sharing and not queue)
    inner = InOrder(asked) if queue else ByShares(asked, Whim())
    outcome = simulate(asked, Watched(inner, asked))
    assert np.isfinite(outcome.finish[list(asked.measured)]).all()
    alone = asked.workload.alone_seconds()
    jct = (outcome.finish - asked.workload.arrival)[list(asked.measured)]
    assert (jct >= alone[list(asked.measured)] * (1 - 1e-9)).all()
    assert 0 < utilization(outcome) <= 1 + 1e-9


def test_impossible_simulations_are_refused() -> None:
    with pytest.raises(BadWorkload, match=r"job 1 \(kind 1, 4 workers\) and 0 more run on no type"):
        scenario(workload([[1.0], [1.0]], [10, 10], scale=[1, 4]), [2])
    with pytest.raises(BadWorkload, match="jobs 1:3 are outside the workload of 2 jobs"):
        replace(scenario(workload([[1.0], [1.0]], [10, 10]), [2]), measured=range(1, 3))
