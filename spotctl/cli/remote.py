"""`spotctl exec`, `ssh` and `logs`: a command or a shell on a machine of a run, and what its
machines printed.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pricing_data.units import moment
from spotctl.cli.options import JobArgument
from spotctl.cli.session import JsonOption, Session
from spotctl.home.errors import BadRequest
from spotctl.home.printable import printable
from spotctl.home.wall_clock import wall_us

if TYPE_CHECKING:
    from spotctl.clouds.provider import CloudProvider
    from spotctl.run.machine_output import OutputLine


NodeOption = Annotated[
    str,
    typer.Option(
        "--node",
        help="Machine: its index in `status --json`, from 0, or its id.",
        show_default="the first",
    ),
]


def exec_(
    context: typer.Context,
    job: JobArgument,
    command: Annotated[
        list[str], typer.Argument(help="Command to run, after --.", show_default=False)
    ],
    node: NodeOption = "",
    json_: JsonOption = False,
) -> None:
    """Run a command on a machine, in the job's working directory and environment.

    The command is killed when the machine is released. The exit code is the command's; 127 if the
    command does not exist.

    Example: spotctl exec nightly-recsys --node 1 -- nvidia-smi
    """
    from spotctl.cli.runs import remote_runner
    from spotctl.run import remote
    from spotctl.show.columns import as_json
    from spotctl.show.runs import run_answers

    session: Session = context.obj
    options = [f"--node={node}", *(["--json"] if json_ else [])]
    remote_runner.pass_on(session, job, "exec", job, *options, "--", *command, terminal=True)
    machine, provider = remote.target_of(job, node, session.settings)
    result = remote.run(machine, provider, command, capture=json_)

    if json_:
        session.answer_json(as_json(run_answers.EXECUTED, (machine, result)))
    elif result.stderr:
        session.remark(f"spotctl: {result.stderr}")

    raise typer.Exit(result.returncode)


def ssh(
    context: typer.Context,
    job: JobArgument,
    node: NodeOption = "",
    admit: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RANGE",
            help="First allow ssh from these addresses only: 203.0.113.9/32. Repeatable.",
        ),
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Open a shell on a machine of a running job. With --json, only print the machine and working
    directory.

    --admit is for when your computer's public address has changed since the launch. It replaces
    only the firewall rule that spotctl made for the run; later runs use ssh_from from the settings.
    With --json, it opens no shell.

    Example: spotctl ssh nightly-recsys --node 1

    Example: spotctl ssh nightly-recsys --admit 203.0.113.9/32
    """
    from spotctl.cli.runs import remote_runner
    from spotctl.run import remote
    from spotctl.show.columns import as_json
    from spotctl.show.runs import run_answers

    session: Session = context.obj
    if admit:
        admitted = _admit(session, job, admit)
        if json_:
            session.answer_json(as_json(run_answers.ADMITTED, admitted))
            return
        session.remark(
            *(
                f"{rule} admits ssh from {', '.join(admitted['ssh_from'])} only"
                for rule in admitted["rules"]
            )
        )

    remote_runner.pass_on(
        session, job, "ssh", job, f"--node={node}", *(["--json"] if json_ else []), terminal=True
    )
    machine, provider = remote.target_of(job, node, session.settings)
    shell = os.environ.get("SHELL", "/bin/sh")

    if json_:
        folder = provider.invocation(machine, [shell]).folder
        session.answer_json(
            as_json(run_answers.SHELL, {"machine": machine, "shell": shell, "folder": folder})
        )
        return

    session.remark(
        f"{machine}: a shell on this computer; exit leaves the shell, and releasing the machine "
        "ends it"
    )
    raise typer.Exit(remote.run(machine, provider, [shell]).returncode)


def _admit(session: Session, job: str, addresses: Sequence[str]) -> dict[str, Any]:
    """Lets ssh to the machines of a job's run come from other addresses than at its launch."""
    from pricing_data.market import either
    from spotctl.home.cloud import address_range, cloud_of, rented_clouds

    try:
        ranges = [address_range(address) for address in addresses]
    except ValueError as error:
        raise BadRequest(f"--admit: expected {error}") from None

    provider, tags = _machines_of(session, job)
    with closing(provider):
        rules = provider.admit_ssh(tags, ranges)
    if rules is None:
        raise BadRequest(f"job {job}: its machines are on this computer and need no ssh")

    if not rules:
        # Such as `subnet or security_group in [azure]`.
        networks = (
            f"{either(cloud_of(cloud).settings_of_machines.networks)} in [{cloud}]"
            for cloud in rented_clouds()
        )
        raise BadRequest(
            f"job {job}: spotctl made no ssh rule for its machines; change the rules of the "
            f"network that the settings name ({', '.join(networks)})"
        )

    return {"job": job, "ssh_from": ranges, "rules": rules}


def _machines_of(session: Session, job: str) -> tuple[CloudProvider, dict[str, str]]:
    """The provider of a job's active run, and the tags of the run's machines."""
    from spotctl.cli.runs.remote_runner import client_of
    from spotctl.clouds.wiring import provider_of
    from spotctl.files.job.reader import restored
    from spotctl.home.installation import INSTALLATION_TAG, RUN_TAG, installation_id
    from spotctl.home.paths import Paths
    from spotctl.log.statuses import latest_run
    from spotctl.log.store import EventLog

    client = client_of(session, job)
    if client is not None:
        return client.provider, client.tags

    home = session.settings.home
    with EventLog(Paths(home).log) as log:
        run = latest_run(log, job)
    if run is None or run.began is None or run.ended is not None:
        raise BadRequest(f"job {job} has no active run ('spotctl status' lists all jobs)")

    provider = provider_of(session.settings, restored(run.began.spec, home))
    return provider, {INSTALLATION_TAG: installation_id(home), RUN_TAG: run.run}


def logs(
    context: typer.Context,
    job: JobArgument,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep printing until the run is over.")
    ] = False,
    since: Annotated[
        str,
        typer.Option(
            help="Only lines printed since: 15m, 12h, 2026-01-31T02:00Z.", show_default="all"
        ),
    ] = "",
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
) -> None:
    """Show what the machines of a job's latest run printed, oldest line first, with time (UTC) and
    machine.

    Times come from the machines' clocks, about once a second. Output of runs by older versions has
    no times and is not shown with --since.

    Example: spotctl logs nightly-recsys -f

    Example: spotctl logs nightly-recsys --since 15m --json
    """
    from spotctl.cli.options import start_of
    from spotctl.cli.runs import remote_runner
    from spotctl.run.machine_output import output_lines
    from spotctl.show.columns import as_json
    from spotctl.show.runs import run_answers

    session: Session = context.obj
    start = start_of(since, wall_us()) if since else None
    options = {"--follow": follow, "--json": json_, f"--since={since}": since}
    remote_runner.pass_on(
        session, job, "logs", job, *(option for option, given in options.items() if given)
    )

    for line in output_lines(job, session.settings, follow=follow):
        if start is None or (line.at is not None and line.at >= start):
            sys.stdout.write(
                f"{json.dumps(as_json(run_answers.OUTPUT_LINE, line)) if json_ else as_text(line)}\n"
            )
            sys.stdout.flush()


def as_text(line: OutputLine) -> str:
    """A line that a machine printed, with its name and the time if known; nothing of it commands a
    terminal.
    """
    at = "" if line.at is None else f"{moment(line.at)} "
    return f"{at}{line.machine}: {printable(line.text)}"
