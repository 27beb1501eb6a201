"""Replays a scenario under strategies: jobs at random moments, billed by the scenario's billing
rule.

Each job is decided by the `Decider` of a launch, with the scenario's deadline if it has one. A
strategy may be any that a job file may name. Named ones are set up from what the training span
shows; `auto` and `deadline` choose theirs at each start as a launch does, by forecasts from all that
is known at that moment.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil

import numpy as np

from bidbrain.billing import Charge, End, Life, usd
from bidbrain.decision.decider import Decider
from bidbrain.decision.limits import MachineLimits
from bidbrain.decision.roaming import Roaming, known_before
from bidbrain.forecast.forecast import (
    LONGEST_COMPARED,
    MAX_WAIT,
    WAITING,
    PlanWithMerits,
    best_plan,
    forecast,
    merits,
)
from bidbrain.forecast.values import ForecastJob, KnownPast
from bidbrain.lab.backtest.bound import UnitPrices, least_cost
from bidbrain.lab.backtest.results import BOUND, JobResult
from bidbrain.lab.backtest.scenario import LONGEST_RATIO, BadScenario, Scenario
from bidbrain.replay.job import run_job
from bidbrain.replay.market import MarketReplay
from bidbrain.replay.pace import PastJobs
from bidbrain.replay.run import ReplayedJob, Run, bill_of_machine
from bidbrain.strategies.base import Rent, StrategyInputs, usual_price
from bidbrain.strategies.deadline import DeadlineStrategy
from bidbrain.strategies.names import AUTO, DEADLINE, REGIONS, known
from bidbrain.strategies.registry import BadStrategy, StrategySetup, default_for, set_up
from bidbrain.strategies.standard import AlwaysOnDemand
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import HOUR, NANOS_PER_DOLLAR, SECOND, Span

BacktestPortion = tuple[Scenario, str, str, slice]
"""An independent part of a backtest: one strategy in one zone, for some of the jobs there."""
_ALL = slice(None)
_CHOICES = 8
"""The jobs of a portion, where a strategy is chosen for each of them."""


def portions(scenario: Scenario, names: Sequence[str]) -> list[BacktestPortion]:
    """All parts of a backtest: each strategy in each zone, and where it is chosen at each start,
    for a few jobs at a time."""
    for name in names:
        if name not in (BOUND, AUTO, DEADLINE, REGIONS) and not known(name):
            raise BadScenario(f"schemes: {name!r} is unknown")
        if name in (DEADLINE, REGIONS) and scenario.deadline is None:
            raise BadScenario(
                f"schemes: {name!r} needs a deadline; write job: {{deadline: 1.5}}, in multiples "
                "of hours"
            )

    jobs = scenario.starts * len(scenario.hours)
    few = [slice(i, i + _CHOICES) for i in range(0, jobs, _CHOICES)]
    return [
        (scenario, name, zone, part)
        for name in names
        for zone in scenario.zones
        for part in (few if name in (AUTO, DEADLINE) else [_ALL])
    ]


def run_portion(portion: BacktestPortion) -> list[JobResult]:
    scenario, strategy, zone, part = portion
    if strategy == BOUND:
        histories = list(scenario.histories_in(zone).values())
        market = scenario.replay_in(zone)
        offers = scenario.offers_in(zone)
        unit = UnitPrices.of(histories, offers, scenario.baseline.offer, market, scenario.depth)
        results = []
        for hours, job in jobs_in(scenario, zone):
            cost, end = least_cost(job, unit, scenario.overheads.startup, int(hours * HOUR))
            cost_usd = cost / HOUR / NANOS_PER_DOLLAR
            on_demand_usd = _on_demand_dollars(scenario.baseline, hours)
            runtime = (end - job.start) / HOUR
            bound = JobResult(
                scheme=BOUND,
                zone=zone,
                hours=hours,
                start=job.start,
                end=end,
                cost=cost_usd,
                refunds=0.0,
                on_demand_cost=on_demand_usd,
                evictions=0,
                on_demand_hours=0.0,
                spot_hours=0.0,
                free_hours=0.0,
                runtime_hours=runtime,
            )
            results.append(bound)

        return results

    if strategy not in (AUTO, DEADLINE):
        return run_strategy(scenario, zone, set_ups_in(scenario, strategy, zone))

    market = scenario.replay_in(zone)
    past = scenario.histories_in(zone)
    results = []
    for hours, job in list(jobs_in(scenario, zone))[part]:
        chosen, decider = _launched(scenario, strategy, zone, hours, job.start)
        run = _run(scenario, job, chosen, decider, market)
        results.append(_result(scenario, zone, hours, chosen, run, past))
    return results


def run_strategy(
    scenario: Scenario, zone: str, chosen: Mapping[float, StrategySetup]
) -> list[JobResult]:
    """The jobs of a zone under a strategy, registered or not, that is set up for the jobs of each
    length.
    """
    market = scenario.replay_in(zone)
    histories = scenario.histories_in(zone)
    results = []
    deciders = {hours: decider_of(scenario, zone, each, hours) for hours, each in chosen.items()}
    for hours, job in jobs_in(scenario, zone):
        decider = deciders[hours].later(job.start - scenario.train.end)
        run = _run(scenario, job, chosen[hours], decider, market)
        result = _result(scenario, zone, hours, chosen[hours], run, histories)
        results.append(result)
    return results


def run_of(scenario: Scenario, name: str, zone: str, hours: float, start: int) -> Run:
    """Replays one of the jobs again, with everything that was rented for it."""
    matching = (
        job for length, job in jobs_in(scenario, zone) if (length, job.start) == (hours, start)
    )
    job = next(matching)
    if name in (AUTO, DEADLINE):
        chosen, decider = _launched(scenario, name, zone, hours, start)
    else:
        chosen = set_ups_in(scenario, name, zone)[hours]
        decider = decider_of(scenario, zone, chosen, hours).later(start - scenario.train.end)
    market = scenario.replay_in(zone)
    return _run(scenario, job, chosen, decider, market)


def _run(
    scenario: Scenario,
    job: ReplayedJob,
    chosen: StrategySetup,
    decider: Decider,
    market: MarketReplay,
) -> Run:
    if decider.roaming is not None:
        nodes = decider.limits.nodes
        job = replace(job, offers=decider.offers, nodes=nodes, most_nodes=nodes, saved_gb=0.0)
    return run_job(job, decider, market, scenario.overheads, chosen.recovery)


def backtest(scenario: Scenario, names: Sequence[str]) -> list[JobResult]:
    """Every job under every strategy."""
    return [result for portion in portions(scenario, names) for result in run_portion(portion)]


def jobs_in(scenario: Scenario, zone: str) -> Iterator[tuple[float, ReplayedJob]]:
    """Jobs at random moments of the test; every strategy gets the same ones."""
    baseline = scenario.baseline
    for hours in scenario.hours:
        seeds = [scenario.seed, scenario.zones.index(zone), int(hours * 3600)]
        chance = np.random.default_rng(seeds)
        latest = scenario.latest_start(hours)
        starts = chance.integers(scenario.test.start, latest, scenario.starts)
        for start in starts.tolist():
            longest = scenario.deadline or LONGEST_RATIO
            most_time = int(longest * hours * HOUR)
            limit = start + most_time
            offers_there = scenario.offers_in(zone)
            job = ReplayedJob(
                start, scenario.work(hours), limit, offers_there, baseline, scenario.most_nu
            )
            yield (hours, job)


def _result(
    scenario: Scenario,
    zone: str,
    hours: float,
    chosen: StrategySetup,
    run: Run,
    histories: dict[Market, PriceSeries],
) -> JobResult:
    job = run.job
    cost = 0.0
    saved = 0.0
    # Machine-hours on demand, paid on the spot market, and used there without payment.
    on_demand = paid = free = 0.0
    for tenure in run.tenures:
        bill = bill_of_machine(tenure.rent, tenure.life, scenario.billing, histories)
        cost += usd(bill.amount) * tenure.rent.machines
        nanos = sum(charge.price * _unpaid(charge) // SECOND for charge in bill.charges)
        saved += usd(nanos) * tenure.rent.machines
        machines = tenure.rent.machines / HOUR

        if tenure.rent.bid is None:
            on_demand += (tenure.end - tenure.start) * machines
        else:
            gift = sum(map(_unpaid, bill.charges))
            free += gift * machines
            paid += (tenure.end - tenure.start - gift) * machines

    ended = run.job.limit if run.end is None else run.end
    if chosen.reliable and scenario.reliable is not None:
        life = Life(job.start, ended, End.HANDED_ON)
        reliable = scenario.reliable
        reliable_bill = scenario.billing.bill(life, reliable.offer.on_demand)
        cost += usd(reliable_bill.amount) * reliable.machines

    on_demand_usd = _on_demand_dollars(scenario.baseline, hours)
    runtime = (ended - job.start) / HOUR
    return JobResult(
        chosen.name,
        zone,
        hours,
        job.start,
        run.end,
        cost,
        saved,
        on_demand_usd,
        run.evictions,
        on_demand,
        paid,
        free,
        runtime,
        chosen.note,
    )


def _unpaid(charge: Charge) -> int:
    """The used time that refunds and unbilled time make free."""
    paid = 0 if charge.refunded else charge.seconds * SECOND
    return max(charge.end - charge.begin - paid, 0)


def _on_demand_dollars(baseline: Rent, hours: float) -> float:
    return baseline.machines * baseline.offer.on_demand * hours / NANOS_PER_DOLLAR


def inputs_of(scenario: Scenario, zone: str) -> StrategyInputs:
    """Everything that a strategy may know about the offers of a zone."""
    offers = scenario.offers_in(zone)
    histories = {offer.market: scenario.learned(offer.market) for offer in offers}
    hazards = scenario.hazards(offer.market for offer in offers)
    past_jobs = PastJobs(scenario.hours, scenario.most_nu)
    return StrategyInputs(
        offers=offers,
        histories=histories,
        hazards=hazards,
        baseline=scenario.baseline,
        reliable=scenario.reliable,
        billing=scenario.billing,
        overheads=scenario.overheads,
        checkpoints=scenario.checkpoints,
        price_of_time=past_jobs.price_of_time,
    )


def set_up_in(scenario: Scenario, name: str, zone: str) -> StrategySetup:
    """Builds the strategy with this name for the offers of a zone."""
    try:
        return set_up(name, inputs_of(scenario, zone))
    except BadStrategy as error:
        raise BadScenario(f"schemes: {error}") from None


def set_ups_in(scenario: Scenario, name: str, zone: str) -> dict[float, StrategySetup]:
    """The strategy with this name for the jobs of each length, and for `regions` what serves the
    deadline's safety net."""
    if name == REGIONS:
        recovery = set_up_in(scenario, "standard+checkpoint", zone).recovery
        moving = StrategySetup(REGIONS, AlwaysOnDemand(), recovery, reliable=False)
        return dict.fromkeys(scenario.hours, moving)
    return dict.fromkeys(scenario.hours, set_up_in(scenario, name, zone))


def _launched(
    scenario: Scenario, name: str, zone: str, hours: float, start: int
) -> tuple[StrategySetup, Decider]:
    """The strategy that a launch at a moment chooses for `auto` or `deadline`, from what is known
    then, and its decision object. To the launch, the training lasts until that moment."""
    learning = Span(scenario.train.start, start)
    now = replace(scenario, train=learning, test=Span(start, scenario.test.end), hours=(hours,))
    known = inputs_of(now, zone)
    usual_hours = hours + now.overheads.startup / HOUR
    left = MAX_WAIT * usual_hours if now.deadline is None else now.deadline * hours
    longest = int(LONGEST_RATIO * hours * HOUR)

    def plan_of(
        each: str, _: tuple[StrategySetup, Decider] | None = None
    ) -> PlanWithMerits[tuple[StrategySetup, Decider]] | None:
        """The plan with a strategy."""
        world = now
        if each == WAITING:
            if left > LONGEST_RATIO * hours or hours > LONGEST_COMPARED:
                return None
            world = replace(now, deadline=left / hours)

        chosen = set_up(usual if each == WAITING else each, known)
        decider = decider_of(world, zone, chosen, hours)
        if each == WAITING:
            usual_prices = {
                offer.market: usual_price(known.histories[offer.market], offer.on_demand)
                for offer in decider.offers
            }
            decider = replace(decider, usual_prices=usual_prices)
        job = ForecastJob(
            decider=lambda at: decider.later(at - start),
            offers=decider.offers,
            baseline=decider.baseline,
            most_nu=decider.most_nu,
            work=now.work(hours),
            longest=longest,
            billing=now.billing,
            overheads=now.overheads,
            reliable=now.reliable if chosen.reliable else None,
            recovery=chosen.recovery,
            # A backtest bills what is left of an hour to the next job.
            at_end=End.HANDED_ON,
        )
        outcome = forecast(job, KnownPast(start, known.histories, known.hazards))
        note = f"{hours:g}-hour jobs had {f'{usual}, {each}' if each == WAITING else each}"
        return merits(outcome, left), (replace(chosen, name=name, note=note), decider)

    usual = default_for(now.billing.name).name
    first = plan_of(usual)
    assert first is not None
    chosen, decider = best_plan(first, usual, usual, plan_of)
    return chosen, decider


def decider_of(scenario: Scenario, zone: str, chosen: StrategySetup, hours: float) -> Decider:
    """The decision object of a launch, for jobs of a length that begin when the training ends,
    without a budget.

    Under `regions` a job is a gang of the baseline's machines, which moves between their markets.
    """
    offers = scenario.offers_in(zone)
    baseline = scenario.baseline
    roaming = None
    if chosen.name == REGIONS:
        kind = baseline.offer.market.instance_type
        nodes = baseline.machines
        offers = tuple(offer for offer in offers if offer.market.instance_type == kind)
        if not offers:
            raise BadScenario(
                f"schemes: 'regions' moves the baseline between its markets, and none in {zone} "
                f"has {kind}"
            )

        limits = MachineLimits(nodes, nodes, {}, together=True)
        inputs = inputs_of(scenario, zone)
        known = known_before(offers, inputs.histories, inputs.hazards)
        free_moves = np.zeros((len(offers), len(offers)))
        roaming = Roaming(offers, free_moves, known)
    else:
        sizes = (offer.nu for offer in offers)
        most = scenario.most_nu / min(sizes)
        limits = MachineLimits(0, ceil(most), {})

    deadline = None
    if scenario.deadline is not None:
        deadline = scenario.train.end + int(scenario.deadline * hours * HOUR)

    worth = None
    if deadline is not None and roaming is None:
        spot = min(int(scenario.learned(offer.market).prices[-1]) / offer.nu for offer in offers)
        job_length = round(hours * HOUR)
        worth = DeadlineStrategy.of(job_length, baseline.offer, spot, scenario.overheads)

    most_nu = scenario.most_nu if roaming is None else baseline.machines * baseline.offer.nu
    return Decider(
        offers=offers,
        baseline=baseline,
        reliable=scenario.reliable,
        most_nu=most_nu,
        limits=limits,
        overheads=scenario.overheads,
        deadline=deadline,
        strategy=chosen.strategy,
        billing=scenario.billing,
        lease=0,
        worth=worth,
        speed=chosen.recovery.speed,
        roaming=roaming,
        caps_bids=True,
    )
