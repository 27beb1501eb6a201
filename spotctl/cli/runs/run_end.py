"""The end of runs on the terminal: the summary, and the exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from spotctl.log.outcomes import WITHDRAWN

if TYPE_CHECKING:
    from spotctl.cli.session import Session
    from spotctl.run.start.concurrent_runs import Launched
    from spotctl.run.start.observing import RunEnd

EXIT_CODES = {
    "done": 0,
    "stopped": 0,
    "failed": 1,
    "no capacity": 3,
    "not in time": 3,
    "budget reached": 4,
    "not permitted": 5,
}
"""Exit code for each outcome of a run."""


def finish_all(
    session: Session, jobs: Sequence[Launched], *, json_: bool, is_said: bool = False
) -> NoReturn:
    """Prints how each job ended, unless that `is_said` already, line by line; exits with the
    highest of their exit codes."""
    from spotctl.cli.boundary import exit_code_of
    from spotctl.cli.runs.run_lines import answer_line
    from spotctl.show.runs import lines as run_lines

    endings = [job.ending for job in jobs if job.ending is not None]
    if is_said:
        sys.stdout.writelines(
            answer_line(job.spec.name, _figures(job)) for job in jobs if job.ending is None
        )
    elif json_:
        session.answer_json([_figures(job) for job in jobs])
    else:
        for ending in endings:
            session.out.print(run_lines.summary(*ending))

    failed = [
        exit_code_of(partial(_raise, job.error), debug=False)
        for job in jobs
        if job.error is not None
    ]

    raise typer.Exit(max([0, *failed, *(EXIT_CODES[ended.outcome] for _, ended in endings)]))


def _figures(job: Launched) -> dict[str, Any]:
    """The answer for a job, with or without a run."""
    from spotctl.log.ledger.same_work import final_figures, without_run

    if job.ending is not None:
        return final_figures(*job.ending)
    return without_run(
        job.spec.name,
        *(("withdrawn", WITHDRAWN) if job.is_withdrawn else ("error", str(job.error))),
    )


def _raise(error: Exception) -> NoReturn:
    raise error


def finish_withdrawn(session: Session, job: str, *, json_: bool) -> NoReturn:
    """Prints that a job was withdrawn before it began."""
    from spotctl.log.ledger.same_work import without_run

    session.answer(json_, without_run(job, "withdrawn", WITHDRAWN), None, f"{job}: {WITHDRAWN}")
    raise typer.Exit


def finish(
    session: Session, ending: RunEnd | None, *, json_: bool, is_said: bool = False
) -> NoReturn:
    """Prints how a run ended, unless that `is_said` already, and exits with its code; None if the
    run goes on without this computer."""
    if ending is None:
        raise typer.Exit
    from spotctl.log.ledger.same_work import final_figures
    from spotctl.show.runs import lines as run_lines

    if not is_said:
        session.answer(json_, final_figures(*ending), run_lines.summary(*ending))
    raise typer.Exit(EXIT_CODES[ending[1].outcome])
