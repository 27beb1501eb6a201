"""A plan and its run commit the same lease, so a budget that a plan accepts pays for the first order of its run."""

from __future__ import annotations

from pathlib import Path

import pytest

from bidbrain.billing import rule_of_cloud
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import NANO_SECONDS_PER_DOLLAR
from spotctl.clouds.lease_times import LeaseTimes
from spotctl.files.job.reader import loads
from spotctl.files.job.spec import JobSpec
from spotctl.home.config import Settings
from spotctl.log.budget import Tariff, bought
from spotctl.planning.errors import OverBudget
from spotctl.run.start.launch_plans import stored_plans

JOB = """name: lease
kind: command
run: sleep 1
hours: 30m
budget: {budget} USD
resources: {{clouds: [local], types: [c4.2xlarge]}}
local: {{speed: {speed}}}
"""


def job(folder: Path, budget: float = 0.10, speed: float = 600) -> JobSpec:
    return loads(JOB.format(budget=budget, speed=speed), folder / "job.yaml")


def no_prices(market: Market, now: int) -> PriceSeries:
    raise AssertionError(f"{market} at {now}: a lease is committed at its bid")


def test_a_budget_below_the_first_lease_of_a_fast_clock_is_refused_when_planned(tmp_path: Path) -> None:
    """At 600 times the speed of this computer, a machine is committed for 130 minutes, which begin three hours."""
    with pytest.raises(OverBudget, match=r"does not cover the first lease of 1 machine .* raise the budget to \$0\.16"):
        stored_plans([job(tmp_path)], Settings(home=tmp_path))


@pytest.mark.parametrize(("budget", "speed"), [(0.06, 60), (0.11, 300), (0.16, 600), (0.22, 900)])
def test_a_budget_that_a_plan_accepts_covers_the_first_order_of_its_run(
    tmp_path: Path, budget: float, speed: float
) -> None:
    spec = job(tmp_path, budget=budget, speed=speed)
    (plan,) = stored_plans([spec], Settings(home=tmp_path)).plans
    lease = LeaseTimes.of(spec).committed
    tariff = Tariff(lambda market: rule_of_cloud(market.cloud), no_prices)
    orders = [choice.rent for choice in plan.cost.choice]
    amount = sum(bought(rent.offer.market, rent.machines, rent.highest_price, lease, tariff) for rent in orders)
    assert amount <= budget * NANO_SECONDS_PER_DOLLAR
    assert plan.decider.lease == lease
