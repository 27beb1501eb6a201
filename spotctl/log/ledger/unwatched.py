"""The cost of machines whose end is not known: at most until their leases end, at least as long as they are known.

A machine of an interrupted run ends with its lease, unless it was evicted before; until then, no price is higher than
its bid. Of a machine whose end is in lost rows, only the time counts in which it is known to have run. Pure.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bidbrain.billing import End, Life
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from spotctl.log.budget import LISTING_DELAY, Tariff, seconds_of
from spotctl.log.ledger.rows import LedgerRow
from spotctl.log.state import LEASE_ENDED, Allocation, Held, RunState


def charged(state: RunState, now: int) -> RunState:
    """The state with an end, at the latest now, for each machine of which the log has none."""
    machines = {held.id: _ended(state, held, now) for held in state.alive}
    return replace(state, machines={**state.machines, **machines})


def _ended(state: RunState, held: Held, now: int) -> Held:
    end = known_until(state, held) if state.lost else max(held.lease_until, held.started)
    return replace(held, ended=min(end, now), end_reason=LEASE_ENDED) if end <= now else held


def known_until(state: RunState, held: Held) -> int:
    """The last moment at which a machine without a known end is known to have run."""
    seen = [held.started, held.ran or 0, *held.turns, held.cards_at, held.traffic_at]
    if not state.lost:
        # The last event was written while the machine was listed, by a list that may have been late.
        seen.append(min(state.at - LISTING_DELAY, held.lease_until))
    return max(seen)


def least(state: RunState, held: Held, tariff: Tariff) -> int:
    """The least that a machine without a known end has cost: it may have been evicted, and that hour may be free."""
    allocation, until = state.allocations[held.allocation], known_until(state, held)
    ends = (End.LEFT,) if allocation.bid is None else (End.LEFT, End.EVICTED)
    prices, rule = tariff.paid(allocation, max(until, held.started)), tariff.rule(allocation.market)
    least_bill = min(rule.bill(Life(held.started, max(until, held.started), end), prices).amount for end in ends)
    return least_bill + (allocation.disk + allocation.address) * seconds_of(held, until)


def at_most(state: RunState, tariff: Tariff) -> Tariff:
    """The tariff of an interrupted run: after its last event, each market costs the highest bid for its machines."""

    def prices(market: Market, now: int) -> PriceSeries:
        if now <= state.at:
            return tariff.prices(market, now)
        known = tariff.prices(market, state.at)
        highest = max(_highest(allocation) for allocation in state.allocations.values() if allocation.market == market)
        times, amounts = np.append(known.times, now), np.append(known.prices, highest)
        amounts[-2] = max(highest, amounts[-2])
        return PriceSeries(market, times, amounts)

    return Tariff(tariff.rule, prices)


def doubted(rows: Sequence[LedgerRow], least: int) -> list[LedgerRow]:
    """The rows of a machine, with what they say beyond the least as their doubtful part, the latest rows first."""
    doubt, marked = max(sum(row.amount for row in rows) - least, 0), list[LedgerRow]()
    for row in reversed(rows):
        part = min(max(row.amount, 0), doubt)
        marked.append(row._replace(doubtful=part) if part else row)
        doubt -= part
    return marked[::-1]


def _highest(allocation: Allocation) -> int:
    return allocation.highest_price if allocation.bid is not None else 0
