"""Step 8 of a plan: why other markets are not in it; and how else the job could be run. Pure."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import floor, isfinite

from bidbrain.decision.reserved import ReservedOffer
from bidbrain.queue.outlook import outlook
from bidbrain.queue.values import MEAN_COMPLETION
from bidbrain.strategies.base import Offer, Rent
from bidbrain.strategies.names import DEADLINE
from pricing_data.units import HOUR, NANOS_PER_DOLLAR, format_time, format_usd
from spotctl.files.job.programs import Checkpoint, Command, Training
from spotctl.files.job.resources import Reservation
from spotctl.files.job.spec import AUTO, JobSpec
from spotctl.files.job.values import Nodes, Range, WorkTime
from spotctl.planning.candidates import KindColumns
from spotctl.planning.cost import beta_of, first_hour, usd_per_work
from spotctl.planning.fleet import why_never
from spotctl.planning.forecast import forecast_of
from spotctl.planning.offers import MarketSnapshot, why_unusable
from spotctl.planning.values import (
    AllocatedJob,
    CheckpointInterval,
    Choice,
    Fleet,
    JobPlan,
    RejectedMarket,
)

_MAX_LISTED = 100
"""Maximum number of unusable markets, and of unused ones, that a plan lists."""
_EQUAL_COST = 0.005
"""Costs per unit of work that differ by less than this share count as the same."""
_FACTORS = (1 / 8, 8)
_COMPARED_POLICIES = (MEAN_COMPLETION, "max-min-fairness", "fifo")
"""Policies of a queue whose mean completion times a plan states next to its own."""
_MATTERS = 0.02
"""Smaller changes of cost and time are not worth a line."""


@dataclass(frozen=True, slots=True)
class TrainingMode:
    """One way to run a job, and its plan; None if there is none."""

    name: str
    plan: JobPlan | None
    is_chosen: bool = False


def unused(
    allocated: AllocatedJob,
    offers: Sequence[ReservedOffer],
    least_nu: float,
    elsewhere: float,
    at: int,
) -> Iterator[tuple[Reservation, str]]:
    """The reservations that a plan does not begin with, and the reason. `elsewhere` are the
    nano-dollars that a unit of work costs on other machines."""
    spec = allocated.job.spec
    usable = {each.offer.market: each for each in offers}
    parts = {named.market: named for named in allocated.demand.reservations}
    for stated in spec.resources.reservations:
        named = parts.get(stated.market, stated)
        each = usable.get(stated.market)
        if named.leave <= at:
            yield (
                named,
                f"its machines are returned at {format_time(named.leave)}, which has passed",
            )
        elif named.market not in parts:
            yield named, "its machines are planned for other jobs that name it"
        elif each is None:
            yield named, why_never(named, spec, allocated.demand.rates, least_nu)
        elif allocated.demand.gang and named.machines < allocated.demand.least:
            yield (
                named,
                f"has {named.machines} machines, and the job needs {allocated.demand.least} in one "
                "market",
            )
        elif each.per_work > elsewhere:
            price = format_usd(named.price)
            other = format_usd(round(elsewhere * each.offer.nu))
            yield named, f"costs ${price} an hour, and as much work costs ${other} elsewhere"
        elif each.whole:
            why = (
                "ends before the job is done, and the command has no checkpoint with which it "
                "could go on elsewhere"
            )
            yield named, why
        else:
            yield named, "its end, the deadline or the budget leave no room for it"


def rejections(
    allocated: AllocatedJob,
    fleet: Fleet,
    interval: CheckpointInterval | None,
    choice: Sequence[Choice],
    columns: KindColumns,
    snapshot: MarketSnapshot,
) -> tuple[RejectedMarket, ...]:
    """The closest first: markets that the strategy considered, unusable ones, and those outside
    Gavel's allocation.
    """
    taken = {chosen.rent.offer.market for chosen in choice}
    every_usd = []
    for offer in fleet.offers:
        price = fleet.prices[offer.market]
        every_usd.append(price / offer.nu)
    elsewhere = min(every_usd)
    never_used = unused(allocated, fleet.reserved, fleet.offers[0].nu, elsewhere, snapshot.at)
    reserved = [
        RejectedMarket(named.market, why) for named, why in never_used if named.market not in taken
    ]

    others = (offer for offer in fleet.offers if offer.market not in taken)
    weighed = [_weighed(offer, fleet, interval, choice, snapshot) for offer in others]
    weighed.sort(
        key=lambda market: (
            market.instead is None,
            market.instead.usd_per_work if market.instead else 0.0,
        )
    )

    listed = allocated.demand.unusable[:_MAX_LISTED]
    unusable = (RejectedMarket(*why_unusable(snapshot, row, allocated.job.spec)) for row in listed)
    left_out = _left_out(allocated, fleet, snapshot, columns)
    first_left_out = islice(left_out, _MAX_LISTED)
    return (*reserved, *weighed, *unusable, *first_left_out)


def launch_moment(plan: JobPlan) -> int:
    """The moment of a plan's launch, which is earlier than `at` for a job that waits for its
    turn."""
    return plan.at - plan.share.wait


def mean_ends(plan: JobPlan) -> dict[str, float]:
    """When the jobs of known lengths that share quotas would end in the mean, in hours, by the
    policy of their queue; the policy of the plan first."""
    queue = plan.share.queue
    if queue is None:
        return {}

    known = {job.name for job in queue.jobs if job.work is not None}
    means = dict[str, float]()
    for policy in dict.fromkeys((queue.terms.policy, *_COMPARED_POLICIES)):
        terms = replace(queue.terms, policy=policy)
        queued = replace(queue, terms=terms)
        ended = outlook(queued)
        ends = [job.end for job in ended if job.name in known]
        if ends and None not in ends:
            known_ends = (end for end in ends if end is not None)
            total = sum(known_ends)
            means[policy] = total / len(ends) / 3600

    return means


def unnamed_markets(plan: JobPlan) -> int:
    """The number of further markets that match a plan's job and are not listed."""
    rented = {rent.offer.market for rent in plan.decision.rents}
    named = len(rented) + len(plan.rejected)
    return max(plan.demand.fitting - named, 0)


def _weighed(
    offer: Offer,
    fleet: Fleet,
    interval: CheckpointInterval | None,
    choice: Sequence[Choice],
    snapshot: MarketSnapshot,
) -> RejectedMarket:
    price = fleet.prices[offer.market]
    if price > offer.on_demand:
        spot = format_usd(price)
        listed = format_usd(offer.on_demand)
        why = f"costs ${spot} an hour, more than the on-demand price of ${listed}"
        return RejectedMarket(offer.market, why)

    limits = fleet.limits
    chosen = choice[0]
    needed = fleet.most_nu / offer.nu
    enough = floor(needed + 1e-9)
    machines = min(max(enough, limits.least, 1), limits.most)
    # A bid as far above the price as the chosen one, or the on-demand price if that was the bid.
    bid = offer.on_demand
    if chosen.rent.bid not in (None, chosen.rent.offer.on_demand):
        bid = price + chosen.rent.bid - chosen.price
    rent = Rent(offer, machines, bid)
    beta = beta_of(fleet.market_history, rent, price, snapshot.outlook)
    instead = Choice(rent, price, beta)
    hour = first_hour([instead], fleet, interval).shares[0]
    own_usd = usd_per_work(hour)
    instead = replace(instead, usd_per_work=own_usd)
    highest = max(chosen.usd_per_work for chosen in choice)
    is_finite = highest and isfinite(instead.usd_per_work)
    relative = None
    if is_finite:
        relative = instead.usd_per_work / highest

    return RejectedMarket(offer.market, _why_not_chosen(instead, highest), instead, relative)


def _why_not_chosen(instead: Choice, highest: float) -> str:
    if not isfinite(instead.usd_per_work):
        return f"evicted too often to make progress ({instead.beta.probability:.0%} per hour)"
    if not highest:
        return (
            f"costs ${instead.usd_per_work:.4g} per unit of work, and the plan's machines are paid "
            "for already"
        )

    more = instead.usd_per_work / highest - 1
    cost = f"${instead.usd_per_work:.4g} per unit of work"
    evicted = f"{instead.beta.probability:.1%} evicted per hour"
    if 0 <= more < _EQUAL_COST:
        return f"costs the same: {cost}, {evicted}"
    if more > 0:
        return f"{more:.0%} more expensive: {cost}, {evicted}"

    return f"not chosen by the strategy: {cost} by this estimate, {evicted}"


def _left_out(
    allocated: AllocatedJob, fleet: Fleet, snapshot: MarketSnapshot, columns: KindColumns
) -> Iterator[RejectedMarket]:
    """Kinds outside the fleet by price per unit of work, then markets beyond the number that a
    strategy considers.
    """
    usd_per_work = allocated.share.usd_per_work
    offered = {offer.market for offer in fleet.offers}
    sold = [[snapshot.markets[row] for row in rows] for rows in columns.rows]
    least = min(
        float(usd_per_work[j])
        for j, markets in enumerate(sold)
        if fleet.offers[0].market in markets
    )

    for j, why in sorted(
        fleet.passed_over.items(), key=lambda pair: float(columns.usd_per_hour[pair[0]])
    ):
        least_machines = max(allocated.demand.least, 1)
        is_able = allocated.share.caps[j] >= least_machines
        relative = None
        if is_able:
            relative = float(usd_per_work[j]) / least
        for market in sold[j]:
            yield RejectedMarket(market, why, relative_cost=relative)

    for j, markets in enumerate(sold):
        if j not in fleet.passed_over and not offered.isdisjoint(markets):
            for market in markets:
                if market not in offered:
                    yield RejectedMarket(market, "more expensive than the markets considered")


def training_modes(
    plan: JobPlan, plan_of: Callable[[JobSpec], JobPlan | None]
) -> list[TrainingMode]:
    """The training modes of a planned training of known length, on the same kinds of machines and
    as fast on each.
    """
    spec = plan.job.spec
    if not isinstance(spec.program, Training) or plan.demand.work.assumed or plan.demand.work.timed:
        return []

    kept = spec.resources.reliable.machines or 0
    bare, held = (
        (plan if bool(kept) is wanted else plan_of(spec.with_reliable(int(wanted))))
        for wanted in (False, True)
    )

    # The job as a command on as many nodes, which keeps checkpoints and starts again on the nodes
    # that remain.
    demand = plan.demand
    least = max(demand.least, 1)
    command = Command(spec.name, Nodes(least, demand.most), Checkpoint("checkpoint"))
    resources = replace(spec.resources, machines=Range(least, demand.most))
    span = round(demand.amount / demand.reference_nu * HOUR)
    hours = WorkTime(span, demand.reference)
    trained = replace(spec, program=command, resources=resources, strategy=AUTO, hours=hours)

    script = TrainingMode("script", plan_of(trained.with_reliable(0)))
    with_one = TrainingMode("trainer with a reliable machine", held, is_chosen=bool(kept))
    without = TrainingMode("trainer without one", bare, is_chosen=not kept)
    return [script, with_one, without]


def expected_of(way: TrainingMode) -> tuple[float, float, float, float] | None:
    """The median cost, its P10 and P90, and the median hours of a training mode; None if it has no
    plan."""
    if way.plan is None:
        return None
    forecast = forecast_of(way.plan)
    return forecast.usd.median, *forecast.usd.likely, forecast.hours.median


def other_paces(plan: JobPlan, plan_of: Callable[[JobSpec], JobPlan | None]) -> list[JobPlan]:
    """The plans if the time of the same job were worth an eighth, or eight times as much, as far as
    the plan is then cheaper or faster; none if the job costs nothing."""
    spec = plan.job.spec
    if (
        spec.strategy not in (AUTO, DEADLINE)
        or plan.demand.work.assumed
        or plan.decider.roaming is not None
    ):
        return []

    usd = forecast_of(plan).usd.median
    hours = forecast_of(plan).hours.median
    if not usd:
        return []

    # If the user does not say, an hour of the job's time is worth what an hour of the job costs.
    worth = spec.value_of_time or round(usd / hours * NANOS_PER_DOLLAR)
    others = []
    for factor in _FACTORS:
        two_digits = float(f"{worth * factor:.1e}")
        other = plan_of(replace(spec, value_of_time=round(two_digits)))
        if other is None:
            continue
        if min(change_of_pace(plan, other)) < -_MATTERS:
            others.append(other)

    return others


def change_of_pace(plan: JobPlan, other: JobPlan) -> tuple[float, float]:
    """By which shares another plan of the same job changes the expected cost and time."""
    before = forecast_of(plan)
    after = forecast_of(other)
    usd = after.usd.median / before.usd.median
    hours = after.hours.median / before.hours.median
    return usd - 1, hours - 1
