"""`spotctl logs`: the output of the machines of a run."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from pricing_data.units import SECOND, format_time
from spotctl.cli.options import JobArgument
from spotctl.cli.session import Session
from spotctl.home.wall_clock import wall_us
from spotctl.show.printable import printable

if TYPE_CHECKING:
    from spotctl.run.machine_output import OutputLine


def logs(
    context: typer.Context,
    job: JobArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing until the run is over.")] = False,
    since: Annotated[
        str, typer.Option(help="Only lines printed since: 15m, 12h, 2026-01-31T02:00Z.", show_default="all")
    ] = "",
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
) -> None:
    """Show what the machines of a job's latest run printed, oldest line first, with time (UTC) and machine.

    Times come from the machines' clocks, about once a second. Output of runs by older versions has no times and is not
    shown with --since.

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
    remote_runner.pass_on(session, job, "logs", job, *(option for option, given in options.items() if given))
    for line in output_lines(job, session.settings, follow=follow):
        if start is None or (line.at is not None and line.at >= start):
            sys.stdout.write(f"{json.dumps(as_json(run_answers.OUTPUT_LINE, line))}\n" if json_ else _as_text(line))
            sys.stdout.flush()


def _as_text(line: OutputLine) -> str:
    at = "" if line.at is None else f"{format_time(line.at // SECOND * SECOND)} "
    return f"{at}{line.machine}: {printable(line.text)}\n"
