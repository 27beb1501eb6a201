"""Gavel's columns: the kinds of machines worth examining, their prices, and the share of time evictions leave. Pure."""

from collections.abc import Sequence
from math import inf

import numpy as np

from bidbrain.eviction.hazard import Hazard
from bidbrain.eviction.regime import in_force
from bidbrain.gavel.arrays import FloatArray
from bidbrain.gavel.effective_price import EvictionLoss, effective_usd_per_hour
from bidbrain.strategies.base import Rent
from bidbrain.strategies.names import ON_DEMAND
from bidbrain.strategies.recovery import mean_time_to_failure
from bidbrain.values import Overheads
from pricing_data.series import Ints, PriceSeries
from pricing_data.units import HOUR, NANOS_PER_DOLLAR
from spotctl.planning.allocation import AllocatedJob, KindColumns
from spotctl.planning.facts import PlanningFacts
from spotctl.planning.fleet import reliable_machines
from spotctl.planning.market_history import remembered_of
from spotctl.planning.offers import Bools, MarketSnapshot
from spotctl.planning.quota_use import quota_groups

_MARKETS_OF_KIND = 4


def columns_of(wanted: Sequence[int], facts: PlanningFacts, usable: Bools) -> KindColumns:
    """The columns of some kinds of the snapshot."""
    snapshot = facts.snapshot
    rows = _cheapest_markets(facts, wanted, usable)
    price, useful = np.array([_effective_price(facts, kind, rows[kind]) for kind in wanted]).T
    kinds = tuple(snapshot.kinds[kind] for kind in wanted)
    groups = tuple(quota_groups(kinds, [snapshot.machine[kind] for kind in wanted], facts.quotas))
    return KindColumns(tuple(wanted), kinds, tuple(rows[kind] for kind in wanted), price, useful, groups)


def useful_share(history: PriceSeries, hazard: Hazard | None, on_demand: int, overheads: Overheads) -> float:
    """The share of the time paid for in a market that evictions, and the starts after them, leave for work."""
    per_hour = HOUR / max(mean_time_to_failure(history, on_demand), 1.0)
    per_hour += 0.0 if hazard is None else hazard.rate[0]
    return EvictionLoss(per_hour, startup_hours=overheads.startup / HOUR).useful_share


def lowest_prices(snapshot: MarketSnapshot, usable: Bools) -> Ints:
    """The lowest spot price by kind."""
    rows = np.flatnonzero(usable)
    lowest = np.full(len(snapshot.kinds), np.iinfo(np.int64).max, dtype=np.int64)
    np.minimum.at(lowest, snapshot.kind[rows], snapshot.price[rows])
    return lowest


def _cheapest_markets(facts: PlanningFacts, kinds: Sequence[int], usable: Bools) -> dict[int, tuple[int, ...]]:
    """The rows of each kind's cheapest markets."""
    snapshot = facts.snapshot
    rows = np.flatnonzero(np.isin(snapshot.kind, kinds) & usable)
    cheapest: dict[int, tuple[int, ...]] = dict.fromkeys(kinds, ())
    for row in rows[np.argsort(snapshot.price[rows], kind="stable")].tolist():
        kind = int(snapshot.kind[row])
        cheapest[kind] = (*cheapest[kind], row)[:_MARKETS_OF_KIND]
    return cheapest


def _effective_price(facts: PlanningFacts, kind: int, rows: Sequence[int]) -> tuple[float, float]:
    """Dollars per hour of lasting work in the best market or on demand, and the share of the paid time that lasts.

    Jobs that all use on-demand machines only are not compared by spot prices.
    """
    listed = facts.snapshot.list_price(kind)
    rents_spot = any(job.spec.strategy != ON_DEMAND for job in facts.jobs)
    spot = (_effective_spot(facts, row, listed) for row in rows if rents_spot)
    return min([(listed / NANOS_PER_DOLLAR, 1.0), *spot])


def _effective_spot(facts: PlanningFacts, row: int, listed: int) -> tuple[float, float]:
    market = facts.snapshot.history(row)
    history = remembered_of(market, facts.snapshot.at)
    hazard = in_force(market.market, facts.hazard_of(market.market), facts.snapshot.at)
    share = useful_share(history, hazard, listed, facts.overheads)
    usd = int(facts.snapshot.price[row]) / NANOS_PER_DOLLAR
    return (effective_usd_per_hour(usd, share) if share > 0 else inf), share


def reliable_usd(allocated: AllocatedJob, facts: PlanningFacts, columns: KindColumns) -> FloatArray:
    """The cost of the reliable machines per hour in the region of each kind."""
    prices = {}
    for j, kind in enumerate(columns.kinds):
        place = (kind.cloud, kind.region)
        if allocated.demand.nu[j] > 0 and place not in prices:
            prices[place] = usd_per_hour(
                reliable_machines(allocated.job.spec, allocated.rates, j, facts.snapshot, columns)
            )
    return np.array([prices.get((kind.cloud, kind.region), 0.0) for kind in columns.kinds])


def usd_per_hour(rent: Rent | None) -> float:
    """Dollars per hour of machines at their on-demand price; 0 for none."""
    return 0.0 if rent is None else rent.machines * rent.offer.on_demand / NANOS_PER_DOLLAR
