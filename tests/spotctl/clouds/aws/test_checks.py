"""The checks before machines are rented on AWS: each finding names the setting or the command that
cures it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from spotctl.clouds.aws.cloud import AwsMachineSettings
from spotctl.clouds.doctor import Finding, Level, all_found
from spotctl.clouds.provider import MachineRequest
from spotctl.home.installation import INSTALLATION_TAG
from tests.servers.aws import AwsFault, ec2_error
from tests.spotctl.clouds.aws.ec2 import Ec2
from tests.spotctl.clouds.aws.standins import BID, MARKET, SETTINGS, provider

ORDER = MachineRequest("check", MARKET, 2, BID, 0, {INSTALLATION_TAG: "i"}, identity="spotctl")


def findings(
    settings: AwsMachineSettings = SETTINGS, order: MachineRequest = ORDER
) -> dict[str, Finding]:
    return {finding.what: finding for finding in all_found("aws", provider(settings).checks(order))}


def bad(settings: AwsMachineSettings = SETTINGS, order: MachineRequest = ORDER) -> dict[str, str]:
    found = findings(settings, order)
    return {
        what: one.cure for what, one in found.items() if one.level in (Level.FAILS, Level.NO_ACCESS)
    }


def test_an_account_that_lacks_nothing_passes_and_nothing_is_made(ec2: Ec2) -> None:
    found = findings()
    assert {finding.level for finding in found.values()} == {Level.GOOD}
    assert found["ssh"].detail == "from 203.0.113.7/32"
    assert found["quota"].detail.endswith("4 needed")
    assert not ec2.resources()
    assert not ec2.machines()


def _no_subnet(ec2: Ec2) -> None:
    backend = ec2.backend("us-east-1")
    for subnet in list(backend.describe_subnets()):
        backend.delete_subnet(subnet.id)


def _no_route(ec2: Ec2) -> None:
    ec2.has_route = False


def _no_quota(ec2: Ec2) -> None:
    ec2.market.quotas["L-34B43A08"] = 3.0


def _no_region(ec2: Ec2) -> None:
    ec2.breaks(
        AwsFault("/", ec2_error("InvalidParameterValue"), action="DescribeRegions", times=-1)
    )


def _denied(ec2: Ec2) -> None:
    denied = (
        "User: u is not authorized to perform: ec2:RunInstances with an explicit deny in a service "
        "control policy"
    )
    ec2.breaks(
        AwsFault(
            "/", ec2_error("UnauthorizedOperation", denied, 403), action="RunInstances", times=-1
        )
    )


@pytest.mark.parametrize(
    ("change", "what", "cure"),
    [
        (_no_subnet, "subnet in us-east-1a", "aws ec2 create-default-subnet --region us-east-1"),
        (_no_subnet, "dry run", "set subnets in [aws]"),
        (_no_route, "route", "aws ec2 create-route"),
        (_no_quota, "quota", "request-service-quota-increase --region us-east-1"),
        (_no_region, "region us-east-1", "correct regions"),
        (_denied, "dry run", "administers the AWS organisation"),
    ],
)
def test_what_the_account_lacks_is_found_with_its_cure(
    ec2: Ec2, change: Callable[[Ec2], None], what: str, cure: str
) -> None:
    change(ec2)
    assert cure in bad()[what]


@pytest.mark.parametrize(
    ("settings", "order", "what", "cure"),
    [
        (replace(SETTINGS, ssh_from=()), ORDER, "ssh", "set ssh_from in [aws]"),
        (
            replace(SETTINGS, image="/aws/service/none"),
            ORDER,
            "image",
            "name an image of this region",
        ),
        (
            replace(SETTINGS, subnets=("subnet-1",)),
            ORDER,
            "subnet in us-east-1a",
            "under subnets in [aws]",
        ),
        (SETTINGS, replace(ORDER, image="ami-00000000"), "image", "name an image of this region"),
        (
            SETTINGS,
            replace(ORDER, market=replace(MARKET, instance_type="z9.large")),
            "type z9.large",
            "prices ls",
        ),
    ],
)
def test_what_the_settings_or_the_job_name_is_checked(
    ec2: Ec2, settings: AwsMachineSettings, order: MachineRequest, what: str, cure: str
) -> None:
    assert ec2
    assert cure in bad(settings, order)[what]


def test_reserved_machines_need_no_quota(ec2: Ec2) -> None:
    ec2.market.quotas.update(dict.fromkeys(ec2.market.quotas, 0.0))
    assert "quota" in bad(order=replace(ORDER, bid=None))
    assert "quota" not in bad(order=replace(ORDER, bid=None, reservation="cr-0abc"))


def test_a_profile_that_aws_does_not_know_is_a_note_because_it_may_be_new(ec2: Ec2) -> None:
    found = findings(order=replace(ORDER, identity="unknown"))["profile unknown"]
    assert (found.level, "aws iam list-instance-profiles" in found.cure) == (Level.NOTE, True)
    assert not ec2.machines()


def test_a_check_without_its_permission_is_a_note_unless_orders_need_it_too(ec2: Ec2) -> None:
    ec2.denied |= {"DescribeRouteTables", "DescribeSubnets"}
    found = findings()
    assert found["route"].level is Level.NOTE
    assert found["subnet in us-east-1a"].level is Level.NO_ACCESS
    assert "DescribeSubnets" in found["subnet in us-east-1a"].detail
