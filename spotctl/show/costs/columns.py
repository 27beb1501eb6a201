"""The columns of a cost report, each declared once: name, heading, unit and figure.

The terminal table, CSV, Markdown, JSON and HTML follow from `COLUMNS`; each format lists the names
that it shows, in its order. A new column is declared here and named in the formats that show it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from pricing_data.units import (
    DAY,
    HOUR,
    MINUTE,
    NANO_SECONDS_PER_DOLLAR,
    counted,
    to_datetime,
    usd_text,
)
from spotctl.log.ledger.account import RunTimeline
from spotctl.log.ledger.rows import usd
from spotctl.show.columns import UNKNOWN, Column
from spotctl.show.costs.cost import Figures, Report
from spotctl.show.costs.periods import BILLING, BY_TIME, keeps_runs_whole
from spotctl.show.phrases import bound_of

MAX_NAMED = 3
RUNNING_MARK = " *"
"""Follows the name of a run that is still going on, or of a group with such a run."""


def money(amount: int, digits: int = 2) -> str:
    """An amount of the ledger, which counts nano-dollar-seconds, as text in dollars with `digits`
    decimals."""
    return usd_text(usd(amount), digits)


def total(figures: Figures, digits: int) -> str:
    """The total of a report or a group, with what is known of it: `$2.42`, `at least $0.54`, `at
    most $0.27`.
    """
    amount = figures.low if figures.is_least else figures.total
    return f"{bound_of(is_least=figures.is_least, is_most=bool(figures.doubtful))}{money(amount, digits)}"


def on_demand(figures: Figures, digits: int) -> str:
    """The on-demand cost of the same work, `$5.10 for the same work`, or why it is unknown."""
    if figures.on_demand is None:
        return f"unknown: {figures.on_demand_unknown}"
    return f"{money(figures.on_demand, digits)} for the same work"


def doubts(report: Report) -> list[str]:
    """Why totals say "at least" or "at most", in sentences."""
    whole, digits, reasons = report.whole, digits_of(report), list[str]()
    if whole.rows_lost:
        # A part of them may be of any run.
        in_runs = sum(run.rows_lost for run in report.runs) == whole.rows_lost
        lossy = [run.run for run in report.runs if run.is_least and run.rows_lost]
        whose = f" of {_some_names(lossy)}" if in_runs else ""
        rows = counted(whole.rows_lost, "row")
        reasons.append(
            f"at least: the event log has lost {rows}{whose} (spotctl log check lists them)"
        )

    unknown = [run.run for run in report.runs if run.is_least and not run.rows_lost]
    if unknown:
        names = _some_names(unknown)
        reasons.append(
            f"at least: not all prices of {names} are known, or not all of its orders' outcomes"
        )

    if whole.doubtful:
        low = money(whole.low, digits)
        reasons.append(
            f"at most: the end of machines is not known, and they cost nothing after their leases; "
            f"at least {low}"
        )

    return reasons


def _some_names(runs: Iterable[str]) -> str:
    """The first names, in their order, and whether there are more."""
    names = sorted(runs)
    text = ", ".join(names[:MAX_NAMED])
    if len(names) > MAX_NAMED:
        text += " and others"
    return text


def digits_of(report: Report) -> int:
    """The decimals for the amounts of a report: cents, or four where cents would hide most of
    it."""
    return _digits(report.whole.total)


def _digits(total: int) -> int:
    if total >= NANO_SECONDS_PER_DOLLAR or not total:
        return 2
    return 4


def percent(value: float | None) -> str:
    """A percentage as text, `12.3%`; the value is not a share of 1."""
    if value is None:
        return UNKNOWN
    return f"{value:.1f}%"


def whole_number(value: int | None) -> str:
    """`1,234`, or `-` for None."""
    if value is None:
        return UNKNOWN
    return f"{value:,}"


def gigabytes(size: int) -> str:
    """Bytes as `1.2 GB`; below 50 MB as megabytes."""
    if size >= 5 * 10**7:
        return f"{size / 10**9:,.1f} GB"
    return f"{size / 10**6:,.1f} MB"


def counted_in(figures: Figures) -> str:
    """In how many runs machines counted their traffic, unless all did."""
    few = figures.traffic_runs < figures.runs
    if few:
        return f", counted in {figures.traffic_runs} of {figures.runs} runs"
    return ""


def per_work(value: float | None) -> str:
    """Dollars per piece of work: in cents, or with three significant digits if it is less than ten
    cents.
    """
    if value is None:
        return UNKNOWN
    if value >= 0.1 or value == 0:
        return usd_text(value)
    if value >= 0.001:
        return f"${value:.3g}"
    return f"${value:.2e}"


def span(micros: int) -> str:
    """A duration: `3 d 4 h`, `5 h 12 min`, `8 min`."""
    days, rest = divmod(max(micros, 0), DAY)
    hours, rest = divmod(rest, HOUR)
    minutes = rest // MINUTE
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    if minutes:
        return f"{minutes} min"
    return "under a minute"


def hours(micros: int) -> str:
    """Machine-hours with one decimal."""
    return f"{micros / HOUR:,.1f}"


def short_day(at: int) -> str:
    """A date without its year: `3 Feb`."""
    moment = to_datetime(at)
    return f"{moment.day} {moment:%b}"


def day(at: int) -> str:
    """A date: `3 Feb 2026`."""
    return f"{short_day(at)} {to_datetime(at):%Y}"


def minute(at: int) -> str:
    """A moment to the minute: `3 Feb 2026, 04:05 UTC`."""
    return f"{day(at)}, {to_datetime(at):%H:%M} UTC"


def outcome(run: RunTimeline) -> str:
    """How a run ended, or `running`."""
    if run.outcome is None:
        return "running"
    return run.outcome


def subject(report: Report) -> str:
    """The subject of the report: `quickstart`, `3 jobs`."""
    jobs = sorted({run.job for run in report.runs})
    if not jobs:
        return "no runs"
    if len(jobs) == 1:
        return jobs[0]
    return f"{len(jobs)} jobs"


def paid(report: Report) -> str:
    """The word for the amounts of a report: `paid`, or `replayed` where nothing was billed."""
    return "replayed" if report.is_replayed else "paid"


def headline(report: Report) -> str:
    """The report in a sentence."""
    whole, digits = report.whole, digits_of(report)
    amount, verb, runs = total(whole, digits), paid(report), counted_runs(report)
    so_far = " so far" if whole.running else ""
    not_billed = ", not billed," if report.is_replayed else ""
    text = f"{subject(report)}: {amount} {verb}{so_far}{not_billed} for {runs}"
    if whole.loss:
        lost = money(whole.loss, digits)
        text += f" ({lost} of it lost in runs that failed)"
    if whole.on_demand_unknown:
        return f"{text}, what it saved is unknown ({whole.on_demand_unknown})"

    saved, low, high = whole.saved_pct, whole.on_demand_low, whole.on_demand_high
    if saved is None or whole.on_demand is None or low is None or high is None:
        return text

    listed = money(whole.on_demand, digits)
    if low < high:
        least, most = money(low, digits), money(high, digits)
        listed += f", likely {least} to {most}"
    if saved < 0:
        return f"{text}, {percent(-saved)} more expensive than on demand ({listed})"

    return f"{text}, {percent(saved)} below on demand ({listed})"


def counted_runs(report: Report) -> str:
    """The number of runs, and how many of them are missing in the groups, if these split runs."""
    missing = 0 if keeps_runs_whole(report.by) else report.without_machines
    return counted(len(report.runs), "run") + (f" ({missing} without machines)" if missing else "")


def clock(report: Report) -> str:
    """The time zone of a report's days and months; empty if it has none."""
    if not BY_TIME.intersection(report.by):
        return ""
    words = " and ".join(f"{by.value}s" for by in report.by if by in BY_TIME)
    if report.zone is BILLING:
        return f"{words} are in UTC, as in bills (--tz chooses another time zone)"
    return f"{words} are in {report.zone}; bills and the monthly budget are in UTC"


def left_out(report: Report) -> str:
    """The replayed runs that are not in the report; empty if there are none."""
    if not report.left_out:
        return ""
    runs, amount = (
        counted(report.left_out, "run"),
        total(report.replayed, _digits(report.replayed.total)),
    )
    return (
        f"left out: {runs} on the local market, {amount} replayed and not billed (--local reports "
        "on replayed runs)"
    )


def span_of(report: Report) -> str:
    """When the runs were, and whether anything was billed."""
    began = [run.wall_began for run in report.runs]
    if not began:
        return "No run began in that time."

    if len(report.runs) == 1:
        ended = report.runs[0].wall_ended
        when = (
            f"Started {minute(began[0])}, "
            f"{'still running' if ended is None else f'ended {minute(ended)}'}."
        )
    else:
        when = f"Runs started between {minute(min(began))} and {minute(max(began))}."

    if not report.is_replayed:
        return when
    return (
        f"{when} The local market replays a price history, and rows carry its clock. No real money "
        "was spent."
    )


FigureValue = int | float | None
"""A figure of the report; None if its value is unknown."""


class Unit(Enum):
    """How a figure is written. Amounts are nano-dollar-seconds and times microseconds until they
    are shown.
    """

    DOLLARS = auto()
    PERCENT = auto()
    HOURS = auto()
    COUNT = auto()
    DOLLARS_PER_WORK = auto()
    BYTES = auto()


_TEXTS: Mapping[Unit, Callable[[int | float], str]] = {
    Unit.PERCENT: percent,
    Unit.HOURS: lambda value: hours(int(value)),
    Unit.COUNT: lambda value: whole_number(int(value)),
    Unit.DOLLARS_PER_WORK: per_work,
    Unit.BYTES: lambda value: gigabytes(int(value)),
}


@dataclass(frozen=True, slots=True)
class FigureColumn:
    """A column; `name` is its key in JSON and CSV, `figure` its attribute of `Figures`, and
    `meaning` what the documentation says about the column."""

    name: str
    heading: str
    unit: Unit
    figure: str
    meaning: str

    def json(self, figures: Figures) -> FigureValue:
        """The figure in JSON: dollars and hours as numbers, None for unknown."""
        value: FigureValue = getattr(figures, self.figure)
        if value is None:
            return None
        match self.unit:
            case Unit.DOLLARS:
                return usd(int(value))
            case Unit.HOURS:
                return value / HOUR
            case _:
                return value

    def of(self, holder: str) -> Column[Any]:
        """The JSON column for objects that hold their figures in the attribute `holder`."""
        return Column(self.name, self.meaning, holder, form=self.json)

    def csv(self, figures: Figures) -> str:
        """The figure in CSV: dollars with all nine decimals, empty for unknown."""
        value = self.json(figures)
        if value is None:
            return ""
        if self.unit is Unit.DOLLARS:
            return f"{value:.9f}"
        return str(value)

    def text(self, figures: Figures, digits: int) -> str:
        """The figure for a reader; `digits` are the decimals of dollars. Sums that lack something
        are "at least" so much, and the total says its bounds."""
        if self.figure == "total":
            return total(figures, digits)

        value: FigureValue = getattr(figures, self.figure)
        if value is None:
            return UNKNOWN

        text = money(int(value), digits) if self.unit is Unit.DOLLARS else _TEXTS[self.unit](value)
        if figures.is_least and self.figure in _SUMS and text != UNKNOWN:
            return f"at least {text}"
        return text


_SUMS = {
    "free",
    "lost_work",
    "waiting",
    "evictions",
    "work",
    "samples",
    "machine_micros",
    "sent",
    "received",
    "loss",
}
"""Figures that are sums over rows, and so too low if the log has lost rows."""

DOLLARS, PERCENT, HOURS, COUNT, DOLLARS_PER_WORK, BYTES = Unit

COLUMNS = {
    column.name: column
    for column in (
        FigureColumn("total_usd", "paid", DOLLARS, "total", "amount paid"),
        FigureColumn(
            "total_low_usd", "at least", DOLLARS, "low", "the least that the amount paid can be"
        ),
        FigureColumn(
            "total_high_usd",
            "at most",
            DOLLARS,
            "high",
            "the most that the amount paid can be; null if that is unknown, because rows of the "
            "log or prices are lost",
        ),
        FigureColumn("rows_lost", "rows lost", COUNT, "rows_lost", "rows of the log that are lost"),
        FigureColumn(
            "on_demand_usd",
            "on demand",
            DOLLARS,
            "on_demand",
            "cost of the same work on on-demand machines; null if it is unknown",
        ),
        FigureColumn(
            "saved_pct", "saved", PERCENT, "saved_pct", "saved, in percent of the on-demand cost"
        ),
        FigureColumn("free_usd", "refunded", DOLLARS, "free", "amount refunded or not billed"),
        FigureColumn(
            "lost_work_usd",
            "lost work",
            DOLLARS,
            "lost_work",
            "paid for work that evictions lost and that was redone",
        ),
        FigureColumn(
            "waiting_usd",
            "not working",
            DOLLARS,
            "waiting",
            "paid for time in which machines were not working",
        ),
        FigureColumn("evictions", "evictions", COUNT, "evictions", "number of evictions"),
        FigureColumn("work", "clocks", COUNT, "work", "clocks done; null if unknown"),
        FigureColumn(
            "usd_per_work", "per clock", DOLLARS_PER_WORK, "usd_per_work", "cost of a clock"
        ),
        FigureColumn("samples", "samples", COUNT, "samples", "items that trainings processed"),
        FigureColumn(
            "usd_per_million_samples",
            "per million samples",
            DOLLARS_PER_WORK,
            "usd_per_million_samples",
            "cost of a million samples",
        ),
        FigureColumn("successes", "successful", COUNT, "successes", "number of successful runs"),
        FigureColumn(
            "usd_per_success",
            "per success",
            DOLLARS_PER_WORK,
            "usd_per_success",
            "cost of all runs, per successful run",
        ),
        FigureColumn(
            "budget_usd",
            "budget",
            DOLLARS,
            "budget",
            "budget of the runs; null unless all have one",
        ),
        FigureColumn("runs", "runs", COUNT, "runs", "number of runs"),
        FigureColumn("running", "running", COUNT, "running", "number of runs that have not ended"),
        FigureColumn(
            "unsettled_usd",
            "unsettled",
            DOLLARS,
            "unsettled",
            "part of the amount paid that may change, because machines are still running",
        ),
        FigureColumn("loss_usd", "lost in failed runs", DOLLARS, "loss", "paid for failed runs"),
        FigureColumn(
            "sent_bytes",
            "sent",
            BYTES,
            "sent",
            "bytes sent by machines; null if no machine counted",
        ),
        FigureColumn(
            "received_bytes",
            "received",
            BYTES,
            "received",
            "bytes received by machines; null if no machine counted",
        ),
        FigureColumn(
            "traffic_runs",
            "runs that counted traffic",
            COUNT,
            "traffic_runs",
            "number of runs that counted traffic",
        ),
        FigureColumn(
            "replayed_runs",
            "replayed runs",
            COUNT,
            "replayed_runs",
            "number of runs on the local market, which bills nothing: all runs of a report, or "
            "none",
        ),
        FigureColumn(
            "machine_hours", "machine-hours", HOURS, "machine_micros", "hours of all machines"
        ),
    )
}


def columns(names: str) -> tuple[FigureColumn, ...]:
    """The columns with these names, separated by blanks."""
    return tuple(COLUMNS[name] for name in names.split())


JSON_TOTAL = columns(
    "total_usd on_demand_usd saved_pct free_usd lost_work_usd waiting_usd evictions work "
    "usd_per_work"
)
JSON_UNITS = columns("samples usd_per_million_samples successes usd_per_success budget_usd")
JSON_TRAFFIC = columns("sent_bytes received_bytes traffic_runs")
JSON_BOUNDS = columns("total_low_usd total_high_usd rows_lost")
JSON_WHOLE = (
    *JSON_TOTAL,
    *columns("runs running loss_usd"),
    *JSON_UNITS,
    *JSON_TRAFFIC,
    *JSON_BOUNDS,
)
JSON_GROUP = (
    *(*JSON_TOTAL, *columns("runs running unsettled_usd loss_usd"), *JSON_UNITS, *JSON_TRAFFIC),
    COLUMNS["replayed_runs"],
    *JSON_BOUNDS,
)
"""The columns of a group in JSON and CSV. Names may be added but never change."""

TERMINAL = columns(
    "runs machine_hours total_usd on_demand_usd saved_pct"
    " lost_work_usd waiting_usd free_usd evictions work usd_per_work usd_per_success budget_usd"
)
TERMINAL_PRIORITY = columns(
    "total_usd saved_pct on_demand_usd"
    " lost_work_usd waiting_usd evictions free_usd runs machine_hours work usd_per_work "
    "usd_per_success budget_usd"
)
"""The first two are always shown, the others in this order as long as there is room."""

MARKDOWN = columns(
    "total_usd on_demand_usd saved_pct lost_work_usd waiting_usd free_usd evictions usd_per_work"
)
HTML_GROUPS = columns("runs evictions lost_work_usd on_demand_usd total_usd saved_pct")
HTML_RUNS = columns("machine_hours evictions on_demand_usd total_usd saved_pct")


def headings(shown: Sequence[FigureColumn], report: Report) -> list[str]:
    """The headings of columns; amounts that were not billed are not called paid."""
    return [paid(report) if column.name == "total_usd" else column.heading for column in shown]


def texts(shown: Sequence[FigureColumn], figures: Figures, digits: int) -> list[str]:
    """The cells of a row for readers."""
    return [column.text(figures, digits) for column in shown]
