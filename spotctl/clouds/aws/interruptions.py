"""Evictions by AWS's own simulator: an experiment of Fault Injection Service that interrupts one spot machine.

Source: the FIS User Guide, "aws:ec2:send-spot-instance-interruptions". An experiment acts with a role of its own.
"""

from __future__ import annotations

import secrets
import time

from spotctl.clouds.aws.calls import AwsCalls
from spotctl.clouds.aws.permissions import INTERRUPTION, TRIAL_ROLE
from spotctl.clouds.errors import ProviderError, Unanswered
from spotctl.home.installation import INSTALLATION_TAG

_NOTICE = "PT2M"
"""The notice of a real interruption, and the shortest that FIS takes."""
_PATIENCE_SECONDS, _POLL_SECONDS = 120.0, 2.0
_UNDER_WAY = frozenset({"running", "completed"})
_ENDED = frozenset({"failed", "stopped", "stopping", "cancelled"})


def interrupt(calls: AwsCalls, region: str, instance: str, installation: str) -> None:
    """Begins an interruption of a spot machine. ProviderError: FIS could not carry it out."""
    account = calls.call("sts", region, "GetCallerIdentity")["Account"]
    tags = {INSTALLATION_TAG: installation}
    template = calls.call(
        "fis",
        region,
        "CreateExperimentTemplate",
        clientToken=secrets.token_hex(16),
        description="spotctl try: interrupts one spot machine",
        stopConditions=[{"source": "none"}],
        targets={
            "machine": {
                "resourceType": "aws:ec2:spot-instance",
                "resourceArns": [f"arn:aws:ec2:{region}:{account}:instance/{instance}"],
                "selectionMode": "ALL",
            }
        },
        actions={
            "interrupt": {
                "actionId": INTERRUPTION,
                "parameters": {"durationBeforeInterruption": _NOTICE},
                "targets": {"SpotInstances": "machine"},
            }
        },
        roleArn=f"arn:aws:iam::{account}:role/{TRIAL_ROLE}",
        tags=tags,
    )["experimentTemplate"]["id"]
    try:
        _carry_out(calls, region, template, tags)
    finally:
        # An experiment goes on without its template.
        calls.call("fis", region, "DeleteExperimentTemplate", id=template)


def _carry_out(calls: AwsCalls, region: str, template: str, tags: dict[str, str]) -> None:
    started = calls.call(
        "fis",
        region,
        "StartExperiment",
        clientToken=secrets.token_hex(16),
        experimentTemplateId=template,
        tags=tags,
    )["experiment"]
    give_up = time.monotonic() + _PATIENCE_SECONDS
    while (status := started["state"]["status"]) not in _UNDER_WAY:
        if status in _ENDED:
            raise ProviderError(
                f"FIS could not interrupt the machine: {started['state'].get('reason', status)};"
                f" see 'spotctl doctor --policy aws-try-role' for the role {TRIAL_ROLE}"
            )
        if time.monotonic() >= give_up:
            raise Unanswered(f"FIS has not begun experiment {started['id']} after {_PATIENCE_SECONDS:g} s")
        time.sleep(_POLL_SECONDS)
        started = calls.call("fis", region, "GetExperiment", id=started["id"])["experiment"]
