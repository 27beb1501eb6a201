"""The order in which jobs begin."""

from __future__ import annotations

from dataclasses import replace

from bidbrain.queue.scheduler import next_round
from bidbrain.queue.values import (
    QueueTerms,
)
from tests.bidbrain.queue.test_scheduler import after, job, queue


def test_an_order_is_searched_again_where_a_job_ends_before_its_time(plays: list[int]) -> None:
    jobs = queue(*(job(f"j{n}", 10.0 + n) for n in range(8)))
    first = next_round(jobs)
    searched = len(plays)
    later = after(jobs, first, jobs.terms.round_seconds)
    next_round(later, first)
    assert len(plays) <= searched + 6
    next_round(replace(later, jobs=later.jobs[1:]), first)
    assert len(plays) > searched + 20


def test_a_job_that_has_waited_too_long_begins_before_shorter_ones() -> None:
    long = job("long", 50, since=-241 * 360.0)
    short = [job(f"s{number}", 1) for number in range(4)]
    assert "long" in next_round(queue(*short, long)).machines
    assert "long" not in next_round(queue(*short, replace(long, since=-239 * 360.0))).machines
    assert (
        "long"
        in next_round(
            queue(*short, replace(long, since=-10 * 360.0), terms=QueueTerms(max_wait_rounds=10))
        ).machines
    )
