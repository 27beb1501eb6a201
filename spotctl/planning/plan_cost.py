"""Step 6 of a plan: the expected cost of the first decision, and of other machines. Pure.

The forecast, which plays the whole job, follows from the plan when somebody asks for it (`forecasting`).
"""

from math import isfinite

from bidbrain.billing import rule_of_cloud
from bidbrain.cost import Application
from bidbrain.eviction.estimate import Estimate
from pricing_data.units import DAY, HOUR
from spotctl.planning.allocation import AllocatedJob, KindColumns
from spotctl.planning.checkpoint_interval import CheckpointInterval
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
from spotctl.planning.market_history import MarketHistory
from spotctl.planning.offers import MarketSnapshot
from spotctl.planning.on_demand_fleet import OnDemandWork, cheapest_on_demand
from spotctl.planning.overheads import within_the_hour
from spotctl.planning.rejected import rejections
from spotctl.planning.values import BuiltDecider, Choice, FirstDecision, PlanCost

LONGEST_RUN = 366 * DAY
"""Limit for the expected length of a run: a longer one is a mistake in the job file, and its forecast would take
minutes."""


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
        cheapest_on_demand(built, expected, todo, snapshot, columns),
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
