"""The costs of runs, in total and by any grouping.

The money of a replayed market is not real: runs there are reported alone, and are in no sum with
other runs.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from itertools import chain, groupby
from operator import add, attrgetter
from statistics import median
from typing import TYPE_CHECKING, Any

from pricing_data.units import NANO_SECONDS_PER_DOLLAR
from spotctl.log.ledger.account import (
    STEPS,
    RoundedRow,
    RowsInTurn,
    RunPart,
    RunTimeline,
    Sums,
    rounded,
    sums_of,
)
from spotctl.log.ledger.rows import LedgerRow, Use, usd
from spotctl.log.outcomes import DONE
from spotctl.show.costs.periods import (
    BILLING,
    BY_TIME,
    Grouping,
    Month,
    Period,
    Subject,
    by_day,
    first_of_month,
    keeps_runs_whole,
    key_of,
    month_of,
    overlaps,
    part_of,
)

if TYPE_CHECKING:
    from spotctl.log.events import RowsLost

WAITING = frozenset({Use.STARTING, Use.LOADING, Use.IDLE, Use.UNUSED})
"""Paid time without work: machines that start, load, or idle before others are ready or after the
end, and the rest of their last paid hour."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Sums over rows, in nano-dollar-seconds; `work` is None where it is unknown or of several
    kinds, and `on_demand` where it is unknown for any run: `on_demand_unknown` says why."""

    total: int
    on_demand: int | None
    free: int
    uses: Mapping[Use, int]
    other_charges: int
    """Part of the total: disks, addresses and traffic."""
    unsettled: int
    """Part of the total: amounts of machines that are still running, which may change."""
    machine_micros: int
    evictions: int
    runs: int
    running: int
    work: int | None
    samples: int | None = None
    sent: int | None = None
    received: int | None = None
    """Bytes that machines counted at their interfaces; None if none has, or for parts of runs."""
    traffic_runs: int = 0
    """How many of the runs have counted their bytes."""
    successes: int = 0
    replayed_runs: int = 0
    """How many of the runs were on a replayed market: all or none, because no sum has both kinds of
    money."""
    budget: int | None = None
    """The budgets of the runs, None unless all are whole and have one."""
    on_demand_low: int | None = 0
    on_demand_high: int | None = 0
    on_demand_unknown: str = ""
    loss: int = 0
    """Part of the total: what failed runs cost."""
    steps: tuple[tuple[str, int], ...] = ()
    """From the on-demand cost to the total: the amounts saved, negative where money was lost; their
    sum is `saved`. The first, the spot discount, is left out where the on-demand cost is
    unknown."""
    doubtful: int = 0
    """Part of the total that only counts because the end of machines is not known."""
    is_least: bool = False
    """Whether there are costs that the rows do not have."""
    rows_lost: int = 0
    """How many rows of the log the runs have lost."""
    only_keeps_state: bool = False
    """Whether these are reliable machines without the spot machines that they serve: the work is in
    other groups."""

    @property
    def low(self) -> int:
        """The least that the total can be."""
        return self.total - self.doubtful

    @property
    def high(self) -> int | None:
        """The most that the total can be; None if that is unknown."""
        if self.is_least:
            return None
        return self.total

    @property
    def lost_work(self) -> int:
        """Paid for work that was lost in evictions and redone."""
        return self.uses.get(Use.REDONE, 0)

    @property
    def waiting(self) -> int:
        """Paid for time in which machines did not work."""
        return sum(self.uses.get(use, 0) for use in WAITING)

    @property
    def saved(self) -> int | None:
        """The on-demand cost of the same work minus the total; negative if more was paid."""
        if self.on_demand is None:
            return None
        return self.on_demand - self.total

    @property
    def saved_pct(self) -> float | None:
        """`saved` in percent of the on-demand cost; None if nothing was used, or what was used
        serves other groups, or costs are missing."""
        if not self.on_demand or self.only_keeps_state or self.is_least:
            return None
        return round(100 * (self.on_demand - self.total) / self.on_demand, 4)

    @property
    def usd_per_work(self) -> float | None:
        """Dollars per unit of work; None if the work is unknown or zero, or costs are missing."""
        if self.work and not self.is_least:
            return usd(self.total) / self.work
        return None

    @property
    def usd_per_million_samples(self) -> float | None:
        """Dollars per million items that a training has gone through; None if their number is
        unknown or zero.
        """
        if self.samples and not self.is_least:
            return usd(self.total) / self.samples * 1e6
        return None

    @property
    def usd_per_success(self) -> float | None:
        """Dollars per run that succeeded, with the cost of those that did not; None if none did."""
        if self.successes and not self.is_least:
            return usd(self.total) / self.successes
        return None


def total_of(sums: Iterable[Sums]) -> Sums:
    amounts = dict.fromkeys(_AMOUNTS, 0)
    uses, steps = [0] * len(Use), [0] * len(STEPS)
    for addend in sums:
        for name in _AMOUNTS:
            amounts[name] += getattr(addend, name)
        uses = list(map(add, uses, addend.uses))
        steps = list(map(add, steps, addend.steps))

    return Sums(**amounts, uses=tuple(uses), steps=tuple(steps))


_AMOUNTS = tuple(name for name in Sums._fields if name not in ("uses", "steps"))


def figures_of(sums: Sums, runs: Sequence[RunTimeline], evictions: int, *, whole: bool) -> Figures:
    """The figures of rows with these sums; without `whole`, they are parts of runs, whose work is
    not known.
    """
    amounts: dict[str, Any] = {name: getattr(sums, name) for name in _AMOUNTS}
    steps = dict(zip(STEPS, sums.steps, strict=True))
    uses = dict(zip(Use, sums.uses, strict=True))
    shown_steps = tuple(steps.items())
    why_unknown = ""

    unknown = [f"{run.run}: {run.same_work.unknown}" for run in runs if run.same_work.unknown]
    if unknown:
        amounts |= dict.fromkeys(("on_demand", "on_demand_low", "on_demand_high"))
        # The first step begins at the on-demand cost.
        shown_steps = shown_steps[1:]
        why_unknown, more = unknown[0], len(unknown) - 1
        if more:
            why_unknown += f", and {more} more"

    work: dict[str, Any] = {"work": None}
    if whole:
        work = _worked(runs)
    rows_lost = running = successes = replayed = 0
    for run in runs:
        rows_lost += run.rows_lost
        running += run.is_running
        successes += run.outcome == DONE
        replayed += run.is_replayed

    return Figures(
        **amounts,
        **work,
        total=sum(sums.uses) + sums.other_charges,
        uses=uses,
        steps=shown_steps,
        on_demand_unknown=why_unknown,
        loss=-steps["failed runs"],
        is_least=any(run.is_least for run in runs),
        rows_lost=rows_lost,
        evictions=evictions,
        runs=len(runs),
        running=running,
        successes=successes,
        replayed_runs=replayed,
    )


def _worked(runs: Sequence[RunTimeline]) -> dict[str, Any]:
    """The work, samples, traffic and budget of whole runs."""
    known, logged, sent, received = list[int](), list[tuple[int, int]](), list[int](), 0
    for run in runs:
        if run.expected.budget_usd is not None:
            known.append(round(run.expected.budget_usd * NANO_SECONDS_PER_DOLLAR))
        if run.samples is not None and run.work:
            logged.append((run.samples, run.work))
        if run.sent is not None:
            sent.append(run.sent)
            received += run.received or 0

    # The work of runs of one job; clocks of different jobs are different amounts of work. None if
    # some was done on machines whose cost is not known.
    counts = [run.work for run in runs if run.work is not None and not run.on_ray]
    jobs = {run.job for run in runs}
    work = None
    if len(jobs) == 1 and len(counts) == len(runs):
        work = sum(counts)

    # A run that was not finished does not log its samples; its clocks have as many each as those of
    # the others.
    clocks = sum(of_run for _, of_run in logged)
    samples = None
    if work is not None and clocks:
        samples = work * sum(of_run for of_run, _ in logged) // clocks

    all_have_one = len(known) == len(runs) > 0
    is_whole = not any(run.is_cut for run in runs)
    return {
        "work": work,
        "samples": samples,
        "budget": sum(known) if all_have_one and is_whole else None,
        "sent": sum(sent) if sent else None,
        "received": received if sent else None,
        "traffic_runs": len(sent),
    }


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
    """All logged runs of these jobs, oldest first, including those outside the report, but none of
    the other kind."""
    month: Month
    """The present month of all jobs that were asked for, without replayed runs."""
    replayed: Figures
    """The replayed runs of the period, whether or not the report is on them."""
    zone: tzinfo = BILLING
    """The time zone of its days and months."""
    without_machines: int = 0
    """The number of runs without rows and evictions, which are in no group of a grouping that
    splits runs."""
    months_of_tags: tuple[Month, ...] = ()
    """The present month of each tag that has a budget."""

    def rounded_rows(self) -> Iterator[LedgerRow]:
        """The rows in whole nano-dollars, so that what is made of them adds up to the total."""
        runs = {run.run: run for run in self.runs}
        for name, rows in groupby(self.rows, attrgetter("run")):
            for row, amount, on_demand, doubtful, _ in rounded(runs[name], rows):
                yield row._replace(amount=amount, on_demand=on_demand, doubtful=doubtful)

    @property
    def is_replayed(self) -> bool:
        """Whether the report is on runs on a replayed market, where nothing is billed."""
        return bool(self.runs) and all(run.is_replayed for run in self.runs)

    @property
    def left_out(self) -> int:
        """The number of replayed runs that the report leaves out."""
        if self.is_replayed:
            return 0
        return self.replayed.runs


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

    A row that the period cuts counts in proportion to its time. Work is not known of a run that is
    cut. Replayed runs are left out unless there are no others; with `local`, the others are.
    """
    billed = [part for part in every if not part.run.is_replayed]
    replayed = [part for part in every if part.run.is_replayed]
    whole = replayed if local or not billed else billed
    parts = _all_within(whole, period, at)
    of_replayed = _all_within(replayed, period, at)
    runs, number_of_rows, without_machines = list[RunTimeline](), 0, 0
    for part in parts:
        runs.append(part.run)
        number_of_rows += len(part.rows)
        without_machines += not part.rows and not part.run.evictions

    jobs = {run.job for run in runs}
    history = [RunCost(part.run, figures([part])) for part in whole if part.run.job in jobs]
    rows = RowsInTurn(number_of_rows, lambda: chain.from_iterable(part.rows for part in parts))
    to_count = [(part.run, part.rows) for part in billed]

    return Report(
        whole=figures(parts),
        by=tuple(by),
        groups=groups(parts, by, period.zone),
        rows=rows,
        runs=tuple(runs),
        made_at=at,
        history=tuple(history),
        month=month_of(to_count, at, month_budget),
        replayed=figures(of_replayed),
        zone=period.zone,
        without_machines=without_machines,
    )


def lacking(known: Report, lost: "Sequence[RowsLost]", period: Period) -> Report:
    """A report on a period whose log lacks rows that may be of any run: they are missing in every
    figure of the time in which they were written."""
    times = [(loss.rows, Period(loss.since, loss.until)) for loss in lost]
    rows = sum(number for number, of_loss in times if overlaps(of_loss, period))
    if rows:
        marked = list[Figures]()
        for of_one in (known.whole, known.replayed, *(group.figures for group in known.groups)):
            lost_rows = of_one.rows_lost + rows
            marked.append(replace(of_one, is_least=True, rows_lost=lost_rows))
        whole, replayed, *of_groups = marked
        pairs = zip(known.groups, of_groups, strict=True)
        groups = tuple(replace(group, figures=of_group) for group, of_group in pairs)
        known = replace(known, whole=whole, groups=groups, replayed=replayed)

    this_month = Period(first_of_month(known.made_at), known.made_at)
    if any(overlaps(of_loss, this_month) for _, of_loss in times):
        month = replace(known.month, is_least=True)
        of_tags = tuple(replace(each, is_least=True) for each in known.months_of_tags)
        known = replace(known, month=month, months_of_tags=of_tags)

    return known


def _all_within(whole: Iterable[RunPart], period: Period, at: int) -> list[RunPart]:
    """The runs cut to a period; runs that were not active in it are left out."""
    parts = list[RunPart]()
    for part in whole:
        within = part_of(part.run, part.rows, period, at)
        if within is not None:
            run, rows = within
            parts.append(part if run is part.run else RunPart.of(run, rows))
    return parts


def figures(parts: Sequence[RunPart]) -> Figures:
    """The figures of all these runs, or parts of runs, added up."""
    runs = [part.run for part in parts]
    evictions = sum(len(run.evictions) for run in runs)
    sums = total_of(part.sums for part in parts)
    return figures_of(sums, runs, evictions, whole=True)


def groups(
    parts: Sequence[RunPart], by: Sequence[Grouping], zone: tzinfo = BILLING
) -> tuple[Group, ...]:
    """The figures by the values of `by`, in the order of these values; days and months are those of
    `zone`.
    """
    if not keeps_runs_whole(by):
        return _of_rows(parts, by, zone)

    # A run that got no machine has no rows but still counts in its group.
    members: defaultdict[tuple[str, ...], list[RunPart]] = defaultdict(list)
    for part in parts:
        key = key_of(by, Subject(None, part.run))
        members[key].append(part)

    of_keys = list[Group]()
    for key, of_key in sorted(members.items()):
        values = dict(zip(by, key, strict=True))
        of_keys.append(Group(values, figures(of_key)))
    return tuple(of_keys)


def _of_rows(parts: Sequence[RunPart], by: Sequence[Grouping], zone: tzinfo) -> tuple[Group, ...]:
    members: defaultdict[tuple[str, ...], dict[str, list[RoundedRow]]] = defaultdict(dict)
    evictions = Counter[tuple[str, ...]]()
    splits_days = BY_TIME.intersection(by)
    for part in parts:
        run = part.run
        rows = by_day(part.rows, zone) if splits_days else part.rows
        for of_row in rounded(run, rows):
            key = key_of(by, Subject(of_row[0], run, zone))
            members[key].setdefault(run.run, []).append(of_row)
        for eviction in run.evictions:
            # A run may have an eviction in a group without a row there.
            key = key_of(by, Subject(eviction, run, zone))
            members[key].setdefault(run.run, [])
            evictions[key] += 1

    run_of = {part.run.run: part.run for part in parts}
    grouped = list[Group]()
    for key, rows_of in sorted(members.items()):
        runs = [run_of[name] for name in rows_of]
        sums = total_of(sums_of(run_of[name], of_run) for name, of_run in rows_of.items())
        every = [row for of_run in rows_of.values() for row, *_ in of_run]
        works = any(row.spot or (row.reliable and row.on_demand) for row in every)
        keeps_state = any(row.reliable for row in every)
        of_group = figures_of(sums, runs, evictions[key], whole=False)
        of_group = replace(of_group, only_keeps_state=keeps_state and not works)
        values = dict(zip(by, key, strict=True))
        grouped.append(Group(values, of_group))

    return tuple(grouped)


MAX_COMPARED = 7
"""The most runs that a trend compares with as many before them: a week of nights with the week
before."""


@dataclass(frozen=True, slots=True)
class UnitTrend:
    """The median cost of a unit over the latest `runs` successful runs of a job, and over as many
    before them.
    """

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
        if self.before_usd:
            return 100 * (self.latest_usd / self.before_usd - 1)
        return None


def trends_of(report: Report) -> list[UnitTrend]:
    """A trend for each job with two successful runs or more whose costs are known, by job."""
    runs_of: dict[str, list[RunCost]] = {}
    for run in report.history:
        if run.timeline.outcome == DONE and not run.figures.is_least:
            runs_of.setdefault(run.timeline.job, []).append(run)

    trends = list[UnitTrend]()
    for job, runs in sorted(runs_of.items()):
        compared = min(MAX_COMPARED, len(runs) // 2)
        if not compared:
            continue
        latest = runs[-2 * compared :]
        per_work = [run.figures.usd_per_work for run in latest]
        unit, values = "clock", [cost for cost in per_work if cost is not None]
        if None in per_work:
            unit, values = "successful run", [usd(run.figures.total) for run in latest]
        trends.append(
            UnitTrend(job, unit, compared, median(values[compared:]), median(values[:compared]))
        )

    return trends
