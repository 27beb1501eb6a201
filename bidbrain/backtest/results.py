"""Results of a backtest: one row per job, and summaries per strategy and job length."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

import numpy as np

BOUND = "bound"
"""Name of the clairvoyant lower bound, which scenarios list among the strategies: see `backtest.bound`."""

SLOWEST_RATIO = 1.0
"""The default strategy must not take longer than the on-demand baseline."""


@dataclass(frozen=True, slots=True)
class JobResult:
    """One job under one strategy: amounts in dollars, and machine-hours on demand, paid on spot, and free on spot.

    `scheme` is the strategy's name. `cost` and `refunds` go up to the limit if the job was not finished by then. `note`
    is what a reader must know about how the strategy was set up.
    """

    scheme: str
    zone: str
    hours: float
    start: int
    end: int | None
    cost: float
    refunds: float
    on_demand_cost: float
    evictions: int
    on_demand_hours: float
    spot_hours: float
    free_hours: float
    runtime_hours: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class BacktestSummary:
    """A strategy over all jobs of one length: costs as percent of on-demand, run time as a share of the baseline's."""

    scheme: str
    """Name of the strategy."""
    hours: float
    """Length of the jobs on the baseline's machines."""
    jobs: int
    """Number of jobs."""
    cost_pct: float
    """Mean cost in percent of on-demand."""
    cost_p50: float
    """Median of that cost."""
    cost_p95: float
    """95th percentile of that cost."""
    runtime_ratio: float
    """Mean run time as a share of the baseline's."""
    evictions_per_job: float
    """Mean number of evictions."""
    free_pct: float
    """Percentage of machine-hours that were refunded or not billed."""
    unfinished: int
    """Number of these that did not finish; the other figures leave them out."""
    on_demand_hours: float
    """Mean machine-hours on demand."""
    spot_hours: float
    """Mean machine-hours on spot that were paid."""
    free_hours: float
    """Mean machine-hours that were not paid."""


def summarize(results: Iterable[JobResult]) -> list[BacktestSummary]:
    """One summary per strategy and length, in order of first appearance."""
    groups: dict[tuple[str, float], list[JobResult]] = {}
    for result in results:
        groups.setdefault((result.scheme, result.hours), []).append(result)
    return [_summary(name, hours, rows) for (name, hours), rows in groups.items()]


def notes(results: Iterable[JobResult]) -> list[str]:
    """The notes on strategies, once each."""
    return list(dict.fromkeys(f"{result.scheme} in {result.zone}: {result.note}" for result in results if result.note))


def _summary(name: str, hours: float, rows: list[JobResult]) -> BacktestSummary:
    finished = [row for row in rows if row.end is not None]
    shares = np.array([100 * row.cost / row.on_demand_cost for row in finished] or [np.nan])
    machine_hours = sum(row.on_demand_hours + row.spot_hours + row.free_hours for row in finished)
    free = sum(row.free_hours for row in finished)
    count = max(len(finished), 1)
    return BacktestSummary(
        scheme=name,
        hours=hours,
        jobs=len(rows),
        cost_pct=float(shares.mean()),
        cost_p50=float(np.quantile(shares, 0.5)),
        cost_p95=float(np.quantile(shares, 0.95)),
        runtime_ratio=float(np.mean([row.runtime_hours / hours for row in finished] or [np.nan])),
        evictions_per_job=sum(row.evictions for row in finished) / count,
        free_pct=100 * free / machine_hours if machine_hours else 0.0,
        unfinished=len(rows) - len(finished),
        on_demand_hours=sum(row.on_demand_hours for row in finished) / count,
        spot_hours=sum(row.spot_hours for row in finished) / count,
        free_hours=free / count,
    )


def cheapest(summaries: Iterable[BacktestSummary]) -> str | None:
    """The strategy that qualifies as the default: least mean cost over all job lengths, finishing every job and, on
    average, in no more than the baseline's time. None if no strategy qualifies."""
    rows: dict[str, list[BacktestSummary]] = {}
    for summary in summaries:
        if summary.scheme != BOUND:
            rows.setdefault(summary.scheme, []).append(summary)
    fit = {
        name: fmean(row.cost_pct for row in of_strategy)
        for name, of_strategy in rows.items()
        if not any(row.unfinished for row in of_strategy)
        and fmean(row.runtime_ratio for row in of_strategy) <= SLOWEST_RATIO
    }
    return min(fit, key=lambda name: fit[name], default=None)
