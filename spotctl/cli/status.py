"""`spotctl status`: what runs, and what it has cost."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from spotctl.cli.options import OptionalJobArgument
from spotctl.cli.session import JsonOption, Session
from spotctl.home.errors import BadRequest
from spotctl.home.paths import Paths

if TYPE_CHECKING:
    from spotctl.show.runs.latest import Standings


def status(
    context: typer.Context,
    job: OptionalJobArgument = "",
    watch: Annotated[
        bool, typer.Option("--watch", help="Show it live: machines over time, prices, spend, loss, events.")
    ] = False,
    json_: JsonOption = False,
) -> None:
    """Show the latest run of each job, or of one job: machines, progress and cost.

    Quitting --watch does not affect the run; it needs the extra `tui`. Where machines have nvidia-smi, each market
    shows average GPU load and memory use.

    Example: spotctl status --json

    \f

    Fields:
        -> spotctl.show.runs.standing:status_answer
        -> _damaged_status
    """
    if watch and not json_:
        from spotctl.cli.top import top

        top(context, job, once=False, json_=False)
        return
    from spotctl.cli import elsewhere
    from spotctl.log.waiting import waiting_jobs
    from spotctl.show.runs import standing
    from spotctl.show.runs.latest import standings

    session: Session = context.obj
    paths = Paths(session.settings.home)
    read = standings(session.settings, elsewhere.refresh(session, job))
    waits = [known for known in waiting_jobs(paths) if job in ("", known.name)]
    if read.damage:
        _damaged_status(session, read, json_=json_)
    shown = [known for known in read.runs if job in ("", known.answer["name"])]
    if job and not (shown or waits):
        raise BadRequest(f"no job named {job!r} was launched (spotctl status lists the jobs)")
    if json_:
        session.answer_json(
            standing.status_answer(shown, read.lost, [standing.waiting_json(known, paths) for known in waits])
        )
    elif shown or waits:
        if shown:
            session.out.print(standing.status_table(shown, session.out.width))
        session.say(*(standing.waiting_text(known, paths, attended=known.is_attended(paths)) for known in waits))
        session.remark(*standing.dropped(read.lost), *(known.ways_on for known in shown if known.ways_on))
    else:
        from spotctl.log.salvage import no_runs

        session.remark(no_runs(paths))


def _damaged_status(session: Session, read: Standings, *, json_: bool) -> NoReturn:
    """Shows what can be read of a damaged log, and the machines that the providers list."""
    from spotctl.log.waiting import waiting_jobs
    from spotctl.run.emergency import shown_machines
    from spotctl.show.runs.standing import status_answer, status_table, waiting_json

    machines, failures = shown_machines(session.settings)
    paths = Paths(session.settings.home)
    waits = [waiting_json(job, paths) for job in waiting_jobs(paths)]
    if json_:
        shown = {
            "log_damage": list(read.damage),  #: what cannot be read of the event log
            #: machines that the clouds show, each -> spotctl.run.emergency:ShownMachine
            "shown": [asdict(machine) for machine in machines],
            "failures": failures,  #: clouds that could not be searched
        }
        session.answer_json({**status_answer(read.runs, read.lost, waits), **shown})
        raise typer.Exit(1)
    session.remark(*read.damage)
    if read.runs:
        session.out.print(status_table(read.runs, session.out.width))
    session.out.print(f"machines that the providers show: {len(machines)}")
    for machine in machines:
        session.out.print(f"  {machine.id} of run {machine.run}, {machine.market}", soft_wrap=True, markup=False)
    session.remark(*failures)
    raise typer.Exit(1)
