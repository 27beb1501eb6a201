"""The price of time at which one strategy is as fast as another, found by replaying the training span.

Only the training span is replayed, so that a strategy whose pace is set like this sees nothing of the test.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean

import numpy as np

from bidbrain.backtest.evictions import PRICE_ALONE
from bidbrain.backtest.scenario import Scenario
from bidbrain.replay.job import ReplayedJob, run_job
from bidbrain.replay.market import MarketReplay
from bidbrain.strategies.base import Offer, Strategy
from bidbrain.strategies.inputs import TimePrice
from bidbrain.strategies.recovery import AGILE
from pricing_data.units import HOUR, NANOS_PER_DOLLAR

MARGIN = 0.005
"""Fraction of run time by which the strategy must be faster in training, since a later span differs a little."""
HIGHEST_SHARE = 2.0
_STARTS = 24
_HALVINGS = 8


def price_of_time(
    scenario: Scenario, offers: tuple[Offer, ...], make: Callable[[float], Strategy], rival: Strategy
) -> TimePrice | None:
    """The lowest price of time at which a strategy is no slower than its rival in training.

    Where even the highest price tried leaves it slower, it is that price, with a note. None where the training span
    cannot be replayed: because capacity evicts too, or because it is too short for a job.
    """
    jobs = _jobs(scenario, offers)
    if scenario.evictions != PRICE_ALONE or not jobs:
        return None
    market = MarketReplay(scenario.learned(offer.market) for offer in offers)

    def pace(strategy: Strategy) -> float:
        return fmean(_hours(job, strategy, market, scenario) / hours for hours, job in jobs)

    goal = (1 - MARGIN) * pace(rival)
    baseline = scenario.baseline
    low, top = 0.0, HIGHEST_SHARE * (baseline.machines * baseline.offer.on_demand / NANOS_PER_DOLLAR)
    high = top
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if pace(make(middle)) <= goal else (middle, high)
    if high < top:
        return TimePrice(high, f"the least at which it was as fast as {rival.name} in training")
    if (reached := pace(make(top))) <= goal:
        return TimePrice(top, f"the least tried at which it was as fast as {rival.name} in training")
    note = (
        f"slower than {rival.name} in training even where an hour counts as ${top:.4g}, the highest value tried:"
        f" {reached:.2f} against {pace(rival):.2f} of the on-demand run time"
    )
    return TimePrice(top, "the highest value tried", note)


def _jobs(scenario: Scenario, offers: tuple[Offer, ...]) -> list[tuple[float, ReplayedJob]]:
    """Jobs of each length, spread evenly over the part of the training span that all markets cover."""
    baseline = scenario.baseline
    known = [scenario.learned(offer.market) for offer in offers]
    begin, end = max(series.first for series in known), min(series.last for series in known)
    jobs = []
    for hours in scenario.hours:
        longest, work = int(3 * hours * HOUR), baseline.machines * baseline.offer.nu * hours * HOUR
        if begin + longest < end:
            starts = np.linspace(begin, end - longest, _STARTS).astype(np.int64).tolist()
            jobs += [(hours, ReplayedJob(at, work, at + longest, offers, baseline, scenario.most_nu)) for at in starts]
    return jobs


def _hours(job: ReplayedJob, strategy: Strategy, market: MarketReplay, scenario: Scenario) -> float:
    run = run_job(job, strategy, market, scenario.overheads, AGILE)
    return ((job.limit if run.end is None else run.end) - job.start) / HOUR
