"""`spotctl admit`: lets ssh to the machines of a run come from another address than at its launch."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from spotctl.cli.options import JobArgument
from spotctl.cli.session import JsonOption, Session
from spotctl.home.errors import BadRequest

if TYPE_CHECKING:
    from spotctl.clouds.base import CloudProvider


def admit(
    context: typer.Context,
    job: JobArgument,
    addresses: Annotated[
        list[str],
        typer.Argument(metavar="RANGE...", help="Addresses, such as 203.0.113.9/32.", show_default=False),
    ],
    json_: JsonOption = False,
) -> None:
    """Allow ssh to the machines of a run from these addresses only.

    For when your computer's public address has changed since the launch. Replaces only the firewall rule that spotctl
    made for the run; later runs use ssh_from from the settings.

    Example: spotctl admit nightly-recsys 203.0.113.9/32

    \f

    Fields:
        job: name of the job
        ssh_from: addresses from which SSH is allowed
        rules: rules of the firewall that were changed
    """
    from spotctl.clouds.capabilities import AdmitsSsh, Closes
    from spotctl.home.cloud import rented_clouds
    from spotctl.home.cloud_settings import address_range

    session: Session = context.obj
    try:
        ranges = tuple(map(address_range, addresses))
    except ValueError as error:
        raise BadRequest(f"spotctl admit: expected {error}") from None
    provider, tags = _machines_of(session, job)
    if not isinstance(provider, AdmitsSsh) or not isinstance(provider, Closes):
        raise BadRequest(f"job {job}: its machines are on this computer and need no ssh")
    with closing(provider):
        rules = provider.admit_ssh(tags, ranges)
    if not rules:
        raise BadRequest(
            f"job {job}: spotctl made no ssh rule for its machines; change the rules of the network that the"
            f" settings name ({', '.join(map(_networks, rented_clouds()))})"
        )
    session.answer(
        json_,
        {"job": job, "ssh_from": ranges, "rules": rules},
        None,
        *(f"{rule} admits ssh from {', '.join(ranges)} only" for rule in rules),
    )


def _networks(cloud: str) -> str:
    """The settings that name networks, such as `subnet or security_group in [azure]`."""
    from pricing_data.spelling import either
    from spotctl.home.cloud import cloud_of

    return f"{either(cloud_of(cloud).settings_of_machines.networks)} in [{cloud}]"


def _machines_of(session: Session, job: str) -> tuple[CloudProvider, dict[str, str]]:
    """The provider of a job's active run, and the tags of the run's machines."""
    from spotctl.cli.elsewhere import client_of
    from spotctl.clouds.installation import installation_id
    from spotctl.clouds.tags import INSTALLATION_TAG, RUN_TAG
    from spotctl.clouds.wiring import provider_of
    from spotctl.files.job.reader import restored
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
