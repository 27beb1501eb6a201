"""The deadline that a night gives to the job."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date
from pathlib import Path

import pytest

from pricing_data.units import HOUR, MINUTE
from spotctl.files.job.reader import loads
from spotctl.files.job.spec import ByClock, JobSpec, Within
from spotctl.nightly.hours import Night
from spotctl.nightly.night_runner import with_night_deadline

SIX = 1_780_034_400_000_000  # 2026-05-29 06:00 UTC
NIGHT = Night(date(2026, 5, 29), SIX - 4 * HOUR, SIX)
NOW = SIX - 3 * HOUR
REMAINING = 3 * HOUR - MINUTE


def job(cloud: str) -> JobSpec:
    return loads(
        f"{{name: a, kind: command, run: x, resources: {{clouds: [{cloud}]}}}}", Path("job.yaml")
    )


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        (None, Within(REMAINING)),
        (Within(2 * HOUR), Within(2 * HOUR)),
        (Within(10 * HOUR), Within(REMAINING)),
        (ByClock(5, 0), ByClock(5, 0)),
        (ByClock(7, 0), Within(REMAINING)),
    ],
)
def test_the_earlier_deadline_applies(
    own: Within | ByClock | None, expected: Within | ByClock
) -> None:
    assert (
        with_night_deadline(replace(job("aws"), deadline=own), NIGHT, NOW, UTC).deadline == expected
    )


def test_on_the_local_market_the_deadline_is_in_market_time() -> None:
    spec = job("local")
    assert with_night_deadline(spec, NIGHT, NOW, UTC).deadline == Within(
        round(REMAINING * spec.local.speed)
    )
    own = replace(spec, deadline=Within(HOUR))
    assert with_night_deadline(own, NIGHT, NOW, UTC) == own


def test_without_a_deadline_the_job_is_unchanged() -> None:
    assert with_night_deadline(job("aws"), replace(NIGHT, deadline=None), NOW, UTC) == job("aws")
