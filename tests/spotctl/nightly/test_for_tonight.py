"""The deadline of a night as the job is given it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date
from pathlib import Path

import pytest

from pricing_data.units import HOUR, MINUTE
from spotctl.files.job.reader import loads
from spotctl.files.job.spec import ByClock, JobSpec, Within
from spotctl.nightly.hours import Night
from spotctl.nightly.tonight import for_tonight

SIX = 1_780_034_400_000_000  # 2026-05-29 06:00 UTC
NIGHT = Night(date(2026, 5, 29), SIX - 4 * HOUR, SIX)
NOW = SIX - 3 * HOUR
LEFT = 3 * HOUR - MINUTE


def job(cloud: str) -> JobSpec:
    return loads(f"{{name: a, kind: command, run: x, resources: {{clouds: [{cloud}]}}}}", Path("job.yaml"))


@pytest.mark.parametrize(
    ("own", "given"),
    [
        (None, Within(LEFT)),
        (Within(2 * HOUR), Within(2 * HOUR)),
        (Within(10 * HOUR), Within(LEFT)),
        (ByClock(5, 0), ByClock(5, 0)),
        (ByClock(7, 0), Within(LEFT)),
    ],
)
def test_the_earlier_of_two_deadlines_holds(own: Within | ByClock | None, given: Within | ByClock) -> None:
    assert for_tonight(replace(job("aws"), deadline=own), NIGHT, NOW, UTC).deadline == given


def test_on_a_local_market_the_night_is_as_long_as_the_market_plays_in_it() -> None:
    spec = job("local")
    assert for_tonight(spec, NIGHT, NOW, UTC).deadline == Within(round(LEFT * spec.local.speed))
    own = replace(spec, deadline=Within(HOUR))
    assert for_tonight(own, NIGHT, NOW, UTC) == own


def test_without_a_deadline_the_job_stays_as_it_is() -> None:
    assert for_tonight(job("aws"), replace(NIGHT, deadline=None), NOW, UTC) == job("aws")
