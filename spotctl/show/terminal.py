"""Market data and prices as tables on the terminal, and formats shared by other tables.

Also which clouds have missing or old prices, and the command that fetches them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bidbrain.arrays import Floats
from pricing_data.library import CloudPrices, outdated
from pricing_data.series import PriceSeries, held
from pricing_data.units import SECOND, age, counted, format_time, format_usd, to_usd, usd_text
from spotctl.home.cloud import rented_clouds
from spotctl.home.printable import printable
from spotctl.show.columns import Column, at_path
from spotctl.show.layout import pairs_table, plain_table

if TYPE_CHECKING:
    from pricing_data.availability import Interruption
    from pricing_data.catalog import InstanceType
    from pricing_data.ingest import FileReport
    from pricing_data.list_prices import EgressPrice
    from pricing_data.market import Market
    from pricing_data.query import QueryResult
    from pricing_data.series import PriceSeries
    from pricing_data.stats import GapReport, MarketStats
    from pricing_data.store.table import PriceCorrection


_UNKNOWN = "-"
_NAMED_GAPS = 20
_NAMED_BAD_ROWS = 20


def percent(share: float | None) -> str:
    """A share in whole percent, `-` for None."""
    if share is None:
        return _UNKNOWN
    return f"{share:.0%}"


def against_on_demand(discount: float) -> str:
    """`60% below on-demand`, `5% above on-demand`."""
    return f"{percent(abs(discount))} {'below' if discount >= 0 else 'above'} on-demand"


def dollars(nanos: float) -> str:
    """A price per hour: four decimals below $10, two above."""
    if to_usd(nanos) < 10:
        return f"${to_usd(nanos):.4f}"
    return f"${to_usd(nanos):.2f}"


def market_name(market: Market) -> Text:
    """A market's text; synthetic markets are labeled wherever they are shown."""
    name = Text(str(market))
    if market.is_synthetic:
        return name.append(" (synthetic)", style="yellow")
    return name


def one_market(
    summary: MarketStats,
    series: PriceSeries,
    about: tuple[InstanceType | None, Sequence[Interruption]],
    now: int,
    width: int,
) -> Group:
    """One market in detail, with its machine, published interruptions, and its history as a
    sparkline.
    """
    machine, figures = about
    rows = list[tuple[str, str]]()
    if machine is not None:
        size = f"{counted(machine.vcpus, 'vCPU')}, {machine.memory_gib:g} GiB"
        if machine.accelerators:
            size += f", {machine.accelerators} x {machine.accelerator}"
        if machine.traits.architecture is not None:
            size += f", {machine.traits.architecture}"
        if machine.is_burstable:
            size += f", burstable: {machine.steady_vcpus:g} vCPUs all the time"
        if machine.as_of is not None:
            of_day = format_time(machine.as_of)[:10]
            size += f"; shipped list as of {of_day}"

        rows.append(("machine", size))

    seen, price = age(summary.age_seconds(now)), format_usd(summary.price_now)
    rows.append(("price now", f"${price}/h, {seen} ago"))
    mean, median, lowest, highest = map(
        dollars, (summary.mean, summary.median, summary.lowest, summary.highest)
    )
    rows.append(("mean", f"{mean}, median {median}, range {lowest} to {highest}"))
    listed = "unknown (add it with: spotctl prices import --on-demand FILE)"
    if summary.on_demand is not None:
        usd, day = dollars(summary.on_demand.price), format_time(summary.on_demand.as_of)[:10]
        hours = summary.hours_above_on_demand or 0.0
        comparison = against_on_demand(summary.discount or 0.0)
        spot = f"spot was {comparison} on average, above it for {hours:,.1f} h"
        listed = f"{usd} as of {day}; {spot}"
    rows.append(("on-demand", listed))

    first, last = format_time(summary.first), format_time(summary.last)
    rows.append(("history", f"{summary.events:,} price changes from {first} to {last}"))
    observed = f"{percent(summary.coverage)} of that time ({age(summary.observed / SECOND)})"
    rows.append(("observed", f"{observed}; figures are for the observed time"))
    changes, spikes = f"{summary.changes_per_day:.0f}", f"{summary.spikes_per_day:.2f}"
    rows.append(("volatility", f"{changes} changes/day, {spikes} spikes/day"))
    if summary.outliers:
        above = "above 20 x the median or 10 x on-demand"
        rows.append(("suspicious", f"{summary.outliers} prices {above}"))

    newest = {figure.measure: figure for figure in figures}
    rows += [(measure, _figure(figure, figures)) for measure, figure in newest.items()]
    line = sparkline(series, max(10, width))
    return Group(market_name(summary.market), pairs_table(rows), Text(line, style="cyan"))


def correction(made: PriceCorrection) -> str:
    """A correction of a stored price in one line."""
    right = "withdrawn"
    if made.price is not None:
        right = f"corrected to ${format_usd(made.price)}/h"
    of, day = format_time(made.time), format_time(made.made)[:10]
    return f"{made.market}, {of}: {right} on {day} ({made.reason})"


def _figure(newest: Interruption, figures: Sequence[Interruption]) -> str:
    """The newest published interruption figure, since when it has not changed, and how often it had
    changed before."""
    alike = [figure for figure in figures if figure.measure == newest.measure]
    since, changes = alike[0], 0
    for before, figure in pairwise(alike):
        if (before.low, before.high) != (figure.low, figure.high):
            since = figure
            changes += 1

    scale, unit = (1, "") if newest.measure == "placement-score" else (100, "%")
    low, high = newest.low * scale, newest.high * scale
    shown = f"{low:g}{unit}"
    if low != high:
        shown = f"{low:g}-{high:g}{unit}"
    day, before_text = format_time(since.as_of)[:10], counted(changes, "change")
    return f"{shown} since {day}, {before_text} before; {newest.source}"


def imported(reports: Sequence[FileReport]) -> Table:
    """Row counts per imported file; facts are on-demand prices and interruption rates."""
    columns = dict[str, list[int]]()
    for name, path in _COUNTS.items():
        counts = [at_path(report, *path.split(".")) for report in reports]
        if name in _ALWAYS or any(counts):
            columns[name] = counts

    table = plain_table("file", *columns)
    for report, *row in zip(reports, *columns.values(), strict=True):
        file = Text(printable(Path(report.file).name))
        table.add_row(file, *(f"{count:,}" for count in row))
    return table


_COUNTS = {
    "rows": "rows",
    "new": "committed.added",
    "known": "committed.known",
    "conflicts": "committed.conflicts",
    "facts": "facts",
    "skipped": "skipped",
}
_ALWAYS = ("rows", "new", "known")
"""Counts of an imported file, and those that are shown even if they are 0."""


def complaints(report: FileReport) -> list[str]:
    """The problems of a file, a line each: the file as a whole, then its first bad rows."""
    lines, more = list[str](), report.skipped - _NAMED_BAD_ROWS
    if report.failure:
        lines.append(f"spotctl: {report.file}: {report.failure}")
    lines += [f"{report.file}: {row}" for row in report.bad[:_NAMED_BAD_ROWS]]
    if more > 0:
        lines.append(f"{report.file}: and {more:,} more bad rows (--json lists all)")
    return lines


def gaps(report: GapReport, now: int) -> list[str]:
    """Seams, stale markets and the longest gaps."""
    lines = list[str]()
    for seam in report.seams:
        since, until = format_time(seam.start), format_time(seam.end)
        silent = f"{seam.silent} of {seam.markets} markets silent"
        lines.append(f"seam   {seam.cloud}/{seam.region}: {since} to {until}, {silent}")

    for stale in report.stale[:_NAMED_GAPS]:
        last, ago = format_time(stale.start), age((now - stale.start) / SECOND)
        lines.append(f"stale  {stale.market}: last seen {last}, {ago} ago")
    more = len(report.stale) - _NAMED_GAPS
    if more > 0:
        lines.append(f"       and {more:,} more stale markets (--json lists all)")

    longest = sorted(report.gaps, key=lambda gap: gap.start - gap.end)
    for gap in longest[:_NAMED_GAPS]:
        length, start = age((gap.end - gap.start) / SECOND), format_time(gap.start)
        lines.append(f"gap    {gap.market}: {length} from {start}")
    more = len(longest) - _NAMED_GAPS
    if more > 0:
        lines.append(f"       and {more} shorter gaps (--json lists all)")

    seams, stales = len(report.seams), len(report.stale)
    lines.append(f"{seams} seams, {stales} stale markets, {len(longest)} gaps")
    return lines


def rows(answer: QueryResult, width: int) -> RenderableType:
    """A table, or where that is wider than the terminal, the values of each row below each
    other."""
    cells = list[list[str]]()
    for row in answer.rows:
        texts = ["" if value is None else printable(str(value)) for value in row]
        cells.append(texts)

    widths = [max(map(len, column)) for column in zip(answer.columns, *cells, strict=True)]
    needed = sum(widths) + 2 * (len(widths) - 1)
    if needed > width:
        records = list[RenderableType]()
        for texts in cells:
            record = pairs_table(zip(answer.columns, texts, strict=True))
            records += [record, ""]
        return Group(*records)

    table = plain_table(*answer.columns, names=len(answer.columns))
    for texts in cells:
        table.add_row(*map(Text, texts))
    return table


def egress(price: EgressPrice, gigabytes: float, usd: float) -> Table:
    """The cost of sending data, and the price list that it follows from."""
    # `free up to 100 GB`, `$0.09/GB above 100 GB`.
    tiers, ends = list[str](), [*(above for above, _ in price.tiers[1:]), inf]
    for (above, each), end in zip(price.tiers, ends, strict=True):
        tier = f"${each:g}/GB"
        if not each and above == 0:
            tier = "free" if end == inf else f"free up to {end:,g} GB"
        elif above:
            tier += f" above {above:,g} GB"
        tiers.append(tier)

    cost = f"{usd_text(usd)} for {gigabytes:,g} GB"
    source = f"{price.source}, {format_time(price.as_of)[:10]}"
    if price.approximate:
        source += ", approximate"
    return pairs_table([("cost", cost), ("list", ", ".join(tiers)), ("source", source)])


# -- bars of block characters, one line high (sparklines) or several -------------------------------

_BLOCKS = " ▁▂▃▄▅▆▇█"
_LOG_FROM = 10


def needs_log_scale(low: float, high: float) -> bool:
    """Whether a linear axis would flatten everything but the spikes."""
    return high > _LOG_FROM * low


def bar_columns(values: Floats, top: float, height: int) -> list[str]:
    """Columns from 0 to `top` in `height` lines, the highest line first. Values above 0 are always
    visible.
    """
    eighths = np.zeros(len(values))
    if top > 0:
        eighths = np.ceil(values / top * height * 8 - 1e-9)
    return _bar_lines(eighths, height)


def sparkline(series: PriceSeries, width: int) -> str:
    """The highest price in each of `width` equal intervals, scaled from the lowest to the highest
    price.

    The highest, because spikes of minutes evict machines, and a mean over days would hide them.
    Where spikes tower over the rest the bars are logarithmic, as in the plots. Where nothing was
    observed, there is no bar.
    """
    edges = np.linspace(series.first, series.last, width + 1)
    in_force = np.searchsorted(series.times, edges[:-1], "right") - 1
    begin = np.clip(in_force, 0, None)
    after = np.searchsorted(series.times, edges[1:], "left")
    end = np.maximum(after, begin + 1)
    highest = [series.prices[first:last].max() for first, last in zip(begin, end, strict=True)]
    tops = np.array(highest, dtype=float)
    low, high = float(series.prices.min()), float(series.prices.max())
    seen = np.ones(width, dtype=bool)
    if series.watched is not None:
        seen = held(edges.astype(np.int64), series.watched) > 0

    heights = np.ones(width)
    if high > low:
        if needs_log_scale(low, high):
            tops, low, high = np.log(tops), np.log(low), np.log(high)
        share = (tops - low) / (high - low)
        heights = 1 + np.round(share * 7)
    line, *_ = _bar_lines(np.where(seen, heights, 0), 1)
    return line


def _bar_lines(eighths: Floats, height: int) -> list[str]:
    """Bars whose heights are given in eighths of a line."""
    lines = list[str]()
    for line in reversed(range(height)):
        levels = np.clip(eighths - 8 * line, 0, 8).astype(int)
        lines.append("".join(_BLOCKS[level] for level in levels))
    return lines


def freshness_remarks(
    clouds: Sequence[CloudPrices], now: int, regions: Sequence[str] = ()
) -> list[str]:
    """One line about what is missing or old; none if every price is fresh."""
    about = list[str]()
    missing = [prices.cloud for prices in clouds if prices.newest is None]
    if missing:
        about.append(f"no prices of {', '.join(missing)} are stored")
    for prices in outdated(clouds, now):
        if prices.newest is not None:
            old = age((now - prices.newest) / SECOND)
            about.append(f"prices of {prices.cloud} are {old} old")

    if not about:
        return []
    command = fetch_command(clouds, now, regions)
    return [f"{', '.join(about)}; fetch them: {command}"]


def fetch_command(
    clouds: Sequence[CloudPrices], now: int, regions: Sequence[str] = ()
) -> str | None:
    """The command that fetches what is missing or old; None if nothing is."""
    names = [prices.cloud for prices in outdated(clouds, now)]
    if not names:
        return None

    every = set(names) == set(rented_clouds())
    options = [
        *([] if every else [f" --cloud {name}" for name in names]),
        *(f" --region {name}" for name in regions),
    ]

    return "spotctl prices fetch" + "".join(options)


CLOUD_PRICES: tuple[Column[CloudPrices], ...] = (
    Column("cloud", "the cloud"),
    Column(
        "newest",
        "moment of its newest stored price; null if none is stored",
        form=format_time,
    ),
    Column(
        "age_seconds",
        "age of that price; null if none is stored",
        value_at=lambda prices, now: (
            None if prices.newest is None else max(0.0, (now - prices.newest) / SECOND)
        ),
    ),
    Column("state", "fresh, old or missing", value_at=CloudPrices.state),
)
FRESHNESS: tuple[Column[Any], ...] = (
    Column("clouds", "rented clouds that were asked for", each=CLOUD_PRICES),
    Column("fetch", "command that fetches what is missing or old; null if nothing is"),
)
