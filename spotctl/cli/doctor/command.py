"""`spotctl doctor`: checks this installation, and prints the permissions needed on each cloud."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from spotctl.cli.session import JsonOption, Session
from spotctl.home.wall_clock import wall_us


class PolicyCloud(StrEnum):
    """Permission documents: those of the clouds, and that of the managed identity of Azure's machines."""

    AWS = "aws"
    GCP = "gcp"
    AZURE = "azure"
    AZURE_MACHINES = "azure-machines"


def doctor(
    context: typer.Context,
    policy: Annotated[
        PolicyCloud | None,
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


def _document(cloud: PolicyCloud, session: Session) -> dict[str, object]:
    import os

    from spotctl.clouds.aws import permissions as aws
    from spotctl.clouds.azure import permissions as azure
    from spotctl.clouds.gcp import permissions as policies

    if cloud is PolicyCloud.AWS:
        return aws.policy(session.settings.aws.kms_key)
    if cloud is PolicyCloud.GCP:
        return policies.gcp()
    subscription = session.settings.azure_subscription or os.environ.get("AZURE_SUBSCRIPTION_ID", "")
    role = azure.launcher_role if cloud is PolicyCloud.AZURE else azure.machine_role
    return role(subscription)
