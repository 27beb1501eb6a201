"""Monitoring knows hung nights, dead timers, and starts that began and did not end."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from datetime import UTC, date

import pytest

from pricing_data.units import DAY, HOUR, MINUTE, SECOND
from spotctl.log.jobs import JobLock
from spotctl.nightly.health import latest_end, problems
from spotctl.nightly.hours import Hours
from spotctl.nightly.state_dir import NightRecord, NightStart, StateDir
from tests.spotctl.nightly.conftest import NIGHT, WITH_DEADLINE, WITHOUT

GONE = 2**22 + 1
"""A process id that no Linux process has."""


def began(job: StateDir, at: int, pid: int = GONE) -> NightStart:
    start = job.starts.begin(at)
    start = NightStart(start.number, start.began, pid)
    job.starts.write(start)
    return start


def ended(
    job: StateDir, at: int, seconds: int, status: int = 0, why: str = "", *, reported: bool = True
) -> None:
    start = began(job, at)
    job.starts.write(
        NightStart(start.number, start.began, GONE, start.began + seconds, status, reported, why)
    )


def said(job: StateDir, after: int, hours: Hours = WITH_DEADLINE) -> list[str]:
    return problems(job, hours, NIGHT + after, UTC)


def test_a_night_that_hangs_is_a_problem_from_its_deadline_on(job: StateDir) -> None:
    job.record(NightRecord(date(2026, 6, 1), NIGHT, NIGHT + SECOND))
    began(job, NIGHT, os.getpid())
    with JobLock(job.folder, "small"):
        assert said(job, 4 * HOUR) == []
        (hung,) = said(job, 5 * HOUR)
        assert (
            "the night of Mon 2026-06-01 02:00 still runs, and should have ended by Mon 2026-06-01 "
            "06:15" in hung
        )
        assert "spotctl stop small" in hung
        days = said(job, 5 * DAY + HOUR)
    assert "still runs" in days[0]
    assert "did not start" in days[1]


def test_a_night_that_only_its_lock_shows_hangs_too(job: StateDir) -> None:
    job.record(NightRecord(date(2026, 6, 1), NIGHT, NIGHT + SECOND))
    with JobLock(job.folder, "small"):
        assert said(job, 4 * HOUR) == []
        assert "still runs" in said(job, 5 * HOUR)[0]


@pytest.mark.parametrize(
    ("hours", "lengths", "limit"),
    [
        (WITH_DEADLINE, [60], 4 * HOUR + 15 * MINUTE),
        (WITHOUT, [], DAY),
        (WITHOUT, [600, 600, 9 * 3600], 4 * HOUR + 20 * MINUTE),
        (WITHOUT, [20 * 3600], DAY),
    ],
)
def test_when_a_night_counts_as_hung(hours: Hours, lengths: list[int], limit: int) -> None:
    starts = [NightStart(number, 0, GONE, length, 0) for number, length in enumerate(lengths, 1)]
    failed = NightStart(99, 0, GONE, 10**6, 1)
    assert latest_end([*starts, failed], hours, NIGHT, UTC) == NIGHT + limit


def test_a_timer_that_does_not_fire_is_a_problem_after_some_minutes(job: StateDir) -> None:
    ended(job, NIGHT - DAY, 60)
    assert said(job, 10 * MINUTE) == []
    (missed,) = said(job, 20 * MINUTE)
    assert "the night of Mon 2026-06-01 02:00 did not start: its timer did not run" in missed
    assert "spotctl doctor" in missed
    ended(job, NIGHT, 60)
    assert said(job, 20 * MINUTE) == []


def test_a_start_whose_process_exists_is_no_problem(job: StateDir) -> None:
    with subprocess.Popen(
        ["/bin/sh", "-c", "read _", "nightly", "run"], stdin=subprocess.PIPE
    ) as other:
        began(job, NIGHT, other.pid)
        assert said(job, MINUTE) == []
        other.kill()
    assert "did not end" in said(job, MINUTE)[0]


def test_a_later_run_by_hand_settles_a_failed_start(job: StateDir) -> None:
    ended(job, NIGHT, 5, 127, "no Python")
    (failed,) = said(job, MINUTE)
    assert failed == (
        "the start of Mon 2026-06-01 02:00 failed after 5 s: no Python; fix it, then run: spotctl "
        "nightly run small"
    )
    job.record(NightRecord(date(2026, 6, 1), NIGHT, NIGHT + HOUR, reported=True, outcome="done"))
    job.record_result(NIGHT + 2 * HOUR, done=True, spent=0)
    assert said(job, 3 * HOUR) == []


def test_earlier_failures_stay_until_they_are_reported(job: StateDir) -> None:
    ended(job, NIGHT - DAY, 5, 1, "no route", reported=False)
    ended(job, NIGHT, 60)
    (unsaid,) = said(job, HOUR)
    assert (
        "the start of Sun 2026-05-31 02:00 failed after 5 s: no route, and no message could be sent"
        in unsaid
    )
    for start in job.starts.read()[0]:
        job.starts.write(replace(start, reported=True))
    assert said(job, HOUR) == []


def test_a_lost_message_about_a_night_that_was_done_is_a_problem_until_a_later_one_tells_of_it(
    job: StateDir,
) -> None:
    ended(job, NIGHT - DAY, 60, reported=False)
    ended(job, NIGHT, 60, reported=False)
    lost = said(job, HOUR)
    assert [text.partition(",")[0] for text in lost] == [
        "the start of Sun 2026-05-31 02:00 ended after 1 min",
        "the start of Mon 2026-06-01 02:00 ended after 1 min",
    ]
    assert all(
        "no message could be sent; check the webhook and the health check" in text for text in lost
    )
    for start in job.starts.read()[0]:
        job.starts.write(replace(start, reported=True))
    assert said(job, HOUR) == []
