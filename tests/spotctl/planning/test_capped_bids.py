"""No bid is above the on-demand price, unless the job file names another highest bid."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bidbrain.strategies.base import Rent
from pricing_data.units import NANOS_PER_DOLLAR
from spotctl.files.job.reader import loads
from spotctl.home.config import Settings
from spotctl.planning import forecast
from spotctl.planning.decider import first_decision
from spotctl.planning.values import AllocatedJob, JobPlan
from spotctl.run.start.launch_plans import stored_plans
from tests.bidbrain.decision.deciders import A, deciding, rents, situation
from tests.spotctl.planning.worlds import CENT


def plan_of(folder: Path, start: str, more: str, strategy: str = "") -> JobPlan:
    job = (
        "name: job\nkind: command\nrun: 'true'\nhours: 4h\nresources: {clouds: [local], types: [c4.2xlarge]}\n"
        f"local: {{start: {start}}}\n{more}"
    )
    spec = loads(job, folder / "job.yaml")
    # No file may name this strategy, with its high bids; a run of an earlier version may have it.
    spec = replace(spec, strategy=strategy or spec.strategy)
    (plan,) = stored_plans([spec], Settings(home=folder)).plans
    return plan


@pytest.fixture
def without_rival(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the rival is better, as it is at these moments, bids are the on-demand price anyway."""
    monkeypatch.setattr(forecast, "RIVAL", "lookahead")


@pytest.mark.usefixtures("without_rival")
@pytest.mark.parametrize("more", ["", "strategy: deadline\ndeadline: 30h\n"])
@pytest.mark.parametrize("start", ["2026-01-15T00:00:00Z", "2026-01-20T16:00:00Z"])
def test_auto_bids_no_more_than_on_demand_where_its_strategy_would(tmp_path: Path, start: str, more: str) -> None:
    plan = plan_of(tmp_path, start, more)
    free = replace(plan.decider, caps_bids=False)
    allocated = AllocatedJob(plan.job, plan.demand, plan.share)
    _, decision = first_decision(allocated, plan.fleet, plan.decision.strategy, free, plan.at)
    wanted = [rent.bid or 0 for rent in decision.rents]
    assert max(wanted) > plan.cost.choice[0].rent.offer.on_demand
    assert all((choice.rent.bid or 0) <= choice.rent.offer.on_demand for choice in plan.cost.choice)


@pytest.mark.parametrize(("most", "highest"), [("", None), ("max_bid: 9 USD/h\n", 9.0), ("max_bid: 0.30 USD/h\n", 0.3)])
def test_a_named_strategy_bids_no_more_than_on_demand_or_what_the_job_names(
    tmp_path: Path, most: str, highest: float | None
) -> None:
    plan = plan_of(tmp_path, "2026-01-15T00:00:00Z", most, "fixed-bid:5")
    listed = plan.cost.choice[0].rent.offer.on_demand
    expected = (
        listed
        if highest is None
        else min(round(highest * NANOS_PER_DOLLAR), plan.cost.choice[0].price + 5 * 100 * CENT)
    )
    assert [choice.rent.bid for choice in plan.cost.choice] == [expected]


def test_only_bids_above_on_demand_are_capped() -> None:
    low, high = Rent(A, 2, 5 * CENT), Rent(A, 1, 30 * CENT)
    made = replace(deciding(low, high), caps_bids=True)
    assert rents(made.decide(situation())) == [low, replace(high, bid=A.on_demand)]
    assert rents(replace(made, most_bid=25 * CENT).decide(situation())) == [low, replace(high, bid=25 * CENT)]
    assert rents(deciding(low, high).decide(situation())) == [low, high]
