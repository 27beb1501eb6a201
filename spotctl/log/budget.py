"""The budget: what is committed at any moment, in exact integers of nano-dollar-seconds.

Committed is the amount spent, and the most that each running machine can still cost until its lease
has ended and the machine is gone. That is its bid, which no price exceeds while the machine is
held, or its on-demand price, also where a cloud has no bids. A purchase or a renewal is made only
if the sum stays within the budget, so that the budget holds even if no process is left to return
anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from bidbrain.billing import (
    Bill,
    BillingRule,
    End,
    Life,
    Prices,
    fixed_price,
    highest_price,
    rule_of_cloud,
)
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import HOUR, MINUTE, SECOND
from spotctl.log.events import RenewIntended, RentIntended, Sent
from spotctl.log.state import EVICTED, Allocation, Held, RunState

if TYPE_CHECKING:
    from spotctl.clouds.provider import CloudProvider


LISTING_DELAY = 5 * MINUTE
"""How far a provider's list of machines may lag: a machine counts as gone, or as never created,
only if a list that is later by as much does not have it."""


@dataclass(frozen=True, slots=True)
class Tariff:
    """How machines are billed: the rule of a market's cloud, and its price history up to a moment
    in the past.
    """

    rule: Callable[[Market], BillingRule]
    prices: Callable[[Market, int], PriceSeries]

    def paid(self, allocation: Allocation, held: Held, now: int) -> Prices:
        """The price of a machine of an allocation: constant on demand, its bids where these are
        paid, otherwise the history of its market."""
        market = allocation.market
        fixed = fixed_price(market.cloud, held.bid, allocation.on_demand)
        if fixed is None:
            return self.prices(market, now)
        if len(held.bids) <= 1:
            return fixed

        # Its bids until now are the history of its price. A raised bid counts for all of the second
        # in which it was raised: the bill has one price for each second, and must not be below that
        # of the cloud.
        steps = {_second_of(held, at): bid for at, bid in sorted(held.bids)}
        _, newest = held.bids[-1]
        steps.setdefault(max(now, held.ended or 0, *steps), newest)
        times = np.array(list(steps), dtype=np.int64)
        prices = np.array(list(steps.values()), dtype=np.int64)
        return PriceSeries(market, times, prices)


def tariff_of(provider: CloudProvider, started: int) -> Tariff:
    """The provider's own prices, from the start of a run, and the billing rule of each market's
    cloud.
    """
    since = started // HOUR * HOUR

    def prices(market: Market, now: int) -> PriceSeries:
        return provider.prices(market, since, now)

    return Tariff(rule_of, prices)


def rule_of(market: Market) -> BillingRule:
    """The billing rule of a market's cloud as it is today."""
    return rule_of_cloud(market.cloud)


def spent(state: RunState, now: int, tariff: Tariff) -> int:
    """The bills of all machines, their disks, addresses and traffic, as if all were returned
    now."""
    amount = sum(map(sent_amount, state.sent))
    for held in state.machines.values():
        end = life_of(held, now).end
        amount += bill_of(state, held, now, tariff).amount
        amount += _extra(state, held, end)
    return amount


def used(state: RunState, now: int, tariff: Tariff) -> int:
    """The cost of the work so far: machines that run count by the second, not by begun hours or
    minutes.
    """
    amount = sum(map(sent_amount, state.sent))
    for held in state.machines.values():
        allocation = state.allocations[held.allocation]
        life = life_of(held, now)
        if held.alive:
            life = replace(life, ended=End.HANDED_ON)
        bill = tariff.rule(allocation.market).bill(life, tariff.paid(allocation, held, now))
        amount += bill.amount + _extra(state, held, life.end)
    return amount


def committed(state: RunState, now: int, tariff: Tariff, teardown: int) -> int:
    """The amount spent, and the most that can follow until the leases end if nothing more is
    renewed or rented.

    A request without an answer, even one that is no longer repeated, may have succeeded, until a
    list of the provider shows its outcome.
    """
    amount = spent(state, now, tariff)
    for held in state.alive:
        gone = max(now, held.lease_until + teardown)
        amount += _flat(state, held, gone, tariff)
        amount -= _flat(state, held, now, tariff)

    for intent in state.open.values():
        if isinstance(intent, RentIntended):
            amount += _ordered(state, intent, intent.machines, tariff, teardown)
        elif isinstance(intent, RenewIntended):
            amount += renewed(state, intent.machines, intent.lease_until, now, tariff, teardown)

    for number in state.unclear:
        # Machines of an abandoned order that were not found so far.
        order = state.orders[number]
        known = sum(held.allocation == number for held in state.machines.values())
        amount += _ordered(state, order, order.machines - known, tariff, teardown)

    return amount


def hourly(state: RunState) -> int:
    """The most that an hour of all machines can cost, in nano-dollars: also of those that open
    orders may bring.
    """
    amount = 0
    for order in state.open_orders:
        known = sum(held.allocation == order.intent for held in state.machines.values())
        price = highest_price(order.market.cloud, order.bid, order.on_demand)
        each = price + order.disk + order.address
        amount += (order.machines - known) * each

    for held in state.alive:
        allocation = state.allocations[held.allocation]
        amount += allocation.highest_price(held.bid) + allocation.disk + allocation.address
    return amount


def renewed(
    state: RunState, machines: Iterable[str], until: int, now: int, tariff: Tariff, teardown: int
) -> int:
    """The amount that a renewal adds to the committed one; nothing if the leases were extended as
    far already.
    """
    added = 0
    for name in machines:
        held = state.machines[name]
        if held.alive:
            gone = max(now, held.lease_until + teardown)
            later = max(until + teardown, gone)
            added += _flat(state, held, later, tariff)
            added -= _flat(state, held, gone, tariff)

    return added


def raised(state: RunState, machine: str, bid: int, now: int, tariff: Tariff, teardown: int) -> int:
    """The amount that a higher bid adds to the committed one, until the machine's lease has
    ended."""
    held = state.machines[machine]
    higher = replace(held, bids=(*held.bids, (now, bid)))
    since = _second_of(held, now)
    gone = max(now, held.lease_until + teardown)
    after = _flat(state, higher, gone, tariff) - _flat(state, higher, since, tariff)
    before = _flat(state, held, gone, tariff) - _flat(state, held, since, tariff)
    return after - before


def bought(
    market: Market, machines: int, ceiling: int, lease: int, tariff: Tariff, extra: int = 0
) -> int:
    """The amount that a purchase adds: every hour of a lease and the teardown of `machines`, at the
    highest price.

    `extra` is the price of their disks and addresses, in nano-dollars per hour.
    """
    each = tariff.rule(market).bill(Life(0, lease, End.LEFT), ceiling).amount
    return machines * (each + extra * -(-lease // SECOND))


def _ordered(
    state: RunState, order: RentIntended, machines: int, tariff: Tariff, teardown: int
) -> int:
    ceiling = highest_price(order.market.cloud, order.bid, order.on_demand)
    lease = order.lease_until - state.ordered[order.intent]
    extra = order.disk + order.address
    return bought(order.market, machines, ceiling, lease + teardown, tariff, extra)


def life_of(held: Held, now: int) -> Life:
    """The part of a machine's life that is billed so far."""
    ended = End.EVICTED if held.end_reason == EVICTED else End.LEFT
    end = now if held.ended is None else held.ended
    return Life(held.started, max(end, held.started), ended)


def bill_of(state: RunState, held: Held, now: int, tariff: Tariff) -> Bill:
    """The bill of a machine alone. The ledger uses this bill, too, so that ledger and budget
    agree."""
    allocation = state.allocations[held.allocation]
    rule = tariff.rule(allocation.market)
    return rule.bill(life_of(held, now), tariff.paid(allocation, held, now))


def _second_of(held: Held, at: int) -> int:
    """The beginning of the billed second of a machine that a moment is in."""
    return at - (at - held.started) % SECOND


def seconds_of(held: Held, end: int) -> int:
    """The begun seconds of a machine, for which disk and address are billed; evictions do not
    refund them.
    """
    return -(-max(end - held.started, 0) // SECOND)


def sent_amount(sent: Sent) -> int:
    """The cost of traffic, in nano-dollar-seconds."""
    return sent.bytes * sent.price * 3600 >> 30


def _extra(state: RunState, held: Held, end: int) -> int:
    allocation = state.allocations[held.allocation]
    return (allocation.disk + allocation.address) * seconds_of(held, end)


def _flat(state: RunState, held: Held, end: int, tariff: Tariff) -> int:
    """The bill of a life at the highest possible price throughout."""
    allocation = state.allocations[held.allocation]
    life = Life(held.started, max(end, held.started), End.LEFT)
    price = allocation.highest_price(held.bid)
    bill = tariff.rule(allocation.market).bill(life, price)
    return bill.amount + _extra(state, held, end)
