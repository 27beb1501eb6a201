"""The price of time at which one strategy is as fast as another, found by replaying the known past.

Backtests, plans and runs share this search, which uses only what a strategy may know: the training
span in a backtest, and the stored history in a launch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from statistics import fmean

import numpy as np

from bidbrain.replay.job import run_job
from bidbrain.replay.market import MarketReplay
from bidbrain.replay.run import ReplayedJob
from bidbrain.strategies.base import Strategy, StrategyInputs, TimePrice
from pricing_data.units import HOUR, NANOS_PER_DOLLAR, usd_text

MARGIN = 0.005
"""Fraction of run time by which the strategy must be faster in the past, since a later span differs
a little."""
HIGHEST_SHARE = 2.0
MAX_STARTS = 24
_HALVINGS = 8
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class PastJobs:
    """The jobs that a pace is measured with: what the baseline does on demand in some hours, rented
    up to `most_nu`.

    Jobs of each length begin at `starts` moments, spread evenly over the past.
    """

    hours: tuple[float, ...]
    most_nu: float
    starts: int = MAX_STARTS

    def price_of_time(
        self, known: StrategyInputs, make: Callable[[float], Strategy], rival: Strategy
    ) -> TimePrice | None:
        """The lowest price of time at which a strategy is no slower than its rival in the past.

        If the strategy is slower even at the highest price tried, that price is the answer, with a
        note. None where the past cannot be replayed: because capacity evicts too, or because the
        past is too short for a job.
        """
        jobs = self._jobs(known)
        if not jobs or any(hazard is not None for hazard in known.hazards.values()):
            return None

        market = MarketReplay(known.histories.values())

        def pace(strategy: Strategy, most: float = inf) -> float:
            """Infinite as soon as it is certain to be above `most`."""
            paces = list[float]()
            soonest = []
            for hours, job in jobs:
                time = job.work / self.most_nu
                soonest.append(time / HOUR / hours)

            for number, (hours, job) in enumerate(jobs):
                rest = sum(soonest[number:])
                whole = most * len(jobs)
                bound = whole * (1 + _ROUNDING)
                if sum(paces) + rest > bound:
                    return inf
                run = run_job(job, strategy, market, known.overheads)
                end = job.limit if run.end is None else run.end
                span = end - job.start
                paces.append(span / HOUR / hours)

            return fmean(paces)

        usual = pace(rival)
        baseline = known.baseline
        goal = (1 - MARGIN) * usual
        low = 0.0
        top = HIGHEST_SHARE * (baseline.machines * baseline.offer.on_demand / NANOS_PER_DOLLAR)
        high = top
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if pace(make(middle), goal) <= goal else (middle, high)

        if high < top:
            return TimePrice(
                high, f"the lowest value at which it was as fast as {rival.name} in past prices"
            )
        if (reached := pace(make(top))) <= goal:
            return TimePrice(
                top,
                f"the lowest value tried at which it was as fast as {rival.name} in past prices",
            )

        note = (
            f"slower than {rival.name} in past prices even if an hour is valued at "
            f"{usd_text(top)}, the highest value"
            f" tried: {reached:.2f} against {usual:.2f} of the on-demand run time"
        )
        return TimePrice(top, "the highest value tried", note)

    def _jobs(self, known: StrategyInputs) -> list[tuple[float, ReplayedJob]]:
        """Jobs of each length, spread evenly over the past that all markets cover."""
        baseline = known.baseline
        histories = known.histories.values()
        begin = max(series.first for series in histories)
        end = min(series.last for series in histories)
        jobs = []

        for hours in self.hours:
            longest = int(3 * hours * HOUR)
            work = baseline.machines * baseline.offer.nu * hours * HOUR
            if begin + longest < end:
                spaced = np.linspace(begin, end - longest, self.starts)
                starts = spaced.astype(np.int64).tolist()
                jobs += [
                    (
                        hours,
                        ReplayedJob(at, work, at + longest, known.offers, baseline, self.most_nu),
                    )
                    for at in starts
                ]

        return jobs
