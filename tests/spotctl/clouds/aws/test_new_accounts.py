"""Orders of a new account, as the simulated cloud itself refuses them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from spotctl.clouds.aws.permissions import policy
from spotctl.clouds.errors import NotPermitted, NotYet, QuotaReached, Scope
from tests.spotctl.clouds.aws.ec2 import Ec2
from tests.spotctl.clouds.aws.standins import MARKET, provider
from tests.spotctl.clouds.aws.test_permissions import ORDER


def _free(ec2: Ec2) -> None:
    ec2.new_account.free_plan = True


def _verifying(ec2: Ec2) -> None:
    ec2.new_account.verifying = True


def _no_role(ec2: Ec2) -> None:
    ec2.new_account.has_spot_role = False
    ec2.policy = {"Statement": [one for one in policy()["Statement"] if one["Sid"] != "FirstSpot"]}


@pytest.mark.parametrize(
    ("change", "cure"),
    [
        (_free, "upgrade the plan under Billing"),
        (_verifying, "wait for its e-mail"),
        (_no_role, "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com"),
    ],
)
def test_what_a_new_account_may_not_do_yet_ends_with_its_cure(
    ec2: Ec2, change: Callable[[Ec2], None], cure: str
) -> None:
    change(ec2)
    with pytest.raises(NotPermitted, match=cure):
        provider().create(ORDER)
    assert not ec2.machines()


def test_the_free_plan_rents_its_types_and_the_printed_policy_makes_the_role_of_spot_machines(
    ec2: Ec2,
) -> None:
    ec2.policy, ec2.new_account.free_plan, ec2.new_account.has_spot_role = policy(), True, False
    provider().create(replace(ORDER, count=1, market=replace(MARKET, instance_type="t3.micro")))
    assert ec2.new_account.has_spot_role


def test_the_limit_of_spot_machines_reaches_as_far_as_its_region(ec2: Ec2) -> None:
    ec2.market.quotas["L-34B43A08"] = 1.0
    with pytest.raises(
        QuotaReached, match=r"MaxSpotInstanceCountExceeded.*request-service-quota-increase"
    ) as refused:
        provider().create(ORDER)
    assert refused.value.scope is Scope.REGION


def test_a_profile_that_was_just_made_is_known_a_little_later(ec2: Ec2) -> None:
    ec2.new_account.unknown_profiles["spotctl"] = 2
    order, here = replace(ORDER, identity="spotctl"), provider()
    for _ in range(2):
        with pytest.raises(NotYet, match="tries again as long"):
            here.create(order)
    assert len(here.create(order)) == 2
