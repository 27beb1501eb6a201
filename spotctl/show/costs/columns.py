"""The columns of a cost report, each declared once: name, heading, unit and figure.

The terminal table, CSV, Markdown, JSON and HTML follow from `COLUMNS`; each format lists the names that it shows, in
its order. A new column is declared here and named in the formats that show it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from pricing_data.units import HOUR
from spotctl.show.costs import formatting
from spotctl.show.costs.cost import Report
from spotctl.show.costs.figures import Figures, usd

FigureValue = int | float | None
"""A figure of the report; None if its value is unknown."""


class Unit(Enum):
    """How a figure is written. Amounts are nano-dollar-seconds and times microseconds until they are shown."""

    DOLLARS = auto()
    PERCENT = auto()
    HOURS = auto()
    COUNT = auto()
    DOLLARS_PER_WORK = auto()
    BYTES = auto()

    def json(self, value: FigureValue) -> FigureValue:
        """The value in JSON: dollars and hours as numbers, None for unknown."""
        if value is None:
            return None
        match self:
            case Unit.DOLLARS:
                return usd(int(value))
            case Unit.HOURS:
                return value / HOUR
            case _:
                return value

    def csv(self, value: FigureValue) -> str:
        """The value in CSV: dollars with all nine decimals, empty for unknown."""
        if value is None:
            return ""
        return f"{self.json(value):.9f}" if self is Unit.DOLLARS else str(self.json(value))

    def text(self, value: FigureValue, digits: int) -> str:
        """The value for a reader; `digits` are the decimals of dollars."""
        if value is None:
            return formatting.UNKNOWN
        return formatting.money(int(value), digits) if self is Unit.DOLLARS else _TEXTS[self](value)


_TEXTS: Mapping[Unit, Callable[[int | float], str]] = {
    Unit.PERCENT: formatting.percent,
    Unit.HOURS: lambda value: formatting.hours(int(value)),
    Unit.COUNT: lambda value: formatting.whole_number(int(value)),
    Unit.DOLLARS_PER_WORK: formatting.per_work,
    Unit.BYTES: lambda value: formatting.gigabytes(int(value)),
}


@dataclass(frozen=True, slots=True)
class FigureColumn:
    """A column; `name` is its key in JSON and CSV, `figure` its attribute of `Figures`, and `meaning` what the
    documentation says about the column."""

    name: str
    heading: str
    unit: Unit
    figure: str
    meaning: str

    def json(self, figures: Figures) -> FigureValue:
        return self.unit.json(getattr(figures, self.figure))

    def csv(self, figures: Figures) -> str:
        return self.unit.csv(getattr(figures, self.figure))

    def text(self, figures: Figures, digits: int) -> str:
        """The figure for a reader. Sums that lack something are "at least" so much, and the total says its bounds."""
        if self.figure == "total":
            return formatting.total(figures, digits)
        text = self.unit.text(getattr(figures, self.figure), digits)
        return f"at least {text}" if figures.is_least and self.figure in _SUMS and text != formatting.UNKNOWN else text


_SUMS = {"free", "lost_work", "waiting", "evictions", "work", "samples", "machine_micros", "sent", "received", "loss"}
"""The figures that lost rows hide a part of."""

DOLLARS, PERCENT, HOURS, COUNT, DOLLARS_PER_WORK, BYTES = Unit

COLUMNS = {
    column.name: column
    for column in (
        FigureColumn("total_usd", "paid", DOLLARS, "total", "amount paid"),
        FigureColumn("total_low_usd", "at least", DOLLARS, "low", "the least that the amount paid can be"),
        FigureColumn(
            "total_high_usd",
            "at most",
            DOLLARS,
            "high",
            "the most that the amount paid can be; null if that is unknown, because rows of the log or prices are lost",
        ),
        FigureColumn("rows_lost", "rows lost", COUNT, "rows_lost", "rows of the log that a repair has dropped"),
        FigureColumn("on_demand_usd", "on demand", DOLLARS, "on_demand", "cost of the same work on on-demand machines"),
        FigureColumn("saved_pct", "saved", PERCENT, "saved_pct", "saved, in percent of the on-demand cost"),
        FigureColumn("free_usd", "refunded", DOLLARS, "free", "amount refunded or not billed"),
        FigureColumn(
            "lost_work_usd", "lost work", DOLLARS, "lost_work", "paid for work that evictions lost and that was redone"
        ),
        FigureColumn(
            "waiting_usd", "not working", DOLLARS, "waiting", "paid for time in which machines were not working"
        ),
        FigureColumn("evictions", "evictions", COUNT, "evictions", "number of evictions"),
        FigureColumn("work", "clocks", COUNT, "work", "clocks done; null if unknown"),
        FigureColumn("usd_per_work", "per clock", DOLLARS_PER_WORK, "usd_per_work", "cost of a clock"),
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
        FigureColumn("budget_usd", "budget", DOLLARS, "budget", "budget of the runs; null unless all have one"),
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
        FigureColumn("sent_bytes", "sent", BYTES, "sent", "bytes sent by machines; null if no machine counted"),
        FigureColumn(
            "received_bytes", "received", BYTES, "received", "bytes received by machines; null if no machine counted"
        ),
        FigureColumn(
            "traffic_runs", "runs that counted traffic", COUNT, "traffic_runs", "number of runs that counted traffic"
        ),
        FigureColumn(
            "replayed_runs",
            "replayed runs",
            COUNT,
            "replayed_runs",
            "number of runs on the local market, which bills nothing: all runs of a report, or none",
        ),
        FigureColumn("machine_hours", "machine-hours", HOURS, "machine_micros", "hours of all machines"),
    )
}


def columns(names: str) -> tuple[FigureColumn, ...]:
    """The columns with these names, separated by blanks."""
    return tuple(COLUMNS[name] for name in names.split())


JSON_TOTAL = columns("total_usd on_demand_usd saved_pct free_usd lost_work_usd waiting_usd evictions work usd_per_work")
JSON_UNITS = columns("samples usd_per_million_samples successes usd_per_success budget_usd")
JSON_TRAFFIC = columns("sent_bytes received_bytes traffic_runs")
JSON_BOUNDS = columns("total_low_usd total_high_usd rows_lost")
JSON_WHOLE = (*JSON_TOTAL, *columns("runs running loss_usd"), *JSON_UNITS, *JSON_TRAFFIC, *JSON_BOUNDS)
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
    " lost_work_usd waiting_usd evictions free_usd runs machine_hours work usd_per_work usd_per_success budget_usd"
)
"""The first two are always shown, the others in this order as long as there is room."""

MARKDOWN = columns("total_usd on_demand_usd saved_pct lost_work_usd waiting_usd free_usd evictions usd_per_work")
HTML_GROUPS = columns("runs evictions lost_work_usd on_demand_usd total_usd saved_pct")
HTML_RUNS = columns("machine_hours evictions on_demand_usd total_usd saved_pct")


def headings(shown: Sequence[FigureColumn], report: Report) -> list[str]:
    """The headings of columns; amounts that were not billed are not called paid."""
    return [formatting.paid(report) if column.name == "total_usd" else column.heading for column in shown]


def texts(shown: Sequence[FigureColumn], figures: Figures, digits: int) -> list[str]:
    """The cells of a row for readers."""
    return [column.text(figures, digits) for column in shown]
