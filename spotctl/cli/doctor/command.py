"""`spotctl doctor`: checks this installation, and prints the permissions needed on each cloud."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from spotctl.cli.options import choice_of
from spotctl.cli.session import JsonOption, Session
from spotctl.clouds.parts import doctor_of
from spotctl.home.cloud import cloud_of, rented_clouds
from spotctl.home.wall_clock import wall_us


def _policies() -> list[str]:
    return [name for cloud in rented_clouds() for name in cloud_of(cloud).policies]


if TYPE_CHECKING:
    Policy = str
else:
    Policy = choice_of("Policy", _policies)


def doctor(
    context: typer.Context,
    policy: Annotated[
        Policy | None,
        typer.Option("--policy", help="Print the minimal permissions for a cloud, in that cloud's format."),
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Check versions, home folder, prices, orphaned resources and configured clouds, and explain how to fix problems.

    Clouds without credentials are skipped. Each cloud's own SDK finds the credentials; they are never shown.

    Exit codes: 0 no problems, 5 credentials or permissions are missing, 1 any other problem.

    Example: spotctl doctor --policy aws > policy.json
    """
    session: Session = context.obj
    if policy is not None:
        session.answer_json(_document(policy, session))
        return
    from spotctl.cli.doctor import clouds, here, views
    from spotctl.clouds.findings import exit_code

    findings = [*here.findings(session.settings, wall_us()), *clouds.findings(session.settings)]
    if json_:
        session.answer_json(views.to_json(findings))
    else:
        session.out.print(views.report(findings))
    raise typer.Exit(exit_code(findings))


def _document(policy: str, session: Session) -> dict[str, object]:
    (cloud,) = (cloud for cloud in rented_clouds() if policy in cloud_of(cloud).policies)
    return doctor_of(cloud).POLICIES[policy](session.settings)
