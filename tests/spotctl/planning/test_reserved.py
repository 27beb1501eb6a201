"""Reservations in a plan: used first while they cost no more, for as many machines as they have,
until they end.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings, strategies as st

from bidbrain.strategies.base import Holding, Rent, Return, Situation
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import DAY, HOUR, MINUTE, NANOS_PER_DOLLAR
from spotctl.files.job.programs import Checkpoint, Command, Stop, Training
from spotctl.files.job.resources import NOTICE, Reservation
from spotctl.files.job.spec import JobSpec
from spotctl.files.job.values import Nodes, Range, WorkTime
from spotctl.home.quotas import Quota, QuotaUnit
from spotctl.planning.errors import NotInTime, OverBudget
from spotctl.planning.explain import other_paces
from spotctl.planning.facts import PlanningFacts, place_of
from spotctl.planning.forecast import forecast_of
from spotctl.planning.plan import _divided, plan_jobs
from spotctl.planning.values import Job, JobPlan
from spotctl.run.start.launch_plans import JobPlans, _shares
from tests.spotctl.planning.test_plan import CALM, FAR, STEADY, WORLD
from tests.spotctl.planning.worlds import CENT, NOW, flat, gang, offer, snapshot, spec

SPOT = flat(offer("a.large"), 4 * CENT)


def reserved(
    machines: int = 2, price: int = 0, ends: int = 30 * DAY, **values: object
) -> Reservation:
    named = Reservation("cr-0abc", "aws", "us-east-1b", "a.large", machines, price, NOW + ends)
    return replace(named, **values)  # type: ignore[arg-type] # some of its fields


def holding_reservations(of: JobSpec, *reservations: Reservation) -> JobSpec:
    return replace(of, resources=replace(of.resources, reservations=reservations))


def planned(
    of: JobSpec,
    *histories: PriceSeries,
    deadline: int | None = None,
    quotas: tuple[Quota, ...] = (),
) -> JobPlan:
    series = histories or (SPOT,)
    known = dict.fromkeys((one.market for one in series), STEADY)
    job = Job(of, deadline, place=place_of(of, NOW))
    return plan_jobs(
        PlanningFacts((job,), snapshot(*series), lambda _: CALM, known, quotas=quotas)
    )[0]


def saving(hours: int) -> JobSpec:
    """A gang with checkpoints, which goes on elsewhere when a reservation ends."""
    return replace(
        gang(4),
        hours=WorkTime(hours),
        program=Command("true", Nodes(4, 4), Checkpoint("checkpoint")),
    )


def rents(plan: JobPlan) -> list[tuple[Market, int, int | None]]:
    return [
        (choice.rent.offer.market, choice.rent.machines, choice.rent.bid)
        for choice in plan.cost.choice
    ]


def situation(plan: JobPlan, now: int, *holdings: Holding, spot: int = 4 * CENT) -> Situation:
    decider = plan.decider
    return Situation(
        now,
        decider.offers,
        lambda _: spot,
        holdings,
        decider.baseline,
        decider.most_nu,
        plan.fleet.work,
        deadline=decider.deadline,
    )


def held(plan: JobPlan, number: int = 0) -> Holding:
    rent = plan.cost.choice[number].rent
    return Holding(number, rent, NOW, NOW + 5 * MINUTE)


def test_a_paid_reservation_is_used_first_and_spot_for_the_rest() -> None:
    block = reserved(2)
    plan = planned(holding_reservations(spec(), block))
    assert rents(plan) == [(block.market, 2, None), (SPOT.market, 6, 20 * CENT)]
    first, second = plan.cost.choice
    assert (first.price, first.beta.probability, first.usd_per_work) == (0, 0.0, 0.0)
    assert second.price == 4 * CENT
    spot_only = planned(spec())
    assert forecast_of(plan).usd.median == pytest.approx(
        0.75 * forecast_of(spot_only).usd.median, rel=0.03
    )
    assert forecast_of(plan).hours.median == pytest.approx(
        forecast_of(spot_only).hours.median, rel=0.02
    )
    assert str(block.market) in {str(term.market) for term in forecast_of(plan).terms}


@pytest.mark.parametrize(("price", "used"), [(0, True), (4 * CENT, True), (5 * CENT, False)])
def test_a_gang_is_in_a_reservation_while_it_costs_no_more_than_spot(
    price: int, used: bool
) -> None:
    block = reserved(4, price)
    plan = planned(holding_reservations(replace(gang(4), hours=WorkTime(2 * HOUR)), block))
    if used:
        assert rents(plan) == [(block.market, 4, None)]
        hours = forecast_of(plan).hours.median
        assert forecast_of(plan).usd.median == pytest.approx(
            4 * price / NANOS_PER_DOLLAR * hours, rel=0.05
        )
        assert forecast_of(plan).usd.likely[0] == forecast_of(plan).usd.likely[1]
    else:
        assert rents(plan) == [(SPOT.market, 4, 20 * CENT)]
        (found,) = [one for one in plan.rejected if one.market == block.market]
        assert found.why == "costs $0.05 an hour, and as much work costs $0.04 elsewhere"


def test_a_gang_larger_than_a_reservation_stays_out_of_it() -> None:
    block = reserved(3)
    plan = planned(holding_reservations(gang(4), block))
    assert rents(plan) == [(SPOT.market, 4, 20 * CENT)]
    assert plan.rejected[0].why == "has 3 machines, and the job needs 4 in one market"


NO_SPOT = (Quota("aws", "us-east-1", "a", 0, QuotaUnit.VCPUS),)


@pytest.mark.parametrize("job", [replace(gang(4), hours=WorkTime(2 * HOUR)), spec(machines=(2, 8))])
def test_a_reservation_needs_no_quota_for_spot(job: JobSpec) -> None:
    """Accounts that may rent no spot machine of a family often have a capacity block of it."""
    block = reserved(4, CENT)
    plan = planned(holding_reservations(job, block), quotas=NO_SPOT)
    assert rents(plan) == [(block.market, 4, None)]
    with pytest.raises(NotInTime, match="quotas allow at most 0"):
        planned(job, quotas=NO_SPOT)


def test_a_reservation_that_is_too_small_leaves_the_quota_as_it_is() -> None:
    with pytest.raises(
        NotInTime, match="needs at least 4 machines, and quotas and reservations allow at most 2"
    ):
        planned(holding_reservations(gang(4), reserved(2)), quotas=NO_SPOT)


def test_a_reservation_keeps_the_job_in_its_region() -> None:
    cheaper = flat(FAR.market, CENT)
    assert rents(planned(gang(4), *WORLD, cheaper))[0][0] == FAR.market
    plan = planned(
        holding_reservations(gang(4), reserved(3)),
        *(one for one in WORLD if one is not FAR),
        cheaper,
    )
    assert {offered.market.region for offered in plan.decider.offers} == {"us-east-1"}


def test_one_that_has_ended_or_is_about_to_is_not_used() -> None:
    for ends in (-HOUR, 5 * MINUTE):
        plan = planned(holding_reservations(gang(4), reserved(4, ends=ends)))
        assert rents(plan) == [(SPOT.market, 4, 20 * CENT)]


def test_before_its_end_others_are_rented_and_its_machines_returned() -> None:
    """Others are ordered two starts before the machines leave, one notice before the cloud would
    take them.
    """
    block = reserved(4, ends=10 * HOUR)
    plan = planned(holding_reservations(saving(20 * HOUR), block))
    mine, decider = held(plan), plan.decider
    assert block.leave == NOW + 10 * HOUR - NOTICE
    early = decider.decide(situation(plan, NOW + 2 * HOUR, mine))
    assert early.actions == ()
    assert early.wake_at == block.leave - 2 * decider.overheads.startup
    late = decider.decide(situation(plan, early.wake_at, mine))
    returned, ordered = late.actions
    assert returned == Return(0, block.leave)
    assert isinstance(ordered, Rent)
    assert (ordered.offer.market, ordered.machines) == (SPOT.market, 4)
    # The forecast knows the end: the second half is paid at the spot price.
    half = forecast_of(plan).usd.median
    assert half == pytest.approx(4 * 0.04 * 10, rel=0.12)


def test_machines_that_leave_count_against_the_reservation() -> None:
    block = reserved(2)
    plan = planned(holding_reservations(spec(), block))
    going = replace(situation(plan, NOW + HOUR), leaving={(block.market, False): 1})
    bought = [action for action in plan.decider.decide(going).actions if isinstance(action, Rent)]
    assert [(rent.offer.market, rent.machines) for rent in bought] == [
        (block.market, 1),
        (SPOT.market, 7),
    ]


def test_a_refused_order_leaves_the_reservation_alone_for_a_while() -> None:
    block = reserved(4)
    plan = planned(holding_reservations(gang(4), block))
    refusing = replace(situation(plan, NOW + HOUR), refused={(block.market, False): 4})
    (bought,) = plan.decider.decide(refusing).actions
    assert isinstance(bought, Rent)
    assert bought.offer.market == SPOT.market


def test_a_gang_moves_into_a_reservation_that_becomes_free() -> None:
    block = reserved(4)
    plan = planned(holding_reservations(gang(4), block))
    spot = Holding(7, Rent(plan.decider.offers[0], 4, 20 * CENT), NOW, NOW + 5 * MINUTE)
    back, bought = plan.decider.decide(situation(plan, NOW + HOUR, spot)).actions
    assert back == Return(7, NOW + HOUR + plan.decider.overheads.startup, replaced=True)
    assert bought == plan.cost.choice[0].rent


def test_the_budget_counts_the_price_of_a_reservation() -> None:
    """A first lease on the reservation's machines costs a sixth of an hour."""
    dear = flat(offer("a.large"), 19 * CENT)
    of = replace(gang(4), hours=WorkTime(HOUR), budget=2 * CENT)
    with pytest.raises(OverBudget):
        planned(holding_reservations(of, reserved(4, 18 * CENT)), dear)
    assert rents(planned(holding_reservations(of, reserved(4, 0)), dear))[0][0] == reserved().market


def test_a_deadline_beyond_a_short_reservation_is_kept() -> None:
    """A move out of a reservation takes 12 minutes, which a tight deadline does not have."""
    loose = planned(
        holding_reservations(saving(20 * HOUR), reserved(4, ends=2 * HOUR)),
        deadline=NOW + 30 * HOUR,
    )
    assert [market.reservation for market, _, _ in rents(loose)] == ["cr-0abc"]
    assert forecast_of(loose).deadline_met(30.0) == 1.0
    begin = situation(loose, NOW)
    on_demand = round(begin.work_left / begin.most_nu / loose.decider.speed) + 5 * MINUTE
    for spare, used in ((5 * MINUTE, False), (15 * MINUTE, True)):
        tight = replace(loose.decider, deadline=NOW + on_demand + spare)
        (bought,) = [action for action in tight.decide(begin).actions if isinstance(action, Rent)]
        assert (bought.bid, bool(bought.offer.market.reservation)) == (None, used)


def test_a_command_without_a_checkpoint_must_be_done_before_the_end() -> None:
    long = planned(
        holding_reservations(replace(gang(4), hours=WorkTime(3 * HOUR)), reserved(4, ends=2 * HOUR))
    )
    assert rents(long) == [(SPOT.market, 4, 20 * CENT)]
    assert long.rejected[0].why.startswith(
        "ends before the job is done, and the command has no checkpoint"
    )
    short = planned(
        holding_reservations(replace(gang(4), hours=WorkTime(HOUR)), reserved(4, ends=2 * HOUR))
    )
    assert rents(short) == [(reserved().market, 4, None)]


def test_with_strategy_on_demand_a_reservation_is_compared_with_on_demand() -> None:
    block = reserved(4, 15 * CENT)
    plan = planned(holding_reservations(replace(gang(4), strategy="on-demand"), block))
    assert rents(plan) == [(block.market, 4, None)]


def planned_together(*jobs: JobSpec, deadlines: dict[str, int] | None = None) -> list[JobPlan]:
    known = {SPOT.market: STEADY}
    of = [Job(job, (deadlines or {}).get(job.name), place=place_of(job, NOW)) for job in jobs]
    return plan_jobs(PlanningFacts(tuple(of), snapshot(SPOT), lambda _: CALM, known))


def held_by(plans: list[JobPlan]) -> list[int]:
    """The reserved machines with which each job begins."""
    return [sum(count for market, count, _ in rents(plan) if market.reservation) for plan in plans]


def short_gang(name: str, nodes: int, least: int | None = None) -> JobSpec:
    ranged = Nodes(least or nodes, nodes)
    of = replace(gang(nodes), name=name, hours=WorkTime(2 * HOUR), program=Command("true", ranged))
    return replace(of, resources=replace(of.resources, machines=Range(ranged.least, nodes)))


def test_jobs_that_name_one_reservation_share_its_machines() -> None:
    """Each alone would rent all 4."""
    jobs = [holding_reservations(replace(spec(), name=name), reserved(4)) for name in ("a", "b")]
    plans = planned_together(*jobs)
    assert held_by(plans) == [2, 2]
    assert [plan.job.spec.resources.reservations[0].machines for plan in plans] == [4, 4]
    assert [plan.demand.reservations[0].machines for plan in plans] == [2, 2]
    assert [sum(count for _, count, _ in rents(plan)) for plan in plans] == [8, 8]


def test_a_gang_gets_all_of_its_machines_or_leaves_them_to_others() -> None:
    jobs = [holding_reservations(short_gang(name, 4), reserved(4)) for name in ("a", "b")]
    first, second = planned_together(*jobs)
    assert (rents(first)[0][0], rents(second)) == (reserved().market, [(SPOT.market, 4, 20 * CENT)])
    assert second.rejected[0].why == "its machines are planned for other jobs that name it"
    assert held_by(planned_together(*jobs, deadlines={"b": NOW + 5 * HOUR})) == [0, 4]


def test_what_one_job_does_not_need_is_left_to_the_others() -> None:
    small, large = short_gang("small", 1), replace(spec(), name="large")
    plans = planned_together(*(holding_reservations(job, reserved(4)) for job in (large, small)))
    assert held_by(plans) == [3, 1]
    ranged = [holding_reservations(short_gang(name, 4, 2), reserved(5)) for name in ("a", "b")]
    assert held_by(planned_together(*ranged)) == [3, 2]
    # Both get all machines that they want, so nothing is divided.
    enough = planned_together(
        *(holding_reservations(short_gang(name, 2), reserved(4)) for name in ("a", "b"))
    )
    assert (held_by(enough), [plan.job.reserved for plan in enough]) == ([2, 2], [None, None])


def test_a_job_that_cannot_run_without_the_reservation_of_another_says_so() -> None:
    jobs = tuple(Job(holding_reservations(short_gang(name, 4), reserved(4))) for name in ("a", "b"))
    facts = PlanningFacts(
        jobs, snapshot(SPOT), lambda _: CALM, {SPOT.market: STEADY}, quotas=NO_SPOT
    )
    with pytest.raises(NotInTime, match=r"b: needs at least 4 machines.*one after the other"):
        plan_jobs(facts)


@settings(max_examples=60)
@given(
    machines=st.integers(1, 9),
    claims=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 4)), min_size=1, max_size=4),
)
def test_a_division_is_the_fairest(machines: int, claims: list[tuple[int, int]]) -> None:
    """Compared with all others that serve the same jobs."""
    wanted = {m: (least, least + more) for m, (least, more) in enumerate(claims)}
    parts = _divided(machines, wanted)
    served = {m: claim for m, claim in wanted.items() if parts[m]}
    assert all(least <= parts[m] <= most for m, (least, most) in served.items())
    assert sum(parts.values()) <= machines
    others = product(*(range(least, most + 1) for least, most in served.values()))
    shares = [
        sorted(count / most for (_, most), count in zip(served.values(), counts, strict=True))
        for counts in others
        if sum(counts) <= machines
    ]
    if served:
        assert sorted(parts[m] / most for m, (_, most) in served.items()) == pytest.approx(
            max(shares)
        )


def test_fewer_machines_that_cost_nothing_save_no_money() -> None:
    """An hour on reserved machines that are paid for already; a reliable machine alone costs more
    than the budget.
    """
    job = replace(holding_reservations(spec(machines=(1, 2), reliable=1), reserved()), budget=CENT)
    timed = replace(job, program=Training("mf", Stop(span=HOUR)))
    with pytest.raises(
        OverBudget, match=r"^job: expected cost .* exceeds the budget of \$0\.01; it would be acc.*"
    ):
        planned(timed)


def test_a_job_that_costs_nothing_has_no_shares_of_its_cost() -> None:
    plan = planned(
        holding_reservations(replace(spec(machines=(1, 2)), strategy="auto"), reserved())
    )
    assert forecast_of(plan).usd.median == 0
    assert other_paces(plan, planned) == []
    assert _shares(101, JobPlans([plan, plan])) == [50, 50]


@pytest.mark.parametrize("machines", [2, 4])
def test_a_job_whose_reservation_is_enough_does_not_queue(machines: int) -> None:
    """Under a quota of no machines, the queue would never have any for it."""
    quota = Quota("aws", "us-east-1", "a", 16, QuotaUnit.MACHINES)
    plan = planned(holding_reservations(saving(3), reserved(machines)), quotas=(quota,))
    assert (plan.share.claim is None) is (machines == 4)
