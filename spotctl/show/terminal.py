"""Values to tables and charts on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pricing_data.fetch import TaskReport
from pricing_data.gaps import GapReport
from pricing_data.ingest import FileReport
from pricing_data.market import Market
from pricing_data.query import Answer
from pricing_data.series import PriceSeries
from pricing_data.stats import MarketStats
from pricing_data.units import DAY, HOUR, MINUTE, SECOND, format_time, format_usd, to_usd

_BARS = "▁▂▃▄▅▆▇█"
_UNKNOWN = "-"
_NAMED_GAPS = 20
_LOG_FROM = 10


def sparkline(series: PriceSeries, width: int) -> str:
    """The highest price of each of `width` equal stretches of time, as bars from the lowest to the highest.

    The highest, because a spike that lasts minutes is what evicts, and a mean over days would hide it. Where spikes
    tower over the rest the bars are logarithmic, as in the plots.
    """
    edges = np.linspace(series.first, series.last, width + 1)
    begin = np.clip(np.searchsorted(series.times, edges[:-1], "right") - 1, 0, None)
    end = np.maximum(np.searchsorted(series.times, edges[1:], "left"), begin + 1)
    tops = np.array([series.prices[a:b].max() for a, b in zip(begin, end, strict=True)], dtype=float)
    low, high = float(series.prices.min()), float(series.prices.max())
    if high == low:
        return _BARS[0] * width
    if needs_log_scale(low, high):
        tops, low, high = np.log(tops), np.log(low), np.log(high)
    return "".join(_BARS[int(level)] for level in np.round((tops - low) / (high - low) * (len(_BARS) - 1)))


def needs_log_scale(low: float, high: float) -> bool:
    """Whether a linear axis would flatten everything but the spikes."""
    return high > _LOG_FROM * low


def age(seconds: float) -> str:
    """A span in its largest unit: `3 d`, `5 h`, `12 min`."""
    for unit, name in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min")):
        if seconds * SECOND >= unit:
            return f"{seconds * SECOND / unit:.0f} {name}"
    return f"{max(seconds, 0):.0f} s"


def percent(share: float | None) -> str:
    """A share as whole percent."""
    return _UNKNOWN if share is None else f"{share:.0%}"


def beside_on_demand(discount: float) -> str:
    """How a mean price stands to on-demand, in words."""
    return f"{percent(abs(discount))} {'below' if discount >= 0 else 'above'} on-demand"


def dollars(nanos: float) -> str:
    """A price per hour with as many digits as tell it from its neighbours."""
    return f"${to_usd(nanos):.4f}" if to_usd(nanos) < 10 else f"${to_usd(nanos):.2f}"


def market_name(market: Market) -> Text:
    """A market's text; the synthetic ones are labelled as such wherever they are shown."""
    name = Text(str(market))
    return name.append(" (synthetic)", style="yellow") if market.is_synthetic else name


def markets(found: Sequence[Market]) -> Text:
    """Markets, one a line."""
    return Text("\n").join(map(market_name, found))


def stats(found: Sequence[MarketStats], now: int, width: int) -> Table:
    """What markets cost and how they behaved, a row each; a narrow terminal gets the columns that matter most."""
    shown = [column for column in _STATS_COLUMNS if width >= column[2]]
    table = _table(*(name for name, _, _ in shown))
    for one in found:
        table.add_row(*(cell(one, now) for _, cell, _ in shown))
    return table


def _outliers(one: MarketStats, _: int) -> RenderableType:
    return Text(f"{one.outliers} outliers", style="red") if one.outliers else ""


def _above(one: MarketStats, _: int) -> RenderableType:
    return _UNKNOWN if one.hours_above_on_demand is None else f"{one.hours_above_on_demand:,.1f}"


# Name, cell, and the width of terminal from which it is shown.
_STATS_COLUMNS: tuple[tuple[str, Callable[[MarketStats, int], RenderableType], int], ...] = (
    ("market", lambda one, _: market_name(one.market), 0),
    ("events", lambda one, _: f"{one.events:,}", 130),
    ("mean", lambda one, _: dollars(one.mean), 0),
    ("on-demand", lambda one, _: dollars(one.on_demand.price) if one.on_demand else _UNKNOWN, 100),
    ("discount", lambda one, _: percent(one.discount), 0),
    ("lowest", lambda one, _: dollars(one.lowest), 150),
    ("highest", lambda one, _: dollars(one.highest), 120),
    ("changes/day", lambda one, _: f"{one.changes_per_day:.1f}", 110),
    ("spikes/day", lambda one, _: f"{one.spikes_per_day:.2f}", 150),
    ("h above od", _above, 130),
    ("last seen", lambda one, now: f"{age(one.age_seconds(now))} ago", 150),
    ("", _outliers, 0),
)


def one_market(one: MarketStats, series: PriceSeries, now: int, width: int) -> Group:
    """One market in full: its figures, and its history as a sparkline."""
    table = Table.grid(padding=(0, 2))
    rows = [
        (
            "price now",
            f"${format_usd(one.price_now)} an hour, seen {age(one.age_seconds(now))} ago",
        ),
        (
            "mean",
            f"{dollars(one.mean)}, median {dollars(one.median)}, from {dollars(one.lowest)} to {dollars(one.highest)}",
        ),
        ("on-demand", _on_demand(one)),
        ("history", f"{one.events:,} events from {format_time(one.first)} to {format_time(one.last)}"),
        ("restless", f"{one.changes_per_day:.1f} changes and {one.spikes_per_day:.2f} spikes a day"),
    ]
    if one.outliers:
        rows.append(("suspicious", f"{one.outliers} prices above 20 medians or 10 times on-demand"))
    for name, value in rows:
        table.add_row(Text(name, style="bold"), value)
    chart = Text(sparkline(series, max(10, width)), style="cyan")
    return Group(market_name(one.market), table, chart)


def _on_demand(one: MarketStats) -> str:
    if one.on_demand is None:
        return "not known (spotctl prices import --on-demand FILE brings it)"
    day = format_time(one.on_demand.as_of)[:10]
    above = one.hours_above_on_demand or 0.0
    beside = beside_on_demand(one.discount or 0.0)
    return f"{dollars(one.on_demand.price)} as of {day}; spot {beside} on average, {above:,.1f} hours above it"


def imported(reports: Sequence[FileReport]) -> Table:
    """What became of each file's rows: facts are on-demand prices and interruption figures."""
    columns = {
        "rows": [report.rows for report in reports],
        "new": [report.committed.added for report in reports],
        "known": [report.committed.known for report in reports],
        "conflicts": [report.committed.conflicts for report in reports],
        "facts": [report.facts for report in reports],
        "skipped": [report.skipped for report in reports],
    }
    told = {name: counts for name, counts in columns.items() if name in {"rows", "new", "known"} or any(counts)}
    table = _table("file", *told)
    for report, *counts in zip(reports, *told.values(), strict=True):
        table.add_row(Text(report.path.name), *(f"{count:,}" for count in counts))
    return table


def complaints(report: FileReport) -> list[str]:
    """What was wrong with a file: the file as a whole, then its first bad rows, a line each."""
    lines = [f"spotctl: {report.path}: {report.failure}"] if report.failure else []
    lines += [f"{report.path}: {row}" for row in report.bad]
    if report.skipped > len(report.bad):
        lines.append(f"{report.path}: and {report.skipped - len(report.bad):,} more bad rows")
    return lines


def fetched(reports: Sequence[TaskReport]) -> Table:
    """What each task of a fetch brought."""
    table = _table("cloud", "region", "what", "new prices", "known", "facts", "")
    for report in reports:
        table.add_row(
            report.cloud,
            report.region,
            report.what,
            f"{report.committed.added:,}",
            f"{report.committed.known:,}",
            f"{report.facts:,}",
            Text("failed", style="red") if report.failure else Text("done", style="green"),
        )
    return table


def gaps(report: GapReport) -> Group:
    """Seams, stale markets and the longest silences."""
    lines = [
        f"seam   {seam.cloud}/{seam.region}: {format_time(seam.start)} to {format_time(seam.end)},"
        f" {seam.silent} of {seam.markets} markets silent"
        for seam in report.seams
    ]
    lines += [
        f"stale  {stale.market}: last seen {format_time(stale.last)},"
        f" {age((stale.newest - stale.last) / SECOND)} before its region's newest"
        for stale in report.stale[:_NAMED_GAPS]
    ]
    if len(report.stale) > _NAMED_GAPS:
        lines.append(f"       and {len(report.stale) - _NAMED_GAPS} more stale markets (--json names all)")
    longest = sorted(report.gaps, key=lambda gap: gap.start - gap.end)
    lines += [
        f"gap    {gap.market}: {age((gap.end - gap.start) / SECOND)} from {format_time(gap.start)}"
        for gap in longest[:_NAMED_GAPS]
    ]
    if len(longest) > _NAMED_GAPS:
        lines.append(f"       and {len(longest) - _NAMED_GAPS} shorter gaps (--json names all)")
    lines.append(f"{len(report.seams)} seams, {len(report.stale)} stale markets, {len(report.gaps)} gaps")
    return Group(*map(Text, lines))


def rows(answer: Answer) -> Table:
    """The rows of a query."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in answer.columns:
        table.add_column(Text(name), overflow="fold")
    for row in answer.rows:
        table.add_row(*(Text("" if value is None else str(value)) for value in row))
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if i else "left", no_wrap=bool(i), overflow="fold")
    return table
