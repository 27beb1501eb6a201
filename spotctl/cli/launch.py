"""`spotctl launch`, `resume`, `stop`, `down`, `gc`, `status` and `logs`: runs of jobs."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spotctl.cli.options import JobArgument
from spotctl.cli.session import JsonOption, Session

if TYPE_CHECKING:
    from spotctl.jobspec.job import JobSpec
    from spotctl.launch.launching import Watching
    from spotctl.orchestrator.events import RunEnded
    from spotctl.orchestrator.state import RunState

EXIT_CODES = {
    "done": 0,
    "stopped": 0,
    "failed": 1,
    "no capacity": 3,
    "not in time": 3,
    "budget reached": 4,
    "not permitted": 5,
}
"""By how a run ended."""


def launch(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="The job file.", show_default=False)],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Rent without asking.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be rented, and rent nothing.")] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Begin anew where an earlier run was stopped and left a checkpoint.")
    ] = False,
    max_cost: Annotated[str, typer.Option(help="End before it costs more US dollars than this: 5 or 0.50.")] = "",
    json_: JsonOption = False,
) -> None:
    """Rent what a job needs, run it through evictions, give everything back, and say what it cost.

    Exit codes: 0 done, 1 the job failed, 3 no capacity in time, 4 budget reached, 5 credentials or permission, 6 the
    job runs already. Ctrl-C ends the run and gives everything back; a process that is killed is followed by
    `spotctl resume JOB`.

    Example: spotctl launch job.yaml --yes --max-cost 5
    """
    from spotctl.jobspec.file import load
    from spotctl.launch import launching, plan_views
    from spotctl.wiring import library

    session: Session = context.obj
    spec = load(file)
    launching.check_launchable(spec)
    limit = launching.parse_max_cost(max_cost)
    moment = launching.market_moment(spec, session.settings)
    found = launching.planned(spec, library(session.settings), moment)
    if dry_run and json_:
        session.answer_json(plan_views.answer(found))
        return
    if not json_:
        session.out.print(plan_views.shown(found, session.out.width, explain=False))
    if dry_run or not (yes or _agreed(session)):
        return
    with _watching(session, spec.name) as watching:
        state, ended = launching.launch(spec, session.settings, watching, limit, fresh=fresh)
    _finish(session, state, ended, json_=json_)


def resume(context: typer.Context, job: JobArgument, json_: JsonOption = False) -> None:
    """Go on with a run whose process was killed: nothing is bought twice, and nothing is forgotten.

    Example: spotctl resume nightly-recsys
    """
    from spotctl.launch import launching

    session: Session = context.obj
    with _watching(session, job) as watching:
        state, ended = launching.go_on(job, session.settings, watching)
    _finish(session, state, ended, json_=json_)


def stop(context: typer.Context, job: JobArgument, json_: JsonOption = False) -> None:
    """End a run and give everything back, whether a process still works on it or not.

    Example: spotctl stop nightly-recsys
    """
    _end(context.obj, job, json_=json_)


def down(
    context: typer.Context,
    job: Annotated[str, typer.Argument(help="Name of the job; none with --all.", show_default=False)] = "",
    all_: Annotated[bool, typer.Option("--all", help="All jobs.")] = False,
    json_: JsonOption = False,
) -> None:
    """Give back whatever a job holds, or all jobs do.

    Example: spotctl down --all
    """
    from spotctl.errors import BadRequest
    from spotctl.launch import launching

    session: Session = context.obj
    if bool(job) == all_:
        raise BadRequest("spotctl down: name one job, or give --all")
    for name in launching.unfinished(session.settings) if all_ else [job]:
        _end(session, name, json_=json_)


def gc(
    context: typer.Context,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Remove without asking.")] = False,
    json_: JsonOption = False,
) -> None:
    """Find what no run owns, by its tags, and remove it.

    Example: spotctl gc --yes
    """
    from spotctl.launch import launching

    session: Session = context.obj
    provider, found = launching.unowned(session.settings)
    if json_:
        session.answer_json({"removed": yes, "resources": [{"kind": one.kind, "id": one.id} for one in found]})
    else:
        session.remark(*(f"{one.kind} {one.id} {one.detail}" for one in found))
        session.remark(f"{len(found)} that no run owns")
    if found and (yes or (not json_ and sys.stdin.isatty() and typer.confirm("Remove them?"))):
        provider.remove(found)


def status(context: typer.Context, json_: JsonOption = False) -> None:
    """Show the latest run of each job: its machines, how far it is, and what it has cost.

    Example: spotctl status --json
    """
    from spotctl.launch import launching, views

    session: Session = context.obj
    standings = launching.standings(session.settings)
    if json_:
        session.answer_json(views.status_answer(standings))
    elif standings:
        session.out.print(views.status_table(standings))
    else:
        session.remark("no job was launched yet (spotctl launch FILE)")


def logs(
    context: typer.Context,
    job: JobArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run is over.")] = False,
) -> None:
    """Show what the machines of a job's latest run print.

    Example: spotctl logs nightly-recsys -f
    """
    from spotctl.launch import launching

    session: Session = context.obj
    for line in launching.output(job, session.settings, follow=follow):
        sys.stdout.write(line)
        sys.stdout.flush()


def _agreed(session: Session) -> bool:
    from spotctl.errors import BadRequest

    if not sys.stdin.isatty():
        raise BadRequest("nobody is here to agree to what it costs; give --yes, or --dry-run to look only")
    session.out.print("")
    return typer.confirm("Rent these machines?")


def _end(session: Session, job: str, *, json_: bool) -> None:
    from spotctl.launch import launching

    with _watching(session, job) as watching:
        state, ended = launching.end(job, session.settings, watching)
    if json_ or ended.outcome != "stopped":
        _finish(session, state, ended, json_=json_)
        return
    session.remark(f"{state.run}: {ended.outcome}; everything was given back")


def _finish(session: Session, state: RunState, ended: RunEnded, *, json_: bool) -> None:
    from spotctl.launch import views

    if json_:
        session.answer_json(views.ending(state, ended))
    else:
        session.out.print(views.summary(state, ended))
    raise typer.Exit(EXIT_CODES[ended.outcome])


@contextmanager
def _watching(session: Session, job: str) -> Iterator[Watching]:
    """A live view where stderr is a terminal; Ctrl-C asks the run to end, a second one ends this process."""
    from rich.live import Live

    from spotctl.launch import launching, views
    from spotctl.orchestrator.state import RunState

    began, asked, seen = time.monotonic(), list[int](), list[RunState]()
    before = {number: signal.signal(number, lambda *_: _ask(asked)) for number in (signal.SIGINT, signal.SIGTERM)}
    with Live(console=session.err, transient=True, refresh_per_second=4) as shown:

        def turned(state: RunState) -> None:
            if asked and state.stopping is None:
                launching.request_stop(job, session.settings)
            seconds = time.monotonic() - began
            if session.err.is_terminal:
                for line in views.happened(seen.pop() if seen else RunState(), state):
                    shown.console.print(f"{seconds:5.0f} s   {line}")
                seen.append(state)
                shown.update(views.live(state, seconds))

        try:
            yield launching.Watching(turned=turned, ended=partial(_tell, session))
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _tell(session: Session, spec: JobSpec, state: RunState, ended: RunEnded) -> None:
    from spotctl.notify.runs import tell_of_end

    delivery = tell_of_end(spec, state, ended)
    if delivery is not None and delivery.failure:
        session.remark(delivery.words)


def _ask(asked: list[int]) -> None:
    asked.append(1)
    if len(asked) > 1:
        raise KeyboardInterrupt
