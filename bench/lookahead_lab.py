"""The figures behind `lookahead`: `python -m bench.lookahead_lab SCENARIO.yaml [HOURS...]`.

First the frontier of cost and run time: proteus, proteus buying the whole room as one allocation, fixed bids, and
lookahead at several prices of time. Then where time and money go: hours of a job in which machines start up or room is
not rented, and the cost of a unit of work before refunds, as paid and at the lowest price at the start of each hour.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean

from bidbrain.backtest.results import JobResult, summarize
from bidbrain.backtest.run import run_strategy
from bidbrain.backtest.scenario import Scenario
from bidbrain.backtest.setup import inputs_of, set_up_in
from bidbrain.replay.job import run_job
from bidbrain.replay.market import MarketReplay
from bidbrain.replay.run import ReplayedJob, Run
from bidbrain.strategies.odds import bid_deltas
from bidbrain.strategies.proteus import Proteus
from bidbrain.strategies.recovery import AGILE
from bidbrain.strategies.registry import StrategySetup, application_of, odds_of
from pricing_data.library import Library
from pricing_data.store import PriceStore
from pricing_data.units import HOUR, NANOS_PER_DOLLAR
from spotctl.lab.backtest import scenario as scenario_file

WHOLE = "proteus, whole room at once"
NAMES = (
    *("proteus", WHOLE, "fixed-bid:0.0001", "fixed-bid:0.001", "fixed-bid:0.004", "fixed-bid:0.01", "lookahead"),
    *(f"lookahead:{usd}" for usd in ("0", "4", "8", "12", "14", "16", "20", "26")),
)
EVERY = 5
"""Every n-th job is analyzed."""
LOOKED_INTO = ("proteus", WHOLE, "lookahead", "lookahead:4")


def main(words: Sequence[str]) -> None:
    """Prints both tables."""
    if not words:
        sys.exit("usage: python -m bench.lookahead_lab SCENARIO.yaml [HOURS...]")
    loaded = scenario_file.load(Path(words[0]), Library(PriceStore(Path("no-such-folder")))).scenario
    scenario = replace(loaded, hours=tuple(map(float, words[1:])) or loaded.hours)
    with ProcessPoolExecutor() as pool:
        for results in pool.map(partial(_results, scenario), NAMES):
            for one in summarize(results):
                print(
                    f"{one.scheme:28}{one.hours:4g} h  cost {one.cost_pct:6.2f}%  run time {one.runtime_ratio:.4f}"
                    f"  evictions {one.evictions_per_job:5.1f}  free {one.free_pct:4.1f}%"
                )
        print()
        for lines in pool.map(partial(_where, scenario), LOOKED_INTO):
            print("\n".join(lines))


def _set_up(scenario: Scenario, zone: str, name: str) -> StrategySetup:
    if name != WHOLE:
        return set_up_in(scenario, name, zone)
    inputs = inputs_of(scenario, zone)
    strategy = Proteus(inputs.offers, odds_of(inputs), application_of(inputs), scenario.most_nu, bid_deltas(24), name)
    return StrategySetup(name, strategy, AGILE, reliable=True)


def _results(scenario: Scenario, name: str) -> list[JobResult]:
    return [result for zone in scenario.zones for result in run_strategy(scenario, zone, _set_up(scenario, zone, name))]


def _where(scenario: Scenario, name: str) -> list[str]:
    """Means over the analyzed jobs, a line for each length."""
    found: dict[float, list[tuple[float, ...]]] = {}
    for zone in scenario.zones:
        chosen, market = _set_up(scenario, zone, name), scenario.replay_in(zone)
        for result in run_strategy(replace(scenario, starts=-(-scenario.starts // EVERY)), zone, chosen):
            job = _job(scenario, zone, result)
            run = run_job(job, chosen.strategy, market, scenario.overheads, chosen.recovery)
            found.setdefault(result.hours, []).append(
                (*_lost_hours(run, result.runtime_hours), *_unit_prices(run, market))
            )
    return [
        f"{name:28}{hours:4g} h  starting up {fmean(row[0] for row in rows):5.3f} h  not rented"
        f" {fmean(row[1] for row in rows):5.3f} h  unit price before refunds ${fmean(row[2] for row in rows):.5f},"
        f" lowest ${fmean(row[3] for row in rows):.5f}"
        for hours, rows in found.items()
    ]


def _job(scenario: Scenario, zone: str, result: JobResult) -> ReplayedJob:
    baseline = scenario.baseline
    work = baseline.machines * baseline.offer.nu * result.hours * HOUR
    limit = result.start + int(3 * result.hours * HOUR)
    return ReplayedJob(result.start, work, limit, scenario.offers_in(zone), baseline, scenario.most_nu)


def _lost_hours(run: Run, runtime_hours: float) -> tuple[float, float]:
    """Hours, as a share of the whole room, in which machines started up, and in which room was not rented."""
    rented = starting = 0.0
    for one in run.tenures:
        nu = one.rent.machines * one.rent.offer.nu / run.job.most_nu / HOUR
        rented += nu * (one.end - one.start)
        starting += nu * (min(one.ready, one.end) - one.start)
    return starting, runtime_hours - rented


def _unit_prices(run: Run, market: MarketReplay) -> tuple[float, float]:
    """Dollars per hour and unit of rented work, before refunds: as paid, and at the lowest price then."""
    paid = lowest = rented = 0.0
    for one in run.tenures:
        for begin in range(one.start, one.end, HOUR):
            nu = one.rent.machines * one.rent.offer.nu * (min(begin + HOUR, one.end) - begin)
            own = one.rent.offer.on_demand if one.rent.bid is None else market.price(one.rent.offer.market, begin)
            paid += nu * own / one.rent.offer.nu
            lowest += nu * min(market.price(offer.market, begin) / offer.nu for offer in run.job.offers)
            rented += nu
    return paid / rented / NANOS_PER_DOLLAR, lowest / rented / NANOS_PER_DOLLAR


if __name__ == "__main__":
    main(sys.argv[1:])
