"""The answers of commands on market data. Keys may be added but never change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING, Any

from rich.text import Text

from pricing_data.sources.base import SourceNeeds
from pricing_data.units import HOUR, age, counted, format_time, to_usd
from spotctl.show.columns import Column, chosen, fitting, if_any, texts
from spotctl.show.layout import LongTable
from spotctl.show.terminal import FRESHNESS, dollars, market_name, percent

if TYPE_CHECKING:
    from pricing_data.availability import Interruption
    from pricing_data.catalog import InstanceType
    from pricing_data.ingest import FileReport, TaskReport
    from pricing_data.query import QueryResult
    from pricing_data.stats import GapReport, MarketStats
    from pricing_data.store.facts import LostPrices
    from pricing_data.store.table import PriceCorrection


STATS: tuple[Column[MarketStats], ...] = (
    Column(
        "market",
        "the market: cloud/region/zone/type",
        form=str,
        heading="market",
        show=market_name,
    ),
    Column("events", "number of price changes stored", heading="events", show="{:,}", rank=130),
    Column("first", "time of the first", form=format_time),
    Column(
        "last",
        "last time at which the price was observed",
        form=format_time,
    ),
    Column(
        "price_now",
        "newest price, in dollars per hour as all prices here",
        form=to_usd,
    ),
    Column(
        "mean",
        "mean over time",
        form=to_usd,
        heading="mean/h",
        show=dollars,
    ),
    Column(
        "on_demand",
        "on-demand price; null if unknown",
        "on_demand.price",
        form=to_usd,
        heading="on-demand/h",
        show=dollars,
        rank=100,
    ),
    Column(
        "on_demand_as_of",
        "date of the on-demand price",
        "on_demand.as_of",
        form=format_time,
    ),
    Column(
        "discount",
        "price reduction of the mean against on demand, as a share",
        heading="discount",
        show=percent,
        rank=1,
    ),
    Column("median", "median over time", form=to_usd),
    Column(
        "lowest",
        "lowest price",
        form=to_usd,
        heading="lowest",
        show=dollars,
        rank=150,
    ),
    Column(
        "highest",
        "highest price",
        form=to_usd,
        heading="highest",
        show=dollars,
        rank=120,
    ),
    Column(
        "changes_per_day", "price changes per day", heading="changes/day", show="{:.1f}", rank=110
    ),
    Column(
        "spikes_per_day",
        "rises far above the median, per day",
        heading="spikes/day",
        show="{:.2f}",
        rank=150,
    ),
    Column(
        "hours_above_on_demand",
        "hours for which the price was above the on-demand price",
        heading="h above on-demand",
        show="{:,.1f}",
        rank=130,
    ),
    Column(
        "outliers",
        "number of prices so high that they are probably errors",
        heading="",
        cell=lambda summary: (
            Text(counted(summary.outliers, "outlier"), style="red") if summary.outliers else ""
        ),
    ),
    Column(
        "coverage",
        "share of the time between first and last that was observed",
        heading="observed",
        show=percent,
        rank=110,
    ),
    Column("observed_hours", "hours observed", "observed", per=HOUR),
    Column(
        "age_seconds",
        "time since the price was last observed",
        value_at=lambda summary, now: summary.age_seconds(now),
        heading="last seen",
        show=lambda seconds: f"{age(seconds)} ago",
        rank=150,
    ),
    Column("synthetic", "whether the prices are generated", "market.is_synthetic"),
)
_IN_TABLE = (
    "market events mean on_demand discount coverage lowest highest changes_per_day spikes_per_day "
    "hours_above_on_demand age_seconds outliers"
)


def stats_table(summaries: Sequence[MarketStats], now: int, width: int) -> LongTable:
    """A row of statistics per market; a narrow terminal gets the most important columns, and any
    hole is shown.

    The rank of a column is the width from which on it is shown, if the names of the markets leave
    room for it.
    """
    has_holes = any(summary.coverage < 1 for summary in summaries)
    columns: list[Column[MarketStats]] = []
    for column in chosen(STATS, _IN_TABLE):
        rank = 0 if has_holes and column.key == "coverage" else column.rank
        if width >= rank:
            columns.append(replace(column, rank=rank))

    shown = fitting(columns, summaries, width, now)
    headings = [column.heading or "" for column, _ in shown]
    rows = zip(*(cells for _, cells in shown), strict=True)
    return LongTable(headings, list(rows))


MACHINE: tuple[Column[InstanceType], ...] = (
    Column("vcpus", "number of vCPUs"),
    Column("memory_gib", "memory"),
    Column("gpu", "model of the GPUs; null without", "accelerator"),
    Column("gpus", "number of GPUs", "accelerators"),
    Column(
        "steady_vcpus", "vCPUs that may be used all the time; fewer than vcpus for burstable types"
    ),
    Column(
        "architecture",
        "x86_64 or arm64; null if unknown",
        "traits.architecture",
    ),
    Column(
        "boots",
        "ways in which its machines boot, in the cloud's words; null if unknown",
        "traits.boots",
    ),
    Column(
        "driver",
        "family of drivers that its GPUs need; null if unknown, or without GPUs",
        "traits.driver",
    ),
    Column(
        "gpu_memory_gib",
        "memory of one GPU; null if unknown, or without GPUs",
        "traits.accelerator_gib",
    ),
    Column(
        "local_disk_gb",
        "local disks; null if unknown",
        "traits.local_disk_gb",
    ),
    Column(
        "retires",
        "since when the cloud does not sell it; null if unknown",
        "traits.retires",
        form=format_time,
    ),
    Column(
        "as_of",
        "date of the shipped description; null if the cloud itself described the machine",
        form=format_time,
    ),
)
INTERRUPTIONS: tuple[Column[Interruption], ...] = (
    Column("market", "the market", form=str),
    Column("measure", "what was measured"),
    Column("as_of", "date of the figure", form=format_time),
    Column("low", "lower end of the published band, as a share"),
    Column("high", "upper end of the published band, as a share"),
    Column("source", "who published it"),
)
CORRECTION: tuple[Column[PriceCorrection], ...] = (
    Column("market", "the market", form=str),
    Column("time", "time of the price change", form=format_time),
    Column(
        "usd_per_hour",
        "the right price; null if the price change was withdrawn",
        "price",
        form=to_usd,
    ),
    Column("reason", "why"),
    Column("made", "when it was corrected", form=format_time),
)
_STORED: tuple[Column[Any], ...] = (
    Column(
        "added",
        "price events that are new",
        "committed.added",
        heading="new prices",
        show="{:,}",
    ),
    Column(
        "known",
        "price events that were stored already",
        "committed.known",
        heading="known",
        show="{:,}",
    ),
    Column(
        "conflicts",
        "price events that contradict stored ones",
        "committed.conflicts",
    ),
    Column("facts", "on-demand prices and other facts stored", heading="facts", show="{:,}"),
)
IMPORTED: tuple[Column[FileReport], ...] = (
    Column("file", "the file, or its address"),
    Column("layout", "recognized layout of the file"),
    Column("rows", "rows read"),
    *_STORED,
    Column("skipped", "rows that have nothing to import"),
    Column(
        "bad",
        "rows that could not be read",
        each=(Column("where", "its place"), Column("why", "what is wrong")),
    ),
    Column(
        "unused_columns",
        "columns that were not used; of a snapshot, its signature",
        "unused",
        form=list,
    ),
    Column(
        "failure",
        "why the file was rejected, or not read to its end; null if it was read completely",
    ),
)
FETCHED: tuple[Column[TaskReport], ...] = (
    Column("cloud", "the cloud", heading="cloud"),
    Column("region", "the region", heading="region"),
    Column("what", "what was fetched", heading="what"),
    *_STORED,
    Column(
        "failure",
        "what went wrong; null if nothing did",
        form=str,
        heading="",
        cell=lambda report: (
            Text("failed", style="red") if report.failure else Text("done", style="green")
        ),
    ),
    Column("notes", "where the rows are from, if the cloud did not send them"),
)
GAPS: tuple[Column[GapReport], ...] = (
    Column(
        "seams",
        "times in which half of the markets of a region or more were not observed",
        each=(
            Column("region", "the region", lambda seam: f"{seam.cloud}/{seam.region}"),
            Column("start", "beginning", form=format_time),
            Column("end", "end", form=format_time),
            Column("silent", "number of markets not observed"),
            Column("markets", "number of markets in the region"),
        ),
    ),
    Column(
        "gaps",
        "times in which a single market was not observed",
        each=(
            Column("market", "the market", form=str),
            Column("start", "beginning", form=format_time),
            Column("end", "end", form=format_time),
        ),
    ),
    Column(
        "stale",
        "markets not observed for longer than usual",
        each=(
            Column("market", "the market", form=str),
            Column("last", "last observation", "start", form=format_time),
            Column(
                "newest_of_region",
                "last observation of any market of the region",
                "end",
                form=format_time,
            ),
        ),
    ),
)
LOST_FILES: tuple[Column[LostPrices], ...] = (
    Column("file", "file that had them"),
    Column("events", "number of price changes in it", "rows"),
    Column("first", "time of the first one", form=format_time),
    Column("last", "time of the last one", form=format_time),
)
LOST: tuple[Column[Any], ...] = (
    Column(
        "lost",
        "prices that are lost, because their files were damaged; absent if none are",
        form=if_any,
        each=LOST_FILES,
        optional=True,
    ),
)

FILES: tuple[Column[Any], ...] = (Column("files", "files in the order given", each=IMPORTED),)
TASKS: tuple[Column[Any], ...] = (Column("tasks", "parts of the fetch", each=FETCHED),)
MARKETS: tuple[Column[Any], ...] = (
    Column("markets", "markets with stored prices", form=texts),
    *FRESHNESS,
    *LOST,
)
STATISTICS: tuple[Column[Any], ...] = (
    Column("markets", "the markets that match", each=STATS),
    *LOST,
)
ABOUT_MARKET: tuple[Column[Any], ...] = (
    Column("machine", "its hardware", of=MACHINE, optional=True),
    Column(
        "interruptions",
        "published interruption figures, oldest first",
        each=INTERRUPTIONS,
        optional=True,
    ),
    Column(
        "corrections",
        "corrections of its prices, oldest first; absent if there are none",
        each=CORRECTION,
        optional=True,
    ),
)
MARKET = (*STATS, *ABOUT_MARKET)
CHECKED: tuple[Column[Any], ...] = (
    Column("store", "folder of the store"),
    Column("files", "number of files of the store"),
    Column("events", "number of price changes that can be read"),
    Column(
        "flaws",
        "what is wrong",
        each=(
            Column("file", "the file"),
            Column("problem", "what is wrong with it"),
            Column("cure", "what to do"),
        ),
    ),
    Column(
        "set_aside",
        "what was set aside now; absent without --set-aside",
        each=LOST_FILES,
        optional=True,
    ),
    *LOST,
)
PICTURE: tuple[Column[Any], ...] = (
    Column("file", "the picture", form=str),
    Column("markets", "markets in it", form=texts),
)
CORRECTIONS: tuple[Column[Any], ...] = (Column("corrections", "the corrections", each=CORRECTION),)

NEEDS: tuple[Column[SourceNeeds], ...] = (
    Column("cloud", heading="cloud"),
    Column("what", heading="provides"),
    Column("needs", heading="needs", empty="no account"),
    Column("note", heading="remark"),
)
SOURCES: tuple[Column[Any], ...] = (Column("sources", "what can be fetched", each=SourceNeeds),)
QUERY: tuple[Column[Any], ...] = (
    Column("rows", "the result", each=(Column("*", "value of this column"),)),
)
EXPORTED: tuple[Column[Any], ...] = (
    Column("file", "the file written; null without --out"),
    Column("rows", "number of price changes"),
    Column("markets", "number of markets"),
    Column(
        "history",
        "without --out: the price changes",
        each=(
            Column("timestamp", "when this price began (UTC)"),
            Column("cloud", "cloud"),
            Column("region", "region"),
            Column("zone", "zone; empty if the market has none"),
            Column("instance_type", "machine type"),
            Column("product", "operating system, as import reads it"),
            Column("spot_price", "dollars per hour"),
        ),
        optional=True,
    ),
)
EGRESS: tuple[Column[Any], ...] = (
    Column("origin", "region from which data is sent"),
    Column("target", "region to which it is sent, or internet"),
    Column("gb", "gigabytes"),
    Column("usd", "cost"),
    Column(
        "tiers",
        "price list",
        "price.tiers",
        each=(
            Column("above_gb", "gigabytes per month above which this price holds", "0"),
            Column("usd_per_gb", "price of a gigabyte", "1"),
        ),
    ),
    Column("as_of", "date of the price list", "price.as_of", form=format_time),
    Column("source", "where the price list is published", "price.source"),
    Column(
        "approximate",
        "whether a price of similar regions stands in for an unknown one",
        "price.approximate",
    ),
)
BACKUP: tuple[Column[Any], ...] = (
    Column("folder", "the copy"),
    Column("files", "number of files in it"),
    Column("events", "number of price changes in it"),
)
SNAPSHOTS: tuple[Column[Any], ...] = (
    Column(
        "files",
        "files that were written",
        each=(
            Column("file", "its path"),
            Column("cloud", "cloud of the prices"),
            Column("day", "day of the prices"),
            Column("markets", "number of markets"),
            Column("events", "number of price events"),
        ),
    ),
)


def rows(answer: QueryResult) -> list[dict[str, Any]]:
    """The rows of a query as objects."""
    return [dict(zip(answer.columns, map(_plain, row), strict=True)) for row in answer.rows]


def _plain(value: object) -> int | float | str | None:
    """A JSON value; times, decimals and other types become text."""
    if value is None or isinstance(value, int | str):
        return value
    if isinstance(value, float):
        if isfinite(value):
            return value
        return None
    return str(value)


def lost_remarks(lost: Sequence[LostPrices]) -> list[str]:
    """A line for each period whose prices are lost."""
    remarks = list[str]()
    for prices in lost:
        first, last = format_time(prices.first), format_time(prices.last)
        changes = counted(prices.rows, "price change")
        remarks.append(
            f"some prices of {first} to {last} are lost: {changes}, set aside as damaged"
        )
    return remarks
