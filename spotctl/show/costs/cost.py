"""The costs of runs, in total and by any grouping.

The money of a replayed market is not real: runs there are reported alone, and are in no sum with other runs.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from itertools import chain
from statistics import median

from spotctl.log.events import RowsLost
from spotctl.log.ledger.account import RowsInTurn, RunPart, RunTimeline, sums_of
from spotctl.log.ledger.rows import LedgerRow
from spotctl.log.outcomes import DONE
from spotctl.show.costs.figures import Figures, figures_of, total_of, usd
from spotctl.show.costs.grouping import BY_TIME, Grouping, Subject, keeps_runs_whole, key_of
from spotctl.show.costs.periods import BILLING, Month, Period, by_day, first_of_month, month_of, overlaps, part_of


@dataclass(frozen=True, slots=True)
class Group:
    """The figures of all rows with the same values of the grouping."""

    key: Mapping[Grouping, str]
    figures: Figures


@dataclass(frozen=True, slots=True)
class RunCost:
    """A run with its figures."""

    timeline: RunTimeline
    figures: Figures


@dataclass(frozen=True, slots=True)
class Report:
    """A cost report: the total, its groups, and the rows and runs behind them."""

    whole: Figures
    by: tuple[Grouping, ...]
    groups: tuple[Group, ...]
    rows: Sequence[LedgerRow]
    """Rows of a kept run are decoded each time that they are read, and never all at once."""
    runs: tuple[RunTimeline, ...]
    made_at: int
    history: tuple[RunCost, ...]
    """All logged runs of these jobs, oldest first, including those outside the report, but none of the other kind."""
    month: Month
    """The present month of all jobs that were asked for, without replayed runs."""
    replayed: Figures
    """The replayed runs of the period, whether or not the report is on them."""
    zone: tzinfo = BILLING
    """The time zone of its days and months."""
    without_machines: int = 0
    """The number of runs without rows and evictions, which are in no group of a grouping that splits runs."""
    months_of_tags: tuple[Month, ...] = ()
    """The present month of each tag that has a budget."""

    @property
    def is_replayed(self) -> bool:
        """Whether the report is on runs on a replayed market, where nothing is billed."""
        return bool(self.runs) and all(run.is_replayed for run in self.runs)

    @property
    def left_out(self) -> int:
        """The number of replayed runs that the report leaves out."""
        return 0 if self.is_replayed else self.replayed.runs


def report_on(
    every: Sequence[RunPart],
    period: Period,
    by: Sequence[Grouping],
    at: int,
    month_budget: float | None = None,
    *,
    local: bool = False,
) -> Report:
    """The report on what runs cost within a period; runs outside it are the history of their jobs.

    A row that the period cuts counts in proportion to its time. Work is not known of a run that is cut. Replayed runs
    are left out unless there are no others; with `local`, the others are.
    """
    billed, replayed = ([part for part in every if part.run.is_replayed is kind] for kind in (False, True))
    whole = replayed if local or not billed else billed
    parts = _all_within(whole, period, at)
    jobs = {part.run.job for part in parts}
    return Report(
        figures(parts),
        tuple(by),
        groups(parts, by, period.zone),
        RowsInTurn(sum(len(part.rows) for part in parts), lambda: chain.from_iterable(part.rows for part in parts)),
        tuple(part.run for part in parts),
        at,
        tuple(RunCost(part.run, figures([part])) for part in whole if part.run.job in jobs),
        month_of([(part.run, part.rows) for part in billed], at, month_budget),
        figures(_all_within(replayed, period, at)),
        period.zone,
        sum(not part.rows and not part.run.evictions for part in parts),
    )


def lacking(known: Report, lost: "Sequence[RowsLost]", period: Period) -> Report:
    """A report on a period whose log lacks rows that may be of any run: they are missing in every figure of the time in
    which they were written."""
    rows = sum(loss.rows for loss in lost if overlaps(Period(loss.since, loss.until), period))

    def least(figures: Figures) -> Figures:
        return replace(figures, is_least=True, rows_lost=figures.rows_lost + rows)

    if rows:
        groups = tuple(replace(group, figures=least(group.figures)) for group in known.groups)
        known = replace(known, whole=least(known.whole), groups=groups, replayed=least(known.replayed))
    this_month = Period(first_of_month(known.made_at), known.made_at)
    if any(overlaps(Period(loss.since, loss.until), this_month) for loss in lost):
        of_tags = tuple(replace(month, is_least=True) for month in known.months_of_tags)
        known = replace(known, month=replace(known.month, is_least=True), months_of_tags=of_tags)
    return known


def _all_within(whole: Iterable[RunPart], period: Period, at: int) -> list[RunPart]:
    """The runs as far as they are within a period, without those that were not going on then."""
    parts = list[RunPart]()
    for part in whole:
        within = part_of(part.run, part.rows, period, at)
        if within is not None:
            run, rows = within
            parts.append(part if run is part.run else RunPart.of(run, rows))
    return parts


def figures(parts: Sequence[RunPart]) -> Figures:
    """The figures of all parts together."""
    runs = [part.run for part in parts]
    return figures_of(total_of(part.sums for part in parts), runs, sum(len(run.evictions) for run in runs), whole=True)


def groups(parts: Sequence[RunPart], by: Sequence[Grouping], zone: tzinfo = BILLING) -> tuple[Group, ...]:
    """The figures by the values of `by`, in the order of these values; days and months are those of `zone`."""
    if not keeps_runs_whole(by):
        return _of_rows(parts, by, zone)
    # A run that got no machine has no rows but still counts in its group.
    members: defaultdict[tuple[str, ...], list[RunPart]] = defaultdict(list)
    for part in parts:
        members[key_of(by, Subject(None, part.run))].append(part)
    return tuple(Group(dict(zip(by, key, strict=True)), figures(of_key)) for key, of_key in sorted(members.items()))


def _of_rows(parts: Sequence[RunPart], by: Sequence[Grouping], zone: tzinfo) -> tuple[Group, ...]:
    members: defaultdict[tuple[str, ...], dict[str, list[LedgerRow]]] = defaultdict(dict)
    evictions = Counter[tuple[str, ...]]()
    for part in parts:
        for row in by_day(part.rows, zone) if BY_TIME.intersection(by) else part.rows:
            members[key_of(by, Subject(row, part.run, zone))].setdefault(part.run.run, []).append(row)
        for eviction in part.run.evictions:
            # A run may have an eviction in a group without a row there.
            key = key_of(by, Subject(eviction, part.run, zone))
            members[key].setdefault(part.run.run, [])
            evictions[key] += 1
    run_of = {part.run.run: part.run for part in parts}
    grouped = []
    for key, rows_of in sorted(members.items()):
        sums = total_of(sums_of(run_of[name], rows) for name, rows in rows_of.items())
        runs = [run_of[name] for name in rows_of]
        every = [row for rows in rows_of.values() for row in rows]
        only_keeps_state = any(row.reliable for row in every) and not any(row.spot for row in every)
        of_group = figures_of(sums, runs, evictions[key], whole=False)
        of_group = replace(of_group, only_keeps_state=only_keeps_state)
        grouped.append(Group(dict(zip(by, key, strict=True)), of_group))
    return tuple(grouped)


MAX_COMPARED = 7
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
    compared = min(MAX_COMPARED, len(runs) // 2)
    per_work = [run.figures.usd_per_work for run in runs[-2 * compared :]]
    by_work = None not in per_work
    values = (
        [cost for cost in per_work if cost is not None]
        if by_work
        else [usd(run.figures.total) for run in runs[-2 * compared :]]
    )
    unit = "clock" if by_work else "successful run"
    return UnitTrend(job, unit, compared, median(values[compared:]), median(values[:compared]))
