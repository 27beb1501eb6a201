"""What a job is expected to cost: footprints against the equations, checkpoints, and on-demand
machines instead.
"""

from __future__ import annotations

from itertools import product
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given, strategies as st

from bidbrain.billing import End, Life, billing_rule, billing_rules, rule_of_cloud, usd
from bidbrain.eviction.estimate import Estimate
from bidbrain.eviction.hazard import Hazard
from bidbrain.eviction.survival import Exposure
from bidbrain.forecast.values import KnownPast
from bidbrain.strategies.base import Offer, Overheads, Rent
from pricing_data.units import HOUR, MINUTE, SECOND
from spotctl.files.job.reader import loads
from spotctl.home.config import Settings
from spotctl.planning.candidates import saves_of
from spotctl.planning.cost import beta_of, checkpoints_of, estimate, first_hour
from spotctl.planning.facts import Observed, learn
from spotctl.planning.fleet import past_of
from spotctl.planning.forecast import forecast_of
from spotctl.planning.values import Choice, Fleet, Job, JobPlan
from spotctl.run.start.launch_plans import stored_plans
from spotctl.run.turn.live_strategy import expectation
from spotctl.show.plans.summary import summary
from tests.spotctl.planning.worlds import CENT, NOW, flat, offer, snapshot, spiky

A, B = (Offer(offer("a.large", zone), 4.0, 20 * CENT) for zone in "ab")
FLAT, SPIKY = flat(A.market, 4 * CENT), spiky(B.market, 4 * CENT, 30 * CENT)
PAST = past_of([FLAT, SPIKY], lambda _: Hazard((), Exposure(0.0, 1e9)), NOW)


def chosen(rent: Rent, price: int, beta: float, after: float | None) -> Choice:
    return Choice(rent, price, Estimate(beta, lambda: (beta, beta), after, 1.0, "told"))


def under(billing: str = "hourly-refund", reliable: Rent | None = None) -> Fleet:
    """A fleet with everything that the cost of an hour reads besides evicted machines."""
    overheads = Overheads(startup=5 * MINUTE, eviction=MINUTE, resize=MINUTE // 2)
    known = SimpleNamespace(
        billing=billing_rule(billing), within_the_hour=overheads, reliable=reliable
    )
    return cast("Fleet", known)


def test_beta_is_the_share_of_moments_before_a_spike_with_an_interval() -> None:
    """Every four hours half an hour of spike: who starts in the hour before one is evicted."""
    found = beta_of(PAST, Rent(B, 8, 5 * CENT), 4 * CENT)
    assert found.probability == pytest.approx(0.25, abs=0.01)
    assert found.low < found.probability < found.high
    assert found.median_seconds_to_eviction == pytest.approx(1800, rel=0.02)
    assert beta_of(PAST, Rent(B, 8, 30 * CENT), 4 * CENT).probability == pytest.approx(
        0.0, abs=1e-8
    )
    calm = beta_of(PAST, Rent(A, 8, 4 * CENT), 4 * CENT)
    assert calm.probability == pytest.approx(0.0, abs=1e-8)
    assert calm.probability < calm.high < 0.02
    assert beta_of(PAST, Rent(A, 8, None), 4 * CENT).high == 0.0


def test_beta_includes_the_hazard_in_addition_to_the_price() -> None:
    taken = past_of([SPIKY], lambda _: Hazard((), Exposure(1e6, 1e7)), NOW)
    both = beta_of(taken, Rent(B, 8, 5 * CENT), 4 * CENT)
    alone = beta_of(PAST, Rent(B, 8, 5 * CENT), 4 * CENT)
    assert 1 - both.probability == pytest.approx(
        (1 - alone.probability) * 2.718281828**-0.1, rel=1e-3
    )


def test_the_first_hour_is_equations_4_1_to_4_4() -> None:
    beta, after = 0.25, 1800.0
    found = first_hour(
        [chosen(Rent(B, 8, 5 * CENT), 4 * CENT, beta, after)], under(reliable=Rent(A, 1, None))
    )
    cost = (1 - beta) * 0.04 * 8 + 0.2
    useful = (0.75 + 0.25 * 0.5 - 5 / 60) - beta / 60 - 0.5 / 60
    assert found.cost_usd == pytest.approx(cost)
    assert found.work == pytest.approx(8 * 4 * useful)
    assert found.usd_per_work == pytest.approx(cost / (32 * useful))


def test_in_a_later_hour_what_was_taken_is_replaced_and_paid_for() -> None:
    """A job that is evicted after half an hour has it refunded; the machine in its place starts up,
    and is paid for the rest unless it is evicted too."""
    found = estimate(
        [chosen(Rent(B, 8, 5 * CENT), 4 * CENT, 0.25, 1800.0)], under(), None, None
    ).later
    assert found.cost_usd == pytest.approx(8 * 0.04 * (0.75 + 0.25 * 0.5 * 0.75))
    assert found.work == pytest.approx(32 * (0.75 ** (5 / 60) - 0.25 / 60))


def test_a_whole_job_by_hand() -> None:
    """The first hour has 54.5 useful minutes, every other one 60."""
    part = chosen(Rent(A, 8, 20 * CENT), 4 * CENT, 0.0, None)
    found = estimate([part], under("per-second", Rent(B, 1, None)), None, 320.0)
    hours = 1 + (320 - 32 * 54.5 / 60) / 32
    assert found.hours == pytest.approx(hours)
    assert list(found.terms) == pytest.approx([8 * 0.04 * hours, 0.2 * hours])
    short = estimate([part], under("per-second"), None, 32 * 54.5 / 120)
    assert short.hours == pytest.approx(1 / 12 + 11 / 12 / 2)
    timed = estimate([part], under("per-second"), None, None, 2.0)
    assert timed.hours == pytest.approx(2 + 1 / 12)
    assert estimate([part], under("per-second"), None, 320.0, 2.0).hours == pytest.approx(
        2 + 1 / 12
    )


@given(
    st.lists(
        st.tuples(st.integers(1, 50), st.integers(1, 100), st.floats(0, 0.9), st.floats(1, 3600)),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from(list(billing_rules())),
    st.floats(0.1, 2000),
    st.booleans(),
)
def test_terms_add_up(
    parts: list[tuple[int, int, float, float]], billing: str, amount: float, helped: bool
) -> None:
    made = [
        chosen(Rent(B, k, 30 * CENT), cents * CENT // 4, beta, after)
        for k, cents, beta, after in parts
    ]
    found = estimate(made, under(billing, Rent(A, 2, None) if helped else None), None, amount)
    first, later = found.first.cost_usd, found.later.cost_usd
    assert sum(found.terms) == pytest.approx(found.usd)
    assert found.usd == pytest.approx(first * min(found.hours, 1) + later * max(found.hours - 1, 0))
    done = found.first.work if found.hours >= 1 else amount
    assert done + max(found.hours - 1, 0) * found.later.work >= amount * (1 - 1e-9)


@pytest.mark.parametrize(("rule", "beta"), list(product(billing_rules(), (0.0, 0.5, 1.0))))
def test_every_rule_has_an_answer_at_the_ends_of_beta(rule: str, beta: float) -> None:
    parts = [chosen(Rent(B, 8, 5 * CENT), 4 * CENT, beta, 1800.0)]
    expected = estimate(parts, under(rule), None, None)
    for hour in (expected.first, expected.later):
        assert 0 <= hour.cost_usd <= 8 * 0.04 * (1 + 1e-9)


def test_the_market_history_ends_at_the_moment_and_is_long_enough() -> None:
    later = flat(A.market, 9 * CENT, since=NOW - HOUR, until=NOW + 30 * HOUR)
    history = snapshot(later).history(0)
    assert (history.last, history.last - history.first) == (NOW, 4 * HOUR)
    assert set(history.prices.tolist()) == {9 * CENT}


NO_HISTORY = KnownPast(NOW, {}, {})


def plan_of(folder: Path, every: str, more: str = "") -> JobPlan:
    job = (
        f"name: job\nkind: command\nrun: 'true'\nhours: 1h\ncheckpoint: {{path: ckpt, every: "
        f"{every}}}\n{more}"
        "resources: {clouds: [local]}\nlocal: {speed: 60}\n"
    )
    (plan,) = stored_plans([loads(job, folder / "job.yaml")], Settings(home=folder)).plans
    return plan


@pytest.mark.parametrize("more", ["", "deadline: 6h\n"])
def test_a_short_interval_does_not_make_a_job_many_times_longer(tmp_path: Path, more: str) -> None:
    """At two minutes for each checkpoint, a job of one hour that saves every five seconds would
    take 25.
    """
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


@pytest.mark.parametrize(
    ("every", "words"), [("5s", "saved every 5 seconds"), ("10m", "saved every 10 minutes")]
)
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
        ("15m", None, 10 * SECOND),
        ("auto", None, 10 * SECOND),
        ("5s", None, round(0.17 * 5 * SECOND)),
        ("15m", 0.5, 30 * SECOND),
        ("auto", 0.5, 30 * SECOND),
        ("5s", 0.5, 5 * SECOND),
    ],
)
def test_the_cost_is_the_measured_one_in_market_time_or_what_is_affordable(
    every: str, measured: float | None, cost: int
) -> None:
    job = command(every, measured)
    found = checkpoints_of(job.spec.program, saves_of(job)[1])
    assert found is not None
    assert found.cost == pytest.approx(cost, abs=1)


def test_runs_measure_what_their_checkpoints_take() -> None:
    runs = [
        Observed(wall, True, 1.0, {}, {}, (), (), (), saves)
        for wall, saves in enumerate([((3.0, 10), (5.0, 30)), ((4.0, 20),), ()])
    ]
    learned = learn(runs, {}, 1, MINUTE, MINUTE)
    assert learned is not None
    assert (learned.save_seconds, learned.save_bytes) == (4.0, 20)


def on_demand_plan(folder: Path, job: str) -> JobPlan:
    (plan,) = stored_plans(
        [loads(f"name: job\n{job}", folder / "job.yaml")], Settings(home=folder)
    ).plans
    return plan


@pytest.mark.parametrize(
    "job",
    [
        "kind: command\nrun: 'true'\nhours: 2h\nresources: {clouds: [local]}\n",
        "kind: command\nrun: 'true'\nnodes: 3\nhours: 5h\ncheckpoint: {path: ckpt}\nresources: "
        "{clouds: [local]}\n",
        "kind: agileml\napp: mf\nstop: {clocks: 500}\nthroughputs: {c4.xlarge: 40}\n"
        "resources: {clouds: [local], machines: 2..8}\n",
        "kind: agileml\napp: mf\nstop: {minutes: 90}\nresources: {clouds: [local], machines: "
        "..8}\n",
    ],
)
def test_on_demand_costs_as_much_as_on_demand(tmp_path: Path, job: str) -> None:
    """Begun hours are in the plan of on-demand machines, and in what that plan is compared with."""
    plan = on_demand_plan(tmp_path, f"{job}strategy: on-demand\n")
    assert forecast_of(plan).usd.median == pytest.approx(plan.cost.on_demand.usd, rel=0.02)
    assert forecast_of(plan).hours.median == pytest.approx(plan.cost.on_demand.hours, rel=0.12)


def test_on_demand_machines_of_unknown_length_cost_as_much_per_hour(tmp_path: Path) -> None:
    job = (
        "kind: command\nrun: 'true'\nresources: {clouds: [local]}\nstrategy: on-demand\nlocal: "
        "{speed: 900}\n"
    )
    plan = on_demand_plan(tmp_path, job)
    assert forecast_of(plan).usd_per_hour.median == pytest.approx(plan.cost.on_demand.usd, rel=0.02)


def test_no_on_demand_fleet_within_the_limits_is_as_fast_and_cheaper(tmp_path: Path) -> None:
    """An oracle: every type of the region's list in every allowed number."""
    job = (
        "kind: agileml\napp: mf\nstop: {clocks: 500}\nthroughputs: {c4.xlarge: 40}\n"
        "resources: {clouds: [local], machines: 2..8}\n"
    )
    plan = on_demand_plan(tmp_path, job)
    best, rule = inf, rule_of_cloud("local")
    unworked = (plan.demand.startup or 0) + plan.demand.times.ending
    span = plan.cost.estimate.hours * HOUR - plan.decider.overheads.startup
    for each in plan.decider.offers:
        for machines in range(2, 9):
            works = 500 * HOUR / (machines * each.nu)
            if works <= span:
                bill = rule.bill(Life(0, round(works) + unworked, End.LEFT), each.on_demand)
                best = min(best, machines * usd(bill.amount))
    found = plan.cost.on_demand
    assert found.usd <= best
    works = 500 * HOUR / (found.rent.machines * found.rent.offer.nu)
    bill = rule.bill(Life(0, round(works) + unworked, End.LEFT), found.rent.offer.on_demand)
    assert found.usd == found.rent.machines * usd(bill.amount)
    assert 2 <= found.rent.machines <= 8


def test_a_run_records_the_baseline_of_its_plan(tmp_path: Path) -> None:
    plan = on_demand_plan(
        tmp_path, "kind: command\nrun: 'true'\nhours: 2h\nresources: {clouds: [local]}\n"
    )
    recorded, fleet = expectation(plan).instead, plan.cost.on_demand
    assert recorded is not None
    assert (recorded.market, recorded.machines) == (fleet.rent.offer.market, fleet.rent.machines)
    assert expectation(plan).on_demand_usd == fleet.usd
    # A script that begins again at each start does two hours of work in all, however long its
    # machines worked.
    assert recorded.work == plan.fleet.work
    unknown = on_demand_plan(tmp_path, "kind: command\nrun: 'true'\nresources: {clouds: [local]}\n")
    assert expectation(unknown).instead.work is None  # type: ignore[union-attr]
