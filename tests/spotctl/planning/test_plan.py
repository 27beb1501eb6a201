"""Whole plans: small ones solved by hand, and what holds of all."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from bidbrain.eviction.hazard import Hazard
from bidbrain.eviction.survival import Exposure
from bidbrain.strategies.base import Holding, Overheads, Rent, Situation
from bidbrain.strategies.known_spells import UNSEEN, KnownSpells
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import DAY, HOUR, MINUTE, NANOS_PER_DOLLAR, usd_text
from spotctl.files.job.programs import Checkpoint, Command, Stop, Training
from spotctl.files.job.spec import JobSpec, Objective
from spotctl.files.job.values import Nodes, Within
from spotctl.home.errors import BadRequest
from spotctl.home.quotas import Quota, QuotaUnit
from spotctl.planning.errors import NotInTime, OverBudget
from spotctl.planning.explain import unnamed_markets
from spotctl.planning.facts import PlanningFacts
from spotctl.planning.forecast import finish_by, forecast_of
from spotctl.planning.plan import plan_jobs
from spotctl.planning.values import Job, JobPlan, TypeSpeed
from spotctl.show.plans.summary import summary
from tests.spotctl.planning.worlds import CENT, NOW, TYPES, flat, gang, offer, snapshot, spec, spiky

CHEAP = flat(offer("a.large"), 4 * CENT)
DEARER = flat(offer("b.large", "b"), 5 * CENT)
BIGGER = flat(offer("a.xlarge"), 12 * CENT)
FAR = flat(offer("a.large", region="us-west-2"), 5 * CENT)
WORLD = (CHEAP, DEARER, BIGGER, FAR)


CALM = Hazard((), Exposure(0.0, 1e9))
"""Machines were watched for so long, without an eviction, that none is expected."""


STEADY = KnownSpells(up=True, age=2000.0, expected=(0.0, 2000.0))
"""Spot was there for months."""


def planned(
    of: JobSpec,
    *histories: PriceSeries,
    deadline: int | None = None,
    at: int = NOW,
    hazard: Hazard | None = None,
    spells: KnownSpells = STEADY,
) -> JobPlan:
    known = dict.fromkeys((series.market for series in histories or WORLD), spells)
    facts = PlanningFacts(
        (Job(of, deadline),), snapshot(*(histories or WORLD), at=at), lambda _: hazard, known
    )
    return plan_jobs(facts)[0]


def why(found: JobPlan, of: PriceSeries) -> str:
    return next(one.why for one in found.rejected if one.market == of.market)


def test_a_small_plan_by_hand() -> None:
    """320 units are 80 machine-hours of a.large: 8 of them lose 5.5 minutes at the start, and cost
    32 cents an hour.
    """
    found = planned(spec(), hazard=CALM)
    (choice,) = found.cost.choice
    assert choice.rent.offer.market == CHEAP.market
    assert (choice.rent.machines, choice.rent.bid, choice.price) == (8, 20 * CENT, 4 * CENT)
    assert choice.evidence == "observed"
    assert choice.usd_per_work == pytest.approx(0.32 / (32 * 54.5 / 60))
    hours = 10 + 5.5 / 60
    assert found.cost.estimate.hours == pytest.approx(hours)
    assert found.cost.estimate.usd == pytest.approx(0.32 * hours)
    # A launch also takes half a minute until its order, and two minutes until its machines are
    # returned.
    launched = hours + 2.5 / 60
    low, high = forecast_of(found).usd.likely
    assert 0.31 * hours < low <= forecast_of(found).usd.median <= high < 1.05 * 0.32 * hours
    assert forecast_of(found).hours.median == pytest.approx(launched, rel=0.02)
    assert found.cost.on_demand.usd == pytest.approx(1.6 * (10 + 7 / 60))
    assert finish_by(found) == NOW + round(forecast_of(found).hours.median * HOUR)
    assert found.fleet.work == 320 * HOUR
    assert (found.share.policy, found.demand.work.source, found.fleet.rates["a.large"].source) == (
        "min-cost",
        "320 clocks",
        "the job file",
    )


def test_unrecorded_evictions_are_expected_wherever_a_plan_counts_them() -> None:
    """No eviction was recorded on aws: that is unknown, and not safe."""
    unknown, calm = planned(spec(), spells=UNSEEN), planned(spec(), hazard=CALM)
    (choice,) = unknown.cost.choice
    assert choice.beta.low < 0.001 < choice.beta.probability < 0.1 < choice.beta.high
    assert choice.evidence == "prior"
    assert unknown.cost.estimate.hours > calm.cost.estimate.hours
    assert unknown.cost.estimate.first.eviction > 0.04
    assert calm.cost.estimate.first.eviction < 0.001
    # Some plays of the ten hours find no spot machines, and buy on demand.
    assert forecast_of(unknown).usd.likely[1] > 1.5 * forecast_of(calm).usd.likely[1]
    assert "spot may be unobtainable there for hours" in forecast_of(unknown).basis
    # A median would be a guess.
    low, high = forecast_of(unknown).usd.likely
    most = max(high, unknown.cost.fallback.usd)
    words = f"between {usd_text(low)} if spot holds and {usd_text(most)} on demand"
    assert dict(summary(unknown))["cost"] == words
    seen = planned(spec(), spells=KnownSpells(up=True, age=2.0))
    assert "if spot holds" not in dict(summary(seen))["cost"] + dict(summary(calm))["cost"]
    nodes, safe = planned(gang(4)), planned(gang(4), hazard=CALM)
    assert nodes.decision.interval is not None
    assert safe.decision.interval is not None
    assert nodes.decision.interval.life == pytest.approx(HOUR / (4 * 0.05 + 1 / 240), rel=0.01)
    assert nodes.decision.interval.every < 0.6 * safe.decision.interval.every


def test_each_rejected_market_has_a_reason() -> None:
    stale = flat(offer("a.large", "c"), CENT, until=NOW - 5 * DAY)
    found = planned(spec(), *WORLD, stale, hazard=CALM)
    assert "25% more expensive: $0.01376 per unit of work, " in why(found, DEARER)
    assert why(found, DEARER).endswith("% evicted per hour")
    assert "50% more expensive" in why(found, BIGGER)
    assert (
        "in another region: $0.0125 per unit of work, against $0.01 for aws/us-east-1/a.large"
        in why(found, FAR)
    )
    assert why(found, stale) == "stale: its last price is 5 days old (update: spotctl prices fetch)"
    assert unnamed_markets(found) == 0


def test_what_lost_is_judged_at_a_bid_like_the_one_that_won() -> None:
    fixed = planned(replace(spec(), strategy="fixed-bid:0.001"))
    assert fixed.cost.choice[0].rent.bid == 4 * CENT + CENT // 10
    bids = {one.market: one.instead.rent.bid for one in fixed.rejected if one.instead is not None}
    assert bids == {DEARER.market: 5 * CENT + CENT // 10, BIGGER.market: 12 * CENT + CENT // 10}


def test_a_plan_takes_lookaheads_price_of_time_from_the_past_before_it() -> None:
    market = offer("a.large", cloud="local")
    series = spiky(market, 4 * CENT, 30 * CENT)
    asked = replace(spec(cloud="local"), strategy="lookahead")
    found = planned(asked, series, flat(offer("a.large", "b", cloud="local"), 15 * CENT))
    assert (
        "the lowest value at which it was as fast as proteus in past prices"
        in found.decision.strategy.reason
    )
    # What comes later is not seen: the same markets, which then become expensive, give the same
    # plan.
    later = PriceSeries(
        market, np.append(series.times, NOW + HOUR), np.append(series.prices, 90 * CENT)
    )
    again = planned(asked, later, flat(offer("a.large", "b", cloud="local"), 15 * CENT))
    assert again.decision.strategy == found.decision.strategy
    # On a cloud that evicts for capacity, prices do not show the pace.
    assert (
        "the usual 55%" in planned(replace(spec(), strategy="lookahead")).decision.strategy.reason
    )


def test_reliable_machines_are_the_cheapest_on_demand_unless_a_type_is_named() -> None:
    some = spec(reliable=2)
    beside = planned(some).decider.reliable
    assert beside is not None
    assert (beside.offer.market.instance_type, beside.machines, beside.bid) == ("a.large", 2, None)
    named = replace(
        some,
        resources=replace(
            some.resources, reliable=replace(some.resources.reliable, type="a.xlarge")
        ),
    )
    found = planned(named)
    assert found.decider.reliable is not None
    assert found.decider.reliable.offer.on_demand == 40 * CENT
    assert found.cost.estimate.terms[-1] == pytest.approx(0.8 * found.cost.estimate.hours)
    unknown = replace(
        some, resources=replace(some.resources, reliable=replace(some.resources.reliable, type="q"))
    )
    with pytest.raises(NotInTime, match=r"job: resources\.reliable: instance type aws/q"):
        planned(unknown)


def test_throughputs_come_from_earlier_runs_then_the_file_then_siblings_then_vcpus() -> None:
    job = replace(spec(), throughputs={})
    run = {"job": {"a.large": TypeSpeed(2.0, "run job-3"), "b.large": TypeSpeed(9.0, "run job-3")}}
    known = PlanningFacts((), snapshot(*WORLD), earlier=run)
    (earlier,) = plan_jobs(replace(known, jobs=(Job(job),)))
    assert earlier.cost.choice[0].rent.offer.market == DEARER.market
    assert earlier.fleet.rates["b.large"].source == "run job-3"
    (both,) = plan_jobs(replace(known, jobs=(Job(replace(job, throughputs={"b.large": 4.0})),)))
    rate = both.fleet.rates["b.large"]
    assert (rate.nu, rate.source) == (9.0, "run job-3, instead of 4 in the job file")
    (sibling,) = plan_jobs(
        PlanningFacts((Job(replace(job, throughputs={"a.large": 6.0})),), snapshot(*WORLD))
    )
    rate = sibling.fleet.rates["a.xlarge"]
    assert (rate.nu, rate.source) == (12.0, "scaled by vCPUs from a.large")
    two = replace(job, throughputs={"a.large": 6.0, "b.large": 9.0})
    (family,) = plan_jobs(PlanningFacts((Job(two),), snapshot(*WORLD)))
    assert family.fleet.rates["a.xlarge"].nu == 12.0
    (unknown,) = plan_jobs(PlanningFacts((Job(job),), snapshot(*WORLD)))
    assert (unknown.fleet.rates["a.xlarge"].nu, unknown.demand.work.assumed) == (8.0, True)
    assert unknown.fleet.work == inf
    assert "Job length unknown" in unknown.demand.work.source
    (told,) = plan_jobs(PlanningFacts((Job(job, hours=3.0),), snapshot(*WORLD), lambda _: CALM))
    assert told.cost.estimate.hours == pytest.approx(3 + 5.5 / 60)


def test_a_job_that_ends_by_time_gets_the_machines_that_its_budget_pays_for_so_long() -> None:
    ending = replace(spec(), program=Training("mf", Stop(span=10 * HOUR)))
    assert planned(ending).cost.choice[0].rent.machines == 8
    tight = planned(replace(ending, budget=2 * NANOS_PER_DOLLAR))
    assert tight.cost.choice[0].rent.machines == 4
    assert forecast_of(tight).usd.median <= 2.0
    # Where nothing is known of spot, on-demand machines may have to stand in.
    unknown = planned(replace(ending, budget=2 * NANOS_PER_DOLLAR), spells=UNSEEN)
    assert unknown.cost.choice[0].rent.machines < 4
    assert forecast_of(unknown).usd.median <= 2.0
    assert tight.cost.estimate.hours == pytest.approx(10 + 1 / 12)
    late = Job(replace(ending, budget=2 * NANOS_PER_DOLLAR), NOW + 12 * HOUR)
    (near,) = plan_jobs(PlanningFacts((late,), snapshot(*WORLD)))
    assert "25% more expensive" in why(near, DEARER)


@pytest.mark.parametrize(
    ("hours", "kinds"),
    [(24, {"a.large"}), (10.5, {"a.large"}), (7.0, {"a.large", "a.xlarge"}), (5.39, {"a.xlarge"})],
    ids=["far", "near", "some of the big ones", "only the big ones"],
)
def test_a_deadline_chooses_the_kinds_that_keep_it(hours: float, kinds: set[str]) -> None:
    found = planned(spec(), deadline=NOW + round(hours * HOUR))
    assert {one.rent.offer.market.instance_type for one in found.cost.choice} == kinds
    # Without a reliable machine, an eviction of all machines may undo two clocks, of a minute each.
    assert finish_by(found) <= NOW + hours * HOUR + MINUTE


def test_the_deadline_strategy_may_be_named_and_plans_as_auto_does() -> None:
    timely = replace(spec(), deadline=Within(30 * HOUR))
    named, auto = (
        planned(replace(timely, strategy=name), deadline=NOW + 30 * HOUR)
        for name in ("deadline", "auto")
    )
    assert (named.cost.choice, named.decision.strategy.name) == (
        auto.cost.choice,
        auto.decision.strategy.name,
    )
    assert named.decision.strategy.reason.startswith("`strategy: deadline` decides")
    assert named.decision.strategy.reason.endswith(auto.decision.strategy.reason)


def test_what_cannot_be_done_says_what_it_would_take() -> None:
    with pytest.raises(
        NotInTime,
        match=r"deadline cannot be met.*about 21 machines would.*accepted with 201m more time$",
    ):
        planned(spec(), deadline=NOW + 2 * HOUR)
    with pytest.raises(
        OverBudget,
        match=r"expected cost \$3\.24 .*exceeds the budget of \$3\.00; .* accepted with a budget of \$3\.2\d$",
    ):
        planned(replace(spec(), budget=3 * NANOS_PER_DOLLAR))
    with pytest.raises(
        OverBudget,
        match=r"does not cover the first lease of 4 machines .* \$0\.21 .*accepted with a budget of",
    ):
        planned(replace(spec(machines=(4, 8)), budget=NANOS_PER_DOLLAR // 1000))
    with pytest.raises(OverBudget, match="does not cover the first lease of 1 machine at the bid"):
        planned(replace(spec(machines=(1, 8)), budget=NANOS_PER_DOLLAR // 10000))
    with pytest.raises(
        OverBudget,
        match=r"does not cover the first lease of 4 machines .* \$0\.27 .*accepted with a budget of",
    ):
        planned(replace(spec(machines=(4, 8), reliable=1), budget=NANOS_PER_DOLLAR // 15))
    with pytest.raises(
        NotInTime,
        match=r"none of the 1 matching markets can be used; aws/.*/a.large: stale: its last price",
    ):
        planned(spec(), CHEAP, at=NOW + 3 * DAY)
    with pytest.raises(BadRequest, match="no price history of local is stored"):
        planned(spec(cloud="local"))
    picky = spec()
    with pytest.raises(BadRequest, match=r"resources\.types: no type of aws matches z\.\*"):
        planned(replace(picky, resources=replace(picky.resources, types=("z.*",))))
    with pytest.raises(NotInTime, match=r"no region is named us-esat-1 \(did you mean us-east-1 "):
        planned(replace(picky, resources=replace(picky.resources, regions=("us-esat-1",))))
    with pytest.raises(BadRequest, match="unknown strategy 'bound'"):
        planned(replace(spec(), strategy="bound"))


def test_a_budget_or_a_deadline_that_the_first_kind_breaks_may_be_kept_on_the_next() -> None:
    """The fast machines cost 1.5 cents a unit, 4.80 in all; the budget is for the others."""
    hurry = replace(spec(), objective=Objective.MAX_THROUGHPUT)
    assert planned(hurry).cost.choice[0].rent.offer.market == BIGGER.market
    assert (
        planned(replace(hurry, budget=4 * NANOS_PER_DOLLAR)).cost.choice[0].rent.offer.market
        == CHEAP.market
    )


def test_evictions_count_in_what_a_kind_costs() -> None:
    """What starts up for 5 minutes after each of ten evictions an hour is dear for a low price."""

    def hazard(market: Market) -> Hazard | None:
        return Hazard((), Exposure(1e6, 1e5)) if market == CHEAP.market else None

    known = PlanningFacts((), snapshot(*WORLD), hazard_of=hazard)
    (found,) = plan_jobs(replace(known, jobs=(Job(replace(spec(), strategy="price-capacity")),)))
    assert found.cost.choice[0].rent.offer.market == DEARER.market
    (away,) = plan_jobs(replace(known, snapshot=snapshot(CHEAP, FAR), jobs=(Job(spec()),)))
    assert away.cost.choice[0].rent.offer.market == FAR.market
    alone = replace(known, snapshot=snapshot(CHEAP))
    (slow,) = plan_jobs(replace(alone, jobs=(Job(spec()),)))
    assert slow.cost.estimate.hours > 20
    # A command that keeps nothing for ten hours never gets anywhere there.
    hopeless = replace(
        gang(2), program=Command("true", Nodes(2, 2), Checkpoint("s3://b/c", every=10 * HOUR))
    )
    with pytest.raises(
        NotInTime,
        match=r"job: standard\+checkpoint would rent aws/.*/a.large, where machines are evicted too often",
    ):
        plan_jobs(replace(alone, jobs=(Job(hopeless, hours=5.0),)))


def test_a_job_of_centuries_is_refused_instead_of_being_forecast() -> None:
    with pytest.raises(
        NotInTime, match=r"job: would take 3[\d,]+ days, but plans cover at most 366; check"
    ):
        planned(replace(spec(), program=Training("mf", Stop(span=35_000 * DAY))))


def test_a_gang_is_in_one_market_and_a_running_job_stays_in_its_place() -> None:
    found = planned(replace(gang(3), strategy="price-capacity", throughputs={}))
    assert [one.rent.machines for one in found.cost.choice] == [3]
    (moved,) = plan_jobs(
        PlanningFacts((Job(spec(), place=("aws", "us-west-2")),), snapshot(*WORLD))
    )
    assert moved.cost.choice[0].rent.offer.market == FAR.market


def test_jobs_of_one_plan_share_a_quota() -> None:
    """It holds eight machines, which the first job takes."""
    quotas = (Quota("aws", "us-east-1", "a", 32, QuotaUnit.VCPUS),)
    first, second = plan_jobs(
        PlanningFacts((Job(spec("a")), Job(spec("b"))), snapshot(CHEAP, BIGGER), quotas=quotas)
    )
    assert second.at == first.at + round(first.share.turn.end * HOUR)
    for plan in (first, second):
        kinds = [
            (one.rent.offer.market.instance_type, one.rent.machines) for one in plan.cost.choice
        ]
        assert sum(machines for name, machines in kinds if name == "a.large") <= 8


def test_a_plan_tells_when_a_job_grows() -> None:
    """Beside the first job, two machines are left until it ends; the second job can use six."""
    quotas = (Quota("aws", "us-east-1", "a", 24, QuotaUnit.VCPUS),)
    asked = [
        replace(spec(name, machines=(1, most)), strategy="lookahead")
        for name, most in (("a", 4), ("b", 6))
    ]
    jobs = tuple(map(Job, asked))
    known = PlanningFacts(jobs, snapshot(CHEAP), spells={CHEAP.market: STEADY}, quotas=quotas)
    first, second = plan_jobs(known)
    assert [sum(one.rent.machines for one in plan.cost.choice) for plan in (first, second)] == [
        4,
        2,
    ]
    assert [(share.slice.amount, share.slices[-1].amount) for share in second.share.quotas] == [
        (24, 8)
    ]
    assert second.share.quotas[0].slices[-1].later == ((first.share.turn.end, 24),)
    assert [part.at for part in second.decision.parts] == [
        second.at,
        second.at + round(first.share.turn.end * HOUR),
    ]
    (alone,) = plan_jobs(replace(known, jobs=jobs[1:]))
    # The work that two machines do until then takes six a third of the time.
    hours = forecast_of(alone).hours.median + first.share.turn.end * 2 / 3
    assert forecast_of(second).hours.median == pytest.approx(hours, abs=0.2)
    assert second.share.turn.end == pytest.approx(hours, abs=0.2)


def test_what_comes_later_changes_nothing() -> None:
    later = PriceSeries(
        CHEAP.market,
        np.append(CHEAP.times, NOW + HOUR).astype(np.int64),
        np.append(CHEAP.prices, 90 * CENT).astype(np.int64),
    )
    before, after = planned(spec()), planned(spec(), later, *WORLD[1:])
    assert (after.cost.choice, after.cost.estimate) == (before.cost.choice, before.cost.estimate)
    assert forecast_of(after).usd.likely == forecast_of(before).usd.likely


def test_the_constraints_of_a_plan_decide_again_during_a_run() -> None:
    made = planned(replace(spec(), strategy="price-capacity")).decider
    prices = {series.market: int(series.prices[-1]) for series in WORLD}

    def bought(now: int, *holdings: Holding) -> list[Rent]:
        known = Situation(
            now,
            made.offers,
            lambda one: prices[one.market],
            holdings,
            made.baseline,
            made.most_nu,
            100.0 * HOUR,
        )
        return [action for action in made.decide(known).actions if isinstance(action, Rent)]

    rents = bought(NOW)
    assert [(rent.offer.market, rent.machines) for rent in rents] == [(CHEAP.market, 8)]
    held = Holding(0, rents[0], NOW, NOW)
    assert bought(NOW + HOUR // 2, held) == []
    assert (
        bought(NOW + HOUR // 2, replace(held, rent=replace(rents[0], machines=5)))[0].machines == 3
    )


@pytest.mark.parametrize(("most", "first"), [(50, 32), (32 * 64, 32), (100 * 64, 100)])
@pytest.mark.parametrize("speed", [4.0, 4000.0])
def test_proteus_rents_128_vcpus_at_a_time_or_a_part_of_a_large_job(
    speed: float, most: int, first: int
) -> None:
    training = Training("mf", Stop(clocks=round(80 * most * speed)))
    job = replace(
        spec(machines=(1, most)),
        program=training,
        throughputs={"a.large": speed},
        strategy="proteus",
    )
    decider = planned(job, CHEAP).decider
    now = Situation(
        NOW, decider.offers, lambda _: 4 * CENT, (), decider.baseline, decider.most_nu, 1e18
    )
    decided = decider.decide(now)
    assert next(action.machines for action in decided.actions if isinstance(action, Rent)) == first
    # Equal requests are named together.
    assert decided.reason.count(" x a.large") <= len(
        {getattr(action, "bid", None) for action in decided.actions}
    )


@pytest.mark.parametrize("strategy", ["proteus", "lookahead", "price-capacity", "tierml"])
def test_machines_that_take_hours_to_start_are_rented_all_the_same(strategy: str) -> None:
    """A busy computer learned such start-ups on the local market, and no later launch found a
    machine worth renting.
    """
    slow = Overheads(startup=2 * HOUR, eviction=2 * HOUR, resize=MINUTE)
    known = PlanningFacts((), snapshot(*WORLD), lambda _: CALM, overheads=slow)
    (found,) = plan_jobs(replace(known, jobs=(Job(replace(spec(), strategy=strategy)),)))
    assert sum(one.rent.machines for one in found.cost.choice) >= 1


STRATEGIES = (
    "auto",
    "proteus",
    "lookahead:1",
    "price-capacity",
    "tierml",
    "standard+agileml",
    "fixed-bid:0.001",
    "on-demand",
)
markets = st.sampled_from(
    [
        offer(name, zone, region)
        for name in TYPES
        for zone in "ab"
        for region in ("us-east-1", "us-west-2")
    ]
)
prices = st.dictionaries(
    markets, st.tuples(st.integers(1, 60), st.booleans(), st.booleans()), min_size=1, max_size=8
)


@settings(max_examples=5)
@given(
    prices,
    st.sampled_from(STRATEGIES),
    st.sampled_from(list(Objective)),
    st.integers(1, 4),
    st.integers(0, 10),
    st.sampled_from([1, 3, 6, 30, 1000]),
    st.sampled_from([4, 11, 24, 400]),
    st.integers(0, 1),
)
def test_every_plan_keeps_the_jobs_limits(
    world: dict[Market, tuple[int, bool, bool]],
    strategy: str,
    objective: Objective,
    least: int,
    more: int,
    budget: int,
    hours: int,
    reliable: int,
) -> None:
    histories = [
        spiky(market, cents * CENT, cents * CENT * 9)
        if restless
        else flat(market, cents * CENT, since)
        for market, (cents, restless, old) in world.items()
        for since in [NOW - 9 * DAY if old else NOW]
    ]
    asked = replace(
        spec(machines=(least, least + more), reliable=reliable),
        strategy=strategy,
        objective=objective,
        budget=budget * NANOS_PER_DOLLAR,
    )
    known = PlanningFacts((), snapshot(*histories))
    try:
        (found,) = plan_jobs(replace(known, jobs=(Job(asked, NOW + hours * HOUR),)))
    except (NotInTime, OverBudget):
        return
    usable = {known.snapshot.markets[row] for row in np.flatnonzero(known.snapshot.usable).tolist()}
    chosen = {one.rent.offer.market for one in found.cost.choice}
    assert chosen <= usable
    assert len({market.region for market in chosen}) == 1
    assert not chosen & {one.market for one in found.rejected}
    assert least <= sum(one.rent.machines for one in found.cost.choice) <= least + more
    forecast = forecast_of(found)
    assert forecast.usd.quantile(0.4) <= budget
    assert sum(term.usd for term in forecast.terms) == pytest.approx(forecast.usd.median)
    assert 0 <= forecast.budget_kept(budget) <= 1 >= forecast.deadline_met(hours) >= 0
    assert all(
        0 <= one.beta.low <= one.beta.probability <= one.beta.high <= 1 for one in found.cost.choice
    )
    assert len(found.rejected) + unnamed_markets(found) + len(chosen) >= len(world)


def test_a_plan_mixes_kinds_where_neither_alone_is_best() -> None:
    """Seven slow and one fast machine are in time for less than eight fast ones; the slow ones
    alone are late.
    """
    hurry = planned(spec(), deadline=NOW + 8 * HOUR)
    assert hurry.decision.mixture is not None
    first = hurry.decision.mixture.phases[0].mixture.machines
    used = {name for name, count in zip(hurry.decision.types, first, strict=True) if count}
    assert used == {"a.large", "a.xlarge"}
    assert sum(first) == 8
    only_big = planned(spec(), BIGGER, deadline=NOW + 8 * HOUR)
    assert hurry.cost.estimate.usd < 0.9 * only_big.cost.estimate.usd
    assert finish_by(hurry) <= NOW + 8 * HOUR
    assert planned(spec()).decision.mixture is None


def test_a_budget_pays_for_as_much_speed_as_it_can() -> None:
    hurry = replace(spec(), objective=Objective.MAKESPAN_WITHIN_BUDGET, budget=4 * NANOS_PER_DOLLAR)
    mixed = planned(hurry, hazard=CALM)
    assert mixed.cost.estimate.usd <= 4.0
    assert mixed.cost.estimate.hours < 0.82 * planned(spec(), hazard=CALM).cost.estimate.hours
    assert len({one.rent.offer.market.instance_type for one in mixed.cost.choice}) == 2


def test_jobs_with_deadlines_get_whole_machines_that_keep_them() -> None:
    quotas = (Quota("aws", "us-east-1", "a", 80, QuotaUnit.VCPUS),)
    jobs = (Job(spec("a"), NOW + 9 * HOUR), Job(spec("b"), NOW + 9 * HOUR))
    steady = {CHEAP.market: STEADY, BIGGER.market: STEADY}
    plans = plan_jobs(PlanningFacts(jobs, snapshot(CHEAP, BIGGER), spells=steady, quotas=quotas))
    for found in plans:
        assert finish_by(found) <= NOW + 9 * HOUR
    parts = plans[0].share.quotas[0].slices
    assert sum(part.amount for part in parts if not part.turn.begin) <= 80
    with pytest.raises(
        NotInTime, match=r"raise a quota, or (run the jobs one after the other|allow more time)"
    ):
        plan_jobs(
            PlanningFacts(jobs, snapshot(CHEAP, BIGGER), quotas=(replace(quotas[0], amount=60),))
        )
