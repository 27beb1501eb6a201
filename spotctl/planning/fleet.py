"""The offers, limits and history that a job's strategy works with, once its size is measured in one machine type."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bidbrain.decision.limits import MachineLimits, baseline_machines
from bidbrain.decision.reserved import ReservedOffer
from bidbrain.strategies.base import REQUEST_VCPUS, Offer, Rent
from pricing_data.catalog import Catalog
from pricing_data.errors import UnknownInstanceType, UnknownPrice
from pricing_data.market import Market
from spotctl.files.job.spec import JobSpec
from spotctl.planning.allocation import AllocatedJob, KindColumns
from spotctl.planning.errors import NotInTime
from spotctl.planning.facts import PlanningFacts
from spotctl.planning.job import Demand
from spotctl.planning.machine_options import MachineOption, outside_mixture
from spotctl.planning.market_history import MarketHistory, RentableFleet
from spotctl.planning.offers import MarketSnapshot, in_zones
from spotctl.planning.on_demand_limits import on_demand_limits, shared_quotas, spot_quotas
from spotctl.planning.reserved import reserved_offers
from spotctl.planning.roaming import moving_overheads, unpriced
from spotctl.planning.share import companions
from spotctl.planning.work import TypeSpeed

_ROUNDING = 1e-9
_MOST_MARKETS, _MOST_ROAMED_MARKETS = 16, 200
"""Maximum number of markets given to a strategy, and to one that moves between regions: same kind first, then cheapest
per unit of work."""
_MOST_REQUESTS = 64


@dataclass(frozen=True, slots=True, eq=False)
class FleetPlan:
    """A fleet with its limits and the history of its markets.

    `rows` are its offers' rows in the snapshot, `prices` their current prices, and those of the `reserved` machines.
    `passed_over` has the reason why other columns are not in the fleet.
    """

    fleet: RentableFleet
    limits: MachineLimits
    market_history: MarketHistory
    rows: tuple[int, ...]
    prices: dict[Market, int]
    passed_over: dict[int, str]
    reserved: tuple[ReservedOffer, ...] = ()

    @property
    def fallback(self) -> Rent:
        """The on-demand machines to which the job may turn, as far as quotas allow; maybe none."""
        return self.limits.rentable(self.fleet.baseline)

    @property
    def instead(self) -> Rent:
        """The fallback, or all that the job would rent if quotas allow none of it."""
        return self.fallback if self.fallback.machines else self.fleet.baseline


def plan_fleet(allocated: AllocatedJob, option: MachineOption, facts: PlanningFacts, columns: KindColumns) -> FleetPlan:
    """The fleet of a mixture, or of all kinds that are about as good as `home`, sized by what `home` machines do."""
    demand, snapshot, home = allocated.demand, facts.snapshot, option.home
    kinds, passed_over = _considered_kinds(allocated, option, snapshot, columns)
    most_nu = _most_nu(allocated, option)
    rows = _rows(demand, kinds[: option.used], kinds[option.used :], snapshot, columns)
    zones = in_zones(snapshot, allocated.job.spec.resources)
    rows = [row for row in rows if zones[row]]
    if not rows:
        raise NotInTime(f"{demand.name}: {columns.kinds[home]} is not sold in its zones; name more zones")
    offers = tuple(_offer(snapshot, row, allocated.rates) for row in rows)
    limits = MachineLimits(
        allocated.job.spec.resources.machines.least,
        demand.most,
        {columns.kinds[j].type: allocated.share.caps[j] for j in kinds},
        together=demand.gang,
    )
    reliable = reliable_machines(allocated.job.spec, allocated.rates, home, snapshot, columns)
    quotas = offers, reliable, allocated.on_demand_quotas, snapshot.catalog
    spot = spot_quotas(offers, [share.part for share in allocated.quotas], snapshot.catalog)
    limits = replace(limits, on_demand=on_demand_limits(*quotas), shared=shared_quotas(*quotas), spot=spot)
    baseline = _baseline(offers, most_nu, limits)
    fleet = RentableFleet(
        offers,
        baseline,
        reliable,
        most_nu,
        _request_nu(baseline.offer, most_nu, snapshot.catalog),
        moving_overheads(facts.overheads, offers, allocated.job.spec) if demand.roams else facts.overheads,
    )
    market_history = MarketHistory.of(map(snapshot.history, rows), facts.hazard_of, snapshot.at, facts.spells)
    prices = {offer.market: int(snapshot.price[row]) for offer, row in zip(offers, rows, strict=True)}
    reserved = reserved_offers(allocated, float(demand.nu[home]), snapshot.at)
    prices |= {each.offer.market: each.offer.on_demand for each in reserved}
    return FleetPlan(fleet, limits, market_history, tuple(rows), prices, passed_over, reserved)


def _considered_kinds(
    allocated: AllocatedJob, option: MachineOption, snapshot: MarketSnapshot, columns: KindColumns
) -> tuple[list[int], dict[int, str]]:
    """The kinds of the fleet, the best first, and the reason why each of the others is passed over."""
    demand, share, home = allocated.demand, allocated.share, option.home
    if option.schedule is not None:
        return list(option.columns), outside_mixture(demand, share, option, columns.kinds)
    passed_over = companions(demand, share, home, columns.kinds)
    if demand.roams:
        passed_over |= unpriced(columns.kinds, snapshot.at, snapshot.catalog.lists)
    return [home, *(j for j in _usable(demand) if j != home and j not in passed_over)], passed_over


def _most_nu(allocated: AllocatedJob, option: MachineOption) -> float:
    """The work per hour of all machines that the job holds at a time."""
    demand = allocated.demand
    if option.schedule is not None:
        return max(float(np.dot(phase.mixture.machines, demand.nu)) for phase in option.schedule.phases)
    # A gang's progress is counted in time on all of its nodes, also where quotas allow fewer.
    machines = demand.most if demand.gang else allocated.share.caps[option.home]
    return machines * float(demand.nu[option.home])


def _usable(demand: Demand) -> list[int]:
    usable: list[int] = np.flatnonzero(demand.nu > 0).tolist()
    return usable


def _rows(
    demand: Demand, first: Sequence[int], others: Sequence[int], snapshot: MarketSnapshot, columns: KindColumns
) -> list[int]:
    """The markets of the first kinds, then those of the others, the cheapest per unit of work first."""
    own = [row for j in first for row in columns.rows[j]]
    more = [(j, row) for j in others for row in columns.rows[j]]
    more.sort(key=lambda pair: int(snapshot.price[pair[1]]) / float(demand.nu[pair[0]]))
    return (own + [row for _, row in more])[: _MOST_ROAMED_MARKETS if demand.roams else _MOST_MARKETS]


def _offer(snapshot: MarketSnapshot, row: int, rates: Mapping[str, TypeSpeed]) -> Offer:
    market = snapshot.markets[row]
    return Offer(market, rates[market.instance_type].nu, snapshot.list_price(int(snapshot.kind[row])))


def _baseline(offers: Sequence[Offer], most_nu: float, limits: MachineLimits) -> Rent:
    """The cheapest on-demand machines that do the same work per hour, or the fastest ones if none do as much. Machines
    within the quotas are preferred."""
    rents = [Rent(offer, baseline_machines(most_nu, offer.nu, limits), None) for offer in offers]
    held = [(rent, limits.rentable(rent).machines * rent.offer.nu) for rent in rents]
    if not any(nu for _, nu in held):
        held = [(rent, rent.machines * rent.offer.nu) for rent in rents]
    enough = [rent for rent, nu in held if nu >= most_nu * (1 - _ROUNDING)]
    if enough:
        return min(enough, key=lambda rent: rent.offer.on_demand / rent.offer.nu)
    return max(held, key=lambda pair: (pair[1], -pair[0].offer.on_demand))[0]


def _request_nu(like: Offer, most_nu: float, catalog: Catalog) -> float:
    """The work of the machines that one request rents: as many as a request has vCPUs, or more for a large job."""
    vcpus = catalog.instance_type(like.market.cloud, like.market.instance_type).vcpus
    return max(REQUEST_VCPUS * like.nu / vcpus, most_nu / _MOST_REQUESTS)


def reliable_machines(
    spec: JobSpec, rates: Mapping[str, TypeSpeed], home: int, snapshot: MarketSnapshot, columns: KindColumns
) -> Rent | None:
    """The reliable machines in the region of `home`: of the requested type, else of the cheapest on-demand type that
    the job may use."""
    wanted, chosen = spec.resources.reliable, columns.kinds[home]
    if not wanted.machines:
        return None
    near = [j for j, kind in enumerate(columns.kinds) if (kind.cloud, kind.region) == (chosen.cloud, chosen.region)]
    usable = [j for j in near if columns.kinds[j].type in rates]
    cheapest = min(usable, key=lambda j: snapshot.list_price(columns.numbers[j]))
    place = snapshot.markets[columns.rows[cheapest][0]]
    if wanted.type is None:
        return Rent(_offer(snapshot, columns.rows[cheapest][0], rates), wanted.machines, None)
    market = Market(place.cloud, place.region, place.zone, wanted.type)
    try:
        vcpus = snapshot.catalog.instance_type(market.cloud, market.instance_type).vcpus
        price = snapshot.catalog.on_demand(market, snapshot.at).price
    except (UnknownInstanceType, UnknownPrice) as error:
        raise NotInTime(f"{spec.name}: resources.reliable: {error}") from error
    return Rent(Offer(market, float(vcpus), price), wanted.machines, None)
