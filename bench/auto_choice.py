"""Does the strategy that `auto` chooses by plays of the past cost less afterwards? python -m
bench.auto_choice [STARTS]

A trainer on the shipped market, which is synthetic and ours, is planned at some moments, with what
was known then, by the default strategy, by its rival and by `auto`. Each plan's decision object
then runs on the prices that followed.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from bench.forecast import realize
from bench.forecast_worlds import shipped
from bidbrain.strategies.registry import RIVAL
from pricing_data.units import HOUR
from spotctl.files.job.reader import loads
from spotctl.planning.facts import PlanningFacts
from spotctl.planning.offers import MarketSnapshot
from spotctl.planning.plan import plan_jobs
from spotctl.planning.values import Job

_JOB = """\
kind: agileml
name: job
app: mf
stop: {clocks: 1500}
throughputs: {c4.2xlarge: 60, c4.xlarge: 30, m4.4xlarge: 120}
resources: {clouds: [local], machines: 8, types: [c4.*, m4.*]}
"""
_APART = 11 * HOUR


def main(starts: int = 16) -> None:
    """Prints what the plans of each strategy were billed, and how long they took."""
    spec, world = loads(_JOB, Path("job.yaml")), shipped()
    future = dict(zip(world.table.markets, world.table, strict=True))
    usd, hours, chosen = defaultdict[str, float](float), defaultdict[str, float](float), 0
    for at in range(world.begin, world.begin + starts * _APART, _APART):
        snapshot = MarketSnapshot.of(world.table, world.catalog, at)
        for strategy in ("lookahead", RIVAL, "auto"):
            job = Job(replace(spec, strategy=strategy))
            (plan,) = plan_jobs(PlanningFacts((job,), snapshot, world.hazard, world.spells(at)))
            outcome, _ = realize(plan, world, future)
            usd[strategy] += outcome.usd / starts
            hours[strategy] += outcome.hours / starts
            chosen += strategy == "auto" and plan.decision.strategy.name == RIVAL
    for strategy in usd:
        print(f"{strategy:16}${usd[strategy]:.2f} in {hours[strategy]:.1f} hours")
    print(f"auto chose {RIVAL} at {chosen} of {starts} moments")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
