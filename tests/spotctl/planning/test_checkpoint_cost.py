"""A checkpoint costs what earlier runs measured; until then, no more than a program that saves so often can afford."""

from __future__ import annotations

from pathlib import Path

import pytest

from bidbrain.forecast.values import KnownPast
from pricing_data.units import MINUTE, SECOND
from spotctl.files.job.reader import loads
from spotctl.home.config import Settings
from spotctl.planning.cost import checkpoints_of
from spotctl.planning.forecast import forecast_of
from spotctl.planning.learning import Observed, learn
from spotctl.planning.values import Job, JobPlan
from spotctl.run.start.launch_plans import stored_plans
from spotctl.show.plans.summary import summary
from tests.spotctl.planning.worlds import NOW

NO_HISTORY = KnownPast(NOW, {}, {})


def plan_of(folder: Path, every: str, more: str = "") -> JobPlan:
    job = (
        f"name: job\nkind: command\nrun: 'true'\nhours: 1h\ncheckpoint: {{path: ckpt, every: {every}}}\n{more}"
        "resources: {clouds: [local]}\nlocal: {speed: 60}\n"
    )
    (plan,) = stored_plans([loads(job, folder / "job.yaml")], Settings(home=folder)).plans
    return plan


@pytest.mark.parametrize("more", ["", "deadline: 6h\n"])
def test_a_short_interval_does_not_make_a_job_many_times_longer(tmp_path: Path, more: str) -> None:
    """At two minutes for each checkpoint, a job of one hour that saves every five seconds would take 25."""
    often, seldom = (plan_of(tmp_path, every, more) for every in ("5s", "auto"))
    assert forecast_of(often).hours.median <= 1.25 * forecast_of(seldom).hours.median
    assert forecast_of(often).usd.median <= 2 * forecast_of(seldom).usd.median
    assert often.decision.checkpoints is not None
    assert often.decision.checkpoints.cost < 5 * SECOND


def test_the_same_work_on_demand_writes_checkpoints_too(tmp_path: Path) -> None:
    often = plan_of(tmp_path, "5s")
    assert often.decision.checkpoints is not None
    without = plan_of(tmp_path, "30m")
    assert often.decider.baseline == without.decider.baseline
    assert often.cost.fallback.hours > 1.1 * without.cost.fallback.hours


@pytest.mark.parametrize(("every", "words"), [("5s", "saved every 5 seconds"), ("10m", "saved every 10 minutes")])
def test_a_plan_says_how_often_its_job_is_saved(tmp_path: Path, every: str, words: str) -> None:
    assert words in dict(summary(plan_of(tmp_path, every)))["evictions"]


def command(every: str, save_seconds: float | None) -> Job:
    spec = loads(
        f"name: job\nkind: command\nrun: 'true'\ncheckpoint: {{path: ckpt, every: {every}}}\n"
        "resources: {clouds: [local]}\nlocal: {speed: 60}\n",
        Path("job.yaml"),
    )
    return Job(spec, save_seconds=save_seconds)


@pytest.mark.parametrize(
    ("every", "measured", "cost"),
    [
        ("15m", None, 2 * MINUTE),
        ("auto", None, 2 * MINUTE),
        ("5s", None, round(5 * SECOND * (1 / 0.83 - 1))),
        ("15m", 0.5, 30 * SECOND),
        ("auto", 0.5, 30 * SECOND),
        ("5s", 0.5, 5 * SECOND),
    ],
)
def test_the_cost_is_the_measured_one_in_market_time_or_what_is_affordable(
    every: str, measured: float | None, cost: int
) -> None:
    found = checkpoints_of(command(every, measured))
    assert found is not None
    assert found.cost == pytest.approx(cost, abs=1)


def test_runs_measure_what_their_checkpoints_take() -> None:
    runs = [Observed(wall, True, 1.0, (), (), (), (), saves) for wall, saves in enumerate([(3.0, 5.0), (4.0,), ()])]
    learned = learn(runs, {}, 1, MINUTE, MINUTE)
    assert learned is not None
    assert learned.save_seconds == 4.0
