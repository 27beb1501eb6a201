"""The price of time at which one strategy is as fast as another: found by replaying the training span.

Only what may be learnt from is replayed, so that a scheme whose pace is set like this looks at nothing of the test.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean

import numpy as np

from bidbrain.backtest.engine import AGILE, Job, run_job
from bidbrain.backtest.evictions import PRICE_ALONE
from bidbrain.backtest.scenario import Scenario
from bidbrain.replay import MarketReplay
from bidbrain.strategies.base import Offer, Strategy
from pricing_data.units import HOUR, NANOS_PER_DOLLAR

USUAL_SHARE = 0.55
"""Of what the baseline costs by the hour on demand: the price of time where the training span cannot set it."""
MARGIN = 0.005
"""By how much of its run time a strategy shall be faster in training: a later span differs a little."""
DEAREST_SHARE = 2.0
_STARTS = 24
_HALVINGS = 8


def price_of_time(
    scenario: Scenario, offers: tuple[Offer, ...], make: Callable[[float], Strategy], rival: Strategy
) -> float:
    """Dollars per hour: the lowest at which a strategy is no slower than its rival over jobs of the training span.

    Where other things than prices take machines, the training span alone cannot be replayed, and the usual share of
    the baseline's cost is taken; so too where it is too short for a job.
    """
    baseline = scenario.baseline
    baseline_usd = baseline.machines * baseline.offer.on_demand / NANOS_PER_DOLLAR
    jobs = _jobs(scenario, offers)
    if scenario.evictions != PRICE_ALONE or not jobs:
        return USUAL_SHARE * baseline_usd
    market = MarketReplay(scenario.learnt(offer.market) for offer in offers)

    def pace(strategy: Strategy) -> float:
        return fmean(_hours(job, strategy, market, scenario) / hours for hours, job in jobs)

    goal = (1 - MARGIN) * pace(rival)
    low, high = 0.0, DEAREST_SHARE * baseline_usd
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if pace(make(middle)) <= goal else (middle, high)
    return high


def _jobs(scenario: Scenario, offers: tuple[Offer, ...]) -> list[tuple[float, Job]]:
    """Jobs of each length, spread evenly over the part of the training span that all markets cover."""
    baseline = scenario.baseline
    known = [scenario.learnt(offer.market) for offer in offers]
    begin, end = max(series.first for series in known), min(series.last for series in known)
    jobs = []
    for hours in scenario.hours:
        longest, work = int(3 * hours * HOUR), baseline.machines * baseline.offer.nu * hours * HOUR
        if begin + longest < end:
            starts = np.linspace(begin, end - longest, _STARTS).astype(np.int64).tolist()
            jobs += [(hours, Job(at, work, at + longest, offers, baseline, scenario.most_nu)) for at in starts]
    return jobs


def _hours(job: Job, strategy: Strategy, market: MarketReplay, scenario: Scenario) -> float:
    run = run_job(job, strategy, market, scenario.overheads, AGILE)
    return ((job.limit if run.end is None else run.end) - job.start) / HOUR
