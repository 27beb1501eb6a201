"""The size of a fetch before it begins, and the needs of its sources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from pricing_data.sources.base import Effort, disk_megabytes, effort, minutes
from pricing_data.units import counted
from spotctl.clouds.wiring import prices_of
from spotctl.show.layout import plain_table

if TYPE_CHECKING:
    from pricing_data.ingest import TaskReport
    from pricing_data.sources.base import FetchRequest, SourceNeeds


def announced(tasks: Sequence[TaskReport], request: FetchRequest, workers: int) -> list[str]:
    """About how many calls, rows, minutes and megabytes, a line in all. Nothing if no task can run."""
    planned = [
        (task.cloud, task.what) for task in tasks if not task.done and not (task.optional and task.region == "-")
    ]
    if not planned:
        return []
    efforts = (prices_of(cloud).EFFORTS.get(what, Effort()) for cloud, what in planned)
    total = effort(efforts, request.until - request.since, some_types=bool(request.types))
    regions = Counter(cloud for cloud, region in {(task.cloud, task.region) for task in tasks if task.region != "-"})
    places = ", ".join(f"{cloud} ({counted(count, 'region')})" for cloud, count in sorted(regions.items()))
    wait = minutes(total, workers)
    duration = f"{wait:,.0f} minutes" if wait >= 1.5 else "no more than two minutes"
    return [
        f"asks {places or ', '.join(sorted({cloud for cloud, _ in planned}))}: about {total.calls:,.0f} requests,"
        f" {total.megabytes:,.0f} MB to download, {total.rows:,.0f} rows, {disk_megabytes(total):,.1f} MB of disk,"
        f" {duration} (narrow it with --region, --type, --since)"
    ]


def needs(sources: Sequence[SourceNeeds]) -> Table:
    """A row per source."""
    table = plain_table("cloud", "provides", "needs", "remark", names=4)
    for source in sources:
        table.add_row(source.cloud, source.what, source.needs or "no account", source.note)
    return table
