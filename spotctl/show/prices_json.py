"""Market data as JSON for `--json`. Keys may be added but never change."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

from pricing_data.units import HOUR, format_time, to_usd

if TYPE_CHECKING:
    from pricing_data.catalog import InstanceType
    from pricing_data.fetch import TaskReport
    from pricing_data.gaps import GapReport
    from pricing_data.ingest import FileReport
    from pricing_data.interruptions import Interruption
    from pricing_data.query import QueryResult
    from pricing_data.stats import MarketStats


def stats(one: MarketStats, now: int) -> dict[str, Any]:
    """Statistics of one market; prices in dollars per hour."""
    return {
        "market": str(one.market),
        "events": one.events,
        "first": format_time(one.first),
        "last": format_time(one.last),
        "price_now": to_usd(one.price_now),
        "mean": to_usd(one.mean),
        "on_demand": to_usd(one.on_demand.price) if one.on_demand else None,
        "on_demand_as_of": format_time(one.on_demand.as_of) if one.on_demand else None,
        "discount": one.discount,
        "median": to_usd(one.median),
        "lowest": to_usd(one.lowest),
        "highest": to_usd(one.highest),
        "changes_per_day": one.changes_per_day,
        "spikes_per_day": one.spikes_per_day,
        "hours_above_on_demand": one.hours_above_on_demand,
        "outliers": one.outliers,
        "coverage": one.coverage,
        "observed_hours": one.observed / HOUR,
        "age_seconds": one.age_seconds(now),
        "synthetic": one.market.is_synthetic,
    }


def machine(one: InstanceType) -> dict[str, Any]:
    """The hardware of a market; `as_of` is null if the cloud itself described it."""
    return {
        "vcpus": one.vcpus,
        "memory_gib": one.memory_gib,
        "gpu": one.accelerator,
        "gpus": one.accelerators,
        "as_of": None if one.as_of is None else format_time(one.as_of),
    }


def interruptions(figures: Sequence[Interruption]) -> list[dict[str, Any]]:
    """Published interruption figures, oldest first."""
    return [
        {
            "market": str(one.market),
            "measure": one.measure,
            "as_of": format_time(one.as_of),
            "low": one.low,
            "high": one.high,
            "source": one.source,
        }
        for one in figures
    ]


def imported(report: FileReport) -> dict[str, Any]:
    """Row counts and errors of one imported file."""
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
    """The result of one task of a fetch."""
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
    """All seams, gaps and stale markets."""
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
            {"market": str(one.market), "last": format_time(one.last), "newest_of_region": format_time(one.newest)}
            for one in report.stale
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
