"""The offers, limits and history that a job's strategy works with, once its size is measured in one machine type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bidbrain.decision.limits import MachineLimits, baseline_machines
from bidbrain.strategies.base import Offer, Rent
from pricing_data.errors import UnknownInstanceType, UnknownPrice
from pricing_data.market import Market
from spotctl.files.job.spec import Command
from spotctl.planning.errors import NotInTime
from spotctl.planning.market_history import MarketHistory, RentableFleet
from spotctl.planning.offers import MarketSnapshot
from spotctl.planning.share import companions
from spotctl.planning.values import AllocatedJob, Columns, PlanningInputs

_MARKETS = 16
"""Maximum number of markets given to a strategy: same kind first, then cheapest per unit of work."""


@dataclass(frozen=True, slots=True, eq=False)
class FleetPlan:
    """A fleet with its limits and the history of its markets.

    `rows` are its offers' rows in the snapshot, `prices` their current prices. `passed_over` has the reason why other
    columns are not in the fleet.
    """

    fleet: RentableFleet
    limits: MachineLimits
    market_history: MarketHistory
    rows: tuple[int, ...]
    prices: dict[Market, int]
    passed_over: dict[int, str]


def plan_fleet(allocated: AllocatedJob, home: int, inputs: PlanningInputs, columns: Columns) -> FleetPlan:
    """The fleet of all kinds that are about as good as `home`, sized by what `home` machines would do."""
    demand, share, snapshot = allocated.demand, allocated.share, inputs.snapshot
    passed_over = companions(demand, share, home, columns.kinds)
    kinds = [j for j in np.flatnonzero(demand.nu > 0).tolist() if j not in passed_over]
    rows = _rows(allocated, [home, *(j for j in kinds if j != home)], snapshot, columns)
    offers = tuple(_offer(snapshot, row, allocated) for row in rows)
    most_nu = share.caps[home] * float(demand.nu[home])
    machines = allocated.job.spec.resources.machines
    limits = MachineLimits(
        machines.least,
        demand.most,
        {columns.kinds[j].type: share.caps[j] for j in kinds},
        together=isinstance(allocated.job.spec.program, Command),
    )
    fleet = RentableFleet(
        offers,
        _baseline(offers, most_nu, limits),
        _reliable(allocated, home, snapshot, columns),
        most_nu,
        inputs.overheads,
    )
    market_history = MarketHistory.of(map(snapshot.history, rows), inputs.hazard_of, snapshot.at)
    prices = {offer.market: int(snapshot.price[row]) for offer, row in zip(offers, rows, strict=True)}
    return FleetPlan(fleet, limits, market_history, tuple(rows), prices, passed_over)


def _rows(allocated: AllocatedJob, kinds: Sequence[int], snapshot: MarketSnapshot, columns: Columns) -> list[int]:
    nu = allocated.demand.nu
    own, others = list(columns.rows[kinds[0]]), [(j, row) for j in kinds[1:] for row in columns.rows[j]]
    others.sort(key=lambda pair: int(snapshot.price[pair[1]]) / float(nu[pair[0]]))
    return (own + [row for _, row in others])[:_MARKETS]


def _offer(snapshot: MarketSnapshot, row: int, allocated: AllocatedJob) -> Offer:
    market = snapshot.markets[row]
    return Offer(market, allocated.rates[market.instance_type].nu, snapshot.list_price(int(snapshot.kind[row])))


def _baseline(offers: Sequence[Offer], most_nu: float, limits: MachineLimits) -> Rent:
    """The cheapest on-demand machines that do the same work per hour."""
    cheapest = min(offers, key=lambda offer: offer.on_demand / offer.nu)
    return Rent(cheapest, baseline_machines(most_nu, cheapest.nu, limits), None)


def _reliable(allocated: AllocatedJob, home: int, snapshot: MarketSnapshot, columns: Columns) -> Rent | None:
    """The reliable machines: of the requested type, else of the cheapest on-demand type that the job may use."""
    wanted, chosen = allocated.job.spec.resources.reliable, columns.kinds[home]
    if not wanted.machines:
        return None
    near = [j for j, kind in enumerate(columns.kinds) if (kind.cloud, kind.region) == (chosen.cloud, chosen.region)]
    usable = [j for j in near if allocated.demand.nu[j] > 0]
    cheapest = min(usable, key=lambda j: snapshot.list_price(columns.numbers[j]))
    place = snapshot.markets[columns.rows[cheapest][0]]
    if wanted.type is None:
        return Rent(_offer(snapshot, columns.rows[cheapest][0], allocated), wanted.machines, None)
    market = Market(place.cloud, place.region, place.zone, wanted.type)
    try:
        vcpus = snapshot.catalog.instance_type(market.cloud, market.instance_type).vcpus
        price = snapshot.catalog.on_demand(market, snapshot.at).price
    except (UnknownInstanceType, UnknownPrice) as error:
        raise NotInTime(f"{allocated.job.spec.name}: resources.reliable: {error}") from error
    return Rent(Offer(market, float(vcpus), price), wanted.machines, None)
