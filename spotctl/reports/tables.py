"""A cost report on the terminal."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO

from rich.console import Console, RenderableType
from rich.console import Group as Lines
from rich.table import Table
from rich.text import Text

from spotctl.reports.cost import Figures, Report
from spotctl.reports.words import UNKNOWN, digits_of, headline, hours, money, per_work, percent, span_of, whole_number

# Name, cell, and the width of terminal from which it is shown.
_COLUMNS: tuple[tuple[str, Callable[[Figures, int], str], int], ...] = (
    ("runs", lambda one, _: whole_number(one.runs), 100),
    ("machine-h", lambda one, _: hours(one.machine_micros), 110),
    ("paid", lambda one, digits: money(one.total, digits), 0),
    ("on demand", lambda one, digits: money(one.on_demand, digits), 0),
    ("saved", lambda one, _: percent(one.saved_pct), 0),
    ("lost work", lambda one, digits: money(one.lost_work, digits), 70),
    ("waiting", lambda one, digits: money(one.waiting, digits), 70),
    ("refunded", lambda one, digits: money(one.free, digits), 90),
    ("evictions", lambda one, _: whole_number(one.evictions), 80),
    ("work", lambda one, _: whole_number(one.work), 120),
    ("per work", lambda one, _: per_work(one.usd_per_work), 120),
)
_TOTAL = "total"
_FILE_WIDTH = 160


def shown(report: Report, width: int) -> Lines:
    """The report for a person: the sentence, the groups and their sum."""
    digits = digits_of(report)
    columns = [column for column in _COLUMNS if width >= column[2]]
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1), show_footer=len(report.groups) > 1)
    for i, by in enumerate(report.by):
        table.add_column(by.value, overflow="fold", footer=Text("" if i else _TOTAL, style="bold"))
    for name, cell, _ in columns:
        table.add_column(name, justify="right", no_wrap=True, footer=Text(cell(report.whole, digits), style="bold"))
    for group in report.groups:
        *firsts, last = (Text(value) for value in group.key.values())
        if group.figures.going_on:
            last.append(" *", style="yellow")
        table.add_row(*firsts, last, *(cell(group.figures, digits) for _, cell, _ in columns))
    lines: list[RenderableType] = [
        Text(headline(report), style="bold"),
        Text(span_of(report), style="dim"),
        Text(""),
        table,
    ]
    lines += [Text(note, style="dim") for note in _notes(report)]
    return Lines(*lines)


def _notes(report: Report) -> list[str]:
    whole = report.whole
    notes = []
    if whole.going_on:
        notes.append(f"* still running: {money(whole.unsettled, digits_of(report))} of it can change")
    if whole.work is not None and whole.usd_per_work is not None:
        notes.append(f"{whole_number(whole.work)} units of work at {per_work(whole.usd_per_work)} each")
    elif whole.work is None:
        notes.append(f"{UNKNOWN} work: of several jobs, or of commands, which count none")
    return notes


def plain(report: Report) -> str:
    """The same as text for a file."""
    text = StringIO()
    Console(file=text, width=_FILE_WIDTH, highlight=False).print(shown(report, _FILE_WIDTH))
    return text.getvalue()
