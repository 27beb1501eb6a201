"""Are forecasts right? Plans at random moments of recorded markets, against what then happens:
python -m bench.forecast

Each row plans one job at random moments of a market with what was known then, and runs the plan's
decision object on what really followed. Coverage is the share of outcomes between P10 and P90 (80%
if the forecast is right); the pinball loss of P10, P50 and P90 is compared with that of the same
quantiles of past runs of the job in that market.

A forecast knows the evictions in the runs before it, as a plan knows those of earlier launches.

Runs that overlap have much in common, so `apart` says how many of them follow one after the other:
with ten of these, the coverage of a correct forecast is 80% give or take 13 points.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from zlib import crc32

import numpy as np

from bench.forecast_worlds import World, availability_records, price_records, shipped
from bidbrain.arrays import Floats
from bidbrain.billing import End
from bidbrain.eviction.hazard import Evidence
from bidbrain.eviction.survival import AgeProfile, Exposure
from bidbrain.forecast.forecast import pinball
from bidbrain.forecast.values import HIGH, LOW, Forecast, Spread
from bidbrain.forecast.windows import Played, played_of, run_from, with_luck
from bidbrain.replay.market import DrawnLives, MarketReplay
from bidbrain.replay.run import Tenure
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import HOUR
from spotctl.home.errors import SpotctlError
from spotctl.log.folding import fold
from spotctl.log.store import EventLog
from spotctl.planning.facts import PlanningFacts
from spotctl.planning.forecast import forecast_job, forecast_of
from spotctl.planning.offers import MarketSnapshot
from spotctl.planning.plan import plan_jobs
from spotctl.planning.values import Job, JobPlan

QUICK_START = Path(__file__).parents[1] / "examples" / "quickstart.yaml"

MIN_PAST = 10
"""Number of past runs from which on forecasts are compared with their quantiles."""


@dataclass(frozen=True)
class CheckedForecast:
    """A forecast and what happened; `evidence` of evictions is known to later forecasts once the
    run has ended.
    """

    at: int
    forecast: Forecast
    outcome: Played
    evidence: tuple[Evidence, ...] = ()


def check_forecasts(world: World, hours: float, count: int) -> list[CheckedForecast]:
    """Forecasts one job at random moments, in order, and runs each plan."""
    chance = np.random.default_rng(crc32(world.name.encode()))
    future = dict(zip(world.table.markets, world.table, strict=True))
    latest = world.end - round(4 * hours * HOUR) - 8 * HOUR
    moments = np.sort(chance.integers(world.begin, max(latest, world.begin + 1), count)).tolist()
    runs, met = list[CheckedForecast](), list[tuple[float, Evidence]]()
    for number, at in enumerate(moments):
        print(
            f"\r{world.name}, {hours:g} h: {number} of {count} plans",
            end="",
            file=sys.stderr,
            flush=True,
        )
        seen = tuple(evidence for end, evidence in met if end <= at)
        run = _check_forecast(replace(world, evidence=world.evidence + seen), hours, at, future)
        if run is not None:
            runs.append(run)
            met += ((_end(run), evidence) for evidence in run.evidence)
    print("\r", " " * 79, "\r", sep="", end="", file=sys.stderr, flush=True)
    return runs


def _check_forecast(
    world: World, hours: float, at: int, future: Mapping[Market, PriceSeries]
) -> CheckedForecast | None:
    """A forecast and what followed; None where no plan can be made, or prices may end before the
    job.
    """
    snapshot = MarketSnapshot.of(world.table, world.catalog, at)
    try:
        facts = PlanningFacts(
            (Job(world.spec, hours=hours),), snapshot, world.hazard, world.spells(at)
        )
        planned = plan_jobs(facts)[0]
    except SpotctlError:
        return None
    job = forecast_job(planned)
    if at + job.times.order + job.longest > min(future[offer.market].last for offer in job.offers):
        return None
    forecast = forecast_of(planned)
    outcome, evidence = realize(planned, world, future)
    return CheckedForecast(at, forecast, outcome, evidence)


def realize(
    planned: JobPlan, world: World, future: Mapping[Market, PriceSeries]
) -> tuple[Played, tuple[Evidence, ...]]:
    """Runs the plan's decision object in what followed; also returns evidence of evictions that no
    price explains.
    """
    at = planned.at
    luck = np.random.default_rng(at % 2**31).normal(size=2).tolist()
    job = with_luck(
        replace(forecast_job(planned), decider=lambda start: planned.decider.later(start - at)),
        *luck,
    )
    end = min(future[offer.market].last for offer in job.offers)
    histories = {offer.market: future[offer.market].window(at, end) for offer in job.offers}
    lives = DrawnLives(world.mortality, at % 2**31) if world.mortality else None
    run, _ = run_from(job, MarketReplay(histories.values(), world.capacities, lives), histories, at)
    orders = (
        tenure
        for tenure in run.tenures
        if tenure.rent.bid is not None and tenure.rent.offer.market in world.mortality
    )
    met = tuple(Evidence(order.rent.offer.market, _exposure(order, world.ages)) for order in orders)
    return played_of(run, job, histories, at), met


def _exposure(tenure: Tenure, ages: AgeProfile) -> Exposure:
    return Exposure(
        float(tenure.ended is End.EVICTED), ages.mean_hours(0.0, (tenure.end - tenure.start) / HOUR)
    )


@dataclass(frozen=True)
class Score:
    """How often outcomes lay in the interval, and the pinball loss of the forecast and of quantiles
    of past runs.
    """

    covered: float
    pit: float
    loss: float
    past_loss: float

    @property
    def gain(self) -> float:
        """The share of the past runs' loss that the forecast avoids."""
        return 1 - self.loss / self.past_loss if self.past_loss > 0 else float("nan")


def score(runs: Sequence[CheckedForecast], spreads: Sequence[Spread], values: Floats) -> Score:
    """The score of one figure, with its forecasts and outcomes. A run counts as past once it has
    ended.
    """
    stated = np.array(
        [[spread.quantile(level) for level in (LOW, 0.5, HIGH)] for spread in spreads]
    )
    covered = float(np.mean((stated[:, 0] <= values) & (values <= stated[:, 2])))
    ends = np.array([_end(run) for run in runs])
    rows, past = [], []
    for i, run in enumerate(runs):
        seen = values[ends <= run.at]
        if seen.size >= MIN_PAST:
            rows.append(i)
            past.append(np.quantile(seen, [LOW, 0.5, HIGH]))
    pit = float(
        np.mean([_inside(spread, value) for spread, value in zip(spreads, values, strict=True)])
    )
    if not rows:
        return Score(covered, pit, float("nan"), float("nan"))
    return Score(
        covered,
        pit,
        float(pinball(stated[rows], values[rows]).mean()),
        float(pinball(np.array(past), values[rows]).mean()),
    )


def _inside(spread: Spread, value: float) -> float:
    """The expected coverage if ties are broken at random, for when many outcomes are equal."""
    slack = 1e-3 * abs(value) + 1e-9
    below, upto = spread.at_most(value - slack), spread.at_most(value + slack)
    if upto - below < 1e-9:
        return float(LOW <= below <= HIGH)
    return max(min(upto, HIGH) - max(below, LOW), 0.0) / (upto - below)


def apart(runs: Sequence[CheckedForecast]) -> int:
    """The largest number of runs in which each begins once the previous run has ended."""
    count, free = 0, 0.0
    for run in sorted(runs, key=_end):
        if run.at >= free:
            count, free = count + 1, _end(run)
    return count


def _end(run: CheckedForecast) -> float:
    return run.at + run.outcome.hours * HOUR


def _mean(spread: Spread) -> float:
    return float(spread.values @ spread.weights)


def row(world: World, hours: float, count: int) -> str:
    """One line of the table."""
    runs = check_forecasts(world, hours, count)
    if len(runs) < 2:
        return f"{world.name:57} {hours:4g} h  no plan could be made"
    usd, took = (
        np.array([getattr(run.outcome, name) for run in runs]) for name in ("usd", "hours")
    )
    cost = score(runs, [run.forecast.usd for run in runs], usd)
    time_ = score(runs, [run.forecast.hours for run in runs], took)
    expected = np.array([run.forecast.usd.median for run in runs])
    mean = usd.mean() / np.mean([_mean(run.forecast.usd) for run in runs])
    return (
        f"{world.name:57} {hours:4g} {len(runs):5} {apart(runs):5}"
        f" {cost.covered:9.0%} {cost.pit:8.0%} {cost.gain:8.0%}"
        f" {time_.covered:9.0%} {time_.pit:8.0%} {time_.gain:8.0%} "
        f"{np.median(usd / expected):8.2f} {mean:6.2f}"
    )


@dataclass(frozen=True)
class Launched:
    """A launch of the quick start: the interval that it stated, and what it cost, in dollars."""

    low: float
    expected: float
    high: float
    paid: float

    @property
    def kept(self) -> bool:
        """Whether the interval held."""
        return self.low <= self.paid <= self.high


def launch_quick_start() -> Launched:
    """Launches the quick start once, in a home of its own."""
    with tempfile.TemporaryDirectory() as home:
        command = [sys.executable, "-m", "spotctl", "launch", str(QUICK_START), "--yes", "--json"]
        done = subprocess.run(
            command, env={**os.environ, "SPOTCTL_HOME": home}, capture_output=True, check=True
        )
        answer = json.loads(done.stdout)
        with EventLog(Path(home) / "log.sqlite") as log:
            planned = fold(log.of_run(answer["run"])).planned
    assert planned is not None
    return Launched(planned.usd_low, planned.usd, planned.usd_high, answer["cost_usd"])


def launch_repeatedly(count: int) -> str:
    """One line per launch of the quick start, and how often its interval held."""
    quick_starts, lines = list[Launched](), list[str]()
    for _ in range(count):
        launch = launch_quick_start()
        quick_starts.append(launch)
        lines.append(
            f"quick start: expected ${launch.expected:.2f} (${launch.low:.2f} to "
            f"${launch.high:.2f}), paid ${launch.paid:.2f} {'' if launch.kept else '  outside'}"
        )
        print(lines[-1], flush=True)
    ratio = statistics.median(launch.paid / launch.expected for launch in quick_starts)
    kept = sum(launch.kept for launch in quick_starts)
    return f"{kept} of {count} launches ended in the interval; paid / expected {ratio:.2f}"


HEADER = (
    f"{'market':57} {'h':>4} {'runs':>5} {'apart':>5} {'cost in':>9} {'by rank':>8} {'loss':>8} "
    f"{'hours in':>9} {'by rank':>8} {'loss':>8} {'paid/exp':>8} {'means':>6}"
)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100, help="plans in each market")
    parser.add_argument("--hours", type=float, nargs="*", default=[4.0], help="lengths of the job")
    parser.add_argument(
        "--data", type=Path, default=Path("../shared/data"), help="folder of recorded markets"
    )
    parser.add_argument(
        "--launches", type=int, default=0, help="launches of the quick start, after the table"
    )
    parser.add_argument("--only", default="", help="only markets whose name contains this")
    args = parser.parse_args()
    print(HEADER, flush=True)
    with tempfile.TemporaryDirectory() as work:
        worlds = [shipped(), shipped("proteus")]
        if args.data.is_dir():
            worlds += [*price_records(args.data, Path(work)), *availability_records(args.data)]
        for world in worlds:
            if args.only in world.name:
                for hours in args.hours:
                    print(row(world, hours, args.runs), flush=True)
    if args.launches:
        print(launch_repeatedly(args.launches))


if __name__ == "__main__":
    main()
