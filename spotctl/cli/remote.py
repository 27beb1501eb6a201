"""`spotctl exec` and `spotctl ssh`: run a command, or a shell, on a machine of a run."""

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

    The command is killed when the machine is released. The exit code is the command's; 127 if the command does not
    exist.

    Example: spotctl exec nightly-recsys --node 1 -- nvidia-smi

    \f

    Fields:
        machine: id of the machine
        exit_code: exit code of the command
        out: what it printed on stdout
        err: what it printed on stderr
    """
    from spotctl.cli import elsewhere
    from spotctl.run import remote

    session: Session = context.obj
    options = [f"--node={node}", *(["--json"] if json_ else [])]
    elsewhere.pass_on(session, job, "exec", job, *options, "--", *command, terminal=True)
    target = remote.target_of(job, node, session.settings)
    result = remote.run(target, command, capture=json_)
    if json_:
        answer = {"machine": target.machine, "exit_code": result.code, "out": result.out, "err": result.err}
        session.answer_json(answer)
    elif result.err:
        session.remark(f"spotctl: {result.err}")
    raise typer.Exit(result.code)


def ssh(context: typer.Context, job: JobArgument, node: NodeOption = "", json_: JsonOption = False) -> None:
    """Open a shell on a machine of a running job. With --json, only print the machine and working directory.

    Example: spotctl ssh nightly-recsys --node 1

    \f

    Fields:
        machine: id of the machine
        shell: shell that would be opened
        folder: working directory of the job
    """
    from spotctl.cli import elsewhere
    from spotctl.run import remote

    session: Session = context.obj
    elsewhere.pass_on(session, job, "ssh", job, f"--node={node}", *(["--json"] if json_ else []), terminal=True)
    target = remote.target_of(job, node, session.settings)
    shell = os.environ.get("SHELL", "/bin/sh")
    if json_:
        folder = target.invocation([shell]).folder
        session.answer_json({"machine": target.machine, "shell": shell, "folder": folder})
        return
    session.remark(
        f"{target.machine}: a shell on this computer; exit leaves the shell, and releasing the machine ends it"
    )
    raise typer.Exit(remote.run(target, [shell]).code)
