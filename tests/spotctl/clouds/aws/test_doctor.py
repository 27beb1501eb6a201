"""Every permission of the policy is tried, and what is missing is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from typing import Any

import pytest

from spotctl.clouds.aws.cloud import AwsMachineSettings
from spotctl.clouds.aws.doctor import NEVER_TRIED, Tried, tried_permissions
from spotctl.clouds.aws.permissions import (
    BUY,
    GROUP,
    IMAGE,
    OWN,
    PRICES,
    ROLE,
    TAG,
    policy,
)
from spotctl.clouds.aws.provider import ACCESS
from spotctl.clouds.aws.session import AwsClient, AwsSession, Service
from spotctl.clouds.doctor import Level
from tests.servers.aws import action_of
from tests.spotctl.clouds.aws.ec2 import Ec2
from tests.spotctl.clouds.aws.standins import provider
from tests.spotctl.clouds.aws.test_permissions import ORDER, OURS, check
from tests.spotctl.clouds.aws.test_provider_leftovers import scatter

_USUAL = AwsMachineSettings()


def test_the_doctors_dry_runs_are_what_the_policy_allows(ec2: Ec2) -> None:
    """A policy that demands tags refuses a dry run without them."""
    ec2.policy = policy()
    finding, *_ = check()
    assert (finding.level, ec2.refused) == (Level.GOOD, [])
    requests = {action_of(request): request for request in ec2.server.requests}
    changing = [requests[name] for name in ("RunInstances", "CreateSecurityGroup")]
    assert all(b"DryRun=true" in request.body for request in changing)


@contextmanager
def trials() -> Iterator[Callable[[AwsMachineSettings], Tried]]:
    """Tries the permissions that some settings need, with the same clients each time."""
    with ExitStack() as stack:
        session = AwsSession(ACCESS)

        @cache
        def client(service: Service) -> AwsClient:
            return stack.enter_context(session.client(service, "us-east-1"))

        yield partial(tried_permissions, client)


def actions_of(document: Mapping[str, Any]) -> set[str]:
    return {action for statement in document["Statement"] for action in statement["Action"]}


@pytest.mark.parametrize("kms_key", [None, "alias/disks"])
def test_each_permission_of_the_policy_is_tried_or_has_a_reason(
    ec2: Ec2, kms_key: str | None
) -> None:
    ec2.policy = policy(kms_key)
    with trials() as tried:
        outcome = tried(AwsMachineSettings(kms_key=kms_key))
    assert outcome.granted | set(outcome.missing) | set(outcome.untried) == actions_of(
        policy(kms_key)
    )
    assert set(outcome.untried) - set(NEVER_TRIED) == set(OWN)
    assert {IMAGE, BUY, GROUP, TAG, ROLE, *PRICES} <= outcome.granted


def test_what_is_allowed_on_own_resources_is_tried_on_one_of_each_kind(ec2: Ec2) -> None:
    ec2.policy = policy()
    with_machine(ec2)
    before = ec2.machines(), ec2.resources()
    with trials() as tried:
        outcome = tried(_USUAL)
    assert (set(outcome.untried), outcome.missing, ec2.refused) == (
        {"iam:CreateServiceLinkedRole"},
        [],
        [],
    )
    assert (ec2.machines()[0].state, ec2.resources()) == (before[0][0].state, before[1])


def with_machine(ec2: Ec2) -> None:
    scatter(OURS)
    machine = provider().create(ORDER)[0]
    lease = ec2.lease(machine.id)
    assert lease.request is not None
    lease.request.state = "open"


def test_each_permission_that_is_missing_is_named(ec2: Ec2) -> None:
    with_machine(ec2)
    with trials() as tried:
        for action in sorted(actions_of(policy()) - set(NEVER_TRIED)):
            ec2.policy = without(action)
            assert tried(_USUAL).missing == [action]


def without(action: str) -> dict[str, Any]:
    whole = policy()
    kept = [
        {**one, "Action": [name for name in one["Action"] if name != action]}
        for one in whole["Statement"]
    ]
    return {**whole, "Statement": kept}


def test_a_role_without_a_profile_is_not_called_missing(ec2: Ec2) -> None:
    ec2.policy = policy(roles=("other",))
    with trials() as tried:
        outcome = tried(AwsMachineSettings(roles=("other",)))
    assert outcome.missing == []
    assert "InvalidParameterValue" in outcome.untried[ROLE]
