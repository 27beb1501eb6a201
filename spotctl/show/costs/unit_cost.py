"""Whether a unit of work becomes cheaper: the latest successful runs of a job against those before them. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from spotctl.log.outcomes import DONE
from spotctl.show.costs.cost import Report, RunCost
from spotctl.show.costs.figures import usd

MOST_COMPARED = 7
"""A week of nights against the week before."""


@dataclass(frozen=True, slots=True)
class UnitTrend:
    """The median cost of a unit over the latest `runs` successful runs of a job, and over as many before them."""

    job: str
    """Name of the job."""
    unit: str
    """Unit of work."""
    runs: int
    """Number of latest runs that are compared with as many before them."""
    latest_usd: float
    """Median cost of a unit in the latest runs."""
    before_usd: float
    """Median cost of a unit in the runs before."""

    @property
    def change_pct(self) -> float | None:
        return 100 * (self.latest_usd / self.before_usd - 1) if self.before_usd else None


def trends_of(report: Report) -> list[UnitTrend]:
    """A trend for each job with two successful runs or more whose costs are known, by job."""
    runs_of: dict[str, list[RunCost]] = {}
    for run in report.history:
        if run.timeline.outcome == DONE and not run.figures.is_least:
            runs_of.setdefault(run.timeline.job, []).append(run)
    return [_trend(job, runs) for job, runs in sorted(runs_of.items()) if len(runs) > 1]


def _trend(job: str, runs: Sequence[RunCost]) -> UnitTrend:
    compared = min(MOST_COMPARED, len(runs) // 2)
    per_work = [run.figures.usd_per_work for run in runs[-2 * compared :]]
    by_work = None not in per_work
    values = (
        [cost for cost in per_work if cost is not None]
        if by_work
        else [usd(run.figures.total) for run in runs[-2 * compared :]]
    )
    unit = "clock" if by_work else "successful run"
    return UnitTrend(job, unit, compared, median(values[compared:]), median(values[:compared]))
