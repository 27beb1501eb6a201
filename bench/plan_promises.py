"""Do budgets and deadlines hold as often as `spotctl plan --json` says? python -m
bench.plan_promises [--outcomes N]

In the recorded availability of `bench.plan_scores`, jobs with a random budget or deadline are
planned by the command itself, in a home that has prices alone; the plan's decision object is then
run on what really followed. By stated probability, how often the promise was kept: with an interval
of 95% as if outcomes were independent, which outcomes of the same hours are not. Plans that the
command refuses promise nothing.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from scipy.stats import binomtest

from bench.forecast import realize
from bench.plan_scores import FOLDER, ZoneRecord, home_of, plan_json, zone_records
from pricing_data.units import HOUR, SECOND, format_time
from spotctl.files.job.reader import load
from spotctl.home import config
from spotctl.run.start.launch_plans import stored_plans

BUDGET, DEADLINE = "budget_kept", "deadline_met"
BINS = np.array([0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.98, 1.0])


@dataclass(frozen=True)
class Promise:
    """A stated probability, and whether it came true."""

    kind: str
    stated: float
    kept: bool


def promises(zone: ZoneRecord, kind: str, hours: float, count: int, seed: int) -> Iterator[Promise]:
    """Plans and runs jobs at random moments of a zone."""
    chance = np.random.default_rng([seed, len(zone.name), *zone.name.encode()])
    latest = zone.world.end - round(4 * hours * HOUR) - 8 * HOUR
    for at in chance.integers(zone.world.begin, max(latest, zone.world.begin + 1), count).tolist():
        with tempfile.TemporaryDirectory() as folder:
            home = home_of(Path(folder) / "home", zone, "nothing", at)
            file = Path(folder) / "job.yaml"
            file.write_text(_job(zone, kind, hours, float(chance.uniform())))
            made = _planned_and_run(zone, home, file, kind, at // SECOND * SECOND, hours)
        if made is not None:
            yield made


def _job(zone: ZoneRecord, kind: str, hours: float, luck: float) -> str:
    if kind == DEADLINE:
        return zone.job + f"deadline: {hours * (1.1 + 1.9 * luck):.2f}h\n"
    listed = next(price.price for price in zone.world.catalog.prices) / 10**9
    return zone.job + f"budget: {listed * hours * (0.3 + luck):.2f} USD\n"


def _planned_and_run(
    zone: ZoneRecord, home: Path, file: Path, kind: str, at: int, hours: float
) -> Promise | None:
    asked = ("--at", format_time(at), "--hours", f"{hours:g}h")
    try:
        stated = plan_json(home, file, *asked)["expected"][kind]
    except RuntimeError:
        return None
    spec = load(file)
    (planned,) = stored_plans([spec], config.load(os.environ, home), asked[1], asked[3]).plans
    outcome, _ = realize(
        planned, zone.world, dict(zip(zone.world.table.markets, zone.world.table, strict=True))
    )
    if kind == DEADLINE:
        deadline = planned.job.deadline
        assert deadline is not None
        kept = outcome.hours <= (deadline - at) / HOUR
    else:
        budget = planned.demand.budget_usd
        assert budget is not None
        kept = outcome.usd <= budget
    return Promise(kind, float(stated), outcome.finished and bool(kept))


def lines(made: Sequence[Promise]) -> Iterator[str]:
    """A line for each bin of stated probabilities."""
    stated, kept = (
        np.array([promise.stated for promise in made]),
        np.array([promise.kept for promise in made]),
    )
    for low, high in pairwise(BINS.tolist()):
        inside = (stated >= low) & ((stated < high) | (high == BINS[-1]))
        if count := int(inside.sum()):
            interval = binomtest(int(kept[inside].sum()), count).proportion_ci()
            yield (
                f"{low:4.2f} to {high:4.2f} {count:6} {stated[inside].mean():7.2f} "
                f"{kept[inside].mean():7.2f}"
                f" {kept[inside].mean() - stated[inside].mean():+7.2f}   {interval.low:.2f} to "
                f"{interval.high:.2f}"
            )


def main() -> None:
    """Prints a table for each kind of promise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--outcomes", type=int, default=1000, help="plans of each kind, about")
    parser.add_argument(
        "--kinds", nargs="+", choices=(BUDGET, DEADLINE), default=(BUDGET, DEADLINE)
    )
    parser.add_argument("--hours", type=float, default=4.0, help="length of the job")
    parser.add_argument("--data", type=Path, default=FOLDER, help="folder of recorded markets")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if not args.data.is_dir():
        sys.exit(f"skipped: {args.data} is missing; it has the recorded availability")
    zones = list(zone_records(args.data))
    each = -(-args.outcomes // len(zones))
    for kind in args.kinds:
        made = list[Promise]()
        for zone in zones:
            print(
                f"\r{zone.name}, {kind}: {len(made)} promises ", end="", file=sys.stderr, flush=True
            )
            made += promises(zone, kind, args.hours, each, args.seed)
        print(
            f"\n{kind}: {each * len(zones)} plans, {each * len(zones) - len(made)} refused",
            flush=True,
        )
        print(
            f"{'stated':12} {'plans':>6} {'mean':>7} {'kept':>7} {'apart':>7}   95% interval",
            *lines(made),
            sep="\n",
        )


if __name__ == "__main__":
    main()
