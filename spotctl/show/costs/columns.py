"""The columns of a cost report, each declared once: name, heading, unit and figure.

The terminal table, CSV, Markdown, JSON and HTML follow from `COLUMNS`; each format lists the names that it shows, in
its order. A new column is declared here and named in the formats that show it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from pricing_data.units import HOUR
from spotctl.show.costs import formatting
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
    """A column; `name` is its key in JSON and CSV, and `meaning` what their documentation says about it."""

    name: str
    heading: str
    unit: Unit
    figure: Callable[[Figures], FigureValue]
    meaning: str

    def json(self, figures: Figures) -> FigureValue:
        return self.unit.json(self.figure(figures))

    def csv(self, figures: Figures) -> str:
        return self.unit.csv(self.figure(figures))

    def text(self, figures: Figures, digits: int) -> str:
        return self.unit.text(self.figure(figures), digits)


COLUMNS = {
    column.name: column
    for column in (
        FigureColumn("total_usd", "paid", Unit.DOLLARS, lambda figures: figures.total, "amount paid"),
        FigureColumn(
            "on_demand_usd",
            "on demand",
            Unit.DOLLARS,
            lambda figures: figures.on_demand,
            "cost of the same work on on-demand machines",
        ),
        FigureColumn(
            "saved_pct",
            "saved",
            Unit.PERCENT,
            lambda figures: figures.saved_pct,
            "saved, in percent of the on-demand cost",
        ),
        FigureColumn(
            "free_usd", "refunded", Unit.DOLLARS, lambda figures: figures.free, "amount refunded or not billed"
        ),
        FigureColumn(
            "lost_work_usd",
            "lost work",
            Unit.DOLLARS,
            lambda figures: figures.lost_work,
            "paid for work that evictions lost and that was redone",
        ),
        FigureColumn(
            "waiting_usd",
            "waiting",
            Unit.DOLLARS,
            lambda figures: figures.waiting,
            "paid for time in which machines were not working",
        ),
        FigureColumn("evictions", "evictions", Unit.COUNT, lambda figures: figures.evictions, "number of evictions"),
        FigureColumn("work", "clocks", Unit.COUNT, lambda figures: figures.work, "clocks done; null if unknown"),
        FigureColumn(
            "usd_per_work", "per clock", Unit.DOLLARS_PER_WORK, lambda figures: figures.usd_per_work, "cost of a clock"
        ),
        FigureColumn(
            "samples", "samples", Unit.COUNT, lambda figures: figures.samples, "items that trainings processed"
        ),
        FigureColumn(
            "usd_per_million_samples",
            "per million samples",
            Unit.DOLLARS_PER_WORK,
            lambda figures: figures.usd_per_million_samples,
            "cost of a million samples",
        ),
        FigureColumn(
            "successes", "successful", Unit.COUNT, lambda figures: figures.successes, "number of successful runs"
        ),
        FigureColumn(
            "usd_per_success",
            "per success",
            Unit.DOLLARS_PER_WORK,
            lambda figures: figures.usd_per_success,
            "cost of all runs, per successful run",
        ),
        FigureColumn(
            "budget_usd",
            "budget",
            Unit.DOLLARS,
            lambda figures: figures.budget,
            "budget of the runs; null unless all have one",
        ),
        FigureColumn("runs", "runs", Unit.COUNT, lambda figures: figures.runs, "number of runs"),
        FigureColumn(
            "running", "running", Unit.COUNT, lambda figures: figures.running, "number of runs that have not ended"
        ),
        FigureColumn(
            "unsettled_usd",
            "unsettled",
            Unit.DOLLARS,
            lambda figures: figures.unsettled,
            "part of the amount paid that may change, because machines are still running",
        ),
        FigureColumn(
            "loss_usd", "lost in failed runs", Unit.DOLLARS, lambda figures: figures.loss, "paid for failed runs"
        ),
        FigureColumn(
            "sent_bytes",
            "sent",
            Unit.BYTES,
            lambda figures: figures.sent,
            "bytes sent by machines; null if no machine counted",
        ),
        FigureColumn(
            "received_bytes",
            "received",
            Unit.BYTES,
            lambda figures: figures.received,
            "bytes received by machines; null if no machine counted",
        ),
        FigureColumn(
            "traffic_runs",
            "runs that counted traffic",
            Unit.COUNT,
            lambda figures: figures.traffic_runs,
            "number of runs that counted traffic",
        ),
        FigureColumn(
            "machine_hours",
            "machine-hours",
            Unit.HOURS,
            lambda figures: figures.machine_micros,
            "hours of all machines",
        ),
    )
}


def columns(names: str) -> tuple[FigureColumn, ...]:
    """The columns with these names, separated by blanks."""
    return tuple(COLUMNS[name] for name in names.split())


JSON_TOTAL = columns("total_usd on_demand_usd saved_pct free_usd lost_work_usd waiting_usd evictions work usd_per_work")
JSON_UNITS = columns("samples usd_per_million_samples successes usd_per_success budget_usd")
JSON_TRAFFIC = columns("sent_bytes received_bytes traffic_runs")
JSON_WHOLE = (*JSON_TOTAL, COLUMNS["loss_usd"], *JSON_UNITS, *JSON_TRAFFIC)
JSON_GROUP = (*JSON_TOTAL, *columns("runs running unsettled_usd loss_usd"), *JSON_UNITS, *JSON_TRAFFIC)
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


def texts(shown: Sequence[FigureColumn], figures: Figures, digits: int) -> list[str]:
    """The cells of a row for readers."""
    return [column.text(figures, digits) for column in shown]
