"""Market data as JSON for `--json`. Keys may be added but never change."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

from pricing_data.units import HOUR, format_time, to_usd

if TYPE_CHECKING:
    from pricing_data.catalog import InstanceType
    from pricing_data.corrections import PriceCorrection
    from pricing_data.fetch import TaskReport
    from pricing_data.gaps import GapReport
    from pricing_data.ingest import FileReport
    from pricing_data.interruptions import Interruption
    from pricing_data.query import QueryResult
    from pricing_data.stats import MarketStats


def stats(summary: MarketStats, now: int) -> dict[str, Any]:
    """Statistics of one market; prices in dollars per hour.

    Fields:
        market: the market: cloud/region/zone/type
        events: number of price changes stored
        first: time of the first
        last: last time at which the price was observed
        price_now: newest price, in dollars per hour as all prices here
        mean: mean over time
        on_demand: on-demand price; null if unknown
        on_demand_as_of: date of the on-demand price
        discount: price reduction of the mean against on demand, as a share
        median: median over time
        lowest: lowest price
        highest: highest price
        changes_per_day: price changes per day
        spikes_per_day: rises far above the median, per day
        hours_above_on_demand: hours for which the price was above the on-demand price
        outliers: number of prices so high that they are probably errors
        coverage: share of the time between first and last that was observed
        observed_hours: hours observed
        age_seconds: time since the price was last observed
        synthetic: whether the prices are generated
    """
    return {
        "market": str(summary.market),
        "events": summary.events,
        "first": format_time(summary.first),
        "last": format_time(summary.last),
        "price_now": to_usd(summary.price_now),
        "mean": to_usd(summary.mean),
        "on_demand": to_usd(summary.on_demand.price) if summary.on_demand else None,
        "on_demand_as_of": format_time(summary.on_demand.as_of) if summary.on_demand else None,
        "discount": summary.discount,
        "median": to_usd(summary.median),
        "lowest": to_usd(summary.lowest),
        "highest": to_usd(summary.highest),
        "changes_per_day": summary.changes_per_day,
        "spikes_per_day": summary.spikes_per_day,
        "hours_above_on_demand": summary.hours_above_on_demand,
        "outliers": summary.outliers,
        "coverage": summary.coverage,
        "observed_hours": summary.observed / HOUR,
        "age_seconds": summary.age_seconds(now),
        "synthetic": summary.market.is_synthetic,
    }


def machine(hardware: InstanceType) -> dict[str, Any]:
    """The hardware of a market; `as_of` is null if the cloud itself described it.

    Fields:
        vcpus: number of vCPUs
        memory_gib: memory
        gpu: model of the GPUs; null without
        gpus: number of GPUs
        steady_vcpus: vCPUs that may be used all the time; fewer than vcpus for burstable types
        architecture: x86_64 or arm64; null if unknown
        boots: ways in which its machines boot, in the cloud's words; null if unknown
        driver: family of drivers that its GPUs need; null if unknown, or without GPUs
        gpu_memory_gib: memory of one GPU; null if unknown, or without GPUs
        local_disk_gb: local disks; null if unknown
        retires: since when the cloud does not sell it; null if unknown
        as_of: date of the shipped description; null if the cloud itself described the machine
    """
    return {
        "vcpus": hardware.vcpus,
        "memory_gib": hardware.memory_gib,
        "gpu": hardware.accelerator,
        "gpus": hardware.accelerators,
        "steady_vcpus": hardware.steady_vcpus,
        "architecture": hardware.traits.architecture,
        "boots": hardware.traits.boots,
        "driver": hardware.traits.driver,
        "gpu_memory_gib": hardware.traits.accelerator_gib,
        "local_disk_gb": hardware.traits.local_disk_gb,
        "retires": None if hardware.traits.retires is None else format_time(hardware.traits.retires),
        "as_of": None if hardware.as_of is None else format_time(hardware.as_of),
    }


def interruptions(figures: Sequence[Interruption]) -> list[dict[str, Any]]:
    """Published interruption figures, oldest first.

    Fields:
        market: the market
        measure: what was measured
        as_of: date of the figure
        low: lower end of the published band, as a share
        high: upper end of the published band, as a share
        source: who published it
    """
    return [
        {
            "market": str(figure.market),
            "measure": figure.measure,
            "as_of": format_time(figure.as_of),
            "low": figure.low,
            "high": figure.high,
            "source": figure.source,
        }
        for figure in figures
    ]


def correction(made: PriceCorrection) -> dict[str, Any]:
    """A correction of a stored price.

    Fields:
        market: the market
        time: time of the price change
        usd_per_hour: the right price; null if the price change was withdrawn
        reason: why
        made: when it was corrected
    """
    return {
        "market": str(made.market),
        "time": format_time(made.time),
        "usd_per_hour": None if made.price is None else to_usd(made.price),
        "reason": made.reason,
        "made": format_time(made.made),
    }


def imported(report: FileReport) -> dict[str, Any]:
    """Row counts and errors of one imported file.

    Fields:
        file: the file
        layout: recognized layout of the file
        rows: rows read
        added: price events that are new
        known: price events that were stored already
        conflicts: price events that contradict stored ones
        facts: on-demand prices and other facts stored
        skipped: rows that have nothing to import
        bad: rows that could not be read
        bad[].where: its place
        bad[].why: what is wrong
        unused_columns: columns that were not used
        failure: why the file was rejected, or not read to its end; null if it was read completely
    """
    return {
        "file": str(report.path),
        "layout": report.layout,
        "rows": report.rows,
        "added": report.committed.added,
        "known": report.committed.known,
        "conflicts": report.committed.conflicts,
        "facts": report.facts,
        "skipped": report.skipped,
        "bad": [{"where": row.where, "why": row.why} for row in report.bad],
        "unused_columns": list(report.unused),
        "failure": report.failure,
    }


def fetched(report: TaskReport) -> dict[str, Any]:
    """The result of one task of a fetch.

    Fields:
        cloud: the cloud
        region: the region
        what: what was fetched
        added: price events that are new
        known: price events that were stored already
        conflicts: price events that contradict stored ones
        facts: on-demand prices and other facts stored
        failure: what went wrong; null if nothing did
    """
    return {
        "cloud": report.cloud,
        "region": report.region,
        "what": report.what,
        "added": report.committed.added,
        "known": report.committed.known,
        "conflicts": report.committed.conflicts,
        "facts": report.facts,
        "failure": str(report.failure) if report.failure else None,
    }


def gaps(report: GapReport) -> dict[str, Any]:
    """All seams, gaps and stale markets.

    Fields:
        seams: times in which half of the markets of a region or more were not observed
        seams[].region: the region
        seams[].start: beginning
        seams[].end: end
        seams[].silent: number of markets not observed
        seams[].markets: number of markets in the region
        gaps: times in which a single market was not observed
        gaps[].market: the market
        gaps[].start: beginning
        gaps[].end: end
        stale: markets not observed for longer than usual
        stale[].market: the market
        stale[].last: last observation
        stale[].newest_of_region: last observation of any market of the region
    """
    return {
        "seams": [
            {
                "region": f"{seam.cloud}/{seam.region}",
                "start": format_time(seam.start),
                "end": format_time(seam.end),
                "silent": seam.silent,
                "markets": seam.markets,
            }
            for seam in report.seams
        ],
        "gaps": [
            {"market": str(gap.market), "start": format_time(gap.start), "end": format_time(gap.end)}
            for gap in report.gaps
        ],
        "stale": [
            {
                "market": str(stale.market),
                "last": format_time(stale.last),
                "newest_of_region": format_time(stale.newest),
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
