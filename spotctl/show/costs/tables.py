"""A cost report on the terminal."""

from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO

from rich.console import Group as Lines, RenderableType
from rich.table import Table
from rich.text import Text

from pricing_data.units import usd_text
from spotctl.show.costs.columns import (
    COLUMNS,
    RUNNING_MARK,
    TERMINAL,
    TERMINAL_PRIORITY,
    FigureColumn,
    clock,
    counted_in,
    digits_of,
    doubts,
    gigabytes,
    headings,
    headline,
    left_out,
    money,
    per_work,
    span_of,
    texts,
    whole_number,
)
from spotctl.show.costs.cost import Group, Report, UnitTrend, trends_of
from spotctl.show.costs.periods import By, Grouping, Month
from spotctl.show.layout import PrintableConsole
from spotctl.show.phrases import bound_of

_INDENT = "  "
_MIN_NAME = 12
_BREAKS = "/-"


NameRow = tuple[tuple[str, ...], Group | None]
"""The names of a row, and its group; without one it is a heading of the rows below."""


@dataclass(frozen=True, slots=True)
class NameColumns:
    """The headings of the columns with names, and their rows."""

    headings: tuple[str, ...]
    rows: tuple[NameRow, ...]

    @property
    def width(self) -> int:
        """The width of all columns side by side, with the gaps between them."""
        return sum(width + _GAP for width in self._widths) - _GAP

    def within(self, width: int) -> "NameColumns":
        """The columns in this width: names that are too long are broken where a person would break
        them.
        """
        first, *others = self._widths
        room = max(width - sum(others) - _GAP * len(others), _MIN_NAME)
        if first <= room:
            return self

        rows = list[NameRow]()
        for (name, *more), group in self.rows:
            names = (_broken(name, room), *more)
            rows.append((names, group))
        heading, *headings = self.headings
        return NameColumns((_broken(heading, room), *headings), tuple(rows))

    @property
    def _widths(self) -> list[int]:
        columns = zip(self.headings, *(names for names, _ in self.rows), strict=True)
        return [max(map(len, column)) for column in columns]


def _broken(name: str, room: int) -> str:
    """A name on several lines of this length, which end after a slash or hyphen if possible."""
    rest = name.lstrip()
    indent = name[: len(name) - len(rest)]
    room, lines = room - len(indent), list[str]()
    while len(rest) > room:
        last_break = max(rest.rfind(mark, 1, room) for mark in _BREAKS)
        end = last_break + 1 or room
        lines.append(indent + rest[:end])
        rest = rest[end:]
    lines.append(indent + rest)
    return "\n".join(lines)


_ALWAYS_SHOWN, _IMPORTANT = 2, 3
_TOTAL = "total"
_GAP = 2
_FILE_WIDTH = 160


def terminal_report(report: Report, width: int) -> Lines:
    """The report on a terminal of this width: its headline, the groups and their total."""
    if not report.runs:
        remarks = filter(None, (span_of(report), left_out(report)))
        return Lines(*map(Text, remarks))

    names = _names(report, width)

    # The columns that fit next to the names, the most important first.
    mark = len(RUNNING_MARK) if report.whole.running else 0
    room = width - names.width - mark
    fitting = set[str]()
    for rank, column in enumerate(TERMINAL_PRIORITY):
        room -= _width_of(report, column)
        if rank >= _ALWAYS_SHOWN and room < 0:
            break
        fitting.add(column.name)

    columns = [column for column in TERMINAL if column.name in fitting]

    lines: list[RenderableType] = [
        Text(headline(report), style="bold"),
        Text(span_of(report), style="dim"),
        Text(""),
        _table(report, names, columns),
    ]

    lines += [Text(note, style="dim") for note in _notes(report, columns)]
    return Lines(*lines)


def _table(report: Report, names: NameColumns, columns: Sequence[FigureColumn]) -> Table:
    digits = digits_of(report)
    table = Table(
        box=None,
        header_style="bold",
        pad_edge=False,
        padding=(0, 1),
        show_footer=len(report.groups) > 1,
    )

    for i, heading in enumerate(names.headings):
        table.add_column(heading, no_wrap=True, footer=Text("" if i else _TOTAL, style="bold"))
    totals = texts(columns, report.whole, digits)
    for heading, total in zip(headings(columns, report), totals, strict=True):
        table.add_column(heading, justify="right", no_wrap=True, footer=Text(total, style="bold"))

    for of_row, group in names.rows:
        *firsts, last = map(Text, of_row)
        if group is None:
            table.add_row(*firsts, last)
            continue
        if group.figures.running:
            last.append(RUNNING_MARK, style="yellow")
        table.add_row(*firsts, last, *texts(columns, group.figures, digits))

    return table


def _names(report: Report, width: int) -> NameColumns:
    """Names next to each other if the most important figures fit then; else below each other, and
    broken if need be.
    """
    mark = len(RUNNING_MARK) if report.whole.running else 0
    important = [_width_of(report, column) for column in TERMINAL_PRIORITY[:_IMPORTANT]]
    rows = tuple((tuple(group.key.values()), group) for group in report.groups)
    headings = tuple(grouping.value for grouping in report.by)
    beside = NameColumns(headings, rows)
    if beside.width + mark + sum(important) <= width:
        return beside

    # One column, with groups below the properties that they share; pricing is short and has a
    # column of its own.
    room = width - mark - sum(important[:_ALWAYS_SHOWN])
    levels: list[Grouping] = [
        grouping for grouping in report.by if grouping is not By.PRICING
    ] or list(report.by)
    others = [grouping for grouping in report.by if grouping not in levels]
    empty = [""] * len(others)
    nested, above = list[NameRow](), list[str]()
    for group in report.groups:
        names = [group.key[grouping] for grouping in levels]
        for level, name in enumerate(names[:-1]):
            if above[: level + 1] != names[: level + 1]:
                indented = _INDENT * level + name
                nested.append(((indented, *empty), None))
        last = _INDENT * (len(levels) - 1) + names[-1]
        values = [group.key[grouping] for grouping in others]
        nested.append(((last, *values), group))
        above = names

    first = ", ".join(grouping.value for grouping in levels)
    heads = [first, *(grouping.value for grouping in others)]
    return NameColumns(tuple(heads), tuple(nested)).within(room)


def _width_of(report: Report, column: FigureColumn) -> int:
    """The width of a column, with the gap in front of it."""
    digits = digits_of(report)
    figures = [report.whole, *(group.figures for group in report.groups)]
    cells = [column.text(each, digits) for each in figures]
    cells += headings([column], report)
    return max(map(len, cells)) + _GAP


def _notes(report: Report, columns: Sequence[FigureColumn]) -> list[str]:
    """Remarks on the figures: what they leave out, why they are as they are, and what they may
    become.
    """
    whole, digits = report.whole, digits_of(report)
    notes = [note for note in (*doubts(report), left_out(report), clock(report)) if note]
    if whole.saved is not None and whole.on_demand and not whole.is_least:
        steps = [f"{name} {money(amount, digits)}" for name, amount in whole.steps if amount]
        saved = money(whole.saved, digits)
        notes.append(f"saved {saved}: {', '.join(steps)}")

    notes += [_trend_note(trend) for trend in trends_of(report)]
    if not report.is_replayed:
        notes += (_month(month, digits) for month in (report.month, *report.months_of_tags))
    if whole.running:
        unsettled = money(whole.unsettled, digits)
        notes.append(f"* still running: {unsettled} of it may change")

    if not report.is_replayed and not all(run.on_ray for run in report.runs):
        # Which traffic is priced, and what the machines' interfaces counted in all.
        traffic = "traffic: moves of checkpoints between regions"
        if whole.sent is None or whole.received is None:
            notes.append(f"{traffic}; what else machines send is not measured")
        else:
            sent, received = gigabytes(whole.sent), gigabytes(whole.received)
            moved = f"machines sent {sent} and received {received}"
            priced = f"{traffic}, and what hosts bill, are priced"
            notes.append(f"{priced}; in all, {moved}{counted_in(whole)}")

    on_ray = sorted({run.job for run in report.runs if run.on_ray})
    if whole.work is not None and whole.usd_per_work is not None:
        clocks, each = whole_number(whole.work), per_work(whole.usd_per_work)
        notes.append(f"{clocks} clocks at {each} each")
    elif on_ray:
        jobs = ", ".join(on_ray)
        notes.append(f"{jobs}: trained on a Ray cluster, whose cost is not in this report")
    elif whole.work is None and COLUMNS["work"] in columns:
        notes.append("clocks are not added up over different jobs, and commands have none")

    return notes


def _trend_note(trend: UnitTrend) -> str:
    """`train: $0.0021 per clock in the latest 3 successful runs, $0.0025 in the 3 before them
    (-16%)`."""
    latest, before = "latest successful run", "the one before it"
    if trend.runs > 1:
        latest = f"latest {trend.runs} successful runs"
        before = f"the {trend.runs} before them"

    change = ""
    if trend.change_pct is not None:
        change = f" ({trend.change_pct:+.0f}%)"
    now, earlier = per_work(trend.latest_usd), per_work(trend.before_usd)
    return f"{trend.job}: {now} per {trend.unit} in the {latest}, {earlier} in {before}{change}"


def _month(month: Month, digits: int) -> str:
    least = bound_of(is_least=month.is_least, is_most=False)
    bound = bound_of(is_least=month.is_least, is_most=bool(month.doubtful))
    known = month.paid
    if month.is_least:
        known -= month.doubtful
    paid, forecast = money(known, digits), money(month.forecast, digits)
    name = f"{month.name}, {month.tag}" if month.tag else month.name
    text = f"{name}: {bound}{paid} so far, {least}{forecast} expected by its end"
    if month.low < month.high:
        low, high = money(month.low, digits), money(month.high, digits)
        text += f" (likely {low} to {high})"
    if month.budget is not None:
        text += f"; budget {usd_text(month.budget)}"
    return text


def plain_text(report: Report) -> str:
    """The report as text for a file."""
    text = StringIO()
    PrintableConsole(file=text, width=_FILE_WIDTH, highlight=False).print(
        terminal_report(report, _FILE_WIDTH)
    )
    return text.getvalue()
