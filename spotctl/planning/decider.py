"""Steps 5 and 6 of a plan: the decision object of a job, and its first decision. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf

import numpy as np

from bidbrain.billing import rule_of_cloud
from bidbrain.decision.decider import Decider
from bidbrain.decision.limits import CommonQuota
from bidbrain.decision.mixture_strategy import Mixed, Mixing
from bidbrain.decision.roaming import Roaming, known_before, regions_of
from bidbrain.eviction.hazard import Hazard
from bidbrain.replay.pace import MAX_STARTS, PastJobs
from bidbrain.strategies.base import (
    REQUEST_VCPUS,
    ChosenStrategy,
    Decision,
    Offer,
    Rent,
    Situation,
    StrategyInputs,
    usual_price,
)
from bidbrain.strategies.deadline import DeadlineStrategy
from bidbrain.strategies.known_spells import spell_of_prices, spot_spell
from bidbrain.strategies.names import DEADLINE, REGIONS, known
from bidbrain.strategies.registry import bid_terms, default_for, set_up
from bidbrain.strategies.spells import SpotSpell
from pricing_data.catalog import Catalog
from pricing_data.list_prices import ListPrices, Location, egress
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import HOUR, counted, usd_text
from spotctl.clouds.boot import first_lease
from spotctl.clouds.link import LeaseTimes
from spotctl.files.job.spec import AUTO, JobSpec
from spotctl.home.errors import BadRequest
from spotctl.planning.candidates import KindColumns, useful_share
from spotctl.planning.cost import checkpoints_of, mean_life, odds_above
from spotctl.planning.errors import NotInTime, OverBudget
from spotctl.planning.facts import PUBLISHED_CHECKPOINTS
from spotctl.planning.fleet import usd_per_hour
from spotctl.planning.offers import MarketSnapshot
from spotctl.planning.values import (
    RATE_HOURS,
    AllocatedJob,
    FirstDecision,
    Fleet,
    MachineMix,
)

_MAX_REQUESTS = 64
_ASSUMED_GB = 10.0
"""The size of a checkpoint that the job file does not declare, until one is written."""
# The past jobs that measure a pace take this many hours together: a plan should be there within a
# second.
_PACE_HOURS, _MIN_STARTS = 240.0, 8
_ROAMING_REASON = (
    "the job may move, and in our backtests moving to where spot is available cost less than the "
    "best published policy (docs/decisions/0031-regions-strategy.md)"
)
_DEADLINE_REASON = (
    "`strategy: deadline` decides when to switch to on-demand "
    "(docs/decisions/0004-deadline-strategy.md), the default"
    " strategy the rest: "
)


def build_decider(
    allocated: AllocatedJob,
    fleet: Fleet,
    option: MachineMix,
    columns: KindColumns,
    snapshot: MarketSnapshot,
    at: int,
) -> tuple[ChosenStrategy, Decider]:
    """The job's strategy, kept within the job's machines, quotas and deadline, and its name with
    the reason for it. What begins at a moment is decided by the odds that the plan states.
    """
    spec = allocated.job.spec
    roams = allocated.demand.roams and fleet.fallback.machines > 0
    catalog = snapshot.catalog
    inputs = _strategy_inputs(allocated, fleet, catalog)
    inputs = replace(inputs, now=at, stated=partial(odds_above, fleet, snapshot.outlook))
    named = allocated.strategy or strategy_for(spec, fleet.baseline.offer.market.cloud, roams=roams)

    # Where `regions` decides, this strategy only serves the deadline's safety net.
    made = set_up("on-demand" if roams else named.name, inputs)
    strategy = made.strategy
    deadline = None
    roaming = None
    if allocated.job.deadline is not None and not allocated.demand.work.assumed:
        # A launch takes time around its work.
        before = allocated.demand.times.order
        deadline = allocated.job.deadline - before - allocated.demand.times.ending

    if made.note:
        named = replace(named, reason=f"{named.reason}; {made.note}")
    if option.schedule is not None:
        strategy = Mixed(strategy, _mixing(allocated, option, fleet, columns))

    if roams:
        history = fleet.market_history
        saved = allocated.demand.saved_gb
        roaming = roaming_of(
            fleet.offers, history.histories, history.hazards, history.now, catalog.lists, saved
        )

    times = LeaseTimes.of(spec)
    markets = {offer.market for offer in (fleet.baseline.offer, *fleet.offers)}
    leases = {market: first_lease(market, times) for market in markets}
    slow_leases = {
        market: lease + times.teardown for market, lease in leases.items() if lease > times.lease
    }
    worth = None if deadline is None or roaming is not None else _worth(fleet)
    terms_of_bids = {
        offer.market: bid_terms(offer, inputs)
        for offer in fleet.offers
        if offer.market in inputs.hosts
    }
    usual_prices = {}
    if allocated.waits:
        for offer in fleet.offers:
            past = fleet.market_history.histories[offer.market]
            usual_prices[offer.market] = usual_price(past, offer.on_demand)

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
        lease=times.committed,
        slow_leases=slow_leases,
        worth=worth,
        roaming=None if deadline is None else roaming,
        caps_bids=True,
        most_bid=spec.max_bid,
        reserved=fleet.reserved,
        bid_terms=terms_of_bids,
        usual_prices=usual_prices,
    )

    return named, decider


def first_decision(
    allocated: AllocatedJob, fleet: Fleet, strategy: ChosenStrategy, decider: Decider, now: int
) -> tuple[Decider, FirstDecision]:
    """The decision with which the job begins, and the decider that makes it; raises NotInTime or
    OverBudget if nothing would be rented.

    The interval between checkpoints follows from the machines; a decider with a deadline then
    decides again, at the speed that checkpoints leave.
    """
    situation = _situation(allocated, fleet, decider, now)
    decision = _decision(allocated, decider, situation)

    types = list[str]()
    mixture = None
    if isinstance(decider.strategy, Mixed):
        types, mixture = decider.strategy.schedule(situation)

    lives = (
        mean_life(fleet.market_history, rent, fleet.prices[rent.offer.market])
        for rent in _rents(decision)
    )
    interval = checkpoints_of(allocated.job.spec.program, allocated.demand.save_time, lives)
    checkpoints = interval if allocated.demand.saves else None

    if checkpoints is not None:
        decider = replace(decider, speed=checkpoints.useful_share)
        if decider.deadline is not None:
            decision = _decision(allocated, decider, situation)

    outlooks = decider.outlooks(situation)
    rents = _rents(decision)
    first = FirstDecision(
        strategy, decision.reason, rents, interval, checkpoints, mixture, tuple(types), outlooks
    )

    return decider, first


def _mixing(
    allocated: AllocatedJob, option: MachineMix, fleet: Fleet, columns: KindColumns
) -> Mixing:
    """The terms on which a strategy follows the job's mixture."""
    demand = allocated.demand
    history = fleet.market_history
    listed = {offer.market: offer.on_demand for offer in fleet.offers}
    useful = {
        market: useful_share(series, history.hazards[market], listed[market], fleet.overheads)
        for market, series in history.histories.items()
    }

    # The job's part of each quota, and what a machine of each type of the mixture takes of it.
    quotas = []
    for group, part in zip(columns.quotas, allocated.share.amounts, strict=True):
        uses = {columns.kinds[j].type: float(group.per_machine[j]) for j in option.columns}
        quotas.append(CommonQuota(part, uses))

    value_of_time_usd = demand.value_of_time_usd or 0.0
    return Mixing(
        aim=demand.aim,
        least=demand.least,
        most=demand.most,
        most_of_type=fleet.limits.by_type,
        useful=useful,
        overheads=fleet.overheads,
        usd_per_hour=usd_per_hour(fleet.reliable) + value_of_time_usd,
        quotas=tuple(quotas),
    )


def _worth(fleet: Fleet) -> DeadlineStrategy | None:
    """The worth of slack, from the length on demand, the cost of changing machines, and how cheap
    spot is now; None without on-demand machines."""
    fallback = fleet.fallback
    if not fallback.machines:
        return None
    rate = fallback.machines * fallback.offer.nu
    work = max(round(fleet.work / rate), 1)
    every_usd = []
    for offer in fleet.offers:
        usd = fleet.prices[offer.market]
        every_usd.append(usd / offer.nu)
    spot = min(every_usd)
    return DeadlineStrategy.of(work, fallback.offer, spot, fleet.overheads)


def _situation(allocated: AllocatedJob, fleet: Fleet, decider: Decider, now: int) -> Situation:
    """The situation of the first decision: nothing is held, and the budget pays for the reliable
    machines first.
    """
    budget = allocated.demand.budget_usd
    reliable = decider.reliable
    reserved = 0.0
    if reliable is not None:
        reserved = reliable.machines * decider.committed_usd(reliable)
    budget_left = inf if budget is None else budget - reserved
    return Situation(
        now,
        decider.offers,
        lambda offer: fleet.prices[offer.market],
        (),
        decider.baseline,
        decider.most_nu,
        fleet.work,
        usd_left=budget_left,
        usd_reserved=reserved,
        deadline=decider.deadline,
        spell=partial(_spell, fleet, now),
    )


def _spell(fleet: Fleet, now: int) -> SpotSpell | None:
    """The present spell of spot capacity, as it was observed, or as prices have it where only the
    price evicts.
    """
    offers = fleet.offers
    history = fleet.market_history
    if all(history.hazards[offer.market] is None for offer in offers):
        return spell_of_prices(offers, lambda offer: history.histories[offer.market], now)
    known = (history.spells[offer.market] for offer in offers if offer.market in history.spells)
    return spot_spell(known, offered=bool(offers))


def _decision(allocated: AllocatedJob, decider: Decider, situation: Situation) -> Decision:
    demand = allocated.demand
    budget = allocated.demand.budget_usd
    decision = decider.decide(situation)
    if any(isinstance(action, Rent) for action in decision.actions):
        return decision

    unbound = decider.decide(replace(situation, usd_left=inf))
    costs = (
        decider.committed_usd(action) for action in unbound.actions if isinstance(action, Rent)
    )
    each = max(costs, default=0.0)

    if not each and decider.deadline is not None and decider.fallback.machines:
        # The job may wait for spot machines in vain; on-demand machines are certain.
        return replace(
            decision,
            actions=(decider.fallback,),
            reason=f"{decision.reason}; at the latest on demand",
        )
    if budget is None:
        raise NotInTime(f"{demand.name}: nothing would be rented: {decision.reason}")

    enough = budget - situation.usd_left + demand.least * each
    raise OverBudget(
        f"{demand.name}: a budget of {usd_text(budget)} does not cover the first lease of"
        f" {counted(demand.least, 'machine')} at the bid: {usd_text(enough)} with what else is "
        "held; fewer machines need less"
    )


def _rents(decision: Decision) -> tuple[Rent, ...]:
    """The purchases, with those in the same market at the same bid combined."""
    machines: dict[tuple[Offer, int | None], int] = {}
    for rent in decision.actions:
        if isinstance(rent, Rent):
            before = machines.get((rent.offer, rent.bid), 0)
            machines[rent.offer, rent.bid] = before + rent.machines
    return tuple(Rent(offer, count, bid) for (offer, bid), count in machines.items())


def roaming_of(
    offers: Sequence[Offer],
    histories: Mapping[Market, PriceSeries],
    hazards: Mapping[Market, Hazard | None],
    at: int,
    lists: ListPrices | None = None,
    gigabytes: float | None = None,
) -> Roaming:
    """The markets of a job with the price of sending a GB between any two, and the size that its
    checkpoint will have. Where only the price evicts, its past shows when spot could be had."""
    regions = regions_of(offers)
    first = {}
    for name in dict.fromkeys(regions):
        offer_there = offers[regions.index(name)]
        first[name] = Location.of(offer_there.market)
    usd = {
        (a, b): 0.0 if a == b else egress(first[a], first[b], at, lists).usd_per_gb
        for a in first
        for b in first
    }

    per_gb = np.array([[usd[a, b] for b in regions] for a in regions])
    saved = _ASSUMED_GB if gigabytes is None else gigabytes
    return Roaming(tuple(offers), per_gb, known_before(offers, histories, hazards), saved)


def strategy_for(spec: JobSpec, cloud: str, *, roams: bool = False) -> ChosenStrategy:
    """The strategy that a job's `strategy` means in a cloud; `roams` says that the job may move
    between regions.
    """
    if roams:
        why = "set in the job file" if spec.strategy == REGIONS else _ROAMING_REASON
        return ChosenStrategy(REGIONS, why)
    if spec.strategy == REGIONS:
        raise BadRequest(
            f"{spec.name}: strategy regions needs the job's length; set hours:, or pass --hours"
        )
    if spec.strategy in (AUTO, DEADLINE):
        chosen = default_for(rule_of_cloud(cloud).name)
        return ChosenStrategy(
            chosen.name, f"{_DEADLINE_REASON if spec.strategy == DEADLINE else ''}{chosen.summary}"
        )

    # A run that an earlier version began goes on: `lookahead-present` is gone.
    name = spec.strategy.replace("lookahead-present", "lookahead")
    if not known(name):
        raise BadRequest(
            f"{spec.name}: unknown strategy {spec.strategy!r} (spotctl schema lists them)"
        )

    return ChosenStrategy(name, "set in the job file")


def _strategy_inputs(allocated: AllocatedJob, fleet: Fleet, catalog: Catalog) -> StrategyInputs:
    """The present history of the fleet's markets, how many hours the job would take on demand (if
    its length is unknown, the time that its forecast covers), and what an hour of it is worth in
    dollars."""
    history = fleet.market_history
    like = fleet.baseline.offer
    hours = float(RATE_HOURS)
    if not allocated.demand.work.assumed:
        hours = fleet.work / (fleet.baseline.machines * like.nu) / HOUR
    starts = round(min(max(_PACE_HOURS / hours, _MIN_STARTS), MAX_STARTS))

    # One request rents as many machines as a request has vCPUs, or more for a large job.
    vcpus = catalog.instance_type(like.market.cloud, like.market.instance_type).vcpus
    histories = {offer.market: history.histories[offer.market] for offer in fleet.offers}
    hazards = {offer.market: history.hazards[offer.market] for offer in fleet.offers}
    past_jobs = PastJobs((hours,), fleet.most_nu, starts)
    enough_nu = REQUEST_VCPUS * like.nu
    least_nu = fleet.most_nu / _MAX_REQUESTS
    return StrategyInputs(
        offers=fleet.offers,
        histories=histories,
        hazards=hazards,
        baseline=fleet.baseline,
        reliable=fleet.reliable,
        billing=fleet.billing,
        overheads=fleet.within_the_hour,
        checkpoints=PUBLISHED_CHECKPOINTS,
        hosts=history.hosts,
        price_of_time=past_jobs.price_of_time,
        value_of_time=allocated.demand.value_of_time_usd,
        request_nu=max(enough_nu / vcpus, least_nu),
    )
