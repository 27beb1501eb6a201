"""A scenario replayed under schemes: jobs at random moments, each settled by the scenario's billing rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bidbrain.backtest.bound import UnitPrices, least_cost
from bidbrain.backtest.engine import Job, Run, Tenure, run_job
from bidbrain.backtest.results import JobResult
from bidbrain.backtest.scenario import BadScenario, Scenario
from bidbrain.backtest.schemes import BOUND, Scheme, known, scheme
from bidbrain.billing import End, Life, Prices, usd
from bidbrain.replay import MarketReplay
from bidbrain.strategies.base import Rent
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import HOUR, NANOS_PER_DOLLAR, SECOND


@dataclass(frozen=True, slots=True)
class Portion:
    """A part of a backtest that can run by itself: one scheme in one zone."""

    scenario: Scenario
    scheme: str
    zone: str


def portions(scenario: Scenario, schemes: Sequence[str]) -> list[Portion]:
    """All parts of a backtest; each carries only the histories of its zone."""
    unknown = [name for name in schemes if not known(name)]
    if unknown:
        raise BadScenario(f"schemes: {unknown[0]!r} is unknown")
    return [Portion(scenario, name, zone) for name in schemes for zone in scenario.zones]


def run_portion(portion: Portion) -> list[JobResult]:
    """The jobs of one scheme in one zone."""
    scenario, zone = portion.scenario, portion.zone
    if portion.scheme == BOUND:
        histories = list(scenario.histories_in(zone).values())
        unit = UnitPrices.of(histories, scenario.offers_in(zone), scenario.baseline.offer)
        return [_bound(scenario, zone, job, hours, unit) for hours, job in _jobs(scenario, zone)]
    return run_scheme(scenario, zone, scheme(portion.scheme, scenario, zone))


def run_scheme(scenario: Scenario, zone: str, chosen: Scheme) -> list[JobResult]:
    """The jobs of a zone under a scheme, known by name or not."""
    histories = scenario.histories_in(zone)
    market = MarketReplay(histories.values())
    return [_replayed(scenario, zone, hours, job, chosen, market, histories) for hours, job in _jobs(scenario, zone)]


def backtest(
    scenario: Scenario, schemes: Sequence[str], map_: Callable[..., Iterable[list[JobResult]]] = map
) -> list[JobResult]:
    """Every job under every scheme; `map_` may spread the portions over processes."""
    return [result for results in map_(run_portion, portions(scenario, schemes)) for result in results]


def _jobs(scenario: Scenario, zone: str) -> Iterator[tuple[float, Job]]:
    """The same jobs for every scheme."""
    baseline = scenario.baseline
    for hours in scenario.hours:
        chance = np.random.default_rng([scenario.seed, scenario.zones.index(zone), int(hours * 3600)])
        starts = chance.integers(scenario.test.start, scenario.latest_start(hours), scenario.starts)
        work = baseline.machines * baseline.offer.nu * hours * HOUR
        for start in starts.tolist():
            limit = start + int(3 * hours * HOUR)
            yield hours, Job(start, work, limit, scenario.offers_in(zone), baseline, scenario.most_nu)


def _bound(scenario: Scenario, zone: str, job: Job, hours: float, unit: UnitPrices) -> JobResult:
    found = least_cost(job, unit, scenario.overheads.startup, int(hours * HOUR))
    dollars = found.cost / HOUR / NANOS_PER_DOLLAR
    runtime = (found.end - job.start) / HOUR
    on_demand = _on_demand_dollars(scenario.baseline, hours)
    return JobResult(BOUND, zone, hours, job.start, found.end, dollars, 0.0, on_demand, 0, 0.0, 0.0, 0.0, runtime)


def _replayed(
    scenario: Scenario,
    zone: str,
    hours: float,
    job: Job,
    chosen: Scheme,
    market: MarketReplay,
    histories: dict[Market, PriceSeries],
) -> JobResult:
    run = run_job(job, chosen.strategy, market, scenario.overheads, chosen.recovery)
    bills = [(tenure, _settled(scenario, tenure, histories)) for tenure in run.tenures]
    cost = sum(paid for _, (paid, _) in bills)
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
        sum(back for _, (_, back) in bills),
        _on_demand_dollars(scenario.baseline, hours),
        run.evictions,
        *_machine_hours(run),
        (ended - job.start) / HOUR,
    )


def _settled(scenario: Scenario, tenure: Tenure, histories: dict[Market, PriceSeries]) -> tuple[float, float]:
    """Dollars paid for an allocation, and dollars refunded for time that was used."""
    rent = tenure.rent
    prices: Prices = rent.offer.on_demand if rent.bid is None else histories[rent.offer.market]
    bill = scenario.billing.bill(tenure.life, prices)
    used = sum(charge.price * (charge.end - charge.begin) // SECOND for charge in bill.charges if charge.refunded)
    return usd(bill.amount) * rent.machines, usd(used) * rent.machines


def _machine_hours(run: Run) -> tuple[float, float, float]:
    """Machine-hours on demand, paid on the spot market, and in hours that an eviction made free."""
    on_demand = paid = free = 0.0
    for tenure in run.tenures:
        lived = tenure.end - tenure.start
        machines = tenure.rent.machines / HOUR
        if tenure.rent.bid is None:
            on_demand += lived * machines
        else:
            gift = lived % HOUR if tenure.ended is End.EVICTED else 0
            free += gift * machines
            paid += (lived - gift) * machines
    return on_demand, paid, free


def _on_demand_dollars(baseline: Rent, hours: float) -> float:
    return baseline.machines * baseline.offer.on_demand * hours / NANOS_PER_DOLLAR
