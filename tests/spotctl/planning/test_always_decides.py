"""Every plan and every decision is an answer or one clear refusal, whatever is offered, held,
allowed and left.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from hypothesis import event, given, settings, strategies as st

from bidbrain.eviction.hazard import Hazard
from bidbrain.eviction.survival import Exposure
from bidbrain.strategies.base import Decision, Holding, Rent, Return, Situation, SpotRecord
from bidbrain.strategies.names import DEADLINE, NAMES, REGIONS
from pricing_data.series import PriceSeries
from pricing_data.units import HOUR, MINUTE, NANOS_PER_DOLLAR
from spotctl.files.job.programs import Checkpoint, Command, Stop, Training
from spotctl.files.job.spec import AUTO, JobSpec, Objective
from spotctl.files.job.values import Nodes, WorkTime
from spotctl.home.errors import SpotctlError
from spotctl.home.quotas import Quota, QuotaUnit
from spotctl.planning.facts import PlanningFacts
from spotctl.planning.plan import plan_jobs
from spotctl.planning.values import Job, JobPlan
from tests.spotctl.planning.worlds import CENT, NOW, TYPES, flat, offer, snapshot, spec, spiky

CALM = Hazard((), Exposure(0.0, 1e9))
STRATEGIES = [
    AUTO,
    DEADLINE,
    REGIONS,
    *(f"{name}:0.01" if name == "fixed-bid" else name for name in NAMES),
]


@st.composite
def worlds(draw: st.DrawFn) -> list[PriceSeries]:
    """One to four markets of a cloud, with prices below, at and above on demand."""
    cloud = draw(st.sampled_from(["aws", "local"]))
    places = st.tuples(st.sampled_from(sorted(TYPES)), st.sampled_from("ab"))
    markets = draw(st.lists(places, min_size=1, max_size=4, unique=True))
    histories = []
    for name, zone in markets:
        listed = 5 * CENT * TYPES[name]
        price = draw(st.sampled_from([listed // 5, listed // 2, listed, listed + CENT, 3 * listed]))
        market = offer(name, zone, cloud=cloud)
        histories.append(
            spiky(market, price, 2 * listed) if draw(st.booleans()) else flat(market, price)
        )
    return histories


@st.composite
def quotas(draw: st.DrawFn, cloud: str) -> tuple[Quota, ...]:
    """Quotas of several kinds, some of which cover none of the markets, or all of them together."""
    places = [
        (None, None),
        ("us-east-1", None),
        ("*", "a"),
        ("us-east-1", "a"),
        ("us-east-1", "b"),
        ("*", "c"),
    ]
    drawn = draw(st.lists(st.sampled_from(places), max_size=3, unique=True))
    amounts, units = st.sampled_from([0, 1, 3, 8, 16, 24, 64]), st.sampled_from(QuotaUnit)
    return tuple(
        Quota(cloud, region, family, draw(amounts), draw(units), spot=draw(st.integers(0, 3)) > 0)
        for region, family in drawn
    )


@st.composite
def specs(draw: st.DrawFn, cloud: str, count: int) -> list[JobSpec]:
    objective = draw(st.sampled_from([None, *Objective]))
    jobs = []
    for number in range(count):
        least = draw(st.integers(1, 3))
        machines = (least, least + draw(st.integers(0, 4)))
        made = spec(f"job{number}", machines, draw(st.integers(0, 1)), cloud)
        programs: list[Training | Command] = [
            Training("mf", Stop(clocks=draw(st.sampled_from([1, 100, 2000])))),
            Training("mf", Stop(span=2 * HOUR)),
            Training("mf", Stop(converged=0.01)),
            Command(
                "true",
                Nodes(*machines),
                checkpoint=draw(st.sampled_from([None, Checkpoint("ckpt")])),
            ),
            Command("true", Nodes(machines[1], machines[1])),
        ]
        aim = objective or draw(st.sampled_from(Objective))
        budgets = [NANOS_PER_DOLLAR // 10, 20 * NANOS_PER_DOLLAR]
        jobs.append(
            replace(
                made,
                program=draw(st.sampled_from(programs)),
                objective=aim,
                strategy=draw(st.sampled_from(STRATEGIES)),
                throughputs=draw(st.sampled_from([made.throughputs, {}])),
                hours=draw(st.sampled_from([None, WorkTime(HOUR)])),
                budget=draw(
                    st.sampled_from(
                        budgets if aim is Objective.MAKESPAN_WITHIN_BUDGET else [None, *budgets]
                    )
                ),
                value_of_time=draw(st.sampled_from([None, NANOS_PER_DOLLAR])),
            )
        )
    return jobs


@st.composite
def facts(draw: st.DrawFn) -> PlanningFacts:
    histories = draw(worlds())
    cloud = histories[0].market.cloud
    every = draw(quotas(cloud))
    jobs = [
        Job(
            made,
            draw(st.sampled_from([None, None, NOW + 3 * HOUR, NOW + 30 * HOUR, NOW - HOUR])),
            None if made.hours is None else made.hours.span / HOUR,
        )
        for made in draw(specs(cloud, draw(st.integers(1, 3))))
    ]
    hazard = draw(st.sampled_from([None, CALM])) if cloud == "aws" else None
    return PlanningFacts(
        tuple(jobs),
        snapshot(*histories),
        lambda _: hazard,
        quotas=[quota for quota in every if quota.spot],
        on_demand_quotas=[quota for quota in every if not quota.spot],
    )


@st.composite
def situations(draw: st.DrawFn, plan: JobPlan) -> Situation:
    """Any part of the offers at any price, any machines, and little or nothing of work, time and
    money left.
    """
    decider, work = plan.decider, plan.fleet.work
    offers = tuple(offer for offer in decider.offers if draw(st.booleans()))
    prices = {
        each: draw(st.sampled_from([each.on_demand // 4, each.on_demand, 2 * each.on_demand]))
        for each in offers
    }
    now = plan.at + draw(st.sampled_from([0, MINUTE, 2 * HOUR, 29 * HOUR, 40 * HOUR]))
    holdings = []
    for number, each in enumerate(decider.offers):
        if draw(st.integers(0, 2)):
            continue
        bid = draw(st.sampled_from([None, each.on_demand, each.on_demand // 2]))
        start = now - draw(st.sampled_from([0, 90 * MINUTE]))
        leaves = draw(st.sampled_from([None, None, now + MINUTE]))
        rent = Rent(each, draw(st.integers(1, 4)), bid)
        holdings.append(Holding(number, rent, start, start + 2 * MINUTE, leaves))
    taken = tuple(now - minutes * MINUTE for minutes in (50, 30, 10)) if draw(st.booleans()) else ()
    sides = [(each.market, spot) for each in decider.offers for spot in (True, False)]
    refused = dict.fromkeys(draw(st.lists(st.sampled_from(sides), unique=True, max_size=3)), 1)
    return Situation(
        now,
        offers,
        lambda each: prices.get(each, each.on_demand // 3),
        tuple(holdings),
        decider.baseline,
        decider.most_nu,
        draw(st.sampled_from([work, work / 50, 0.0])),
        usd_left=draw(st.sampled_from([inf, 5.0, 0.0, -0.01])),
        record=SpotRecord(taken, paid=len(taken) * HOUR, resumes=draw(st.booleans())),
        refused=refused,
    )


def planned(known: PlanningFacts) -> list[JobPlan]:
    """The plans; none if the jobs are refused, in one line."""
    try:
        return plan_jobs(known)
    except SpotctlError as refusal:
        why = str(refusal)
    event(f"refused: {why[:60]}")
    assert why.startswith("job")
    assert "\n" not in why
    return []


def check(decision: Decision, situation: Situation) -> None:
    rents = [action for action in decision.actions if isinstance(action, Rent)]
    returned = {action.allocation for action in decision.actions if isinstance(action, Return)}
    assert returned <= {holding.allocation for holding in situation.holdings}
    assert all(rent.machines > 0 for rent in rents)
    assert all(rent.offer in situation.offers for rent in rents if rent.bid is not None)
    assert decision.actions or decision.wake_at is None or decision.wake_at > situation.now
    assert all(rent.highest_price <= rent.offer.on_demand for rent in rents)


@settings(max_examples=60)
@given(st.data())
@pytest.mark.slow
def test_jobs_get_a_plan_and_decisions_or_one_clear_refusal(data: st.DataObject) -> None:
    for plan in planned(data.draw(facts())):
        for _ in range(6):
            situation = data.draw(situations(plan))
            check(plan.decider.decide(situation), situation)
        nothing = replace(data.draw(situations(plan)), offers=(), holdings=())
        check(plan.decider.decide(nothing), nothing)
