"""`spotctl exec` and `spotctl ssh`: run a command, or a shell, on a machine of a run."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from spotctl.cli.options import JobArgument
from spotctl.cli.session import JsonOption, Session

NodeOption = Annotated[
    str,
    typer.Option("--node", help="Machine: its index in `status --json`, from 0, or its id.", show_default="the first"),
]


def exec_(
    context: typer.Context,
    job: JobArgument,
    command: Annotated[list[str], typer.Argument(help="Command to run, after --.", show_default=False)],
    node: NodeOption = "",
    json_: JsonOption = False,
) -> None:
    """Run a command on a machine, in the job's working directory and environment.

    It stops when the machine is released. The exit code is the command's; 127 if the command does not exist.

    Example: spotctl exec nightly-recsys --node 1 -- nvidia-smi
    """
    from spotctl.run import remote

    session: Session = context.obj
    reached = remote.reach(job, node, session.settings)
    answered = remote.run(reached, command, keep=json_)
    if json_:
        told = {"machine": reached.machine, "exit_code": answered.code, "out": answered.out, "err": answered.err}
        session.answer_json(told)
    elif answered.err:
        session.remark(f"spotctl: {answered.err}")
    raise typer.Exit(answered.code)


def ssh(context: typer.Context, job: JobArgument, node: NodeOption = "", json_: JsonOption = False) -> None:
    """Open a shell on a machine of a running job. With --json, only print the machine and working directory.

    Example: spotctl ssh nightly-recsys --node 1
    """
    from spotctl.run import remote

    session: Session = context.obj
    reached = remote.reach(job, node, session.settings)
    shell = os.environ.get("SHELL", "/bin/sh")
    if json_:
        folder = reached.provider.invocation(reached.machine, [shell]).folder
        session.answer_json({"machine": reached.machine, "shell": shell, "folder": folder})
        return
    session.remark(
        f"{reached.machine}: a shell on this computer; it stops when the machine is released, exit leaves it"
    )
    raise typer.Exit(remote.run(reached, [shell]).code)
