"""Step 6 of a plan: the expected cost of the first decision, and of other machines. Pure.

The forecast, which plays the whole job, follows from the plan when somebody asks for it (`forecasting`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, inf, isfinite

from bidbrain.billing import End, Life, rule_of_cloud, usd
from bidbrain.cost import Application
from bidbrain.eviction.estimate import Estimate
from bidbrain.strategies.base import Offer, Rent
from pricing_data.units import DAY, HOUR, NANOS_PER_DOLLAR
from spotctl.planning.allocation import AllocatedJob, KindColumns
from spotctl.planning.checkpoint_interval import CheckpointInterval, checkpoints_of
from spotctl.planning.errors import NotInTime
from spotctl.planning.expected import (
    Conditions,
    JobEstimate,
    PricedRent,
    Todo,
    beta_of,
    estimate,
    usd_per_work,
)
from spotctl.planning.fleet import FleetPlan
from spotctl.planning.forecasting import RATE_HOURS, launch_times
from spotctl.planning.market_history import MarketHistory
from spotctl.planning.offers import MarketSnapshot
from spotctl.planning.on_demand_limits import on_demand_limits
from spotctl.planning.overheads import with_local_starts, within_the_hour
from spotctl.planning.rejected import rejections
from spotctl.planning.values import BuiltDecider, Choice, FirstDecision, OnDemand, PlanCost

LONGEST_RUN = 366 * DAY
"""Limit for the expected length of a run: a longer one is a mistake in the job file, and its forecast would take
minutes."""
_ROUNDING = 1e-6
_MOST_HOURS = 24
"""Where begun hours are billed, fleets that just finish within 1, 2, ... hours are compared, up to this number."""


def estimate_cost(
    built: BuiltDecider, first: FirstDecision, snapshot: MarketSnapshot, columns: KindColumns
) -> PlanCost:
    """The cost if the job keeps what it begins with; raises NotInTime if the machines make no progress."""
    fleet_plan, history = built.fleet_plan, built.market_history
    prices = [fleet_plan.prices[rent.offer.market] for rent in first.rents]
    betas = [beta_of(history, rent, price) for rent, price in zip(first.rents, prices, strict=True)]
    parts = list(map(PricedRent.of, first.rents, prices, betas))
    conditions, todo = _conditions(fleet_plan, first.interval), _todo(built.allocated)
    expected = estimate(parts, conditions, todo)
    _check_length(expected, built, first)
    choice = tuple(
        _choice(history, part, beta, usd_per_work(share))
        for part, beta, share in zip(parts, betas, expected.first.shares, strict=False)
    )
    rejected = rejections(built.allocated, fleet_plan, conditions, choice, (snapshot, columns))
    named = len({rent.offer.market for rent in first.rents}) + len(rejected)
    return PlanCost(
        choice,
        expected,
        OnDemandWork.of(built, todo).on(fleet_plan.instead),
        _cheapest_on_demand(built, expected, todo, snapshot, columns),
        rejected,
        max(built.allocated.fitting - named, 0),
    )


def _check_length(expected: JobEstimate, built: BuiltDecider, first: FirstDecision) -> None:
    demand = built.allocated.demand
    if not isfinite(expected.hours):
        raise NotInTime(
            f"{demand.name}: {built.strategy.name} would rent {first.rents[0].offer.market}, where machines are"
            " evicted too often to make progress; choose another strategy or other types"
        )
    if expected.hours * HOUR > LONGEST_RUN and not demand.work.assumed:
        raise NotInTime(
            f"{demand.name}: would take {expected.hours / 24:,.0f} days, but plans cover at most"
            f" {LONGEST_RUN // DAY}; check the job's length and throughputs, or allow more or faster machines"
        )


def _choice(history: MarketHistory, part: PricedRent, beta: Estimate, usd: float) -> Choice:
    rent = part.rent
    hazard = None if rent.bid is None else history.hazards[rent.offer.market]
    return Choice(rent, part.price, beta, usd, "price" if hazard is None else hazard.kind)


def _todo(allocated: AllocatedJob) -> Todo:
    work = allocated.demand.work
    return Todo(None if work.timed else allocated.demand.amount, work.longest)


def _conditions(fleet_plan: FleetPlan, kept: CheckpointInterval | None) -> Conditions:
    """A trainer pauses for an eviction. A command also writes checkpoints, and repeats the work since the last one: on
    average half an interval."""
    overheads = within_the_hour(fleet_plan.fleet.overheads)
    phi, lost = (1.0, 0) if kept is None else (kept.useful_share, round(kept.every / 2))
    application = Application(phi, overheads.resize, overheads.eviction + lost)
    cloud = fleet_plan.fleet.baseline.offer.market.cloud
    return Conditions(rule_of_cloud(cloud), application, overheads.startup, fleet_plan.fleet.reliable)


@dataclass(frozen=True, slots=True)
class OnDemandWork:
    """A job's work on machines that are never evicted, in microseconds.

    `amount` is in machine time times nu, None for a job of fixed duration (`longest`). Machines are paid from the
    order on, while they start (`startup`) and are returned (`ending`), but not while they are ordered (`order`).
    """

    amount: float | None
    longest: float
    startup: int
    order: int
    ending: int

    @classmethod
    def of(cls, built: BuiltDecider, todo: Todo) -> "OnDemandWork":
        """The work of a planned job, with the checkpoints that it also writes on demand."""
        spec, times = built.allocated.job.spec, launch_times(built.allocated.job.spec)
        startup = with_local_starts(built.fleet_plan.fleet.overheads, spec).startup
        saved = checkpoints_of(built.allocated.job, (), built.market_history) if built.allocated.saves else None
        useful = 1.0 if saved is None else saved.useful_share
        amount = None if todo.amount is None else todo.amount * HOUR / useful
        return cls(amount, todo.longest_hours * HOUR, startup, times.order, times.ending)

    def on(self, rent: Rent) -> OnDemand:
        """The cost, by the rule of the machines' cloud, and the duration on some machines."""
        works = self.longest
        if self.amount is not None:
            works = min(self.amount / (rent.machines * rent.offer.nu), works)
        unworked = self.startup + self.ending
        life = Life(0, round(works) + unworked, End.LEFT)
        bill = rule_of_cloud(rent.offer.market.cloud).bill(life, rent.offer.on_demand)
        return OnDemand(rent, rent.machines * usd(bill.amount), (self.order + life.end) / HOUR, unworked)


def _cheapest_on_demand(
    built: BuiltDecider, expected: JobEstimate, todo: Todo, snapshot: MarketSnapshot, columns: KindColumns
) -> OnDemand:
    """The cheapest on-demand machines that are as fast as expected; the job's own if none are cheaper.

    If the length of the job is unknown, they do what the plan does in the time that its forecast covers, and the result
    is per hour of that time.
    """
    startup = built.fleet_plan.fleet.overheads.startup / HOUR
    if not built.allocated.demand.work.assumed:
        return _cheapest(built, OnDemandWork.of(built, todo), expected.hours - startup, snapshot, columns)
    done = expected.first.work + (RATE_HOURS - 1) * expected.later.work
    work = OnDemandWork.of(built, Todo(done, inf))
    fleet = _cheapest(built, work, RATE_HOURS - startup, snapshot, columns)
    return replace(fleet, usd=fleet.usd / (RATE_HOURS + (work.order + work.ending) / HOUR), hours=1.0)


def _cheapest(
    built: BuiltDecider, work: OnDemandWork, within_hours: float, snapshot: MarketSnapshot, columns: KindColumns
) -> OnDemand:
    own = built.fleet_plan.instead
    best = work.on(own)
    # A job that ends after a fixed time needs as much work per hour instead.
    amount = own.machines * own.offer.nu if work.amount is None else work.amount
    within = 1.0 if work.amount is None else max(within_hours, 1e-3) * HOUR
    for offer in sorted(_offers(built, snapshot, columns), key=lambda offer: offer.on_demand / offer.nu):
        if work.amount is not None and offer.on_demand / offer.nu * amount / HOUR / NANOS_PER_DOLLAR >= best.usd:
            break
        for machines in _counts(built, offer, snapshot, work, ceil(amount / (offer.nu * within) - _ROUNDING)):
            best = min(best, work.on(Rent(offer, machines, None)), key=lambda fleet: fleet.usd)
    return best


def _offers(built: BuiltDecider, snapshot: MarketSnapshot, columns: KindColumns) -> Iterator[Offer]:
    """An offer of each kind that the job may use."""
    for j, (number, rows) in enumerate(zip(columns.numbers, columns.rows, strict=True)):
        if built.allocated.demand.nu[j] > 0 and rows:
            yield Offer(snapshot.markets[rows[0]], float(built.allocated.demand.nu[j]), snapshot.list_price(number))


def _counts(
    built: BuiltDecider, offer: Offer, snapshot: MarketSnapshot, work: OnDemandWork, fewest: int
) -> Iterator[int]:
    """The numbers of machines that may be cheapest: the fewest that are in time, and those that just end an hour."""
    allocated, demand = built.allocated, built.allocated.demand
    limits = on_demand_limits((offer,), built.decider.reliable, allocated.on_demand_quotas, snapshot.catalog)
    most = min(demand.most, limits.get(offer.market, demand.most))
    if demand.gang:
        yield from [demand.most] if fewest <= demand.most <= most else []
        return
    fewest = max(fewest, demand.least, 1)
    counts = {fewest}
    if work.amount is not None:
        spans = (hours * HOUR - work.startup - work.ending for hours in range(1, _MOST_HOURS + 1))
        counts |= {ceil(work.amount / (offer.nu * span)) for span in spans if 0 < span < inf}
    yield from (count for count in sorted(counts) if fewest <= count <= most)
