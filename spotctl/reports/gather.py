"""Reads the event log and the ledger, and makes the report on the selected runs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from pricing_data.atomic_write import WriteFailed, atomic_write
from spotctl.errors import BadRequest
from spotctl.ledger.read import read
from spotctl.reports.cost import By, Report, report
from spotctl.reports.run_timeline import RunTimeline, timelines_of
from spotctl.runlog.statuses import job_names

if TYPE_CHECKING:
    from pathlib import Path

    from spotctl.config import Settings


def gather(settings: Settings, jobs: Collection[str], since: int | None, by: Sequence[By], now: int) -> Report:
    """The report on the runs of some jobs (empty: all) that began at `since` or later, by this computer's clock."""
    _check_known(jobs, job_names(settings))
    # Only these jobs are read: missing prices of another job must not prevent this report.
    runs = read(settings, jobs)
    timelines = timelines_of(one.events for one in runs)
    rows = [row for one in runs for row in one.ledger.rows]
    return report(rows, timelines, {one.run for one in _selected(timelines, since)}, by, now)


def _check_known(jobs: Collection[str], known: Collection[str]) -> None:
    for job in jobs:
        if job not in known:
            launched = ", ".join(sorted(known)) or "none"
            raise BadRequest(f"no job named {job!r} was launched; launched jobs: {launched}")


def _selected(timelines: Sequence[RunTimeline], since: int | None) -> list[RunTimeline]:
    return [one for one in timelines if since is None or one.wall_began >= since]


def write(path: Path, content: str) -> None:
    """Writes a file atomically."""
    try:
        with atomic_write(path) as out:
            out.write_text(content, encoding="utf-8")
    except WriteFailed as error:
        raise BadRequest(str(error)) from error
    except OSError as error:
        raise BadRequest(f"cannot write {path}: {error.strerror}") from error
