"""The decision object of a plan: its bids, the markets between which a job moves, and its first
lease.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import bidbrain.forecast.forecast
from bidbrain.billing import rule_of_cloud
from bidbrain.eviction.estimate import Estimate, PriceOutlook
from bidbrain.strategies.base import Offer, Rent
from bidbrain.strategies.proteus import Odds
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import (
    HOUR,
    NANO_SECONDS_PER_DOLLAR,
    NANOS_PER_DOLLAR,
    format_time,
    format_usd,
)
from spotctl.clouds.link import LeaseTimes
from spotctl.files.job.programs import Checkpoint, Command
from spotctl.files.job.reader import loads
from spotctl.files.job.resources import Resources
from spotctl.files.job.spec import JobSpec, Range, Within
from spotctl.files.job.values import Nodes
from spotctl.home.config import Settings
from spotctl.home.quotas import Quota, QuotaUnit
from spotctl.log.budget import Tariff, bought
from spotctl.planning.decider import first_decision
from spotctl.planning.errors import NotInTime, OverBudget
from spotctl.planning.facts import PlanningFacts
from spotctl.planning.plan import plan_jobs
from spotctl.planning.values import AllocatedJob, Job, JobPlan
from spotctl.run.start.launch_plans import stored_plans
from spotctl.show.columns import as_json
from spotctl.show.plans.plan_tables import ZONE, considered_zones
from tests.bidbrain.decision.deciders import A, deciding, rents, situation
from tests.spotctl.command_line import spotctl
from tests.spotctl.planning.worlds import CENT, NOW, flat, offer, snapshot, spec


def plan_of(folder: Path, start: str, more: str, strategy: str = "") -> JobPlan:
    job = (
        "name: job\nkind: command\nrun: 'true'\nhours: 4h\nresources: {clouds: [local], types: "
        "[c4.2xlarge]}\n"
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
    monkeypatch.setattr(bidbrain.forecast.forecast, "RIVAL", "lookahead")


@pytest.mark.usefixtures("without_rival")
@pytest.mark.parametrize("more", ["", "strategy: deadline\ndeadline: 30h\n"])
@pytest.mark.parametrize("start", ["2026-01-15T00:00:00Z", "2026-01-20T16:00:00Z"])
def test_auto_bids_no_more_than_on_demand_where_its_strategy_would(
    tmp_path: Path, start: str, more: str
) -> None:
    plan = plan_of(tmp_path, start, more)
    free = replace(plan.decider, caps_bids=False)
    allocated = AllocatedJob(plan.job, plan.demand, plan.share)
    _, decision = first_decision(allocated, plan.fleet, plan.decision.strategy, free, plan.at)
    wanted = [rent.bid or 0 for rent in decision.rents]
    assert max(wanted) > plan.cost.choice[0].rent.offer.on_demand
    assert all((choice.rent.bid or 0) <= choice.rent.offer.on_demand for choice in plan.cost.choice)


def test_proteus_decides_by_the_odds_that_the_plan_and_beta_show_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of its first decision, at the chosen bid, are the plan's; with other odds the bid is
    another one."""
    read = list[tuple[int, tuple[float, float]]]()
    odds_at = Odds.at

    def noted(odds: Odds, distance: int) -> tuple[float, float]:
        read.append((distance, odds_at(odds, distance)))
        return read[-1][1]

    monkeypatch.setattr(Odds, "at", noted)
    plan = plan_of(tmp_path, "2026-01-15T00:00:00Z", "strategy: proteus\n")
    (choice,) = plan.cost.choice
    bid = choice.rent.bid or 0
    assert (bid - choice.price, choice.beta.probability) in {
        (distance, beta) for distance, (beta, _) in read
    }
    market, at = str(choice.rent.offer.market), format_time(plan.at)
    distance = format_usd(bid - choice.price)
    shown = spotctl("lab", "beta", "show", market, "--bid-delta", distance, "--at", at, "--json")
    assert shown.json["probability"] == choice.beta.probability

    of = PriceOutlook.of
    likely = Estimate(0.99, lambda: (0.99, 0.99), 60.0, 1.0, "drawn")
    monkeypatch.setattr(
        PriceOutlook,
        "of",
        lambda outlook, history, distance: (
            likely if distance <= bid - choice.price else of(outlook, history, distance)
        ),
    )
    (other,) = plan_of(tmp_path, "2026-01-15T00:00:00Z", "strategy: proteus\n").cost.choice
    assert other.rent.bid != bid


@pytest.mark.parametrize(
    ("most", "highest"), [("", None), ("max_bid: 9 USD/h\n", 9.0), ("max_bid: 0.30 USD/h\n", 0.3)]
)
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
    assert rents(replace(made, most_bid=25 * CENT).decide(situation())) == [
        low,
        replace(high, bid=25 * CENT),
    ]
    assert rents(deciding(low, high).decide(situation())) == [low, high]


def test_a_bid_that_is_paid_is_little_above_the_price() -> None:
    host = Offer(Market("vast", "vast-us", "verified", "1xRTX_4090"), 1.0, 100 * CENT)
    high, low = Rent(host, 1, 90 * CENT), Rent(host, 1, 5 * CENT)
    made = replace(deciding(high), offers=(host,), caps_bids=True)
    now = replace(situation(offers=(host,)), price=lambda _: 8 * CENT)
    assert rents(made.decide(now)) == [replace(high, bid=10 * CENT)]
    assert rents(replace(made, most_bid=9 * CENT).decide(now)) == [replace(high, bid=9 * CENT)]
    assert rents(replace(made, strategy=deciding(low).strategy).decide(now)) == [low]


def test_each_market_has_its_price_the_cost_of_the_move_and_the_reason_why_it_lost() -> None:
    near, far = offer("a.large"), offer("a.large", region="us-west-2")
    expensive = offer("a.large", zone="b")
    resources = Resources(
        ("aws",), Range(1, 1), types=("a.large",), regions=("us-east-1", "us-west-2")
    )
    program = Command("train", checkpoint=Checkpoint("s3://bucket/", size=50 * 10**9))
    wanted = replace(
        spec(),
        program=program,
        resources=resources,
        strategy="regions",
        deadline=Within(30 * HOUR),
        throughputs={},
    )
    histories = (flat(near, 4 * CENT), flat(far, 6 * CENT), flat(expensive, 25 * CENT))
    (found,) = plan_jobs(
        PlanningFacts((Job(wanted, NOW + 30 * HOUR, hours=10.0),), snapshot(*histories))
    )
    rows = [as_json(ZONE, row) for row in considered_zones(found)]
    zones = {one["market"]: one for one in rows}
    assert {name: one["usd_per_hour"] for name, one in zones.items()} == pytest.approx(
        {str(near): 0.04, str(far): 0.06, str(expensive): 0.25}
    )
    assert zones[str(near)]["move_usd"] == zones[str(expensive)]["move_usd"] == 0.0
    assert zones[str(far)]["move_usd"] == pytest.approx(50 * 0.02)
    assert zones[str(expensive)]["why_not"] == "costs more than on demand"
    assert zones[str(near)]["cost_to_end_usd"] < zones[str(far)]["cost_to_end_usd"]
    assert 0 < zones[str(near)]["expected_life_hours"] <= 11.0
    assert zones[str(far)]["why_not"]


def test_a_job_with_a_range_of_nodes_moves_as_one_with_a_number_does() -> None:
    near, far = offer("a.large"), offer("a.large", region="us-west-2")
    resources = Resources(
        ("aws",), Range(1, 4), types=("a.large",), regions=("us-east-1", "us-west-2")
    )
    kept = Checkpoint("s3://bucket/", size=50 * 10**9)

    def planned(nodes: Nodes, *quotas: Quota, strategy: str = "auto") -> JobPlan:
        wanted = replace(
            spec(),
            program=Command("train", nodes, kept),
            resources=resources,
            strategy=strategy,
            deadline=Within(30 * HOUR),
            throughputs={},
        )
        job, market = (
            Job(wanted, NOW + 30 * HOUR, hours=10.0),
            snapshot(flat(near, 4 * CENT), flat(far, 6 * CENT)),
        )
        (found,) = plan_jobs(PlanningFacts((job,), market, on_demand_quotas=quotas))
        return found

    some = planned(Nodes(2, 4), strategy="regions")
    all_of_them = planned(Nodes(4, 4), strategy="regions")
    assert some.decider.roaming is not None
    assert some.decision.strategy == all_of_them.decision.strategy
    assert [one.rent for one in some.cost.choice] == [one.rent for one in all_of_them.cost.choice]
    assert some.decision.outlooks == all_of_them.decision.outlooks
    # Two of its nodes on demand keep the deadline more slowly than a gang that moves counts on.
    few = Quota("aws", "*", None, 3, QuotaUnit.MACHINES)
    staying = planned(Nodes(2, 4), few)
    assert staying.decider.roaming is None
    assert {one.market for one in staying.decider.offers} == {near}
    with pytest.raises(
        NotInTime,
        match=r"strategy regions needs 4 machines of a\.large on demand near the deadline",
    ):
        planned(Nodes(2, 4), few, strategy="regions")


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


def test_a_budget_below_the_first_lease_of_a_fast_clock_is_refused_when_planned(
    tmp_path: Path,
) -> None:
    """At 600 times the speed of this computer, a machine is committed for 130 minutes, which begin
    three hours.
    """
    with pytest.raises(
        OverBudget,
        match=r"does not cover the first lease of 1 machine .* \$0\.16 .*accepted with a budget of \$0\.1",
    ):
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
    amount = sum(
        bought(rent.offer.market, rent.machines, rent.highest_price, lease, tariff)
        for rent in orders
    )
    assert amount <= budget * NANO_SECONDS_PER_DOLLAR
    assert plan.decider.lease == lease
