"""Plays of long jobs, which look around less often than a run does."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

import pytest

from bidbrain.forecast.windows import PastMarket
from pricing_data.units import HOUR
from spotctl.files.job.programs import Checkpoint, Command
from spotctl.files.job.resources import Resources
from spotctl.files.job.spec import Range, Within
from spotctl.planning import forecast
from spotctl.planning.facts import PlanningFacts
from spotctl.planning.forecast import forecast_job
from spotctl.planning.plan import plan_jobs
from spotctl.planning.values import Job, JobPlan
from tests.spotctl.planning.worlds import CENT, NOW, flat, offer, snapshot, spec


def roaming(hours: float) -> JobPlan:
    """A job that may move between two regions."""
    near, far = offer("a.large"), offer("a.large", region="us-west-2")
    resources = Resources(("aws",), Range(1, 1), types=("a.large",), regions=("us-east-1", "us-west-2"))
    program, limit = Command("train", checkpoint=Checkpoint("s3://bucket/", size=10**9)), round(1.5 * hours) * HOUR
    wanted = replace(
        spec(), program=program, resources=resources, strategy="regions", deadline=Within(limit), throughputs={}
    )
    market = snapshot(flat(near, 4 * CENT), flat(far, 5 * CENT))
    (planned,) = plan_jobs(PlanningFacts((Job(wanted, NOW + limit, hours=hours),), market))
    return planned


def played(planned: JobPlan) -> tuple[float, int]:
    """The mean cost of a few plays, and how many decisions they take."""
    past = PastMarket(forecast_job(planned), planned.fleet.market_history)
    plays = [past.play(NOW - 60 * HOUR, number) for number in range(16)]
    return fmean(play.usd for play, _ in plays), sum(decisions for _, decisions in plays)


def test_a_long_job_that_may_move_decides_seldom_and_costs_what_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    usd, decisions = played(roaming(24.0))
    monkeypatch.setattr(forecast, "_LEAST_PAUSE", 40 * HOUR)
    as_a_run_usd, as_a_run = played(roaming(24.0))
    assert decisions < as_a_run / 2
    assert usd == pytest.approx(as_a_run_usd, rel=0.1)


def test_a_short_one_is_played_as_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    short = played(roaming(6.0))
    monkeypatch.setattr(forecast, "_LEAST_PAUSE", 40 * HOUR)
    assert played(roaming(6.0)) == short
