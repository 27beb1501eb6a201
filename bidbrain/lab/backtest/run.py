"""Replays a scenario under strategies: jobs at random moments, billed by the scenario's billing rule."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from bidbrain.billing import Bill, Charge, End, Life, usd
from bidbrain.decision.decider import Decider
from bidbrain.decision.limits import MachineLimits
from bidbrain.lab.backtest.bound import UnitPrices, least_cost
from bidbrain.lab.backtest.results import BOUND, JobResult
from bidbrain.lab.backtest.scenario import BadScenario, Scenario
from bidbrain.replay.job import run_job
from bidbrain.replay.market import MarketReplay
from bidbrain.replay.pace import PastJobs
from bidbrain.replay.run import ReplayedJob, Run, Tenure, bill_of_machine
from bidbrain.strategies.base import Rent, Strategy
from bidbrain.strategies.inputs import StrategyInputs
from bidbrain.strategies.names import known
from bidbrain.strategies.registry import BadStrategy, StrategySetup, set_up
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import HOUR, NANOS_PER_DOLLAR, SECOND


@dataclass(frozen=True, slots=True)
class BacktestPortion:
    """An independent part of a backtest: one strategy in one zone."""

    scenario: Scenario
    strategy: str
    zone: str


def portions(scenario: Scenario, names: Sequence[str]) -> list[BacktestPortion]:
    """All parts of a backtest: each strategy in each zone."""
    unknown = [name for name in names if name != BOUND and not known(name)]
    if unknown:
        raise BadScenario(f"schemes: {unknown[0]!r} is unknown")
    return [BacktestPortion(scenario, name, zone) for name in names for zone in scenario.zones]


def run_portion(portion: BacktestPortion) -> list[JobResult]:
    scenario, zone = portion.scenario, portion.zone
    if portion.strategy == BOUND:
        histories = list(scenario.histories_in(zone).values())
        market = scenario.replay_in(zone)
        unit = UnitPrices.of(histories, scenario.offers_in(zone), scenario.baseline.offer, market, scenario.depth)
        return [_bound(scenario, zone, job, hours, unit) for hours, job in jobs_in(scenario, zone)]
    return run_strategy(scenario, zone, set_up_in(scenario, portion.strategy, zone))


def run_strategy(scenario: Scenario, zone: str, chosen: StrategySetup) -> list[JobResult]:
    """The jobs of a zone under a strategy, registered or not."""
    histories = scenario.histories_in(zone)
    market, decided = scenario.replay_in(zone), _decided(scenario, zone, chosen)
    return [_replayed(scenario, zone, hours, job, decided, market, histories) for hours, job in jobs_in(scenario, zone)]


def run_of(scenario: Scenario, name: str, zone: str, hours: float, start: int) -> Run:
    """Replays one of the jobs again, with everything that was rented for it."""
    chosen = _decided(scenario, zone, set_up_in(scenario, name, zone))
    job = next(job for length, job in jobs_in(scenario, zone) if (length, job.start) == (hours, start))
    return run_job(job, chosen.strategy, scenario.replay_in(zone), scenario.overheads, chosen.recovery)


def backtest(scenario: Scenario, names: Sequence[str]) -> list[JobResult]:
    """Every job under every strategy."""
    return [result for portion in portions(scenario, names) for result in run_portion(portion)]


def jobs_in(scenario: Scenario, zone: str) -> Iterator[tuple[float, ReplayedJob]]:
    """Jobs at random moments of the test; every strategy gets the same ones."""
    baseline = scenario.baseline
    for hours in scenario.hours:
        chance = np.random.default_rng([scenario.seed, scenario.zones.index(zone), int(hours * 3600)])
        starts = chance.integers(scenario.test.start, scenario.latest_start(hours), scenario.starts)
        work = baseline.machines * baseline.offer.nu * hours * HOUR
        for start in starts.tolist():
            limit = start + int(3 * hours * HOUR)
            yield hours, ReplayedJob(start, work, limit, scenario.offers_in(zone), baseline, scenario.most_nu)


def _decided(scenario: Scenario, zone: str, chosen: StrategySetup) -> StrategySetup:
    return replace(chosen, strategy=decider_of(scenario, zone, chosen.strategy))


def _bound(scenario: Scenario, zone: str, job: ReplayedJob, hours: float, unit: UnitPrices) -> JobResult:
    cost, end = least_cost(job, unit, scenario.overheads.startup, int(hours * HOUR))
    dollars = cost / HOUR / NANOS_PER_DOLLAR
    runtime = (end - job.start) / HOUR
    on_demand = _on_demand_dollars(scenario.baseline, hours)
    return JobResult(BOUND, zone, hours, job.start, end, dollars, 0.0, on_demand, 0, 0.0, 0.0, 0.0, runtime)


def _replayed(
    scenario: Scenario,
    zone: str,
    hours: float,
    job: ReplayedJob,
    chosen: StrategySetup,
    market: MarketReplay,
    histories: dict[Market, PriceSeries],
) -> JobResult:
    run = run_job(job, chosen.strategy, market, scenario.overheads, chosen.recovery)
    bills = [(tenure, bill_of_machine(tenure.rent, tenure.life, scenario.billing, histories)) for tenure in run.tenures]
    cost, saved = 0.0, 0.0
    for tenure, bill in bills:
        cost += usd(bill.amount) * tenure.rent.machines
        nanos = sum(charge.price * _unpaid(charge) // SECOND for charge in bill.charges)
        saved += usd(nanos) * tenure.rent.machines
    ended = run.job.limit if run.end is None else run.end
    if chosen.reliable and scenario.reliable is not None:
        life = Life(job.start, ended, End.HANDED_ON)
        reliable = scenario.reliable
        cost += usd(scenario.billing.bill(life, reliable.offer.on_demand).amount) * reliable.machines
    return JobResult(
        chosen.name,
        zone,
        hours,
        job.start,
        run.end,
        cost,
        saved,
        _on_demand_dollars(scenario.baseline, hours),
        run.evictions,
        *_machine_hours(bills),
        (ended - job.start) / HOUR,
        chosen.note,
    )


def _machine_hours(bills: list[tuple[Tenure, Bill]]) -> tuple[float, float, float]:
    """Machine-hours on demand, paid on the spot market, and used there without payment."""
    on_demand = paid = free = 0.0
    for tenure, bill in bills:
        machines = tenure.rent.machines / HOUR
        if tenure.rent.bid is None:
            on_demand += (tenure.end - tenure.start) * machines
        else:
            gift = sum(map(_unpaid, bill.charges))
            free += gift * machines
            paid += (tenure.end - tenure.start - gift) * machines
    return on_demand, paid, free


def _unpaid(charge: Charge) -> int:
    """The used time that refunds and unbilled time make free."""
    paid = 0 if charge.refunded else charge.seconds * SECOND
    return max(charge.end - charge.begin - paid, 0)


def _on_demand_dollars(baseline: Rent, hours: float) -> float:
    return baseline.machines * baseline.offer.on_demand * hours / NANOS_PER_DOLLAR


def inputs_of(scenario: Scenario, zone: str) -> StrategyInputs:
    """Everything that a strategy may know about the offers of a zone."""
    offers = scenario.offers_in(zone)
    return StrategyInputs(
        offers=offers,
        histories={offer.market: scenario.learned(offer.market) for offer in offers},
        hazards=scenario.hazards(offer.market for offer in offers),
        baseline=scenario.baseline,
        reliable=scenario.reliable,
        billing=scenario.billing,
        overheads=scenario.overheads,
        checkpoints=scenario.checkpoints,
        pace=PastJobs(scenario.hours, scenario.most_nu),
    )


def set_up_in(scenario: Scenario, name: str, zone: str) -> StrategySetup:
    """Builds the strategy with this name for the offers of a zone."""
    try:
        return set_up(name, inputs_of(scenario, zone))
    except BadStrategy as error:
        raise BadScenario(f"schemes: {error}") from None


def decider_of(scenario: Scenario, zone: str, strategy: Strategy) -> Decider:
    """The decision object of a launch, for jobs without a budget and a deadline."""
    offers = scenario.offers_in(zone)
    most = ceil(scenario.most_nu / min(offer.nu for offer in offers))
    return Decider(
        offers=offers,
        baseline=scenario.baseline,
        reliable=scenario.reliable,
        most_nu=scenario.most_nu,
        limits=MachineLimits(0, most, {}),
        overheads=scenario.overheads,
        deadline=None,
        strategy=strategy,
        billing=scenario.billing,
        lease=0,
        caps_bids=True,
    )
