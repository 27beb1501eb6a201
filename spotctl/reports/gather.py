"""From the home to a report: the event log and the ledger are read, and the runs that are asked for are chosen."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from pricing_data.atomic_write import CannotWrite, atomic_write
from spotctl.errors import BadRequest
from spotctl.ledger.read import RunRead, read
from spotctl.ledger.rows import Row
from spotctl.reports.cost import By, Report, report
from spotctl.reports.run_timeline import RunTimeline, stories_of
from spotctl.reports.words import day
from spotctl.runlog.statuses import job_names

if TYPE_CHECKING:
    from pathlib import Path

    from spotctl.config import Settings


def gathered(settings: Settings, jobs: Collection[str], since: int | None, by: Sequence[By], now: int) -> Report:
    """The report on the runs of some jobs, or of all, that began since a moment of this computer's clock."""
    _check_known(jobs, job_names(settings))
    # Only these are read: a run of another job whose prices are not at hand stands in nobody's way.
    found = read(settings, jobs)
    stories = stories_of(one.events for one in found)
    chosen = _chosen(stories, since)
    return report(_rows(found), stories, {story.run for story in chosen}, by, now)


def _rows(found: Sequence[RunRead]) -> list[Row]:
    return [row for one in found for row in one.ledger.rows]


def _check_known(jobs: Collection[str], known: Collection[str]) -> None:
    if not known:
        raise BadRequest("the event log holds no run: nothing was launched yet (spotctl launch FILE)")
    for job in jobs:
        if job not in known:
            raise BadRequest(f"no job named {job!r} was launched; there are {', '.join(sorted(known))}")


def _chosen(stories: Sequence[RunTimeline], since: int | None) -> list[RunTimeline]:
    chosen = [story for story in stories if since is None or story.wall_began >= since]
    if not chosen:
        latest = max(story.wall_began for story in stories)
        raise BadRequest(f"no run began since then: the latest began on {day(latest)} (give a longer --since)")
    return chosen


def write(path: Path, content: str) -> None:
    """A file as a whole or not at all."""
    try:
        with atomic_write(path) as out:
            out.write_text(content, encoding="utf-8")
    except CannotWrite as error:
        raise BadRequest(str(error)) from error
    except OSError as error:
        raise BadRequest(f"cannot write {path}: {error.strerror}") from error
