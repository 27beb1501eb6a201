"""What runs cost: sums over ledger rows, in total and by any grouping. Amounts are rounded only when shown."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from pricing_data.units import NANOS_PER_DOLLAR
from spotctl.ledger.rows import NANO_SECONDS_PER_DOLLAR, ChargeKind, LedgerRow, Use
from spotctl.reports.grouping import WHOLE_RUNS, By, Subject, key_of
from spotctl.reports.month import Month, month_of
from spotctl.reports.period import Period, part_of
from spotctl.reports.run_timeline import RunTimeline
from spotctl.runlog.outcomes import DONE

WAITING = frozenset({Use.STARTING, Use.LOADING, Use.IDLE})
"""Paid time without work: machines that start, load, or idle before others are ready or after the end."""

NOT_MACHINE_TIME = frozenset({ChargeKind.DISK, ChargeKind.ADDRESS, ChargeKind.EGRESS})
"""Charges for anything but the time of machines."""

STEPS = (
    "spot discount",
    "refunds",
    "start-up",
    "waiting",
    "redone work",
    "reliable machines",
    "disks, addresses, traffic and corrections",
    "failed runs",
)
"""From what the same work would have cost on demand to what was paid."""

_STEP_OF_USE = {
    Use.STARTING: "start-up",
    Use.LOADING: "start-up",
    Use.IDLE: "waiting",
    Use.REDONE: "redone work",
}


@dataclass(frozen=True, slots=True)
class Figures:
    """Sums over rows, in nano-dollar-seconds; `work` is None where it is unknown or of several kinds."""

    total: int
    on_demand: int
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
    successes: int = 0
    budget: int | None = None
    """The budgets of the runs, None unless all are whole and have one."""
    on_demand_low: int = 0
    on_demand_high: int = 0
    loss: int = 0
    """Part of the total: what failed runs cost."""
    steps: tuple[tuple[str, int], ...] = ()
    """From the on-demand cost to the total: what saved money, and (negative) what cost it. They add up to `saved`."""

    @property
    def lost_work(self) -> int:
        """Paid for work that was lost in evictions and redone."""
        return self.uses.get(Use.REDONE, 0)

    @property
    def waiting(self) -> int:
        """Paid for time in which machines did not work."""
        return sum(self.uses.get(use, 0) for use in WAITING)

    @property
    def saved(self) -> int:
        """The on-demand cost of the same work minus the total; negative if more was paid."""
        return self.on_demand - self.total

    @property
    def saved_pct(self) -> float | None:
        """`saved` in percent of the on-demand cost; None if nothing was used."""
        return round(100 * self.saved / self.on_demand, 4) if self.on_demand else None

    @property
    def usd_per_work(self) -> float | None:
        """Dollars per unit of work; None if the work is unknown or zero."""
        return usd(self.total) / self.work if self.work else None

    @property
    def usd_per_million_samples(self) -> float | None:
        """Dollars per million items that a training has gone through; None if their number is unknown or zero."""
        return usd(self.total) / self.samples * 1e6 if self.samples else None

    @property
    def usd_per_success(self) -> float | None:
        """Dollars per run that succeeded, with the cost of those that did not; None if none did."""
        return usd(self.total) / self.successes if self.successes else None


@dataclass(frozen=True, slots=True)
class Group:
    """The figures of all rows with the same values of the grouping."""

    key: Mapping[By, str]
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
    by: tuple[By, ...]
    groups: tuple[Group, ...]
    rows: tuple[LedgerRow, ...]
    runs: tuple[RunTimeline, ...]
    made_at: int
    history: tuple[RunCost, ...]
    """All logged runs of these jobs, oldest first, including those outside the report."""
    month: Month
    """The present month of all jobs that were asked for."""

    @property
    def is_replayed(self) -> bool:
        """Whether all runs were on a replayed market, where nothing is paid."""
        return bool(self.runs) and all(run.is_replayed for run in self.runs)

    def rows_of(self, run: str) -> tuple[LedgerRow, ...]:
        return tuple(row for row in self.rows if row.run == run)


def usd(amount: int) -> float:
    """Nano-dollar-seconds as dollars, rounded to the nano-dollar so that groups add up to the total as printed."""
    return round(Fraction(amount, 3600)) / NANOS_PER_DOLLAR


def report(
    rows: Sequence[LedgerRow],
    timelines: Sequence[RunTimeline],
    period: Period,
    by: Sequence[By],
    at: int,
    month_budget: float | None = None,
) -> Report:
    """The report on what runs cost within a period, from all their rows; runs outside it are the history of their jobs.

    A row that the period cuts counts in proportion to its time. Work is not known of a run that is cut.
    """
    rows_of: dict[str, list[LedgerRow]] = {one.run: [] for one in timelines}
    for row in shared(rows, timelines):
        rows_of[row.run].append(row)
    parts = [part for one in timelines if (part := part_of(one, rows_of[one.run], period, at))]
    reported, chosen = tuple(run for run, _ in parts), tuple(row for _, rows in parts for row in rows)
    jobs = {one.job for one in reported}
    history = tuple(RunCost(one, figures(rows_of[one.run], (one,))) for one in timelines if one.job in jobs)
    return Report(
        figures(chosen, reported),
        tuple(by),
        groups(chosen, reported, by),
        chosen,
        reported,
        at,
        history,
        month_of([(one, rows_of[one.run]) for one in timelines], at, month_budget),
    )


def groups(rows: Sequence[LedgerRow], runs: Sequence[RunTimeline], by: Sequence[By]) -> tuple[Group, ...]:
    """Rows grouped by the values of `by`, in the order of these values."""
    run_of = {run.run: run for run in runs}
    members: defaultdict[tuple[str, ...], _Members] = defaultdict(_Members)
    whole = WHOLE_RUNS.issuperset(by)
    if whole:
        # A run that got no machine has no rows but still counts in its group.
        for run in runs:
            members[key_of(by, Subject(None, run))].runs[run.run] = run
    for row in rows:
        group = members[key_of(by, Subject(row, run_of[row.run]))]
        group.rows.append(row)
        group.runs[row.run] = run_of[row.run]
    for run in runs:
        for eviction in run.evictions:
            group = members[key_of(by, Subject(eviction, run))]
            group.evictions += 1
            group.runs[run.run] = run
    return tuple(
        Group(
            dict(zip(by, key, strict=True)),
            _figures(group.rows, tuple(group.runs.values()), group.evictions, whole=whole),
        )
        for key, group in sorted(members.items())
    )


@dataclass(slots=True)
class _Members:
    """What has been assigned to a group so far."""

    rows: list[LedgerRow] = field(default_factory=list)
    evictions: int = 0
    runs: dict[str, RunTimeline] = field(default_factory=dict)


def figures(rows: Sequence[LedgerRow], runs: Sequence[RunTimeline]) -> Figures:
    return _figures(rows, runs, sum(len(run.evictions) for run in runs), whole=True)


def _figures(rows: Sequence[LedgerRow], runs: Sequence[RunTimeline], evictions: int, *, whole: bool) -> Figures:
    uses = dict.fromkeys(Use, 0)
    on_demand = other_charges = unsettled = free = machine_micros = 0
    for row in rows:
        on_demand += row.on_demand
        unsettled += 0 if row.settled else row.amount
        if row.kind in NOT_MACHINE_TIME:
            other_charges += row.amount
            continue
        uses[row.use] += row.amount
        if row.kind is ChargeKind.COMPUTE:
            machine_micros += row.end - row.begin
        elif row.kind is ChargeKind.REFUND:
            free -= row.amount
    return Figures(
        total=sum(uses.values()) + other_charges,
        on_demand=on_demand,
        free=free,
        uses=uses,
        other_charges=other_charges,
        unsettled=unsettled,
        **_compared(rows, runs),
        machine_micros=machine_micros,
        evictions=evictions,
        runs=len(runs),
        running=sum(run.is_running for run in runs),
        successes=sum(run.outcome == DONE for run in runs),
        **(_worked(runs) if whole else {"work": None}),
    )


def _worked(runs: Sequence[RunTimeline]) -> dict[str, Any]:
    """What whole runs did, and what they were allowed to cost."""
    budgets = [run.expected.budget_usd for run in runs]
    known = [round(one * NANO_SECONDS_PER_DOLLAR) for one in budgets if one is not None]
    whole = len(known) == len(runs) > 0 and not any(run.is_cut for run in runs)
    work = _work(runs)
    return {"work": work, "samples": _samples(runs, work), "budget": sum(known) if whole else None}


def _compared(rows: Sequence[LedgerRow], runs: Sequence[RunTimeline]) -> dict[str, Any]:
    """The interval of the on-demand cost, the loss in failed runs, and the steps to what was paid."""
    run_of, shares = {run.run: run for run in runs}, Counter[str]()
    steps = dict.fromkeys(STEPS, 0)
    for row in rows:
        run = run_of[row.run]
        shares[row.run] += row.on_demand
        if run.failed:
            steps["failed runs"] -= row.amount
        elif row.kind in NOT_MACHINE_TIME or row.kind is ChargeKind.CORRECTION:
            steps["disks, addresses, traffic and corrections"] -= row.amount
        elif row.kind is ChargeKind.REFUND:
            steps["refunds"] -= row.amount
        elif row.reliable:
            steps["reliable machines"] -= row.amount
        elif row.use is Use.WORKING:
            waited = row.amount - _share(row.amount, run.same_work.useful)
            steps["waiting"] -= waited
            steps["spot discount"] -= row.amount - waited
        else:
            steps[_STEP_OF_USE[row.use]] -= row.amount
        steps["spot discount"] += row.on_demand
    found = [(share, run_of[run].same_work) for run, share in shares.items()]
    return {
        "on_demand_low": sum(share * one.low // one.amount if one.amount else share for share, one in found),
        "on_demand_high": sum(share * one.high // one.amount if one.amount else share for share, one in found),
        "loss": -steps["failed runs"],
        "steps": tuple(steps.items()),
    }


def _share(amount: int, share: Fraction) -> int:
    # An order of magnitude faster than the product of an integer and a fraction.
    return amount * share.numerator // share.denominator


def shared(rows: Sequence[LedgerRow], runs: Sequence[RunTimeline]) -> list[LedgerRow]:
    """The rows with the on-demand cost of their run's work, each with its part, so that every grouping adds up to it.

    Time at work takes it all, in proportion to its list price; starting, waiting and repeating were not needed.
    """
    weights = list(map(_weight, rows))
    totals, so_far = Counter[str](), Counter[str]()
    for row, weight in zip(rows, weights, strict=True):
        totals[row.run] += weight
    amount = {run.run: run.same_work.amount for run in runs}
    found = []
    for row, weight in zip(rows, weights, strict=True):
        before = so_far[row.run]
        so_far[row.run] = upto = before + weight
        whole, total = amount[row.run], totals[row.run] or 1
        found.append(row._replace(on_demand=whole * upto // total - whole * before // total))
    return found


def _weight(row: LedgerRow) -> int:
    useful = row.kind is ChargeKind.COMPUTE and row.use is Use.WORKING and not row.reliable
    return row.listed * (row.end - row.begin) if useful else 0


def _work(runs: Sequence[RunTimeline]) -> int | None:
    """The work of runs of one job; clocks of different jobs are different amounts of work. None if some was done on
    machines whose cost is not known.
    """
    counts = [run.work for run in runs]
    if len({run.job for run in runs}) != 1 or None in counts or any(run.on_ray for run in runs):
        return None
    return sum(count for count in counts if count is not None)


def _samples(runs: Sequence[RunTimeline], work: int | None) -> int | None:
    """The samples of runs of one job. A run that was not finished does not log them; its clocks have as many each."""
    logged = [(run.samples, run.work) for run in runs if run.samples is not None and run.work]
    clocks = sum(clocks for _, clocks in logged if clocks is not None)
    if work is None or not clocks:
        return None
    return work * sum(samples for samples, _ in logged if samples is not None) // clocks
