"""Savings are relative to one baseline: the cheapest on-demand machines that are as fast, billed by their cloud."""

from __future__ import annotations

from math import inf
from pathlib import Path

import pytest

from bidbrain.billing import End, Life, rule_of_cloud, usd
from pricing_data.units import HOUR
from spotctl.files.job.reader import loads
from spotctl.home.config import Settings
from spotctl.planning.facts import launch_times, with_local_starts
from spotctl.planning.forecast import forecast_of
from spotctl.planning.values import JobPlan
from spotctl.run.start.launch_plans import stored_plans
from spotctl.run.turn.live_strategy import expectation


def plan_of(folder: Path, job: str) -> JobPlan:
    (plan,) = stored_plans([loads(f"name: job\n{job}", folder / "job.yaml")], Settings(home=folder)).plans
    return plan


@pytest.mark.parametrize(
    "job",
    [
        "kind: command\nrun: 'true'\nhours: 2h\nresources: {clouds: [local]}\n",
        "kind: command\nrun: 'true'\nnodes: 3\nhours: 5h\ncheckpoint: {path: ckpt}\nresources: {clouds: [local]}\n",
        "kind: agileml\napp: mf\nstop: {clocks: 500}\nthroughputs: {c4.xlarge: 40}\n"
        "resources: {clouds: [local], machines: 2..8}\n",
        "kind: agileml\napp: mf\nstop: {minutes: 90}\nresources: {clouds: [local], machines: ..8}\n",
    ],
)
def test_on_demand_costs_as_much_as_on_demand(tmp_path: Path, job: str) -> None:
    """Begun hours are in the plan of on-demand machines, and in what that plan is compared with."""
    plan = plan_of(tmp_path, f"{job}strategy: on-demand\n")
    assert forecast_of(plan).usd.median == pytest.approx(plan.cost.on_demand.usd, rel=0.02)
    assert forecast_of(plan).hours.median == pytest.approx(plan.cost.on_demand.hours, rel=0.05)


def test_on_demand_machines_of_unknown_length_cost_as_much_per_hour(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "kind: command\nrun: 'true'\nresources: {clouds: [local]}\nstrategy: on-demand\n")
    assert forecast_of(plan).usd_per_hour.median == pytest.approx(plan.cost.on_demand.usd, rel=0.02)


def test_no_on_demand_fleet_within_the_limits_is_as_fast_and_cheaper(tmp_path: Path) -> None:
    """An oracle: every type of the region's list in every allowed number."""
    job = (
        "kind: agileml\napp: mf\nstop: {clocks: 500}\nthroughputs: {c4.xlarge: 40}\n"
        "resources: {clouds: [local], machines: 2..8}\n"
    )
    plan = plan_of(tmp_path, job)
    spec, best, rule = plan.job.spec, inf, rule_of_cloud("local")
    unworked = with_local_starts(plan.decider.overheads, spec).startup + launch_times(spec).ending
    span = plan.cost.estimate.hours * HOUR - plan.decider.overheads.startup
    for offer in plan.decider.offers:
        for machines in range(2, 9):
            works = 500 * HOUR / (machines * offer.nu)
            if works <= span:
                bill = rule.bill(Life(0, round(works) + unworked, End.LEFT), offer.on_demand)
                best = min(best, machines * usd(bill.amount))
    found = plan.cost.on_demand
    assert found.usd <= best
    works = 500 * HOUR / (found.rent.machines * found.rent.offer.nu)
    bill = rule.bill(Life(0, round(works) + unworked, End.LEFT), found.rent.offer.on_demand)
    assert found.usd == found.rent.machines * usd(bill.amount)
    assert 2 <= found.rent.machines <= 8


def test_a_run_records_the_baseline_of_its_plan(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "kind: command\nrun: 'true'\nhours: 2h\nresources: {clouds: [local]}\n")
    recorded, fleet = expectation(plan).instead, plan.cost.on_demand
    assert recorded is not None
    assert (recorded.market, recorded.machines) == (fleet.rent.offer.market, fleet.rent.machines)
    assert expectation(plan).on_demand_usd == fleet.usd
