"""Step 4 of a plan: the decision object of a job, on machines that are as good as one option. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf

import numpy as np

from bidbrain.billing import rule_of_cloud
from bidbrain.decision.decider import Decider
from bidbrain.decision.limits import MachineLimits, baseline_machines
from bidbrain.decision.mixture_strategy import Mixed, Mixing, TypeQuota
from bidbrain.decision.roaming import Roaming, known_before, regions_of
from bidbrain.eviction.hazard import Hazard
from bidbrain.replay.pace import MAX_STARTS, PastJobs
from bidbrain.strategies.base import REQUEST_VCPUS, Decision, Offer, Rent, Situation, Strategy
from bidbrain.strategies.deadline import DeadlineStrategy, DeadlineTerms
from bidbrain.strategies.deadline_spells import SpotSpell
from bidbrain.strategies.inputs import StrategyInputs
from bidbrain.strategies.known_spells import spell_of_prices, spot_spell
from bidbrain.strategies.names import DEADLINE, ON_DEMAND, REGIONS, known, of_earlier_version
from bidbrain.strategies.registry import default_for, set_up
from bidbrain.values import Overheads
from pricing_data.catalog import Catalog
from pricing_data.errors import UnknownPrice
from pricing_data.list_prices import ListPrices, Location, egress
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import HOUR, counted, usd_text
from spotctl.clouds.lease_times import LeaseTimes
from spotctl.files.job.spec import AUTO, JobSpec, Objective
from spotctl.home.errors import BadRequest
from spotctl.planning.candidates import (
    KindColumns,
    MachineMix,
    reliable_machines,
    reserved_offers,
    usd_per_hour,
    useful_share,
)
from spotctl.planning.cost import checkpoints_of, mean_life
from spotctl.planning.errors import NotInTime, OverBudget
from spotctl.planning.facts import CHECKPOINT, PlanningFacts, launch_times, past_of, transfer_time, within_the_hour
from spotctl.planning.forecast import RATE_HOURS
from spotctl.planning.offers import MachineKind, MarketSnapshot, in_zones
from spotctl.planning.quotas import on_demand_limits, shared_quotas, spot_quotas, tightest
from spotctl.planning.values import (
    AllocatedJob,
    ChosenStrategy,
    Demand,
    FirstDecision,
    Fleet,
    JobShare,
    PlannedMixture,
)

_ROUNDING, _SAME_SPEED = 1e-9, 1e-6
_MAX_MARKETS, _MAX_ROAMED_MARKETS = 16, 200
"""Maximum number of markets given to a strategy, and to one that moves between regions: same kind first, then cheapest
per unit of work."""
_MAX_REQUESTS = 64
MAX_PRICE_RATIO = 2.0
"""Highest price per unit of work that a strategy may consider, as a multiple of the chosen kind's."""
_SPEED_COUNTS = (Objective.MAX_THROUGHPUT, Objective.MAKESPAN_WITHIN_BUDGET)
_MIN_SPEED_RATIO = 0.9
_ASSUMED_GB = 10.0
"""The size of a checkpoint that the job file does not declare, until one is written."""
# The past jobs that measure a pace take this many hours together: a plan should be there within a second.
_PACE_HOURS, _MIN_STARTS = 240.0, 8
_ROAMING_REASON = (
    "the job may move, and in our backtests moving to where spot is available cost less than the best published policy"
    " (docs/decisions/0031-regions-strategy.md)"
)
_DEADLINE_REASON = (
    "`strategy: deadline` decides when to switch to on-demand (docs/decisions/0004-deadline-strategy.md), the default"
    " strategy the rest: "
)


def rentable_fleet(
    allocated: AllocatedJob, option: MachineMix, facts: PlanningFacts, columns: KindColumns
) -> tuple[AllocatedJob, Fleet]:
    """The fleet, and the job that it is for: without moves between regions if too few of its nodes on demand are left
    to keep its deadline.

    Raises NotInTime if a strategy that needs on-demand machines gets too few.
    """
    spec, fleet = allocated.job.spec, _fleet(allocated, option, facts, columns)
    needed, held = fleet.baseline, fleet.fallback
    if spec.strategy in (ON_DEMAND, REGIONS) and not held.machines:
        market, limits = needed.offer.market, allocated.share.on_demand_quotas
        most, quota = tightest(limits, market, fleet.reliable, facts.snapshot.catalog)
        raise NotInTime(
            f"{spec.name}: strategy {spec.strategy} needs at least {spec.resources.machines.least} on-demand machines"
            f" ({market.instance_type}), and quota {quota.name} has room for {most}; raise it ('spotctl doctor' says"
            " how), or choose fewer or smaller machines, or another region"
        )
    if not allocated.demand.roams or not 0 < held.machines < needed.machines:
        return allocated, fleet
    if spec.strategy == REGIONS:
        raise NotInTime(
            f"{spec.name}: strategy regions needs {needed.machines} machines of {needed.offer.market.instance_type} on"
            f" demand near the deadline, but quotas allow {held.machines}; raise the quota ('spotctl doctor' says how),"
            " or write strategy: auto"
        )
    staying = replace(allocated, demand=replace(allocated.demand, roams=False))
    return staying, _fleet(staying, option, facts, columns)


def build_decider(
    allocated: AllocatedJob, fleet: Fleet, option: MachineMix, columns: KindColumns, catalog: Catalog
) -> tuple[ChosenStrategy, Decider]:
    """The job's strategy, kept within the job's machines, quotas and deadline, and its name with the reason for it."""
    spec, roams = allocated.job.spec, allocated.demand.roams and fleet.fallback.machines > 0
    inputs = _strategy_inputs(allocated, fleet, catalog)
    named = allocated.strategy or strategy_for(spec, fleet.baseline.offer.market.cloud, roams=roams)
    # Where `regions` decides, this strategy only serves the deadline's safety net.
    made = set_up("on-demand" if roams else named.name, inputs)
    strategy, deadline, roaming = made.strategy, _last_moment(allocated), None
    if made.note:
        named = replace(named, reason=f"{named.reason}; {made.note}")
    if option.schedule is not None:
        strategy = Mixed(strategy, _mixing(allocated, option, fleet, columns))
    if roams:
        history, saved = fleet.market_history, allocated.job.declared_gb
        roaming = roaming_of(fleet.offers, history.histories, history.hazards, history.now, catalog.lists, saved)
    decider = Decider(
        offers=fleet.offers,
        baseline=fleet.baseline,
        reliable=fleet.reliable,
        most_nu=fleet.most_nu,
        limits=fleet.limits,
        overheads=fleet.overheads,
        deadline=deadline,
        strategy=strategy,
        billing=inputs.billing,
        lease=LeaseTimes.of(spec).committed,
        worth=None if deadline is None or roaming is not None else _worth(allocated, fleet),
        roaming=None if deadline is None else roaming,
        caps_bids=True,
        most_bid=spec.max_bid,
        reserved=fleet.reserved,
    )
    return named, decider


def first_decision(
    allocated: AllocatedJob, fleet: Fleet, strategy: ChosenStrategy, decider: Decider, now: int
) -> tuple[Decider, FirstDecision]:
    """The decision with which the job begins, and the decider that makes it; raises NotInTime or OverBudget if nothing
    would be rented.

    The interval between checkpoints follows from the machines; a decider with a deadline then decides again, at the
    speed that checkpoints leave.
    """
    situation = _situation(allocated, fleet, decider, now)
    decision = _decision(allocated, decider, situation)
    mixture = _mixture(decider.strategy, situation)
    lives = (mean_life(fleet.market_history, rent, fleet.price(rent.offer)) for rent in _rents(decision))
    interval = checkpoints_of(allocated.job, lives)
    checkpoints = interval if allocated.job.saves else None
    if checkpoints is not None:
        decider = replace(decider, speed=checkpoints.useful_share)
        if decider.deadline is not None:
            decision = _decision(allocated, decider, situation)
    outlooks = decider.outlooks(situation)
    return decider, FirstDecision(strategy, decision.reason, _rents(decision), interval, checkpoints, mixture, outlooks)


def _mixing(allocated: AllocatedJob, option: MachineMix, fleet: Fleet, columns: KindColumns) -> Mixing:
    """The terms on which a strategy follows the job's mixture."""
    demand, history = allocated.demand, fleet.market_history
    listed = {offer.market: offer.on_demand for offer in fleet.offers}
    return Mixing(
        aim=option.aim,
        least=demand.least,
        most=demand.most,
        most_of_type=fleet.limits.by_type,
        useful={
            market: useful_share(series, history.hazards[market], listed[market], fleet.overheads)
            for market, series in history.histories.items()
        },
        overheads=fleet.overheads,
        usd_per_hour=usd_per_hour(fleet.reliable) + (allocated.job.value_of_time_usd or 0.0),
        quotas=tuple(
            TypeQuota({columns.kinds[j].type: float(group.per_machine[j]) for j in option.columns}, part)
            for group, part in zip(columns.quotas, allocated.share.amounts, strict=True)
        ),
    )


def _last_moment(allocated: AllocatedJob) -> int | None:
    """The deadline, less the time that a launch takes around its work; None if the job has none, or no known length."""
    if allocated.demand.work.assumed or allocated.job.deadline is None:
        return None
    times = launch_times(allocated.job.spec)
    return allocated.job.deadline - times.order - times.ending


def _worth(allocated: AllocatedJob, fleet: Fleet) -> DeadlineStrategy | None:
    """The worth of slack, from the length on demand, the cost of changing machines, and how cheap spot is now; None
    without on-demand machines."""
    fallback = fleet.fallback
    if not fallback.machines:
        return None
    rate = fallback.machines * fallback.offer.nu
    work = max(round(allocated.demand.work_amount(fleet.most_nu) / rate), 1)
    spot = min(fleet.price(offer) / offer.nu for offer in fleet.offers)
    ratio = fallback.offer.on_demand / fallback.offer.nu / spot
    return DeadlineStrategy(DeadlineTerms(work, fleet.overheads.startup + fleet.overheads.eviction, ratio))


def _situation(allocated: AllocatedJob, fleet: Fleet, decider: Decider, now: int) -> Situation:
    """The situation of the first decision: nothing is held, and the budget pays for the reliable machines first."""
    budget = allocated.job.budget_usd
    reliable = decider.reliable
    reserved = 0.0 if reliable is None else reliable.machines * decider.committed_usd(reliable)
    return Situation(
        now,
        decider.offers,
        fleet.price,
        (),
        decider.baseline,
        decider.most_nu,
        allocated.demand.work_left(fleet.most_nu),
        usd_left=inf if budget is None else budget - reserved,
        usd_reserved=reserved,
        deadline=decider.deadline,
        spell=lambda: _spell(fleet, now),
    )


def _spell(fleet: Fleet, now: int) -> SpotSpell | None:
    """The present spell of spot capacity, as it was observed, or as prices have it where only the price evicts."""
    offers, history = fleet.offers, fleet.market_history
    if all(history.hazards[offer.market] is None for offer in offers):
        return spell_of_prices(offers, lambda offer: history.histories[offer.market], now)
    known = (history.spells[offer.market] for offer in offers if offer.market in history.spells)
    return spot_spell(known, offered=bool(offers))


def _decision(allocated: AllocatedJob, decider: Decider, situation: Situation) -> Decision:
    demand, budget = allocated.demand, allocated.job.budget_usd
    decision = decider.decide(situation)
    if any(isinstance(action, Rent) for action in decision.actions):
        return decision
    unbound = decider.decide(replace(situation, usd_left=inf))
    each = max((decider.committed_usd(action) for action in unbound.actions if isinstance(action, Rent)), default=0.0)
    if not each and decider.deadline is not None and decider.fallback.machines:
        # The job may wait for spot machines in vain; on-demand machines are certain.
        return replace(decision, actions=(decider.fallback,), reason=f"{decision.reason}; at the latest on demand")
    if budget is None:
        raise NotInTime(f"{demand.name}: nothing would be rented: {decision.reason}")
    enough = budget - situation.usd_left + demand.least * each
    raise OverBudget(
        f"{demand.name}: a budget of {usd_text(budget)} does not cover the first lease of"
        f" {counted(demand.least, 'machine')} at the bid; raise the budget to {usd_text(enough)}, or let the job use"
        " fewer machines"
    )


def _rents(decision: Decision) -> tuple[Rent, ...]:
    """The purchases, with those in the same market at the same bid combined."""
    machines: dict[tuple[Offer, int | None], int] = {}
    for rent in decision.actions:
        if isinstance(rent, Rent):
            machines[rent.offer, rent.bid] = machines.get((rent.offer, rent.bid), 0) + rent.machines
    return tuple(Rent(offer, count, bid) for (offer, bid), count in machines.items())


def _mixture(strategy: Strategy, situation: Situation) -> PlannedMixture | None:
    """The mixture that the strategy begins with; None if the strategy itself chooses among kinds."""
    if not isinstance(strategy, Mixed):
        return None
    types, schedule = strategy.schedule(situation)
    return None if schedule is None else PlannedMixture(strategy.mixing.aim, tuple(types), schedule)


def _fleet(allocated: AllocatedJob, option: MachineMix, facts: PlanningFacts, columns: KindColumns) -> Fleet:
    """The fleet of a mixture, or of all kinds that are about as good as `home`, sized by what `home` machines do."""
    demand, spec, snapshot, home = allocated.demand, allocated.job.spec, facts.snapshot, option.home
    kinds, passed_over = _considered_kinds(allocated, option, snapshot, columns)
    zones = in_zones(snapshot, spec.resources)
    rows = [row for row in _rows(demand, kinds, option.used, snapshot, columns) if zones[row]]
    if not rows:
        raise NotInTime(f"{demand.name}: {columns.kinds[home]} is not sold in its zones; name more zones")
    offers = tuple(snapshot.offer(row, demand.rates[snapshot.markets[row].instance_type].nu) for row in rows)
    market_history = past_of(map(snapshot.history, rows), facts.hazard_of, snapshot.at, facts.spells)
    reliable = reliable_machines(spec, demand.rates, home, snapshot, columns)
    quotas = offers, reliable, allocated.share.on_demand_quotas, snapshot.catalog
    limits = MachineLimits(
        spec.resources.machines.least,
        demand.most,
        {columns.kinds[j].type: allocated.share.caps[j] for j in kinds},
        together=demand.gang,
        on_demand=on_demand_limits(*quotas),
        shared=shared_quotas(*quotas),
        spot=spot_quotas(offers, [share.slice for share in allocated.share.quotas], snapshot.catalog),
    )
    most_nu = _most_nu(allocated, option)
    reserved = reserved_offers(allocated, float(demand.nu[home]), snapshot.at)
    rented = dict.fromkeys(offer.market.instance_type for offer in (*offers, *(each.offer for each in reserved)))
    return Fleet(
        offers,
        _baseline(offers, most_nu, limits),
        reliable,
        most_nu,
        moving_overheads(facts.overheads, offers, allocated.job.declared_gb) if demand.roams else facts.overheads,
        limits,
        market_history,
        passed_over,
        reserved,
        {name: demand.rates[name] for name in rented},
    )


def _considered_kinds(
    allocated: AllocatedJob, option: MachineMix, snapshot: MarketSnapshot, columns: KindColumns
) -> tuple[list[int], dict[int, str]]:
    """The kinds of the fleet, the best first, and the reason why each of the others is passed over."""
    demand, share, home = allocated.demand, allocated.share, option.home
    if option.schedule is not None:
        return list(option.columns), outside_mixture(demand, share, option, columns.kinds)
    passed_over = companions(demand, share, home, columns.kinds)
    if demand.roams:
        passed_over |= unpriced(columns.kinds, snapshot.at, snapshot.catalog.lists)
    return [home, *(j for j in _usable(demand) if j != home and j not in passed_over)], passed_over


def _most_nu(allocated: AllocatedJob, option: MachineMix) -> float:
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


def _rows(demand: Demand, kinds: Sequence[int], used: int, snapshot: MarketSnapshot, columns: KindColumns) -> list[int]:
    """The markets of the first kinds, which are `used`, then those of the others, the cheapest per unit of work
    first."""
    own = [row for j in kinds[:used] for row in columns.rows[j]]
    more = [(j, row) for j in kinds[used:] for row in columns.rows[j]]
    more.sort(key=lambda pair: int(snapshot.price[pair[1]]) / float(demand.nu[pair[0]]))
    return (own + [row for _, row in more])[: _MAX_ROAMED_MARKETS if demand.roams else _MAX_MARKETS]


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


def outside_mixture(job: Demand, share: JobShare, option: MachineMix, kinds: Sequence[MachineKind]) -> dict[int, str]:
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
            reasons[j] = f"no mixture with it is better for {option.aim}: {price}"
    return reasons


def companions(job: Demand, share: JobShare, home: int, kinds: Sequence[MachineKind]) -> dict[int, str]:
    """For each kind that the job's strategy may not use in addition to `home`, the reason.

    All machines of a job are in one region because they communicate with each other; a job that roams may use another
    region later.
    """
    others = (j for j in np.flatnonzero(job.nu > 0).tolist() if j != home)
    reasons = ((j, _too_dear(job, share, home, j, kinds) or _unfit(job, share, home, j, kinds)) for j in others)
    return {j: why for j, why in reasons if why}


def _too_dear(job: Demand, share: JobShare, home: int, j: int, kinds: Sequence[MachineKind]) -> str:
    usd, least, chosen, kind = float(share.usd_per_work[j]), float(share.usd_per_work[home]), kinds[home], kinds[j]
    prices = f"${usd:.4g} per unit of work, against ${least:.4g} for {chosen}"
    if (kind.cloud, kind.region) != (chosen.cloud, chosen.region) and not job.roams:
        return f"in another region: {prices}"
    return f"too expensive: {prices}" if usd > MAX_PRICE_RATIO * least else ""


def _unfit(job: Demand, share: JobShare, home: int, j: int, kinds: Sequence[MachineKind]) -> str:
    cap, rate, chosen = share.caps[j], share.caps[j] * float(job.nu[j]), kinds[home]
    if cap < job.least:
        return share.lacking.get(j) or f"quotas allow {cap} machines, and the job needs at least {job.least}"
    if job.hurries and rate * job.hours_left < job.amount:
        return f"{cap} machines need {job.amount / rate:.1f} hours, and {job.hours_left:.1f} are left"
    if job.least * float(job.nu[j]) > share.caps[home] * float(job.nu[home]):
        return f"too large: {job.least} machines do more than the {share.caps[home]} planned machines of {chosen.type}"
    if job.roams and float(job.nu[j]) < float(job.nu[home]) * (1 - _SAME_SPEED):
        return f"slower than {chosen.type}, whose speed the deadline is planned with"
    if job.objective in _SPEED_COUNTS and float(job.nu[j]) < float(job.nu[home]) * _MIN_SPEED_RATIO:
        return f"slower than {chosen.type}, and the objective is {job.objective}"
    return ""


def moving_overheads(overheads: Overheads, offers: Sequence[Offer], gigabytes: float | None) -> Overheads:
    """The overheads of a job whose next start may be in another region than its checkpoint."""
    if gigabytes is None or len(set(regions_of(offers))) == 1:
        return overheads
    return replace(overheads, startup=overheads.startup + transfer_time(gigabytes))


def unpriced(kinds: Sequence[MachineKind], at: int, lists: ListPrices) -> dict[int, str]:
    """The kinds in regions for which no price of sending data is known."""
    places = {(kind.cloud, kind.region) for kind in kinds}
    known = {place for place in places if _is_priced(place, at, lists)}
    why = "the cost of sending a checkpoint from its region is unknown"
    return {j: why for j, kind in enumerate(kinds) if (kind.cloud, kind.region) not in known}


def _is_priced(place: tuple[str, str], at: int, lists: ListPrices) -> bool:
    try:
        egress(Location(*place), None, at, lists)
    except UnknownPrice:
        return False
    return True


def roaming_of(
    offers: Sequence[Offer],
    histories: Mapping[Market, PriceSeries],
    hazards: Mapping[Market, Hazard | None],
    at: int,
    lists: ListPrices | None = None,
    gigabytes: float | None = None,
) -> Roaming:
    """The markets of a job with the price of sending a GB between any two, and the size that its checkpoint will have.
    Where only the price evicts, its past shows when spot could be had."""
    regions = regions_of(offers)
    first = {name: Location.of(offers[regions.index(name)].market) for name in dict.fromkeys(regions)}
    usd = {(a, b): 0.0 if a == b else egress(first[a], first[b], at, lists).usd_per_gb for a in first for b in first}
    per_gb = np.array([[usd[a, b] for b in regions] for a in regions])
    saved = _ASSUMED_GB if gigabytes is None else gigabytes
    return Roaming(tuple(offers), per_gb, known_before(offers, histories, hazards), saved)


def strategy_for(spec: JobSpec, cloud: str, *, roams: bool = False) -> ChosenStrategy:
    """The strategy that a job's `strategy` means in a cloud; `roams` says that the job may move between regions."""
    if roams:
        why = "set in the job file" if spec.strategy == REGIONS else _ROAMING_REASON
        return ChosenStrategy(REGIONS, why)
    if spec.strategy == REGIONS:
        raise BadRequest(f"{spec.name}: strategy regions needs the job's length; set hours:, or pass --hours")
    if spec.strategy in (AUTO, DEADLINE):
        chosen = default_for(rule_of_cloud(cloud).name)
        return ChosenStrategy(chosen.name, f"{_DEADLINE_REASON if spec.strategy == DEADLINE else ''}{chosen.summary}")
    name = of_earlier_version(spec.strategy)
    if not known(name):
        raise BadRequest(f"{spec.name}: unknown strategy {spec.strategy!r} (spotctl schema lists them)")
    return ChosenStrategy(name, "set in the job file")


def _strategy_inputs(allocated: AllocatedJob, fleet: Fleet, catalog: Catalog) -> StrategyInputs:
    """The present history of the fleet's markets, how many hours the job would take on demand (if its length is
    unknown, the time that its forecast covers), and what an hour of it is worth in dollars."""
    history, like = fleet.market_history, fleet.baseline.offer
    hours = float(RATE_HOURS)
    if not allocated.demand.work.assumed:
        hours = allocated.demand.work_amount(fleet.most_nu) / (fleet.baseline.machines * like.nu) / HOUR
    starts = round(min(max(_PACE_HOURS / hours, _MIN_STARTS), MAX_STARTS))
    # One request rents as many machines as a request has vCPUs, or more for a large job.
    vcpus = catalog.instance_type(like.market.cloud, like.market.instance_type).vcpus
    return StrategyInputs(
        offers=fleet.offers,
        histories={offer.market: history.histories[offer.market] for offer in fleet.offers},
        hazards={offer.market: history.hazards[offer.market] for offer in fleet.offers},
        baseline=fleet.baseline,
        reliable=fleet.reliable,
        billing=rule_of_cloud(like.market.cloud),
        overheads=within_the_hour(fleet.overheads),
        checkpoints=CHECKPOINT,
        pace=PastJobs((hours,), fleet.most_nu, starts),
        value_of_time=allocated.job.value_of_time_usd,
        request_nu=max(REQUEST_VCPUS * like.nu / vcpus, fleet.most_nu / _MAX_REQUESTS),
    )
