"""Step 7 of a plan: the expected cost of the first decision, and of other machines. Pure.

The forecast, which plays the whole job, follows from the plan when somebody asks for it
(`forecasting`).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import ceil, inf, isfinite, log1p
from operator import attrgetter

import numpy as np

from bidbrain.billing import End, Life, expected_seconds, rule_of_cloud, terms_of, usd
from bidbrain.cost import (
    Application,
    CostPerWork,
    CostShare,
    FootprintAllocation,
    cumulative_hazard,
    evaluate,
)
from bidbrain.eviction.crossing import CrossingHistory
from bidbrain.eviction.estimate import Estimate, PriceOutlook, share_estimate, together
from bidbrain.forecast.values import KnownPast
from bidbrain.strategies.base import Offer, Rent
from pricing_data.market import Market
from pricing_data.units import DAY, HOUR, NANOS_PER_DOLLAR, SECOND
from spotctl.agent.checkpoints.local import best_interval
from spotctl.files.job.programs import Command, Training
from spotctl.planning.candidates import KindColumns
from spotctl.planning.errors import NotInTime
from spotctl.planning.facts import MAX_SAVING, SAVE_TIME
from spotctl.planning.offers import MarketSnapshot
from spotctl.planning.quotas import on_demand_limits
from spotctl.planning.values import (
    RATE_HOURS,
    AllocatedJob,
    CheckpointInterval,
    Choice,
    FirstDecision,
    Fleet,
    JobEstimate,
    OnDemand,
    PlanCost,
    PriceDate,
)

LONGEST_RUN = 366 * DAY
"""Limit for the expected length of a run: a longer one is a mistake in the job file, and its
forecast would take minutes."""
_ROUNDING = 1e-6
_MAX_HOURS = 24
"""Where begun hours are billed, fleets that just finish within 1, 2, ... hours are compared, up to
this number."""
NEVER_EVICTED = Estimate(0.0, lambda: (0.0, 0.0), None, inf, "on-demand machines are never evicted")
_UNTIL_THE_END = replace(
    NEVER_EVICTED, basis="reserved machines are not evicted before their reservation ends"
)
_NO_CROSSING = replace(
    NEVER_EVICTED, basis="each host runs the highest bid, so that the market's price evicts nothing"
)
LONGEST_INTERVAL = HOUR
"""Longest automatic interval: machines also fail for reasons that no eviction model covers."""
_BELOW_ONE = 1 - 1e-9
SYNTHETIC, STORED = "synthetic", "stored spot price"


def estimate_cost(
    allocated: AllocatedJob,
    fleet: Fleet,
    first: FirstDecision,
    snapshot: MarketSnapshot,
    columns: KindColumns,
) -> PlanCost:
    """The cost if the job keeps what it begins with; raises NotInTime if the machines make no
    progress.
    """
    work = allocated.demand.work
    amount = None if work.timed else allocated.demand.amount
    rented = []
    for rent in first.rents:
        history = fleet.market_history
        price = fleet.prices[rent.offer.market]
        hazard = None
        if rent.bid is not None:
            hazard = history.hazards[rent.offer.market]
        paid = rent.offer.on_demand if rent.bid is None else price
        if rent.bid is not None and terms_of(rent.offer.market.cloud).pays_bid:
            paid = rent.bid
        evidence = "price" if hazard is None else hazard.kind
        beta = beta_of(history, rent, price, snapshot.outlook)
        lasting = beta_of(history, rent, price)
        rented.append(Choice(rent, paid, beta, evidence=evidence, lasting=lasting))

    expected = estimate(rented, fleet, first.interval, amount, work.longest)
    if not isfinite(expected.hours):
        raise NotInTime(
            f"{allocated.demand.name}: {first.strategy.name} would rent "
            f"{first.rents[0].offer.market}, where machines"
            " are evicted too often to make progress; choose another strategy or other types"
        )
    if expected.hours * HOUR > LONGEST_RUN and not work.assumed:
        raise NotInTime(
            f"{allocated.demand.name}: would take {expected.hours / 24:,.0f} days, but plans cover "
            "at most"
            f" {LONGEST_RUN // DAY}; check the job's length and throughputs, or allow more or "
            "faster machines"
        )

    pairs = zip(rented, expected.first.shares, strict=False)
    with_costs = (replace(chosen, usd_per_work=usd_per_work(share)) for chosen, share in pairs)
    choice = tuple(with_costs)

    # If quotas allow none of the fallback: the cost of all that the job would rent.
    own = fleet.fallback if fleet.fallback.machines else fleet.baseline
    fallback = _on_demand(allocated, fleet, own, amount, work.longest)
    on_demand = _cheapest_on_demand(allocated, fleet, own, expected, snapshot, columns)
    chosen_rents = (chosen.rent for chosen in choice)
    rents = [*chosen_rents, fleet.reliable, on_demand.rent]
    listed = [rent for rent in rents if rent is not None and not rent.offer.market.reservation]

    # Each checkpoint is sent, and received again after each eviction.
    traffic_usd, saves = 0.0, first.checkpoints
    asked = snapshot.traffic.get(rented[0].rent.offer.market) if rented else None
    if saves is not None and asked is not None:
        received, sent = asked
        times = expected.hours * HOUR / saves.every, expected.hours * HOUR / saves.life
        usd = times[0] * sent + times[1] * received
        traffic_usd = usd * (allocated.demand.saved_gb or 0.0)

    dates = price_dates(listed, snapshot)
    return PlanCost(choice, expected, fallback, on_demand, dates, traffic_usd)


def _on_demand(
    allocated: AllocatedJob, fleet: Fleet, rent: Rent, amount: float | None, longest_hours: float
) -> OnDemand:
    """The cost and the duration of work on some machines that are never evicted, by the rule of
    their cloud.

    `amount` is in machine-hours times nu, None for a job of fixed duration (`longest_hours`).
    Machines are paid from the order on, while they start and are returned, but not while they are
    ordered; the job writes checkpoints there, too.
    """
    times = allocated.demand.times
    works = longest_hours * HOUR
    if amount is not None:
        lasting = _lasting(allocated, amount)
        nu = rent.machines * rent.offer.nu
        works = min(lasting / nu, works)
    starting = allocated.demand.startup
    unworked = (fleet.overheads.startup if starting is None else starting) + times.ending
    life = Life(0, round(works) + unworked, End.LEFT)
    rule = rule_of_cloud(rent.offer.market.cloud)
    bill = rule.bill(life, rent.offer.on_demand)

    paid_usd = rent.machines * usd(bill.amount)
    lasts = times.order + life.end
    return OnDemand(rent, paid_usd, lasts / HOUR, unworked)


def _lasting(allocated: AllocatedJob, amount: float) -> float:
    """Work in machine-hours times nu as machine time, in microseconds, that also has its
    checkpoints.
    """
    demand = allocated.demand
    saved = None
    if demand.saves:
        saved = checkpoints_of(allocated.job.spec.program, demand.save_time)
    return amount * HOUR / (1.0 if saved is None else saved.useful_share)


def _cheapest_on_demand(
    allocated: AllocatedJob,
    fleet: Fleet,
    rent: Rent,
    expected: JobEstimate,
    snapshot: MarketSnapshot,
    columns: KindColumns,
) -> OnDemand:
    """The cheapest on-demand machines that are as fast as expected; `rent`, the job's own, if none
    are cheaper.

    If the length of the job is unknown, they do what the plan does in the time that its forecast
    covers, and the result is per hour of that time.
    """
    work = allocated.demand.work
    within = expected.hours
    longest = allocated.demand.work.longest
    amount = None if work.timed else allocated.demand.amount
    if work.assumed:
        amount = expected.first.work + (RATE_HOURS - 1) * expected.later.work
        longest = inf
        within = RATE_HOURS

    within -= fleet.overheads.startup / HOUR
    own = best = _on_demand(allocated, fleet, rent, amount, longest)
    kinds = zip(allocated.demand.nu, columns.numbers, columns.rows, strict=True)
    offers = []
    for nu, number, rows in kinds:
        if nu > 0 and rows:
            market = snapshot.markets[rows[0]]
            offers.append(Offer(market, float(nu), snapshot.list_price(number)))

    for offer in sorted(offers, key=lambda offer: offer.on_demand / offer.nu):
        usd_per_unit = offer.on_demand / offer.nu
        if (
            amount is not None
            and usd_per_unit * _lasting(allocated, amount) / HOUR / NANOS_PER_DOLLAR >= best.usd
        ):
            break
        for machines in _counts(allocated, fleet, offer, snapshot, amount, within, own):
            rent_of_offer = Rent(offer, machines, None)
            candidate = _on_demand(allocated, fleet, rent_of_offer, amount, longest)
            best = min(best, candidate, key=attrgetter("usd"))

    if not work.assumed:
        return best

    times = allocated.demand.times
    counted_hours = (times.order + times.ending) / HOUR
    return replace(best, usd=best.usd / (RATE_HOURS + counted_hours), hours=1.0)


def _counts(
    allocated: AllocatedJob,
    fleet: Fleet,
    offer: Offer,
    snapshot: MarketSnapshot,
    amount: float | None,
    within_hours: float,
    own: OnDemand,
) -> Iterator[int]:
    """The numbers of machines that may be cheapest: the fewest that are in time, and those that
    just end an hour.

    A job that ends after a fixed time (without an `amount`) needs as much work per hour as its
    `own` machines do.
    """
    demand = allocated.demand
    lasting = own.rent.machines * own.rent.offer.nu
    within = 1.0
    if amount is not None:
        lasting = _lasting(allocated, amount)
        within = max(within_hours, 1e-3) * HOUR
    fewest = ceil(lasting / (offer.nu * within) - _ROUNDING)
    limits = on_demand_limits(
        (offer,), fleet.reliable, allocated.share.on_demand_quotas, snapshot.catalog
    )
    most = min(demand.most, limits.get(offer.market, demand.most))
    if demand.gang:
        yield from [demand.most] if fewest <= demand.most <= most else []
        return

    fewest = max(fewest, demand.least, 1)
    counts = {fewest}
    if amount is not None:
        # Where begun hours are billed, machines that just end one may cost less than fewer that
        # begin another.
        spans = (hours * HOUR - own.unworked for hours in range(1, _MAX_HOURS + 1))
        counts |= {ceil(lasting / (offer.nu * span)) for span in spans if 0 < span < inf}

    yield from (count for count in sorted(counts) if fewest <= count <= most)


def beta_of(
    market_history: KnownPast, rent: Rent, price: int, outlook: PriceOutlook | None = None
) -> Estimate:
    """The probability of losing machines within the hour that begins now, by an outlook on prices,
    or without one in any hour of the history; with the hazard, which is a prior where evictions for
    capacity are possible, but unrecorded."""
    if rent.bid is None:
        return _UNTIL_THE_END if rent.offer.market.reservation else NEVER_EVICTED

    history = market_history.histories[rent.offer.market]
    hazard = market_history.hazards[rent.offer.market]
    if (hosts := market_history.hosts.get(rent.offer.market)) is not None:
        return together(_NO_CROSSING, hosts.hazard(rent.bid), HOUR)
    if outlook is not None:
        above_price = max(rent.bid - price, 0)
        return together(outlook.of(history, above_price), hazard, HOUR)

    crossing = CrossingHistory(history, HOUR).at_delta(max(rent.bid - price, 0))
    days = (history.last - history.first) / DAY
    basis = f"in the last {days:.0f} days the price never rose above this bid"
    if crossing.share:
        basis = (
            f"in the last {days:.0f} days the price rose above such a bid in {crossing.share:.2%} "
            "of all hours"
        )
    by_price = share_estimate(crossing.share, crossing.windows, crossing, basis)

    return together(by_price, hazard, HOUR)


def odds_above(fleet: Fleet, outlook: PriceOutlook, offer: Offer, distance: int) -> Estimate:
    """The probability that a plan states for a bid at some distance above an offer's price."""
    price = fleet.prices[offer.market]
    rent = Rent(offer, 1, price + distance)
    return beta_of(fleet.market_history, rent, price, outlook)


def first_hour(
    parts: Sequence[Choice], fleet: Fleet, kept: CheckpointInterval | None = None
) -> CostPerWork:
    """Cost and work of the first hour of a job that keeps checkpoints at an interval, or none."""
    new = [_new(part, fleet) for part in parts]
    application = _application(fleet, kept)
    return evaluate([*new, *_reliable(fleet)], application)


def _application(fleet: Fleet, kept: CheckpointInterval | None) -> Application:
    """A trainer pauses for an eviction. A command also writes checkpoints, and repeats the work
    since the last one: on average half an interval."""
    if kept is None:
        phi, lost = (1.0, 0)
    else:
        phi, lost = (kept.useful_share, round(kept.every / 2))
    return Application(phi, fleet.within_the_hour.resize, fleet.within_the_hour.eviction + lost)


def _new(part: Choice, fleet: Fleet) -> FootprintAllocation:
    paid_seconds = _paid(part, fleet, 0)
    return FootprintAllocation(
        market=part.rent.offer.market,
        machines=part.rent.machines,
        price=part.price,
        nu=part.rent.offer.nu,
        beta=part.beta.probability,
        eviction_after=_after(part),
        paid_seconds=paid_seconds,
        startup=fleet.within_the_hour.startup,
        planned=True,
    )


def _replaced(part: Choice, fleet: Fleet) -> FootprintAllocation:
    """An allocation whose evicted machines are replaced: a replacement is billed like a new
    machine, and starts up.

    If lives end at random with rate r and begin with a start-up s, the share exp(-r s) is work, as
    in `effective_price`.
    """
    rest = 1 - (_after(part) or HOUR) / HOUR
    paid_in_hour = _paid(part, fleet, HOUR)
    lost = part.beta.probability * rest
    paid_anew = _paid(part, fleet, 0)
    paid = paid_in_hour + lost * paid_anew
    startups = -_per_hour(part) * fleet.within_the_hour.startup
    starting = -np.expm1(startups / HOUR)
    after = HOUR if part.beta.probability else None
    starting_span = round(starting * HOUR)
    return replace(
        _new(part, fleet),
        paid_seconds=paid,
        startup=starting_span,
        eviction_after=after,
        planned=False,
    )


def _per_hour(part: Choice) -> float:
    """The eviction rate per hour, taken as constant within the hour."""
    return float(cumulative_hazard(np.float64(part.beta.probability)))


def _after(part: Choice) -> float | None:
    if not part.beta.probability:
        return None
    median = part.beta.median_seconds_to_eviction
    if median is None:
        return HOUR / 2
    return median * SECOND


def _paid(part: Choice, fleet: Fleet, age: int) -> float:
    """Billed seconds per hour."""
    if part.rent.bid is None or not part.beta.probability:
        return 3600.0
    per_hour = _per_hour(part)
    return float(
        expected_seconds(fleet.billing, age, HOUR, lambda ages: np.exp(-per_hour * ages / HOUR))
    )


def _reliable(fleet: Fleet) -> list[FootprintAllocation]:
    rent = fleet.reliable
    if rent is None:
        return []
    allocation = FootprintAllocation(rent.offer.market, rent.machines, rent.offer.on_demand, nu=0.0)
    return [allocation]


def usd_per_work(share: CostShare) -> float:
    """Dollars per unit of work; infinite if no work is done."""
    if share.work > 0:
        return share.cost_usd / share.work
    return inf


def estimate(
    parts: Sequence[Choice],
    fleet: Fleet,
    kept: CheckpointInterval | None,
    amount: float | None,
    longest_hours: float = inf,
) -> JobEstimate:
    """The estimate if the footprint is kept until some work (None for a job of fixed duration) is
    done.
    """
    first = first_hour(parts, fleet, kept)
    # The present says little of later hours: `python -m bench.present_odds`.
    held = []
    for part in parts:
        beta = part.lasting or part.beta
        lasting_part = replace(part, beta=beta)
        held.append(_replaced(lasting_part, fleet))
    application = _application(fleet, kept)
    later = evaluate([*held, *_reliable(fleet)], application)

    startup = fleet.within_the_hour.startup / HOUR
    hours = longest = startup + longest_hours
    if amount is not None and amount <= first.work:
        work_left = (1 - startup) * amount
        working = work_left / first.work
        hours = min(startup + working, longest)
    elif amount is not None and later.work > 0:
        work_later = amount - first.work
        hours_later = work_later / later.work
        hours = min(1 + hours_later, longest)

    shares = zip(first.shares, later.shares, strict=True)
    costs = (
        early.cost_usd * hours if hours <= 1 else early.cost_usd + late.cost_usd * (hours - 1)
        for early, late in shares
    )
    terms = tuple(costs)
    return JobEstimate(hours, terms, first, later)


def mean_life(market_history: KnownPast, rent: Rent, price: int) -> float:
    """The mean time, in microseconds, until the first of some machines is evicted, from the history
    of such bids.

    The price evicts all of them at once, other causes each one independently. If no price ever
    crossed the bid, one crossing in the length of the history is assumed.
    """
    if rent.bid is None:
        return inf

    history = market_history.histories[rent.offer.market]
    hazard = market_history.hazards[rent.offer.market]
    if (hosts := market_history.hosts.get(rent.offer.market)) is not None:
        hosts_hazard = hosts.hazard(rent.bid)
        rate_of_hosts = hosts_hazard.rate[0]
        return HOUR / (rent.machines * rate_of_hosts)

    share = CrossingHistory(history, HOUR).at_delta(max(rent.bid - price, 0)).share
    below_one = min(share, _BELOW_ONE)
    log_share = -log1p(-below_one)
    watched = history.last - history.first
    crossing = max(log_share / HOUR, 1 / max(watched, HOUR))
    if hazard is None:
        return 1 / crossing

    rate_of_hazard = rent.machines * hazard.rate[0]
    rate = crossing + rate_of_hazard / HOUR
    longest = hazard.longest_life * HOUR
    return min(1 / rate, longest)


def checkpoints_of(
    program: Training | Command, save_time: int | None, lives: Iterable[float] = ()
) -> CheckpointInterval | None:
    """The interval of a command for allocations with these mean lives (the shortest counts); None
    for a training.

    `save_time` is what a checkpoint takes, as far as that is known. If it is not, an interval in
    the job file bounds the assumed cost: a program saves no more often than it can afford.
    """
    if not isinstance(program, Command):
        return None

    life = min(lives, default=inf)
    every = None
    if program.checkpoint is not None:
        every = program.checkpoint.every
    if every is None:
        taken = SAVE_TIME if save_time is None else save_time
        return CheckpointInterval(
            best_interval(taken, life, LONGEST_INTERVAL), taken, life, is_fixed=False
        )

    cost = min(SAVE_TIME, MAX_SAVING * every) if save_time is None else min(save_time, every)
    return CheckpointInterval(every, cost, life, is_fixed=True)


def price_dates(rents: Iterable[Rent], snapshot: MarketSnapshot) -> tuple[PriceDate, ...]:
    """The prices of what is rented: the spot price where there is a bid, and the list price of each
    market.
    """
    bids: dict[Market, bool] = {}
    for rent in rents:
        is_bid = bids.get(rent.offer.market, False)
        bids[rent.offer.market] = is_bid or rent.bid is not None
    dates = []

    for market, is_spot in bids.items():
        if is_spot:
            row = snapshot.markets.index(market)
            seen = snapshot.at - int(snapshot.age[row])
            source = SYNTHETIC if market.is_synthetic else STORED
            spot_price = int(snapshot.price[row])
            spot_date = PriceDate(market, True, spot_price, seen, source)
            dates.append(spot_date)
        listed = snapshot.catalog.on_demand(market, snapshot.at)
        list_date = PriceDate(market, False, listed.price, listed.as_of, listed.source)
        dates.append(list_date)

    return tuple(dates)
