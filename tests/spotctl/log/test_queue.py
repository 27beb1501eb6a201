"""The rows of a queue: numbered, checked, and written only after the last one that was read."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bidbrain.gavel import POLICIES
from bidbrain.queue.scheduler import next_round
from bidbrain.queue.values import JobQueue, QueueJob, QueueQuota, QueueTerms
from spotctl.log.outcomes import BrokenLog
from spotctl.log.queue import LOCAL, JobJoined, JobLeft, JobsQueued
from spotctl.log.store import EventLog

KIND = "local/sim-east/c4.xlarge"
QUOTA = QueueQuota("local/sim-east/c4", 8.0, {KIND: 4.0})


def joined(name: str, deadline: float | None = None) -> JobJoined:
    job = QueueJob(name, {KIND: 1.0}, 0.0, 0.0, work=10.0, most=2, deadline=deadline)
    return JobJoined(job, (QUOTA,), clocks=5)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EventLog]:
    with EventLog(tmp_path / "log.sqlite") as opened:
        yield opened


def test_a_row_is_written_only_after_the_last_one(log: EventLog) -> None:
    assert log.add_to_queue(LOCAL, 0, [joined("a"), joined("b")])
    assert not log.add_to_queue(LOCAL, 0, [joined("c")])
    assert not log.add_to_queue(LOCAL, 1, [joined("c")])
    assert not log.add_to_queue(LOCAL, 3, [joined("c")])
    assert log.add_to_queue("clouds", 0, [joined("c")])
    assert log.queued(LOCAL, JobsQueued()) == JobsQueued(
        2, {"a": joined("a"), "b": joined("b")}, changed=True
    )


def test_rows_are_read_as_they_were_written(log: EventLog) -> None:
    """Rounds too, also from where an earlier reading has ended."""
    rows = [joined("a", deadline=50.0), joined("b")]
    queue = JobQueue(1.0, (QUOTA,), tuple(each.job for each in rows))
    decided = next_round(queue)
    log.add_to_queue(LOCAL, 0, rows)
    early = log.queued(LOCAL, JobsQueued())
    log.add_to_queue(LOCAL, 2, [decided])
    for known in (early, JobsQueued()):
        assert log.queued(LOCAL, known) == JobsQueued(3, {"a": rows[0], "b": rows[1]}, decided)
    later = next_round(replace(queue, now=400.0), decided)
    log.add_to_queue(LOCAL, 3, [JobLeft("b"), later])
    assert (
        log.queued(LOCAL, JobsQueued())
        == JobsQueued(5, {"a": rows[0]}, later)
        == log.queued(LOCAL, early)
    )


def test_a_job_that_comes_again_has_received_nothing(log: EventLog) -> None:
    rows = [joined("a"), joined("b")]
    decided = next_round(JobQueue(1.0, (QUOTA,), tuple(each.job for each in rows)))
    (holder,) = decided.machines
    log.add_to_queue(LOCAL, 0, [*rows, decided, JobLeft(holder)])
    known = log.queued(LOCAL, JobsQueued())
    assert known.changed
    assert known.last == decided
    assert list(known.joined) == [name for name in ("a", "b") if name != holder]

    log.add_to_queue(LOCAL, 4, [joined(holder)])
    again = log.queued(LOCAL, known)
    assert again.job(holder, 61.0) == joined(holder).job


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_that_leaves_gives_its_share_to_the_others(log: EventLog, policy: str) -> None:
    """By the rounds that the log has, as in a launch."""
    terms = QueueTerms(policy)
    rows = [replace(joined(name), terms=terms, usd_per_hour={KIND: 0.2}) for name in ("a", "b")]
    log.add_to_queue(LOCAL, 0, rows)
    known = log.queued(LOCAL, JobsQueued())
    jobs = [known.job(name, 0.0) for name in known.joined]
    first = next_round(known.queue_of(jobs, 0.0, (QUOTA,)))
    holder = next(iter(first.machines))
    (other,) = {"a", "b"} - {holder}

    log.add_to_queue(LOCAL, known.rows, [first, JobLeft(holder)])
    known = log.queued(LOCAL, known)
    alone = known.queue_of([known.job(other, 3600.0)], 3600.0, (QUOTA,))
    second = next_round(alone, known.last)
    assert second.shares == next_round(alone).shares
    assert list(second.machines) == [other]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_that_comes_again_is_owed_nothing(log: EventLog, policy: str) -> None:
    """As a job of last night is, though a round of that time gave it a part of its share only."""
    terms = QueueTerms(policy)
    rows = [replace(joined(name), terms=terms, usd_per_hour={KIND: 0.2}) for name in "abc"]
    log.add_to_queue(LOCAL, 0, rows)
    known = log.queued(LOCAL, JobsQueued())
    jobs = [known.job(name, 0.0) for name in known.joined]
    first = next_round(known.queue_of(jobs, 0.0, (QUOTA,)))
    leave = [JobLeft(name) for name in "abc"]
    log.add_to_queue(LOCAL, known.rows, [first, *leave])

    known = log.queued(LOCAL, known)
    log.add_to_queue(LOCAL, known.rows, rows)
    known = log.queued(LOCAL, known)
    night = 86_400.0
    again = [replace(known.job(name, night), arrival=night, since=night) for name in known.joined]
    second = next_round(known.queue_of(again, night, (QUOTA,)), known.last)
    assert all(debt == 0 for kinds in second.owed.values() for debt in kinds.values())


def test_a_job_has_received_what_rounds_gave_it() -> None:
    jobs = tuple(joined(name).job for name in ("a", "b"))
    first = next_round(JobQueue(100.0, (QUOTA,), jobs))
    (holder,) = first.machines
    (other,) = {"a", "b"} - {holder}
    known = JobsQueued(3, {"a": joined("a"), "b": joined("b")}, first)
    later = known.job(holder, 160.0)
    assert (later.held, later.received, later.since) == ({KIND: 2}, {KIND: 120.0}, 100.0)
    assert known.job(other, 160.0) == replace(joined(other).job)
    second = next_round(JobQueue(160.0, (QUOTA,), (later, known.job(other, 160.0))), first)
    assert JobsQueued(4, known.joined, second).job(holder, 170.0).received == {KIND: 140.0}


@pytest.mark.parametrize(
    "change",
    ["UPDATE queues SET body = replace(body, 'a', 'b')", "DELETE FROM queues WHERE number = 1"],
)
def test_a_row_that_is_changed_or_missing_is_found(
    log: EventLog, tmp_path: Path, change: str
) -> None:
    log.add_to_queue(LOCAL, 0, [joined("a"), joined("b")])
    with sqlite3.connect(tmp_path / "log.sqlite") as db:
        db.execute(change)
    with pytest.raises(BrokenLog, match="row 1 of queue local is missing or was changed"):
        log.queued(LOCAL, JobsQueued())
