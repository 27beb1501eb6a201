"""A cost report on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from io import StringIO

from rich.console import Console, RenderableType
from rich.console import Group as Lines
from rich.table import Table
from rich.text import Text

from spotctl.reports.cost import Figures, Report
from spotctl.reports.words import digits_of, headline, hours, money, per_work, percent, span_of, whole_number

_WORK = "work"
_GOES_ON = " *"

Cell = Callable[[Figures, int], str]

# Name, cell, and in which order it is taken in while there is room: 0 is always there.
_COLUMNS: tuple[tuple[str, Cell, int], ...] = (
    ("runs", lambda one, _: whole_number(one.runs), 5),
    ("machine-h", lambda one, _: hours(one.machine_micros), 6),
    ("paid", lambda one, digits: money(one.total, digits), 0),
    ("on demand", lambda one, digits: money(one.on_demand, digits), 0),
    ("saved", lambda one, _: percent(one.saved_pct), 0),
    ("lost work", lambda one, digits: money(one.lost_work, digits), 1),
    ("waiting", lambda one, digits: money(one.waiting, digits), 2),
    ("refunded", lambda one, digits: money(one.free, digits), 4),
    ("evictions", lambda one, _: whole_number(one.evictions), 3),
    (_WORK, lambda one, _: whole_number(one.work), 7),
    ("per work", lambda one, _: per_work(one.usd_per_work), 8),
)
_TOTAL = "total"
_GAP = 2
_FILE_WIDTH = 160


def shown(report: Report, width: int) -> Lines:
    """The report for a person: the sentence, the groups and their sum."""
    digits = digits_of(report)
    columns = _fitting(report, width)
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1), show_footer=len(report.groups) > 1)
    for i, by in enumerate(report.by):
        table.add_column(by.value, overflow="fold", footer=Text("" if i else _TOTAL, style="bold"))
    for name, cell in columns.items():
        table.add_column(name, justify="right", no_wrap=True, footer=Text(cell(report.whole, digits), style="bold"))
    for group in report.groups:
        *firsts, last = (Text(value) for value in group.key.values())
        if group.figures.going_on:
            last.append(_GOES_ON, style="yellow")
        table.add_row(*firsts, last, *(cell(group.figures, digits) for cell in columns.values()))
    lines: list[RenderableType] = [
        Text(headline(report), style="bold"),
        Text(span_of(report), style="dim"),
        Text(""),
        table,
    ]
    lines += [Text(note, style="dim") for note in _notes(report, columns)]
    return Lines(*lines)


def _fitting(report: Report, width: int) -> Mapping[str, Cell]:
    """The columns for which there is room beside names that are not folded, the most important first."""
    digits = digits_of(report)
    left = width - sum(_widest([by.value, _TOTAL, *(one.key[by] for one in report.groups)]) for by in report.by)
    left -= len(_GOES_ON) if report.whole.going_on else 0
    taken = set[str]()
    for name, cell, order in sorted(_COLUMNS, key=lambda column: column[2]):
        left -= _widest([name, *(cell(one, digits) for one in (report.whole, *(one.figures for one in report.groups)))])
        if order and left < 0:
            break
        taken.add(name)
    return {name: cell for name, cell, _ in _COLUMNS if name in taken}


def _widest(texts: Sequence[str]) -> int:
    return max(map(len, texts)) + _GAP


def _notes(report: Report, columns: Collection[str]) -> list[str]:
    whole = report.whole
    notes = []
    if whole.going_on:
        notes.append(f"* still running: {money(whole.unsettled, digits_of(report))} of it can change")
    if whole.work is not None and whole.usd_per_work is not None:
        notes.append(f"{whole_number(whole.work)} units of work at {per_work(whole.usd_per_work)} each")
    elif whole.work is None and _WORK in columns:
        notes.append("work is not added up over several jobs, and commands count none")
    return notes


def plain(report: Report) -> str:
    """The same as text for a file."""
    text = StringIO()
    Console(file=text, width=_FILE_WIDTH, highlight=False).print(shown(report, _FILE_WIDTH))
    return text.getvalue()
