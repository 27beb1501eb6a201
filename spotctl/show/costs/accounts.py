"""The report on some runs, from their accounts: each run with its timeline and its costs.

The log has the accounts of runs that have ended.

The account of a run that goes on, or that had a row after its end, is made from its events. If a
run has lost rows, its account is made from those that are left, and says so; it changes no other
account.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from pricing_data.atomic_write import WriteFailed, atomic_write
from spotctl.home.config import Settings
from spotctl.home.errors import BadRequest
from spotctl.home.paths import Paths
from spotctl.home.process_memory import without_garbage_collection
from spotctl.home.wall_clock import wall_us
from spotctl.log import store
from spotctl.log.ledger.account import RunPart, from_stored
from spotctl.log.outcomes import BrokenLog
from spotctl.log.schema import ChainEnd, StoredRow
from spotctl.show.costs.cost import Report, lacking, report_on
from spotctl.show.costs.periods import Grouping, Period, check_tags, months_of_tags

if TYPE_CHECKING:
    from spotctl.log.events import RowsLost


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
    """The report on what some jobs (empty: all) cost within a period; with `local`, on their
    replayed runs alone.

    `elsewhere` names the runs that a runner on another computer attends to.
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
        runs = sorted(parts, key=attrgetter("run.wall_began", "run.run"))
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


Accounts: TypeAlias = "tuple[list[RunPart], tuple[RowsLost, ...]]"
"""Runs with their costs, and the rows that repairs of the log have dropped and that may belong to
any run."""


def accounts(
    settings: Settings, jobs: Collection[str] = (), elsewhere: Collection[str] = ()
) -> Accounts:
    """The accounts of the runs of some jobs, or of all; those of active runs go up to now.
    `elsewhere` names the runs that another computer attends to."""
    paths = Paths(settings.home)
    if not store.exists(paths.log):
        return [], ()
    with store.EventLog(paths.log) as log:
        try:
            log.check(wall_us())
            return _read(log, {}, settings, jobs, elsewhere)
        except BrokenLog:
            from spotctl.log.salvage import lossy_runs

            lossy = lossy_runs(paths.log)
            if lossy is None:
                raise
            return _read(log, lossy, settings, jobs, elsewhere)


def _read(
    log: store.EventLog,
    lossy: Mapping[str, Sequence[StoredRow]],
    settings: Settings,
    jobs: Collection[str],
    elsewhere: Collection[str],
) -> Accounts:
    """The accounts of runs; of `lossy` ones, which have lost rows, these are the rows that are
    left, with marks.
    """
    with log.snapshot():
        ends = {run: end for run, end in log.ends().items() if run not in lossy}
        kept, lost = log.final("final_costs", ends), log.losses()
        read = {*kept, *lossy}
        others = {run: log.rows_of(run) for run in log.names() if run not in read}

    made = list[tuple[RunPart, bool]]()
    # The imports take longer than a whole report on accounts that the log has.
    if others or lossy:
        from spotctl.log.event_json import job_of
        from spotctl.log.ledger.final_cost import timeline_of
        from spotctl.log.ledger_reader import read_from

        left = sorted({**others, **lossy}.items())
        wanted = [rows for _, rows in left if not jobs or job_of(rows) in jobs]
        for run in read_from(wanted, settings, elsewhere):
            timeline = timeline_of(run.events, run.state, is_least=run.ledger.is_least)
            made.append((RunPart.whole(timeline, run.ledger.rows), run.ledger.is_settled))

    parts, final = from_stored(kept.values()), list[tuple[ChainEnd, tuple[str, str]]]()
    for part, is_final in made:
        parts.append(part)
        end = ends.get(part.run.run)
        if is_final and end is not None:
            final.append((end, part.stored()))

    if final:
        log.keep("final_costs", final)
    return [part for part in parts if not jobs or part.run.job in jobs], lost
