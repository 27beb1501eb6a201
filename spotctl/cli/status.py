"""`spotctl status` and `spotctl ui`: what runs, and what it has cost, on the terminal and in a
browser, where pages also begin commands."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated, NoReturn, TypeVar

import typer

from pricing_data.units import format_time
from spotctl.cli.options import OptionalJobArgument
from spotctl.cli.session import JsonOption, Session
from spotctl.home.errors import BadRequest
from spotctl.home.paths import Paths
from spotctl.home.wall_clock import wall_us

if TYPE_CHECKING:
    from spotctl.show.costs.cost import Report
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
    from spotctl.log.jobs import is_running, waiting_jobs
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
                run_status.waiting_text(known, paths, attended=is_running(paths.locks, known.name))
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


_AGE_SECONDS = 15.0
"""Answers that take processes, a network, or many rows of the log are kept for this long."""

_Answer = TypeVar("_Answer")


def ui(
    context: typer.Context,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of 127.0.0.1; 0 chooses a free one.")
    ] = 0,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in your browser.")] = False,
    json_: JsonOption = False,
) -> None:
    """Show all runs and nights in a browser: money, machines, forecasts, alarms, loss and output;
    stop and resume runs.

    Prints the address of a page on this computer that renews itself; Ctrl-C ends it. The address
    has a token, without which users of this computer can neither read the page nor act. To stop or
    resume a run, type the command that the page names: it then does what that command does. From
    another computer: ssh -L PORT:127.0.0.1:PORT

    Example: spotctl ui --port 8600
    """
    from secrets import token_urlsafe

    from spotctl.cli import nightly
    from spotctl.cli.report import gather_report
    from spotctl.cli.runs import remote_runner
    from spotctl.show.ui.server import BegunCommands, HomePages, PageServer, opened

    session: Session = context.obj

    def costs(job: str, since: str) -> Report:
        return gather_report(session, [job] if job else (), since, "", "job")

    attended = _kept(partial(remote_runner.refresh, session))
    nights = _kept(partial(nightly.known_jobs, session))
    today = _kept(lambda: costs("", format_time(wall_us())[: len("2026-01-15")]))
    begun = BegunCommands(session.settings.home)

    with (
        closing(HomePages(session.settings, attended, nights, costs, today, begun)) as pages,
        PageServer(port, token_urlsafe(16), pages.answer, pages.begin) as server,
    ):
        pages.prepare()
        if json_:
            session.answer_json({"address": server.address})
        else:
            session.say(server.address)
        sys.stdout.flush()  # a program that reads it from a pipe would wait for the end
        with (
            opened(server, session.remark) if open_ else nullcontext(),
            suppress(KeyboardInterrupt),
        ):
            server.serve_forever()


def _kept(find: Callable[[], _Answer]) -> Callable[[], _Answer]:
    """An answer that is kept for a while, and found again once it is too old."""
    known: list[tuple[float, _Answer]] = []

    def answer() -> _Answer:
        if not known or time.monotonic() > known[0][0] + _AGE_SECONDS:
            known[:] = [(time.monotonic(), find())]
        return known[0][1]

    return answer
