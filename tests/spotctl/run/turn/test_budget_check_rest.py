"""What the rest of a run is expected to cost, and when a run's budget is expected to be too low."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from bidbrain.errors import BidBrainError
from pricing_data.units import NANO_SECONDS_PER_DOLLAR as DOLLAR
from spotctl.files.job.reader import from_fields
from spotctl.home.config import load
from spotctl.run.start.launch_plans import stored_plans
from spotctl.run.turn.budget_check import BudgetForecast, PlayedRest

if TYPE_CHECKING:
    from spotctl.planning.values import JobPlan

JOB = {
    "name": "rest",
    "kind": "agileml",
    "app": "mf",
    "stop": {"clocks": 480},
    "resources": {"clouds": ["local"], "types": ["c4.2xlarge"], "machines": "4..6"},
    "throughputs": {"c4.2xlarge": 6},
    "strategy": "tierml",
    "budget": "80 USD",
    "local": {"speed": 600, "start": "2026-01-15T00:10:00Z"},
}


@pytest.fixture
def plan(tmp_path: Path) -> JobPlan:
    return stored_plans([from_fields(JOB)], load({}, tmp_path)).plans[0]


def test_the_rest_of_a_run_is_played_by_its_decision_object(plan: JobPlan) -> None:
    """Without start-up and begun hours, half of the work costs half as much."""
    work = plan.fleet.work
    whole = PlayedRest(plan, plan.at, work, 1.0, inf, plan.fleet.market_history.histories)
    assert whole.usd() == pytest.approx(plan.cost.estimate.usd, rel=0.1)
    half = replace(whole, work=work / 2)
    assert half.usd() == pytest.approx(whole.usd() / 2, rel=0.05)
    # A run that ends at its budget has no money left, and says what the rest would cost with more.
    assert replace(half, usd_left=0.0, share=0.5).with_enough_money().usd_left == 40.0


@dataclass
class Rest:
    """A rest of a run that costs a fixed amount."""

    dollars: float | None

    def usd(self) -> float:
        if self.dollars is None:
            raise BidBrainError("too short a history")
        return self.dollars

    def with_enough_money(self) -> Rest:
        return self


@pytest.mark.parametrize(("dollars", "whole"), [(1.0, 3.0), (9.0, 11.0), (None, 8.0)])
def test_a_forecast_of_the_whole_is_what_was_used_and_the_rest(
    dollars: float | None, whole: float
) -> None:
    """After a quarter of the work, for $2; a rest that cannot be played costs as much per work as
    so far.
    """
    forecast = BudgetForecast(lambda _: cast("PlayedRest", Rest(dollars)), 10 * DOLLAR)
    give_up = time.monotonic() + 120
    while not (found := forecast.whole(2 * DOLLAR, 0.25)) and time.monotonic() < give_up:
        time.sleep(0.01)
    assert found == whole * DOLLAR
    assert forecast.rest_usd(2 * DOLLAR, 0.25) == whole - 2


def test_an_unexpected_error_of_a_play_is_noted() -> None:
    """The whole is then expected to cost as much per work as so far."""

    class Broken(Rest):
        def usd(self) -> float:
            raise ZeroDivisionError("division by zero")

    notes: list[str] = []
    forecast = BudgetForecast(lambda _: cast("PlayedRest", Broken(None)), 10 * DOLLAR, notes.append)
    give_up = time.monotonic() + 120
    while not (found := forecast.whole(2 * DOLLAR, 0.25)) and time.monotonic() < give_up:
        time.sleep(0.01)
    assert found == 8 * DOLLAR
    assert notes == ["the rest of the run could not be played: ZeroDivisionError: division by zero"]


def test_the_rest_is_played_once_for_each_tenth_of_the_budget() -> None:
    asked: list[float] = []
    forecast = BudgetForecast(asked.append, 10 * DOLLAR)
    for cents in range(100, 500, 5):
        forecast.whole(cents * DOLLAR // 100, cents / 1000)
    assert asked == [0.1, 0.2, 0.3, 0.4]


def test_the_rest_of_a_training_that_ends_by_time_is_its_time(tmp_path: Path) -> None:
    """At half of its time, its clocks are not all ahead of it again."""
    job = from_fields(JOB | {"stop": {"minutes": 1200}, "deadline": "22h"})
    plan = stored_plans([job], load({}, tmp_path)).plans[0]
    whole = PlayedRest(
        plan, plan.at, plan.fleet.work, 1.0, inf, plan.fleet.market_history.histories
    )
    half = replace(whole, work=plan.fleet.work / 2, share=0.5)
    assert half.usd() == pytest.approx(whole.usd() / 2, rel=0.05)
