"""Reads the event log and the ledger, and makes the report on the selected runs."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from pricing_data.atomic_write import WriteFailed, atomic_write
from spotctl.home.config import Settings
from spotctl.home.errors import BadRequest
from spotctl.home.process_memory import without_garbage_collection
from spotctl.show.costs.accounts import accounts
from spotctl.show.costs.cost import Report, lacking, report_on
from spotctl.show.costs.grouping import Grouping, check_tags
from spotctl.show.costs.periods import Period, months_of_tags


def gather(
    settings: Settings,
    jobs: Collection[str],
    period: Period,
    by: Sequence[Grouping],
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

        launched = job_names(settings)
        if unknown := [job for job in jobs if job not in launched]:
            names = ", ".join(sorted(launched)) or "none"
            raise BadRequest(f"no job named {unknown[0]!r} was launched; launched jobs: {names}")
    with without_garbage_collection():
        # Only these jobs are read: missing prices of another job must not prevent this report.
        parts, lost = accounts(settings, jobs, elsewhere)
        runs = sorted(parts, key=lambda part: (part.run.wall_began, part.run.run))
        check_tags(by, (part.run.tags for part in runs))
        made = report_on(runs, period, by, now, settings.monthly_budget, local=local)
        billed = [(part.run, part.rows) for part in runs if not part.run.is_replayed]
        made = replace(made, months_of_tags=months_of_tags(billed, now, settings.monthly_budgets))
        return lacking(made, lost, period)


def write(path: Path, content: Iterable[str]) -> None:
    """Writes texts to a file, which appears when it is whole."""
    try:
        with atomic_write(path) as out, out.open("w", encoding="utf-8") as file:
            file.writelines(content)
    except WriteFailed as error:
        raise BadRequest(str(error)) from error
    except OSError as error:
        raise BadRequest(f"cannot write {path}: {error.strerror}") from error
