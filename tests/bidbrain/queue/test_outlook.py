"""Queues that are played to their ends."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bidbrain.queue import outlook as outlooks
from bidbrain.queue.outlook import outlook
from bidbrain.queue.scheduler import next_round
from bidbrain.queue.values import (
    JobQueue,
    QueueRound,
    QueueTerms,
)
from tests.bidbrain.queue.test_scheduler import HOUR, ends, job, queue


def test_a_play_decides_only_where_something_changes(
    plays: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue that goes as foreseen keeps its order, and rounds in which nothing changes are one
    step.
    """
    rng, rounds = np.random.default_rng(0), list[int]()
    jobs = queue(*(job(f"j{n}", float(rng.uniform(5, 200)), most=2) for n in range(8)), machines=5)
    with monkeypatch.context() as patched:
        patched.setattr(outlooks, "unchanged_seconds", lambda _decided: 0.0)
        round_by_round = ends(outlook(jobs))
    plays.clear()
    next_round(jobs)
    searched = len(plays)

    def decides(given: JobQueue, previous: QueueRound | None) -> QueueRound:
        rounds.append(1)
        return next_round(given, previous)

    monkeypatch.setattr("bidbrain.queue.scheduler.next_round", decides)
    assert ends(outlook(jobs)) == pytest.approx(round_by_round, rel=1e-2)
    assert len(rounds) <= 40
    assert len(plays) <= 2 * searched + 6 * len(rounds)


def test_without_a_policy_short_jobs_go_first_and_the_mean_completion_time_is_least() -> None:
    jobs = [
        job(f"j{number}", work, swap_seconds=0.0) for number, work in enumerate((40, 40, 1, 1, 1))
    ]
    assert np.mean(ends(outlook(queue(*jobs)))) == pytest.approx(17.4)
    assert np.mean(
        ends(outlook(queue(*jobs, terms=QueueTerms("max-min-fairness"))))
    ) == pytest.approx(18.1, abs=0.05)
    assert np.mean(ends(outlook(queue(*jobs, terms=QueueTerms("fifo"))))) == pytest.approx(40.8)


def test_jobs_behind_others_of_unknown_length_have_finite_bounds() -> None:
    jobs = [job("a", None), job("b", None), *(job(name, 1) for name in "cde")]
    for each in outlook(queue(*jobs))[2:]:
        assert each.start is not None
        assert each.latest_end is not None
        assert each.earliest_end is not None
        assert HOUR <= each.earliest_end <= each.latest_end < 5 * HOUR


def test_a_job_grows_when_another_ends_and_deadlines_are_met_jointly() -> None:
    short, long = job("x", 1.5, most=4, swap_seconds=0.0), job("y", 60, most=4, swap_seconds=0.0)
    assert ends(outlook(queue(short, long))) == [0.75, 30.75]
    assert ends(outlook(queue(short, replace(long, deadline=40 * HOUR)))) == [0.75, 30.75]
    # The order that the mean completion time prefers would miss this one.
    assert ends(outlook(queue(short, replace(long, deadline=30.5 * HOUR)))) == [30.75, 30.0]


def test_a_job_with_a_fixed_time_ends_no_sooner_with_more_machines() -> None:
    timed = job("timed", 5, most=4, timed=True, swap_seconds=0.0)
    assert (
        ends(outlook(queue(timed, machines=1))) == ends(outlook(queue(timed, machines=4))) == [5.0]
    )
