"""Runs in a process of their own, which a terminal shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

import typer

from spotctl.cli.endings import EXIT_CODES
from spotctl.cli.handover import FoundRunner, ResumeOrder, RunnerTask, started_runner
from spotctl.cli.run_lines import NO_LINES, RunLines
from spotctl.cli.window import RunWindow
from spotctl.home.paths import Paths
from spotctl.log.store import EventLog, is_running, runner_of
from spotctl.log.waiting import left_behind
from spotctl.show.runs import lines as run_lines

if TYPE_CHECKING:
    from spotctl.cli.planned_launches import LaunchOrder
    from spotctl.cli.session import Session


def hand_over(
    session: Session,
    order: LaunchOrder | ResumeOrder,
    jobs: Sequence[str],
    *,
    debug: bool,
    lines: RunLines = NO_LINES,
) -> NoReturn:
    """Starts a runner in a process of its own, and shows its runs; exits with the code of the runner."""
    home = session.settings.home
    with EventLog(Paths(home).log) as log:
        goes_on = isinstance(order, ResumeOrder) and left_behind(Paths(home), order.job) is None
        before = () if goes_on else {row.run for row in log.beginnings()}
        with started_runner(RunnerTask(home, order, debug)) as runner:
            session.remark("the run goes on if this window is closed; Ctrl-C asks whether to stop it")
            show = lines.printer(session.settings, several=len(jobs) > 1)
            _show(session, RunWindow(session, log, jobs, runner, before, show))


def _show(session: Session, window: RunWindow) -> NoReturn:
    """Shows runs, and how they ended; exits with the code of their runner."""
    code = window.show()
    if code is None:
        raise typer.Exit
    for ending in window.endings:
        session.out.print(run_lines.summary(*ending))
    raise typer.Exit(max([code, *(EXIT_CODES[ended.outcome] for _, ended in window.endings)]))


def resume(session: Session, job: str, metrics: str, *, debug: bool) -> NoReturn:
    """Resumes a run in a process of its own, or shows it if another process attends to it."""
    paths = Paths(session.settings.home)
    if metrics or not is_running(paths.locks, job):
        # A runner that is at work publishes figures if its own command said so.
        hand_over(session, ResumeOrder(job, metrics), [job], debug=debug)
    process = runner_of(paths.locks, job)
    session.remark(f"process {process} attends to the run; this command only watches")
    with EventLog(paths.log) as log:
        _show(session, RunWindow(session, log, [job], FoundRunner(job, process, session.settings)))
