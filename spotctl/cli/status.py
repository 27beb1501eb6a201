"""`spotctl status`: what runs, and what it has cost."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, NoReturn

import typer

from spotctl.cli.options import OptionalJobArgument
from spotctl.cli.session import JsonOption, Session
from spotctl.home.errors import BadRequest

if TYPE_CHECKING:
    from spotctl.show.runs.latest import Standings


def status(context: typer.Context, job: OptionalJobArgument = "", json_: JsonOption = False) -> None:
    """Show the latest run of each job, or of one job: machines, progress and cost.

    Example: spotctl status --json

    \f

    Fields:
        -> spotctl.show.runs.standing:status_answer
        -> _damaged_status
    """
    from spotctl.cli import elsewhere
    from spotctl.show.runs import standing
    from spotctl.show.runs.latest import standings

    session: Session = context.obj
    read = standings(session.settings, elsewhere.refresh(session, job))
    if read.damage:
        _damaged_status(session, read, json_=json_)
    shown = [known for known in read.runs if job in ("", known.answer["name"])]
    if job and not shown:
        raise BadRequest(f"no job named {job!r} was launched (spotctl status lists the jobs)")
    if json_:
        session.answer_json(standing.status_answer(shown, read.lost))
    elif shown:
        session.out.print(standing.status_table(shown, session.out.width))
        session.remark(*standing.dropped(read.lost), *(known.ways_on for known in shown if known.ways_on))
    else:
        from spotctl.home.paths import Paths
        from spotctl.log.salvage import no_runs

        session.remark(no_runs(Paths(session.settings.home)))


def _damaged_status(session: Session, read: Standings, *, json_: bool) -> NoReturn:
    """Shows what can be read of a damaged log, and the machines that the providers list.

    Fields:
        log_damage: what cannot be read of the event log
        shown: machines that the clouds show
        shown[] -> spotctl.run.emergency:ShownMachine
        failures: clouds that could not be searched
    """
    from spotctl.run.emergency import shown_machines
    from spotctl.show.runs.standing import status_answer, status_table

    machines, failures = shown_machines(session.settings)
    if json_:
        shown = {
            "log_damage": list(read.damage),
            "shown": [asdict(machine) for machine in machines],
            "failures": failures,
        }
        session.answer_json({**status_answer(read.runs), **shown})
        raise typer.Exit(1)
    session.remark(*read.damage)
    if read.runs:
        session.out.print(status_table(read.runs, session.out.width))
    session.out.print(f"machines that the providers show: {len(machines)}")
    for machine in machines:
        session.out.print(f"  {machine.id} of run {machine.run}, {machine.market}", soft_wrap=True, markup=False)
    session.remark(*failures)
    raise typer.Exit(1)
