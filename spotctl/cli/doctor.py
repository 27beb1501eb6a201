"""`spotctl doctor` checks this installation, and prints the permissions needed on each cloud;
`spotctl log` checks and repairs the event log.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pricing_data.units import counted
from spotctl.cli.session import JsonOption, Session
from spotctl.home.errors import BadRequest
from spotctl.home.wall_clock import wall_us

if TYPE_CHECKING:
    from spotctl.log.salvage import Salvaged


def doctor(
    context: typer.Context,
    what: Annotated[
        str,
        typer.Argument(
            help="A cloud, such as aws: check only that. A job file: send a test message to its "
            "addresses instead.",
            metavar="[CLOUD | FILE]",
            show_default=False,
        ),
    ] = "",
    policy: Annotated[
        str,
        typer.Option(
            "--policy",
            help="Print the minimal permissions for a cloud, such as aws, in that cloud's format.",
        ),
    ] = "",
    json_: JsonOption = False,
) -> None:
    """Check versions, home folder, prices, orphaned resources and configured clouds, and explain
    how to fix problems.

    With a cloud's name, check only that cloud. With a job file, send a test message to every
    address under `notify` that gets messages, and check nothing else.

    Clouds without credentials are skipped. Each cloud's own SDK finds the credentials; they are
    never shown.

    Exit codes: 0 no problems, 5 credentials or permissions are missing, 1 any other problem.

    Example: spotctl doctor --policy aws > policy.json

    Example: spotctl doctor aws

    Example: spotctl doctor job.yaml
    """
    from spotctl.home.cloud import cloud_of, rented_clouds

    session: Session = context.obj
    if policy:
        from spotctl.clouds.wiring import doctor_of

        clouds = {name: cloud for cloud in rented_clouds() for name in cloud_of(cloud).policies}
        if policy not in clouds:
            raise BadRequest(f"policy {policy!r} is not one of {', '.join(clouds)}")
        session.answer_json(doctor_of(clouds[policy]).POLICIES[policy](session.settings))
        return

    from spotctl.cli.doctor_checks import (
        FINDINGS,
        of_addresses,
        of_buckets,
        of_clouds,
        of_this_computer,
        report,
    )
    from spotctl.clouds.doctor import exit_code
    from spotctl.show.columns import as_json

    if what in rented_clouds():
        findings = list(of_clouds(session.settings, (what,)))
    elif what:
        findings = list(of_addresses(Path(what), wall_us()))
    else:
        findings = list(of_this_computer(session.settings, wall_us()))
        findings += of_buckets(session.settings)
        findings += of_clouds(session.settings, rented_clouds())

    session.answer(json_, as_json(FINDINGS, findings), None if json_ else report(findings))
    raise typer.Exit(exit_code(findings))


log_app = typer.Typer(
    help="Check and repair the event log, which records all runs.", no_args_is_help=True
)


@log_app.command()
def check(context: typer.Context, json_: JsonOption = False) -> None:
    """Read every row of the event log, and list damaged and missing rows. Changes nothing.

    Rows that an earlier repair has dropped are listed, too: the costs of their runs are then said
    to be "at least" the sum that is known.

    Exit codes: 0 the log is sound, also after a repair; 1 it is damaged.

    Example: spotctl log check
    """
    from spotctl.home.paths import Paths
    from spotctl.log.salvage import Salvaged, salvage
    from spotctl.log.store import exists

    session: Session = context.obj
    path = Paths(session.settings.home).log
    salvaged = salvage(path) if exists(path) else Salvaged()
    _report(session, salvaged, f"event log {path}", json_=json_)
    if salvaged.damage and not json_:
        session.remark("repair it with: spotctl log repair (keeps the damaged file)")
    raise typer.Exit(1 if salvaged.damage else 0)


@log_app.command()
def repair(context: typer.Context, json_: JsonOption = False) -> None:
    """Replace a damaged event log with all of its readable rows. The damaged file is kept next to
    the new one.

    The new log says which rows were lost, and reports say "at least" where a cost rests on them. A
    run that lost rows before it ended cannot be resumed: `spotctl stop JOB` returns its machines
    and ends the run.

    Example: spotctl log repair
    """
    from spotctl.home.paths import Paths
    from spotctl.log.salvage import repair as repaired
    from spotctl.log.store import exists

    session: Session = context.obj
    paths = Paths(session.settings.home)
    if not exists(paths.log):
        session.remark(f"event log {paths.log}: no job was launched yet")
        return

    salvaged, kept = repaired(paths)
    _report(session, salvaged, f"event log {paths.log}", json_=json_)
    if kept is not None:
        session.remark(
            f"repaired; the damaged file is {kept}", "machines without a run: spotctl gc"
        )


def _report(session: Session, salvaged: Salvaged, log: str, *, json_: bool) -> None:
    """Prints the state of the event log."""
    from spotctl.show.columns import as_json
    from spotctl.show.phrases import loss_text
    from spotctl.show.runs import run_answers

    if json_:
        session.answer_json(as_json(run_answers.LOG, salvaged))
        return

    rows = counted(len(salvaged.rows), "row")
    runs = counted(len(salvaged.runs), "run")
    session.out.print(f"{log}: {rows} of {runs} can be read", soft_wrap=True)
    for flaw in salvaged.damage:
        session.out.print(f"  {flaw}", soft_wrap=True, markup=False)

    for run, loss in salvaged.dropped:
        session.out.print(
            f"  dropped by a repair: {loss_text(run, loss)}", soft_wrap=True, markup=False
        )
