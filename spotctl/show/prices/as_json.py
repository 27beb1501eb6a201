"""Market data as JSON for `--json`. Keys may be added but never change."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

from pricing_data.units import HOUR, format_time, to_usd

if TYPE_CHECKING:
    from pricing_data.availability import Interruption
    from pricing_data.catalog import InstanceType
    from pricing_data.ingest import FileReport, TaskReport
    from pricing_data.query import QueryResult
    from pricing_data.stats import GapReport, MarketStats
    from pricing_data.store.table import PriceCorrection


def stats(summary: MarketStats, now: int) -> dict[str, Any]:
    """Statistics of one market; prices in dollars per hour."""
    return {
        "market": str(summary.market),  #: the market: cloud/region/zone/type
        "events": summary.events,  #: number of price changes stored
        "first": format_time(summary.first),  #: time of the first
        "last": format_time(summary.last),  #: last time at which the price was observed
        "price_now": to_usd(summary.price_now),  #: newest price, in dollars per hour as all prices here
        "mean": to_usd(summary.mean),  #: mean over time
        #: on-demand price; null if unknown
        "on_demand": to_usd(summary.on_demand.price) if summary.on_demand else None,
        #: date of the on-demand price
        "on_demand_as_of": format_time(summary.on_demand.as_of) if summary.on_demand else None,
        "discount": summary.discount,  #: price reduction of the mean against on demand, as a share
        "median": to_usd(summary.median),  #: median over time
        "lowest": to_usd(summary.lowest),  #: lowest price
        "highest": to_usd(summary.highest),  #: highest price
        "changes_per_day": summary.changes_per_day,  #: price changes per day
        "spikes_per_day": summary.spikes_per_day,  #: rises far above the median, per day
        #: hours for which the price was above the on-demand price
        "hours_above_on_demand": summary.hours_above_on_demand,
        "outliers": summary.outliers,  #: number of prices so high that they are probably errors
        "coverage": summary.coverage,  #: share of the time between first and last that was observed
        "observed_hours": summary.observed / HOUR,  #: hours observed
        "age_seconds": summary.age_seconds(now),  #: time since the price was last observed
        "synthetic": summary.market.is_synthetic,  #: whether the prices are generated
    }


def machine(hardware: InstanceType) -> dict[str, Any]:
    """The hardware of a market; `as_of` is null if the cloud itself described it."""
    return {
        "vcpus": hardware.vcpus,  #: number of vCPUs
        "memory_gib": hardware.memory_gib,  #: memory
        "gpu": hardware.accelerator,  #: model of the GPUs; null without
        "gpus": hardware.accelerators,  #: number of GPUs
        #: vCPUs that may be used all the time; fewer than vcpus for burstable types
        "steady_vcpus": hardware.steady_vcpus,
        "architecture": hardware.traits.architecture,  #: x86_64 or arm64; null if unknown
        "boots": hardware.traits.boots,  #: ways in which its machines boot, in the cloud's words; null if unknown
        "driver": hardware.traits.driver,  #: family of drivers that its GPUs need; null if unknown, or without GPUs
        "gpu_memory_gib": hardware.traits.accelerator_gib,  #: memory of one GPU; null if unknown, or without GPUs
        "local_disk_gb": hardware.traits.local_disk_gb,  #: local disks; null if unknown
        #: since when the cloud does not sell it; null if unknown
        "retires": None if hardware.traits.retires is None else format_time(hardware.traits.retires),
        #: date of the shipped description; null if the cloud itself described the machine
        "as_of": None if hardware.as_of is None else format_time(hardware.as_of),
    }


def interruptions(figures: Sequence[Interruption]) -> list[dict[str, Any]]:
    """Published interruption figures, oldest first."""
    return [
        {
            "market": str(figure.market),  #: the market
            "measure": figure.measure,  #: what was measured
            "as_of": format_time(figure.as_of),  #: date of the figure
            "low": figure.low,  #: lower end of the published band, as a share
            "high": figure.high,  #: upper end of the published band, as a share
            "source": figure.source,  #: who published it
        }
        for figure in figures
    ]


def correction(made: PriceCorrection) -> dict[str, Any]:
    """A correction of a stored price."""
    return {
        "market": str(made.market),  #: the market
        "time": format_time(made.time),  #: time of the price change
        #: the right price; null if the price change was withdrawn
        "usd_per_hour": None if made.price is None else to_usd(made.price),
        "reason": made.reason,  #: why
        "made": format_time(made.made),  #: when it was corrected
    }


def imported(report: FileReport) -> dict[str, Any]:
    """Row counts and errors of one imported file.

    Fields:
        bad: rows that could not be read
        bad[].where: its place
        bad[].why: what is wrong
    """
    return {
        "file": str(report.path),  #: the file
        "layout": report.layout,  #: recognized layout of the file
        "rows": report.rows,  #: rows read
        "added": report.committed.added,  #: price events that are new
        "known": report.committed.known,  #: price events that were stored already
        "conflicts": report.committed.conflicts,  #: price events that contradict stored ones
        "facts": report.facts,  #: on-demand prices and other facts stored
        "skipped": report.skipped,  #: rows that have nothing to import
        "bad": [{"where": row.where, "why": row.why} for row in report.bad],
        "unused_columns": list(report.unused),  #: columns that were not used
        "failure": report.failure,  #: why the file was rejected, or not read to its end; null if it was read completely
    }


def fetched(report: TaskReport) -> dict[str, Any]:
    """The result of one task of a fetch."""
    return {
        "cloud": report.cloud,  #: the cloud
        "region": report.region,  #: the region
        "what": report.what,  #: what was fetched
        "added": report.committed.added,  #: price events that are new
        "known": report.committed.known,  #: price events that were stored already
        "conflicts": report.committed.conflicts,  #: price events that contradict stored ones
        "facts": report.facts,  #: on-demand prices and other facts stored
        "failure": str(report.failure) if report.failure else None,  #: what went wrong; null if nothing did
    }


def gaps(report: GapReport) -> dict[str, Any]:
    """All seams, gaps and stale markets.

    Fields:
        gaps[].market: the market
        gaps[].start: beginning
        gaps[].end: end
    """
    return {
        "seams": [  #: times in which half of the markets of a region or more were not observed
            {
                "region": f"{seam.cloud}/{seam.region}",  #: the region
                "start": format_time(seam.start),  #: beginning
                "end": format_time(seam.end),  #: end
                "silent": seam.silent,  #: number of markets not observed
                "markets": seam.markets,  #: number of markets in the region
            }
            for seam in report.seams
        ],
        "gaps": [  #: times in which a single market was not observed
            {"market": str(gap.market), "start": format_time(gap.start), "end": format_time(gap.end)}
            for gap in report.gaps
        ],
        "stale": [  #: markets not observed for longer than usual
            {
                "market": str(stale.market),  #: the market
                "last": format_time(stale.last),  #: last observation
                "newest_of_region": format_time(stale.newest),  #: last observation of any market of the region
            }
            for stale in report.stale
        ],
    }


def rows(answer: QueryResult) -> list[dict[str, Any]]:
    """The rows of a query as objects."""
    return [dict(zip(answer.columns, map(_plain, row), strict=True)) for row in answer.rows]


def _plain(value: object) -> int | float | str | None:
    """A JSON value; times, decimals and other types become text."""
    if value is None or isinstance(value, int | str):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else None
    return str(value)
