"""Why markets that match a job are not in its plan."""

from collections.abc import Iterator, Sequence
from itertools import islice
from math import floor, isfinite

from bidbrain.strategies.base import Offer, Rent
from pricing_data.market import Market
from pricing_data.units import format_usd
from spotctl.planning.allocation import AllocatedJob, KindColumns
from spotctl.planning.expected import Conditions, PricedRent, beta_of, first_hour, usd_per_work
from spotctl.planning.fleet import FleetPlan
from spotctl.planning.offers import MarketSnapshot, why_unusable
from spotctl.planning.reserved import unused
from spotctl.planning.values import Choice, RejectedMarket

_MOST_LISTED = 100
"""Maximum number of unusable markets, and of unused ones, that a plan lists."""
_EQUAL_COST = 0.005
"""Costs per unit of work that differ by less than this share count as the same."""


def rejections(
    allocated: AllocatedJob,
    fleet_plan: FleetPlan,
    conditions: Conditions,
    choice: Sequence[Choice],
    known: tuple[MarketSnapshot, KindColumns],
) -> tuple[RejectedMarket, ...]:
    """The closest first: markets that the strategy considered, unusable ones, and those outside Gavel's allocation."""
    snapshot, columns = known
    taken = {chosen.rent.offer.market for chosen in choice}
    others = (offer for offer in fleet_plan.fleet.offers if offer.market not in taken)
    weighed = [_weighed(offer, fleet_plan, conditions, choice) for offer in others]
    weighed.sort(key=lambda market: (market.instead is None, market.instead.usd_per_work if market.instead else 0.0))
    unusable = (
        RejectedMarket(*why_unusable(snapshot, row, allocated.job.spec)) for row in allocated.unusable[:_MOST_LISTED]
    )
    return (
        *_reserved(allocated, fleet_plan, taken, snapshot.at),
        *weighed,
        *unusable,
        *islice(_left_out(allocated, fleet_plan, snapshot, columns), _MOST_LISTED),
    )


def _reserved(allocated: AllocatedJob, fleet_plan: FleetPlan, taken: set[Market], at: int) -> Iterator[RejectedMarket]:
    """The reservations of the job file that the plan does not begin with."""
    fleet, prices = fleet_plan.fleet, fleet_plan.prices
    elsewhere = min(prices[offer.market] / offer.nu for offer in fleet.offers)
    for named, why in unused(allocated, fleet_plan.reserved, fleet.offers[0].nu, elsewhere, at):
        if named.market not in taken:
            yield RejectedMarket(named.market, why)


def _weighed(offer: Offer, fleet_plan: FleetPlan, conditions: Conditions, choice: Sequence[Choice]) -> RejectedMarket:
    price = fleet_plan.prices[offer.market]
    if price > offer.on_demand:
        return RejectedMarket(
            offer.market, f"costs ${format_usd(price)} an hour, more than ${format_usd(offer.on_demand)} on demand"
        )
    limits = fleet_plan.limits
    machines = min(max(floor(fleet_plan.fleet.most_nu / offer.nu + 1e-9), limits.least, 1), limits.most)
    rent = Rent(offer, machines, _bid_alike(offer, price, choice[0]))
    beta = beta_of(fleet_plan.market_history, rent, price)
    share = first_hour([PricedRent.of(rent, price, beta)], conditions).shares[0]
    instead = Choice(rent, price, beta, usd_per_work(share))
    dearest = _dearest(choice)
    relative = instead.usd_per_work / dearest if dearest and isfinite(instead.usd_per_work) else None
    return RejectedMarket(offer.market, _compared(instead, choice), instead, relative)


def _bid_alike(offer: Offer, price: int, chosen: Choice) -> int:
    """A bid as far above the price as the chosen one, or the on-demand price if that was the bid."""
    bid = chosen.rent.bid
    if bid is None or bid == chosen.rent.offer.on_demand:
        return offer.on_demand
    return price + bid - chosen.price


def _dearest(choice: Sequence[Choice]) -> float:
    return max(chosen.usd_per_work for chosen in choice)


def _compared(instead: Choice, choice: Sequence[Choice]) -> str:
    if not isfinite(instead.usd_per_work):
        return f"evicted too often to make progress ({instead.beta.probability:.0%} per hour)"
    dearest = _dearest(choice)
    if not dearest:
        return f"costs ${instead.usd_per_work:.4g} per unit of work, and the plan's machines are paid for already"
    more = instead.usd_per_work / dearest - 1
    cost = f"${instead.usd_per_work:.4g} per unit of work"
    evicted = f"{instead.beta.probability:.1%} evicted per hour"
    if 0 <= more < _EQUAL_COST:
        return f"costs the same: {cost}, {evicted}"
    if more > 0:
        return f"{more:.0%} more expensive: {cost}, {evicted}"
    return f"not chosen by the strategy: {cost} by this estimate, {evicted}"


def _left_out(
    allocated: AllocatedJob, fleet_plan: FleetPlan, snapshot: MarketSnapshot, columns: KindColumns
) -> Iterator[RejectedMarket]:
    """Kinds outside the fleet by price per unit of work, then markets beyond the number that a strategy considers."""
    usd_per_work = allocated.share.usd_per_work
    least = min(float(usd_per_work[j]) for j, rows in enumerate(columns.rows) if fleet_plan.rows[0] in rows)
    for j, why in sorted(fleet_plan.passed_over.items(), key=lambda pair: float(columns.usd_per_hour[pair[0]])):
        for row in columns.rows[j]:
            is_able = allocated.share.caps[j] >= max(allocated.demand.least, 1)
            relative = float(usd_per_work[j]) / least if is_able else None
            yield RejectedMarket(snapshot.markets[row], why, relative_cost=relative)
    offered = set(fleet_plan.rows)
    for j, rows in enumerate(columns.rows):
        if j not in fleet_plan.passed_over and offered & set(rows):
            yield from (
                RejectedMarket(snapshot.markets[row], "more expensive than the markets considered")
                for row in rows
                if row not in offered
            )
