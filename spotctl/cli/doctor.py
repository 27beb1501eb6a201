"""`spotctl doctor`: checks this installation, and prints the permissions needed on each cloud."""

from pathlib import Path
from typing import Annotated

import typer

from spotctl.cli.session import JsonOption, Session
from spotctl.home.errors import BadRequest
from spotctl.home.wall_clock import wall_us


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
