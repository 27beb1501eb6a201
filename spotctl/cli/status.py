"""`spotctl status`: what runs, and what it has cost."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing, suppress
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from spotctl.cli.options import OptionalJobArgument
from spotctl.cli.session import JsonOption, Session
from spotctl.home.errors import BadRequest
from spotctl.home.paths import Paths

if TYPE_CHECKING:
    from spotctl.show.runs.reading import LatestRuns


_REFRESH_SECONDS = 0.5


def status(
    context: typer.Context,
    job: OptionalJobArgument = "",
    watch: Annotated[
        bool,
        typer.Option(
            "--watch", help="Show it live: machines over time, prices, spend, loss, events."
        ),
    ] = False,
    json_: JsonOption = False,
) -> None:
    """Show the latest run of each job, or of one job: machines, progress and cost.

    With --watch, shows JOB, all active runs, or the latest run. Ctrl-C ends it and does not affect
    the run; without a terminal, it prints once. Where machines have nvidia-smi, each market shows
    average GPU load and memory use; a change appears within two minutes, a change of less than 10
    points may not.

    Example: spotctl status --json

    Example: spotctl status nightly-recsys --watch
    """
    if watch and not json_:
        _watch(context.obj, job)
        return

    from spotctl.cli.runs import remote_runner
    from spotctl.log.jobs import waiting_jobs
    from spotctl.show.runs import status as run_status
    from spotctl.show.runs.reading import latest_views

    session: Session = context.obj
    paths = Paths(session.settings.home)
    read = latest_views(session.settings, remote_runner.refresh(session, job))
    waits = [known for known in waiting_jobs(paths) if job in ("", known.name)]
    if read.damage:
        _damaged_status(session, read, json_=json_)
    shown = [view for view in read.runs if job in ("", view.job)]
    if job and not (shown or waits):
        raise BadRequest(f"no job named {job!r} was launched (spotctl status lists the jobs)")

    if json_:
        session.answer_json(
            run_status.status_answer(
                shown, read.lost, [run_status.waiting_json(known, paths) for known in waits]
            )
        )
    elif shown or waits:
        if shown:
            session.out.print(run_status.status_table(shown, session.out.width))
        session.say(
            *(
                run_status.waiting_text(known, paths, attended=known.is_attended(paths))
                for known in waits
            )
        )
        going = [run_status.ways_on(view) for view in shown if view.ended is None]
        going += filter(None, map(run_status.booting_text, shown))
        session.remark(*run_status.dropped(read.lost), *going)
    else:
        from spotctl.log.salvage import no_runs

        session.remark(no_runs(paths))


def _watch(session: Session, job: str) -> None:
    """Shows runs until Ctrl-C, or once if stdout is not a terminal."""
    from rich.live import Live

    from spotctl.cli.runs import remote_runner
    from spotctl.log.salvage import no_runs
    from spotctl.log.statuses import job_names, unfinished_runs
    from spotctl.show.runs.picture import LivePicture, whole
    from spotctl.show.runs.reading import Watcher
    from spotctl.show.runs.status import ways_on

    if job:
        remote_runner.pass_on(
            session, job, "status", job, "--watch", terminal=session.out.is_terminal
        )

    with ExitStack() as stack:
        attended = remote_runner.refresh(session, job)
        names = [job]
        if not job:
            # Active jobs, or the last one launched.
            launched = job_names(session.settings)
            if not launched:
                raise BadRequest(no_runs(Paths(session.settings.home)))
            names = list(unfinished_runs(session.settings)) or launched[-1:]
        watchers = [
            stack.enter_context(closing(Watcher(name, session.settings, attended)))
            for name in names
        ]
        looks = [watcher.look() for watcher in watchers]
        session.remark(*(ways_on(run.view) for run in looks if run.view.unreadable))
        if not session.out.is_terminal:
            session.out.print(*(whole(run, session.out.width) for run in looks), sep="\n\n")
            return
        live = Live(LivePicture(looks), console=session.out, screen=True, auto_refresh=False)
        with suppress(KeyboardInterrupt), live:
            while True:
                time.sleep(_REFRESH_SECONDS)
                live.update(LivePicture([watcher.look() for watcher in watchers]), refresh=True)


def _damaged_status(session: Session, read: LatestRuns, *, json_: bool) -> NoReturn:
    """Shows what can be read of a damaged log, and the machines that the providers list."""
    from spotctl.log.jobs import waiting_jobs
    from spotctl.run.orphans import shown_machines
    from spotctl.show.columns import as_json
    from spotctl.show.runs.status import DAMAGED, status_answer, status_table, waiting_json, ways_on

    machines, failures = shown_machines(session.settings, session.remark)
    paths = Paths(session.settings.home)
    waits = [waiting_json(job, paths) for job in waiting_jobs(paths)]
    if json_:
        damage = {"log_damage": list(read.damage), "shown": machines, "failures": failures}
        session.answer_json(
            {**status_answer(read.runs, read.lost, waits), **as_json(DAMAGED, damage)}
        )
        raise typer.Exit(1)

    session.remark(*read.damage)
    if read.runs:
        session.out.print(status_table(read.runs, session.out.width))
    session.remark(*(ways_on(view) for view in read.runs if view.unreadable))
    session.out.print(f"machines that the providers show: {len(machines)}")

    for machine in machines:
        session.out.print(
            f"  {machine.id} of run {machine.run}, {machine.market}", soft_wrap=True, markup=False
        )

    session.remark(*failures)
    raise typer.Exit(1)
