"""The budget: what is committed at any moment, in exact integers of nano-dollar-seconds.

Committed is what was spent, and what each machine that runs can still cost until its lease ends and it is gone: its
bid, which no price exceeds while it is held, or its on-demand price. A purchase or a renewal is made only if the sum
stays within the budget; so it stays within, even if nobody is left to give anything back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bidbrain.billing import Bill, BillingRule, End, Life, Prices, rule_of_cloud
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import HOUR, MINUTE, NANOS_PER_DOLLAR, SECOND
from spotctl.runlog.events import Intended, RenewIntended, RentIntended, ReturnIntended, Sent
from spotctl.runlog.state import EVICTED, Allocation, Held, RunState

if TYPE_CHECKING:
    from spotctl.machines.base import CloudProvider

NANO_SECONDS_PER_DOLLAR = 3600 * NANOS_PER_DOLLAR

LISTING_DELAY = 5 * MINUTE
"""How far a provider's list of machines may lag: only a machine that is missing for longer counts as gone."""


@dataclass(frozen=True, slots=True)
class Tariff:
    """How machines are billed: the rule of a market's cloud, and its price history up to a moment that has come."""

    rule: Callable[[Market], BillingRule]
    prices: Callable[[Market, int], PriceSeries]

    def paid(self, allocation: Allocation, now: int) -> Prices:
        """What a machine of an allocation costs."""
        return allocation.on_demand if allocation.bid is None else self.prices(allocation.market, now)


def tariff_of(provider: CloudProvider, started: int) -> Tariff:
    """The provider's own prices, from the start of a run, and the billing rule of each market's cloud."""
    since = started // HOUR * HOUR

    def prices(market: Market, now: int) -> PriceSeries:
        return provider.prices(market, since, now)

    return Tariff(lambda market: rule_of_cloud(market.cloud), prices)


def spent(state: RunState, now: int, tariff: Tariff) -> int:
    """The bills of all machines and of what is billed beside them, those that run as if they were given back now."""
    return sum(
        bill_of(state, held, now, tariff).amount + _beside(state, held, life_of(held, now).end)
        for held in state.machines.values()
    ) + sum(map(sent_amount, state.sent))


def committed(state: RunState, now: int, tariff: Tariff, teardown: int) -> int:
    """What was spent, and what can follow to the ends of the leases if nothing more is renewed or bought.

    What was asked for and not answered may have come through, also where nobody waits for the answer any more.
    """
    later = sum(_to_lease_end(state, held, now, tariff, teardown) for held in state.alive)
    asked = sum(_asked(state, intent, now, tariff, teardown) for intent in state.open.values())
    unclear = sum(
        _unclear(state, state.orders[intent], tariff, teardown)
        for intent, since in state.unclear.items()
        if now < since + LISTING_DELAY
    )
    return spent(state, now, tariff) + later + asked + unclear


def renewed(state: RunState, machines: Iterable[str], until: int, now: int, tariff: Tariff, teardown: int) -> int:
    """What a renewal adds to what is committed; nothing where another has moved the leases as far already."""
    alive = [held for held in map(state.machines.__getitem__, machines) if held.alive]
    return sum(
        _flat(state, held, max(until + teardown, gone), tariff) - _flat(state, held, gone, tariff)
        for held, gone in zip(alive, (_gone_at(held, now, teardown) for held in alive), strict=True)
    )


def bought(market: Market, machines: int, ceiling: int, lease: int, tariff: Tariff, beside: int = 0) -> int:
    """What a purchase adds: so many machines for a lease and teardown, each hour at the most that it can cost.

    `beside` is what their disks and addresses cost, in nano-dollars per hour.
    """
    each = tariff.rule(market).bill(Life(0, lease, End.LEFT), ceiling).amount
    return machines * (each + beside * -(-lease // SECOND))


def _asked(state: RunState, intent: Intended, now: int, tariff: Tariff, teardown: int) -> int:
    match intent:
        case RentIntended():
            return _ordered(state, intent, intent.machines, tariff, teardown)
        case RenewIntended():
            return renewed(state, intent.machines, intent.lease_until, now, tariff, teardown)
        case ReturnIntended():
            return 0


def _unclear(state: RunState, order: RentIntended, tariff: Tariff, teardown: int) -> int:
    """What machines of an abandoned order can cost that have not been found so far."""
    found = sum(held.allocation == order.intent for held in state.machines.values())
    return _ordered(state, order, order.machines - found, tariff, teardown)


def _ordered(state: RunState, order: RentIntended, machines: int, tariff: Tariff, teardown: int) -> int:
    ceiling = order.on_demand if order.bid is None else order.bid
    lease = order.lease_until - state.ordered[order.intent]
    return bought(order.market, machines, ceiling, lease + teardown, tariff, order.disk + order.address)


def life_of(held: Held, now: int) -> Life:
    """A machine's life so far, as it is billed."""
    ended = End.EVICTED if held.end_reason == EVICTED else End.LEFT
    end = now if held.ended is None else held.ended
    return Life(held.started, max(end, held.started), ended)


def bill_of(state: RunState, held: Held, now: int, tariff: Tariff) -> Bill:
    """The bill of a machine alone. The ledger's rows are made of it, so that it and the budget tell the same."""
    allocation = state.allocations[held.allocation]
    return tariff.rule(allocation.market).bill(life_of(held, now), tariff.paid(allocation, now))


def seconds_of(held: Held, end: int) -> int:
    """The begun seconds of a machine, for which its disk and its address are billed; no eviction refunds them."""
    return -(-max(end - held.started, 0) // SECOND)


def sent_amount(sent: Sent) -> int:
    """What traffic cost, in nano-dollar-seconds."""
    return sent.bytes * sent.price * 3600 >> 30


def _beside(state: RunState, held: Held, end: int) -> int:
    allocation = state.allocations[held.allocation]
    return (allocation.disk + allocation.address) * seconds_of(held, end)


def _to_lease_end(state: RunState, held: Held, now: int, tariff: Tariff, teardown: int) -> int:
    return _flat(state, held, _gone_at(held, now, teardown), tariff) - _flat(state, held, now, tariff)


def _gone_at(held: Held, now: int, teardown: int) -> int:
    return max(now, held.lease_until + teardown)


def _flat(state: RunState, held: Held, end: int, tariff: Tariff) -> int:
    """The bill of a life at the highest price that is paid, throughout."""
    allocation = state.allocations[held.allocation]
    ceiling = allocation.on_demand if allocation.bid is None else allocation.bid
    life = Life(held.started, max(end, held.started), End.LEFT)
    return tariff.rule(allocation.market).bill(life, ceiling).amount + _beside(state, held, end)
