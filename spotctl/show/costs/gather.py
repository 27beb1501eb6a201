"""Reads the event log and the ledger, and makes the report on the selected runs."""

from collections.abc import Collection, Sequence
from pathlib import Path

from pricing_data.atomic_write import WriteFailed, atomic_write
from spotctl.home.config import Settings
from spotctl.home.errors import BadRequest
from spotctl.home.garbage import without_garbage_collection
from spotctl.show.costs.accounts import accounts
from spotctl.show.costs.cost import Report, lacking, report
from spotctl.show.costs.grouping import By
from spotctl.show.costs.period import Period
from spotctl.show.costs.run_timeline import in_order


def gather(
    settings: Settings,
    jobs: Collection[str],
    period: Period,
    by: Sequence[By],
    now: int,
    *,
    local: bool = False,
    elsewhere: Collection[str] = (),
) -> Report:
    """The report on what some jobs (empty: all) cost within a period; with `local`, on their replayed runs alone.

    To the runs `elsewhere`, a runner on another computer attends.
    """
    if jobs:
        from spotctl.log.statuses import job_names

        _check_known(jobs, job_names(settings))
    with without_garbage_collection():
        known = accounts(settings, jobs, elsewhere)
        rows = [row for run in known.runs for row in run.rows]
        timelines = in_order(run.timeline for run in known.runs)
        made = report(rows, timelines, period, by, now, settings.monthly_budget, local=local)
        return lacking(made, known.lost, period)


def _check_known(jobs: Collection[str], known: Collection[str]) -> None:
    for job in jobs:
        if job not in known:
            launched = ", ".join(sorted(known)) or "none"
            raise BadRequest(f"no job named {job!r} was launched; launched jobs: {launched}")


def write(path: Path, content: str) -> None:
    """Writes a file atomically."""
    try:
        with atomic_write(path) as out:
            out.write_text(content, encoding="utf-8")
    except WriteFailed as error:
        raise BadRequest(str(error)) from error
    except OSError as error:
        raise BadRequest(f"cannot write {path}: {error.strerror}") from error
