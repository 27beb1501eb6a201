"""Step 4 of a plan: the mixes of machines that a job's share could be spent on, and the fleet that
a strategy may rent if the job begins with one of them. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf
from types import MappingProxyType

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.billing import rule_of_cloud
from bidbrain.decision.limits import MachineLimits, baseline_machines
from bidbrain.decision.mixture_solver import MixtureTerms, Schedule, frontier
from bidbrain.decision.mixture_strategy import Aim, Mixing
from bidbrain.decision.parts import QuotaPart
from bidbrain.decision.reserved import ReservedOffer
from bidbrain.decision.roaming import regions_of
from bidbrain.eviction.hazard import in_force
from bidbrain.forecast.values import KnownPast
from bidbrain.outbid.bid import HostMarket
from bidbrain.strategies.base import Offer, Overheads, Rent
from bidbrain.strategies.known_spells import KnownSpells
from bidbrain.strategies.names import ON_DEMAND, REGIONS
from pricing_data.errors import UnknownInstanceType, UnknownPrice
from pricing_data.list_prices import ListPrices, Location, egress
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import HOUR, NANOS_PER_DOLLAR, counted
from spotctl.files.job.resources import Reservation
from spotctl.files.job.spec import JobSpec, Objective
from spotctl.planning.candidates import KindColumns, mixture_terms
from spotctl.planning.errors import NotInTime
from spotctl.planning.facts import NOTHING_SEEN, HazardOf, PlanningFacts, transfer_time
from spotctl.planning.offers import MachineKind, MarketSnapshot, in_zones, is_sold_on_demand, places
from spotctl.planning.quotas import (
    QuotaGroup,
    on_demand_limits,
    shared_quotas,
    spot_quotas,
    tightest,
)
from spotctl.planning.values import AllocatedJob, Demand, Fleet, JobShare, MachineMix, TypeSpeed

_ROUNDING, _SAME_SPEED = 1e-9, 1e-6
_LIMIT = HOUR // 2
_MAX_MARKETS, _MAX_ROAMED_MARKETS = 16, 200
"""Maximum number of markets given to a strategy, and to one that moves between regions: same kind
first, then cheapest per unit of work."""
_MAX_PRICE_RATIO = 2.0
"""Highest price per unit of work that a strategy may consider, as a multiple of the chosen
kind's."""
_SPEED_OBJECTIVES = (Objective.MAX_THROUGHPUT, Objective.MAKESPAN_WITHIN_BUDGET)
_MIN_SPEED_RATIO = 0.9


def rentable_fleet(
    allocated: AllocatedJob, option: MachineMix, facts: PlanningFacts, columns: KindColumns
) -> tuple[AllocatedJob, Fleet]:
    """The fleet, and the job that it is for: without moves between regions if too few of its nodes
    on demand are left to keep its deadline.

    Raises NotInTime if a strategy that needs on-demand machines gets too few.
    """
    spec = allocated.job.spec
    fleet = _fleet(allocated, option, facts, columns)
    needed = fleet.baseline
    held = fleet.fallback
    if spec.strategy in (ON_DEMAND, REGIONS) and not held.machines:
        market = needed.offer.market
        if not is_sold_on_demand(market):
            raise NotInTime(
                f"{spec.name}: strategy {spec.strategy} needs machines on demand, and "
                f"{market.instance_type} is not sold so; allow a type that is, or name another "
                "strategy"
            )
        limits = allocated.share.on_demand_quotas
        most, quota = tightest(limits, market, fleet.reliable, facts.snapshot.catalog)
        raise NotInTime(
            f"{spec.name}: strategy {spec.strategy} needs at least {spec.resources.machines.least} "
            "on-demand machines"
            f" ({market.instance_type}), and quota {quota.name} has room for {most}; raise it "
            "('spotctl doctor' says how), or choose fewer or smaller machines, or another region"
        )
    if not allocated.demand.roams or not 0 < held.machines < needed.machines:
        return allocated, fleet

    if spec.strategy == REGIONS:
        raise NotInTime(
            f"{spec.name}: strategy regions needs {counted(needed.machines, 'machine')} of"
            f" {needed.offer.market.instance_type} on demand near the deadline, but quotas allow "
            f"{held.machines}; raise the quota ('spotctl doctor' says how), or write strategy: auto"
        )

    staying = replace(allocated, demand=replace(allocated.demand, roams=False))
    return staying, _fleet(staying, option, facts, columns)


def best_mixes(
    allocated: AllocatedJob, facts: PlanningFacts, columns: KindColumns
) -> list[MachineMix]:
    """The mixes for a job, best first: those first whose `home` is reserved for it and costs no
    more.
    """
    spec = allocated.job.spec
    demand = allocated.demand
    # The cost of the reliable machines per hour in the region of each kind.
    reliable: dict[tuple[str, str], float] = {}
    for j, kind in enumerate(columns.kinds):
        place = (kind.cloud, kind.region)
        if demand.nu[j] > 0 and place not in reliable:
            kept = reliable_machines(spec, demand.rates, j, facts.snapshot, columns)
            reliable[place] = usd_per_hour(kept)

    by_kind = np.array([reliable.get((kind.cloud, kind.region), 0.0) for kind in columns.kinds])
    standing = by_kind + (demand.value_of_time_usd or 0.0)

    options = machine_mixes(allocated.demand, allocated.share, columns, standing, facts.overheads)
    reserved = reserved_offers(allocated, 0.0)
    if not reserved or not options:
        return options

    costs = (
        NANOS_PER_DOLLAR
        * float(columns.usd_per_hour[option.home])
        / float(allocated.demand.nu[option.home])
        for option in options
    )
    cheapest = min(costs)

    types = {each.offer.market.instance_type for each in reserved if each.per_work <= cheapest}
    return sorted(options, key=lambda option: columns.kinds[option.home].type not in types)


def machine_mixes(
    job: Demand, share: JobShare, columns: KindColumns, standing_usd: Floats, overheads: Overheads
) -> list[MachineMix]:
    """The machines that a job could be planned on, best first; the last option is the cheapest kind
    that is fast enough. `standing_usd` are the dollars that an hour costs with each kind besides
    its machines."""
    caps = np.array(share.caps)
    usd_per_work = share.usd_per_work
    speeds = job.nu * caps
    is_usable = (job.nu > 0) & (caps >= job.least)
    in_time = [
        j
        for j in np.flatnonzero(is_usable).tolist()
        if not job.hurries or float(speeds[j]) * job.hours_left >= job.amount
    ]

    # Hours of work mean hours on the kind that they are counted in.
    in_hours = job.work.hours is not None and not job.work.assumed
    if job.gang or in_hours:
        cheapest_first = job.aim is Aim.LEAST_COST
        ranks = []
        for j in in_time:
            slowness = -float(speeds[j])
            usd = float(usd_per_work[j]) + float(standing_usd[j]) / float(speeds[j])
            ranks.append((usd, slowness, j) if cheapest_first else (slowness, usd, j))
        return [MachineMix(j) for _, _, j in sorted(ranks)]

    chosen = _mixtures(job, share, columns, standing_usd, overheads)
    cheapest = min(in_time, key=lambda j: usd_per_work[j], default=None)
    if cheapest is None or cheapest in {option.home for option in chosen}:
        return chosen
    return [*chosen, MachineMix(cheapest)]


def _mixtures(
    job: Demand, share: JobShare, columns: KindColumns, standing_usd: Floats, overheads: Overheads
) -> list[MachineMix]:
    """The best mixture of each region, in the order of the job's aim."""
    ranked: list[tuple[tuple[float, ...], int, MachineMix]] = []
    own = [
        replace(group, most=limit)
        for group, limit in zip(columns.quotas, share.amounts, strict=True)
    ]
    is_open = job.work.assumed or job.work.timed
    work = job.amount
    if is_open:
        work = inf
    budget = inf if job.budget_usd is None else job.budget_usd
    lasting = replace(job, nu=job.nu * columns.useful)
    usd_per_hour = columns.usd_per_hour * columns.useful

    for place in places(columns.kinds):
        terms = mixture_terms(lasting, place, np.array(share.caps), own, usd_per_hour)
        standing = standing_usd[place[0]]
        mixing = Mixing(job.aim, job.least, job.most, {}, {}, overheads, float(standing))
        terms = replace(terms, usd_per_hour=mixing.usd_per_hour, change_hours=mixing.change_hours)
        # The schedule that a run would begin with. `hours_left` begins when the first machines have
        # started.
        hours_left = max(job.hours_left - mixing.margin / HOUR, 0.0)
        nothing_held = (0,) * len(terms.kinds)
        schedule = mixing.schedule(terms, nothing_held, work, hours_left, budget)
        if schedule is not None:
            rank = _rank(job, schedule)
            mix = _option(job, terms, schedule, own)
            # The number keeps mixtures of one rank in their order.
            ranked.append((rank, len(ranked), mix))

    return [mix for _, _, mix in sorted(ranked)]


def _rank(job: Demand, schedule: Schedule) -> tuple[float, ...]:
    late = job.hurries and schedule.hours > job.hours_left * (1 + _ROUNDING)
    usd = round(schedule.usd, 9)
    hours = round(schedule.hours, 9)
    if job.aim is Aim.LEAST_COST:
        return (late, usd, hours)
    if job.aim is Aim.SHORTEST_TIME:
        return (late, hours, usd)
    return (late, -schedule.phases[0].mixture.rate, usd)


def _option(
    job: Demand, terms: MixtureTerms, schedule: Schedule, groups: Sequence[QuotaGroup]
) -> MachineMix:
    first = schedule.phases[0].mixture.machines
    home = max(range(len(first)), key=lambda j: (first[j] * float(job.nu[j]), -j))
    used = {
        j for phase in schedule.phases for j, count in enumerate(phase.mixture.machines) if count
    }
    counts = (len(np.flatnonzero(group.per_machine * (job.nu > 0))) > 1 for group in groups)
    limited = any(counts)
    presses = not job.work.timed and (
        job.hurries or (job.aim is not Aim.LEAST_COST and job.budget_usd is not None)
    )
    follows = len(used) > 1 or presses or limited
    if not follows:
        return MachineMix(home)

    corners = {j for corner in frontier(terms) for j, count in enumerate(corner.machines) if count}
    others = sorted(corners - used)
    return MachineMix(home, (*sorted(used), *others), len(used), schedule)


def _fleet(
    allocated: AllocatedJob, option: MachineMix, facts: PlanningFacts, columns: KindColumns
) -> Fleet:
    """The fleet of a mixture, or of all kinds that are about as good as `home`, sized by what
    `home` machines do.
    """
    demand = allocated.demand
    spec = allocated.job.spec
    snapshot = facts.snapshot
    home = option.home
    kinds, passed_over = _considered_kinds(allocated, option, snapshot, columns)
    zones = in_zones(snapshot, spec.resources)
    sold = _rows(demand, kinds, option.used, snapshot, columns)
    rows = []
    for row in sold:
        market = snapshot.markets[row]
        if zones[row] and not {market.zone, market.instance_type} & option.left_out:
            rows.append(row)

    if not rows:
        raise NotInTime(
            f"{demand.name}: {columns.kinds[home]} is not sold in its zones; name more zones"
        )

    offered = []
    for row in rows:
        rate = demand.rates[snapshot.markets[row].instance_type]
        offered.append(snapshot.offer(row, rate.nu))
    offers = tuple(offered)
    histories = map(snapshot.history, rows)
    market_history = past_of(histories, facts.hazard_of, snapshot.at, facts.spells, snapshot.hosts)
    reliable = reliable_machines(spec, demand.rates, home, snapshot, columns)
    quotas = offers, reliable, allocated.share.on_demand_quotas, snapshot.catalog

    by_type = {columns.kinds[j].type: allocated.share.caps[j] for j in kinds}
    slices = [share.slice for share in allocated.share.quotas]
    spot = spot_quotas(offers, slices, snapshot.catalog)
    limits = MachineLimits(
        spec.resources.machines.least,
        demand.most,
        by_type,
        together=demand.gang,
        on_demand=on_demand_limits(*quotas),
        shared=shared_quotas(*quotas),
        spot=spot,
    )

    # A gang's progress is counted in time on all of its nodes, also where quotas allow fewer.
    machines = demand.most if demand.gang else allocated.share.caps[home]
    most_nu = machines * float(demand.nu[home])
    if option.schedule is not None:
        most_nu = max(
            float(np.dot(phase.mixture.machines, demand.nu)) for phase in option.schedule.phases
        )
    amount = demand.work.amount(most_nu) if demand.work.timed else demand.amount
    work = HOUR * amount
    baseline = _baseline(offers, most_nu, limits)
    overheads = facts.overheads
    if demand.roams and demand.saved_gb is not None and len(set(regions_of(offers))) > 1:
        # The next start may be in another region than the checkpoint.
        overheads = replace(overheads, startup=overheads.startup + transfer_time(demand.saved_gb))

    reserved = reserved_offers(allocated, float(demand.nu[home]))
    prices = {}
    for market, series in market_history.histories.items():
        price = series.prices[-1]
        prices[market] = int(price)
    prices |= {each.offer.market: each.offer.on_demand for each in reserved}
    of_reserved = (each.offer for each in reserved)
    rented = dict.fromkeys(offer.market.instance_type for offer in (*offers, *of_reserved))

    fallback = limits.rentable(baseline)
    work_left = inf if demand.work.assumed else work
    rule = rule_of_cloud(baseline.offer.market.cloud)
    rates = {name: demand.rates[name] for name in rented}
    return Fleet(
        offers,
        baseline,
        fallback,
        reliable,
        most_nu,
        work_left,
        overheads,
        within_the_hour(overheads),
        rule,
        limits,
        market_history,
        prices,
        passed_over,
        reserved,
        rates,
    )


def quota_parts(
    allocated: AllocatedJob, fleet: Fleet, columns: KindColumns, snapshot: MarketSnapshot
) -> tuple[QuotaPart, ...]:
    """The job's parts of quotas in turn; none if there is only one."""
    share = allocated.share
    later_parts = allocated.share.parts[1:]
    rates = []
    for part in later_parts:
        nu = allocated.demand.nu @ part.machines
        rates.append(float(nu))
    if not rates:
        return ()

    first_rate = float(allocated.demand.nu @ share.parts[0].machines)
    rates = [first_rate, *rates]
    parts = list[QuotaPart]()
    for part, rate in zip(share.parts, rates, strict=True):
        parts_of_quotas = zip(share.quotas, columns.quotas, share.short, strict=True)
        slices = [
            replace(each.slice, amount=int(group.per_machine @ part.machines))
            if is_short
            else each.slice
            for each, group, is_short in parts_of_quotas
        ]
        spot = spot_quotas(fleet.offers, slices, snapshot.catalog)
        after = round(part.begin * HOUR)
        nu_of_part = fleet.most_nu * rate / max(rates)
        part_of_quota = QuotaPart(snapshot.at + after, spot, nu_of_part)
        parts.append(part_of_quota)

    return tuple(parts)


def _considered_kinds(
    allocated: AllocatedJob, option: MachineMix, snapshot: MarketSnapshot, columns: KindColumns
) -> tuple[list[int], dict[int, str]]:
    """The kinds of the fleet, the best first, and the reason why each of the others is passed
    over."""
    demand = allocated.demand
    share = allocated.share
    home = option.home
    if option.schedule is not None:
        return list(option.columns), outside_mixture(demand, share, option, columns.kinds)
    passed_over = companions(demand, share, home, columns.kinds)
    if demand.roams:
        passed_over |= unpriced(columns.kinds, snapshot.at, snapshot.catalog.lists)
    is_usable = np.flatnonzero(demand.nu > 0)
    usable: list[int] = is_usable.tolist()
    others = [j for j in usable if j != home and j not in passed_over]
    return [home, *others], passed_over


def outside_mixture(
    job: Demand, share: JobShare, option: MachineMix, kinds: Sequence[MachineKind]
) -> dict[int, str]:
    """For each kind that no mixture of the job uses, the reason."""
    chosen = kinds[option.home]
    reasons: dict[int, str] = {}
    for j in np.flatnonzero(job.nu > 0).tolist():
        if j in option.columns:
            continue
        price = f"${float(share.usd_per_work[j]):.4g} per unit of work"
        if (kinds[j].cloud, kinds[j].region) != (chosen.cloud, chosen.region):
            reasons[j] = f"in another region, where the best machines are no better: {price}"
        elif j in share.lacking:
            reasons[j] = share.lacking[j]
        else:
            reasons[j] = f"no mixture with it is better for {job.aim}: {price}"

    return reasons


def companions(
    job: Demand, share: JobShare, home: int, kinds: Sequence[MachineKind]
) -> dict[int, str]:
    """For each kind that the job's strategy may not use in addition to `home`, the reason.

    All machines of a job are in one region because they communicate with each other; a job that
    roams may use another region later.
    """
    reasons: dict[int, str] = {}
    chosen = kinds[home]
    least = float(share.usd_per_work[home])
    for j in np.flatnonzero(job.nu > 0).tolist():
        if j == home:
            continue
        usd = float(share.usd_per_work[j])
        prices = f"${usd:.4g} per unit of work, against ${least:.4g} for {chosen}"
        is_elsewhere = (kinds[j].cloud, kinds[j].region) != (chosen.cloud, chosen.region)
        if is_elsewhere and not job.roams:
            reasons[j] = f"in another region: {prices}"
        elif usd > _MAX_PRICE_RATIO * least:
            reasons[j] = f"too expensive: {prices}"
        elif why := _unfit(job, share, home, j, kinds):
            reasons[j] = why

    return reasons


def _unfit(job: Demand, share: JobShare, home: int, j: int, kinds: Sequence[MachineKind]) -> str:
    cap = share.caps[j]
    rate = share.caps[j] * float(job.nu[j])
    chosen = kinds[home]
    if cap < job.least:
        lack = share.lacking.get(j)
        return (
            lack
            or f"quotas allow {counted(cap, 'machine')}, and the job needs at least {job.least}"
        )
    if job.hurries and rate * job.hours_left < job.amount:
        return (
            f"{counted(cap, 'machine')} would need {job.amount / rate:.1f} hours, and "
            f"{job.hours_left:.1f} are left"
        )
    least_speed = job.least * float(job.nu[j])
    speed_of_home = share.caps[home] * float(job.nu[home])
    if least_speed > speed_of_home:
        planned = counted(share.caps[home], "planned machine")
        return (
            f"too large: {counted(job.least, 'machine')} would do more than the {planned} of "
            f"{chosen.type}"
        )
    if job.roams and float(job.nu[j]) < float(job.nu[home]) * (1 - _SAME_SPEED):
        return f"slower than {chosen.type}, whose speed the deadline is planned with"

    if (
        job.objective in _SPEED_OBJECTIVES
        and float(job.nu[j]) < float(job.nu[home]) * _MIN_SPEED_RATIO
    ):
        return f"slower than {chosen.type}, and the objective is {job.objective}"

    return ""


def unpriced(kinds: Sequence[MachineKind], at: int, lists: ListPrices) -> dict[int, str]:
    """The kinds in regions for which no price of sending data is known."""
    known = set()
    for place in {(kind.cloud, kind.region) for kind in kinds}:
        with suppress(UnknownPrice):
            egress(Location(*place), None, at, lists)
            known.add(place)
    why = "the cost of sending a checkpoint from its region is unknown"
    return {j: why for j, kind in enumerate(kinds) if (kind.cloud, kind.region) not in known}


def _rows(
    demand: Demand, kinds: Sequence[int], used: int, snapshot: MarketSnapshot, columns: KindColumns
) -> list[int]:
    """The markets of the first kinds, which are `used`, then those of the others, the cheapest per
    unit of work first."""
    own = [row for j in kinds[:used] for row in columns.rows[j]]
    more = [(j, row) for j in kinds[used:] for row in columns.rows[j]]
    more.sort(key=lambda pair: int(snapshot.price[pair[1]]) / float(demand.nu[pair[0]]))
    other_rows = [row for _, row in more]
    most_markets = _MAX_ROAMED_MARKETS if demand.roams else _MAX_MARKETS
    return (own + other_rows)[:most_markets]


def past_of(
    histories: Iterable[PriceSeries],
    hazard_of: HazardOf,
    at: int,
    spells: Mapping[Market, KnownSpells] = NOTHING_SEEN,
    hosts: Mapping[Market, HostMarket] = MappingProxyType({}),
) -> KnownPast:
    """The past of some markets as known at a moment: their prices up to then
    (`MarketSnapshot.history`), rates of evictions that prices do not explain, what was seen of
    spells, and the hosts where the highest bid runs.

    An unrecorded rate is a prior, so that unknown never counts as safe; None where only the price
    evicts.
    """
    remembered = {series.market: series for series in histories}
    hazards = {market: in_force(market, hazard_of(market), at) for market in remembered}
    seen = {market: spells[market] for market in remembered if market in spells}
    known_hosts = {market: hosts[market] for market in remembered if market in hosts}
    return KnownPast(at, remembered, hazards, seen, known_hosts)


def _baseline(offers: Sequence[Offer], most_nu: float, limits: MachineLimits) -> Rent:
    """The cheapest on-demand machines that do the same work per hour, or the fastest ones if none
    do as much. Machines within the quotas are preferred."""
    rents = []
    for offer in offers:
        machines = baseline_machines(most_nu, offer.nu, limits)
        rents.append(Rent(offer, machines, None))
    held = [(rent, limits.rentable(rent).machines * rent.offer.nu) for rent in rents]
    if not any(nu for _, nu in held):
        held = [(rent, rent.machines * rent.offer.nu) for rent in rents]
    enough = [rent for rent, nu in held if nu >= most_nu * (1 - _ROUNDING)]
    if enough:
        return min(enough, key=lambda rent: rent.offer.on_demand / rent.offer.nu)
    best = max(held, key=lambda pair: (pair[1], -pair[0].offer.on_demand))
    return best[0]


def within_the_hour(overheads: Overheads) -> Overheads:
    """The overheads with at most half an hour for a start-up, and for a pause after an eviction:
    strategies compare machines by their next hour, in which machines with longer start-ups would be
    worthless."""
    startup = min(overheads.startup, _LIMIT)
    eviction = min(overheads.eviction, _LIMIT)
    return replace(overheads, startup=startup, eviction=eviction)


def reliable_machines(
    spec: JobSpec,
    rates: Mapping[str, TypeSpeed],
    home: int,
    snapshot: MarketSnapshot,
    columns: KindColumns,
) -> Rent | None:
    """The reliable machines in the region of `home`: of the requested type, else of the cheapest
    on-demand type that the job may use."""
    wanted = spec.resources.reliable
    chosen = columns.kinds[home]
    if not wanted.machines:
        return None

    numbered = enumerate(columns.kinds)
    near = [j for j, kind in numbered if (kind.cloud, kind.region) == (chosen.cloud, chosen.region)]

    usable = [j for j in near if columns.kinds[j].type in rates]
    cheapest = min(usable, key=lambda j: snapshot.list_price(columns.numbers[j]))
    place = snapshot.markets[columns.rows[cheapest][0]]
    if wanted.type is None:
        nu = rates[columns.kinds[cheapest].type].nu
        row = columns.rows[cheapest][0]
        offer = snapshot.offer(row, nu)
        return Rent(offer, wanted.machines, None)

    market = Market(place.cloud, place.region, place.zone, wanted.type)
    try:
        vcpus = snapshot.catalog.instance_type(market.cloud, market.instance_type).vcpus
        price = snapshot.catalog.on_demand(market, snapshot.at).price
    except (UnknownInstanceType, UnknownPrice) as error:
        raise NotInTime(f"{spec.name}: resources.reliable: {error}") from error

    return Rent(Offer(market, float(vcpus), price), wanted.machines, None)


def usd_per_hour(rent: Rent | None) -> float:
    """Dollars per hour of machines at their on-demand price; 0 for none."""
    if rent is None:
        return 0.0
    return rent.machines * rent.offer.on_demand / NANOS_PER_DOLLAR


def reserved_offers(allocated: AllocatedJob, least_nu: float) -> tuple[ReservedOffer, ...]:
    """The reservations that a job can use. One that is to be as fast as possible takes no machines
    that do less work per hour than `least_nu`."""
    spec = allocated.job.spec
    rates = allocated.demand.rates
    whole = allocated.demand.gang and not allocated.demand.saves
    offers = []
    for named in allocated.demand.reservations:
        why = why_never(named, spec, rates, least_nu)
        if not why:
            offers.append(
                ReservedOffer(
                    Offer(named.market, rates[named.type].nu, named.price),
                    named.machines,
                    named.leave,
                    whole,
                )
            )
    return tuple(offers)


def why_never(
    named: Reservation, spec: JobSpec, rates: Mapping[str, TypeSpeed], least_nu: float
) -> str:
    if named.type not in rates:
        return (
            f"the job cannot use {named.type} there, or no spot price of it is known, with which "
            "plans compare (spotctl prices fetch)"
        )
    if spec.objective in _SPEED_OBJECTIVES and rates[named.type].nu < least_nu:
        return f"slower than the machines that the objective {spec.objective} asks for"
    return ""
