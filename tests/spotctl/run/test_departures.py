"""Purchases with which the plan did not begin are named, with the plan's reason and the figures of
the moment.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from bidbrain.billing import rule_of_cloud
from bidbrain.strategies.base import Rent
from pricing_data.units import HOUR
from spotctl.files.job.reader import from_fields
from spotctl.home.config import load
from spotctl.log import events as ev
from spotctl.log.budget import Tariff
from spotctl.log.folding import fold
from spotctl.log.state import LogRow, RunState
from spotctl.planning.forecast import forecast_of
from spotctl.planning.values import JobPlan
from spotctl.run.start.launch_plans import stored_plans
from spotctl.run.turn.live_strategy import LiveStrategy, work_left
from spotctl.show.runs.lines import happened, summary
from tests.spotctl.run.turn.test_budget_check_rest import JOB
from tests.spotctl.show.runs.made_up_run import text


@pytest.fixture
def plan(tmp_path: Path) -> JobPlan:
    return stored_plans([from_fields(JOB)], load({}, tmp_path)).plans[0]


def live(plan: JobPlan) -> LiveStrategy:
    histories = plan.fleet.market_history.histories
    tariff = Tariff(lambda market: rule_of_cloud(market.cloud), lambda market, _: histories[market])
    return LiveStrategy(plan, RunState, lambda: (inf, 0.0), tariff)


def test_a_purchase_that_the_plan_begins_with_is_no_departure(plan: JobPlan) -> None:
    chosen = plan.cost.choice[0].rent
    assert live(plan).departure(chosen, plan.at) == ""
    assert (
        live(plan).departure(replace(chosen, machines=1, bid=(chosen.bid or 0) + 1), plan.at) == ""
    )


def test_another_market_is_named_with_the_reason_of_the_plan_and_the_figures_of_now(
    plan: JobPlan,
) -> None:
    chosen = plan.cost.choice[0].rent
    rejected = next(one for one in plan.rejected if one.instead is not None)
    assert rejected.instead is not None
    other = replace(rejected.instead.rent, bid=rejected.instead.rent.offer.on_demand)
    found = live(plan).departure(other, plan.at)
    assert found.startswith(f"{rejected.market}, bid $")
    assert f"where the plan has {chosen.offer.market}" in found
    assert "% evicted per hour" in found
    assert found.endswith(f"; in the plan {plan.demand.worded(rejected.why)}")


def test_spot_machines_that_an_on_demand_plan_announces_are_no_departure(plan: JobPlan) -> None:
    (spot,) = plan.cost.choice
    on_demand = replace(spot, rent=replace(spot.rent, bid=None))
    turning = replace(plan, cost=replace(plan.cost, choice=(on_demand,)))
    assert forecast_of(turning).on_spot
    assert live(turning).departure(spot.rent, plan.at) == ""


def test_on_demand_machines_are_a_departure_from_spot(plan: JobPlan) -> None:
    chosen = plan.cost.choice[0].rent
    found = live(plan).departure(Rent(chosen.offer, 4, None), plan.at + HOUR)
    assert found.startswith(
        f"{chosen.offer.market}, on demand, where the plan has {chosen.offer.market}, bid"
    )


def test_events_and_summary_say_where_a_run_left_its_plan() -> None:
    departures = tuple(
        f"market {number}, on demand, where the plan has another" for number in range(5)
    )
    again = f"{departures[0]}: now $0.1/h"
    rows = [
        LogRow(1, "job-1", 0, ev.RunBegan("job", "local", {}, "/nowhere", 0)),
        LogRow(2, "job-1", 0, ev.Decided(("rent 1",), "why", departures[:4])),
        LogRow(3, "job-1", 0, ev.Decided(("rent 1",), "why", (again, *departures[3:]))),
    ]
    before, after = fold(rows[:2]), fold(rows)
    assert after.left_plan == departures
    assert happened(before, after) == [f"left the plan: {departures[4]}"]
    ended = ev.RunEnded(
        "done", "", 0, {"left_plan": [f"{one}: now $0.1/h" for one in after.left_plan]}
    )
    lines = [line for line in text(summary(after, ended), 120) if "left plan" in line]
    assert lines == [
        *(f"  left plan  {one}" for one in departures[:3]),
        "  left plan  2 more times (launch --json lists all)",
    ]


def test_a_training_that_ends_by_time_does_not_turn_to_on_demand_because_its_deadline_comes_closer(
    tmp_path: Path,
) -> None:
    """Lost machines cost it clocks, but its end comes no later."""
    job = from_fields(JOB | {"stop": {"minutes": 360}, "deadline": "9h"})
    plan = stored_plans([job], load({}, tmp_path)).plans[0]
    began = ev.Progressed(1, 1.0, 2, (), (), (), None)
    state = fold([LogRow(1, "r", plan.at + HOUR // 2, began)])
    left = [work_left(plan, state, plan.at + hours * HOUR) / plan.fleet.work for hours in (1, 4, 7)]
    assert left == pytest.approx([5.5 / 6, 2.5 / 6, 0.0])
    assert work_left(plan, RunState(), plan.at + HOUR) == plan.fleet.work
