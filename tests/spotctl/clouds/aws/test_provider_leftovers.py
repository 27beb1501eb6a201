"""What `gc` finds and removes: everything under a tag, also what a killed caller half made, and
nothing else.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from spotctl.clouds.aws import inventory
from spotctl.clouds.aws.orders import tag_list
from spotctl.clouds.aws.provider import AwsProvider
from spotctl.clouds.aws.session import AwsSession
from spotctl.clouds.errors import Unanswered
from spotctl.clouds.provider import MachineRequest, MachineState, Resource
from spotctl.home.installation import INSTALLATION_TAG
from tests.cloud.aws import as_owner
from tests.servers.aws import AwsFault, ec2_error
from tests.spotctl.clouds.aws.ec2 import Ec2
from tests.spotctl.clouds.aws.standins import BID, MARKET, provider

OURS, THEIRS = {INSTALLATION_TAG: "i1"}, {INSTALLATION_TAG: "i2"}
ORDER = MachineRequest("t1", MARKET, 2, BID, 4_000_000_000 * 1_000_000, OURS)


def kinds(provider: AwsProvider, tags: dict[str, str]) -> list[str]:
    return [one.kind for one in provider.resources(tags)]


def scatter(tags: dict[str, str]) -> None:
    """One of each kind, as half-made or forgotten things are."""
    name = f"spotctl-{tags[INSTALLATION_TAG]}"

    def tagged(kind: str) -> list[dict[str, Any]]:
        return [{"ResourceType": kind, "Tags": tag_list(tags)}]

    with as_owner(), AwsSession().client("ec2", "us-east-1") as ec2:
        zone = [{"Name": "availability-zone", "Values": ["us-east-1a"]}]
        subnet = ec2.call("DescribeSubnets", Filters=zone)["Subnets"][0]
        ec2.call(
            "CreateVolume",
            Size=8,
            AvailabilityZone="us-east-1a",
            TagSpecifications=tagged("volume"),
        )
        ec2.call(
            "CreateNetworkInterface",
            SubnetId=subnet["SubnetId"],
            TagSpecifications=tagged("network-interface"),
        )
        ec2.call("AllocateAddress", Domain="vpc", TagSpecifications=tagged("elastic-ip"))
        ec2.call("CreateKeyPair", KeyName=name, TagSpecifications=tagged("key-pair"))
        ec2.call(
            "CreateSecurityGroup",
            GroupName=name,
            Description=name,
            VpcId=subnet["VpcId"],
            TagSpecifications=tagged("security-group"),
        )
        ec2.call(
            "CreateLaunchTemplate",
            LaunchTemplateName=name,
            LaunchTemplateData={"InstanceType": "t3.micro"},
            TagSpecifications=tagged("launch-template"),
        )
        ec2.call(
            "CreatePlacementGroup",
            GroupName=name,
            Strategy="cluster",
            TagSpecifications=tagged("placement-group"),
        )


def test_what_cannot_be_removed_does_not_spare_the_others(ec2: Ec2) -> None:
    scatter(OURS)
    here = provider()
    found = here.resources(OURS)
    ec2.server.faults.append(
        AwsFault("/", ec2_error("Unavailable", status=503), action="DeleteVolume", times=99)
    )
    with pytest.raises(Unanswered, match="DeleteVolume"):
        here.remove(found)
    assert kinds(here, OURS) == ["disk"]


def test_disks_and_interfaces_of_machines_are_not_listed_next_to_them(ec2: Ec2) -> None:
    here = provider()
    here.create(ORDER)
    assert kinds(here, OURS) == ["machine", "machine", "security group"]
    assert kinds(here, THEIRS) == []
    assert ec2.machines()


@pytest.mark.usefixtures("ec2")
def test_everything_of_an_installation_is_found_and_removed_and_nothing_else() -> None:
    here = provider()
    here.create(ORDER)
    theirs = here.create(replace(ORDER, tags=THEIRS))
    scatter(OURS)
    scatter(THEIRS)
    assert sorted(set(kinds(here, OURS))) == sorted(
        "address,disk,key pair,launch template,machine,network interface,placement group,security group".split(
            ","
        )
    )
    before = here.resources(THEIRS)
    here.remove(here.resources(OURS))
    assert here.resources(OURS) == ()
    assert here.resources(THEIRS) == before
    assert {one.state for one in here.list(THEIRS)} == {MachineState.RUNNING}
    assert {one.id for one in here.list(THEIRS)} == {one.id for one in theirs}


def test_spot_requests_that_are_still_open_are_cancelled(ec2: Ec2) -> None:
    here = provider()
    here.create(replace(ORDER, count=1))
    (machine,) = ec2.machines()
    request = ec2.lease(machine.id).request
    assert request is not None
    request.state = "open"
    assert "spot request" in kinds(here, OURS)
    here.remove(here.resources(OURS))
    assert ec2.calls()["CancelSpotInstanceRequests"] == 1


@pytest.mark.usefixtures("ec2")
def test_removing_twice_is_no_error() -> None:
    here = provider()
    here.create(ORDER)
    scatter(OURS)
    found = here.resources(OURS)
    here.remove(found)
    here.remove(found)
    assert here.resources(OURS) == ()
    here.remove(
        [Resource("disk", "gcp:us-central1-a:x", {}), Resource("unknown", "aws:us-east-1:x", {})]
    )


def test_what_ending_machines_use_is_tried_again(ec2: Ec2, monkeypatch: pytest.MonkeyPatch) -> None:
    paused: list[float] = []
    monkeypatch.setattr("spotctl.clouds.aws.inventory.time.sleep", paused.append)
    here = provider()
    here.create(ORDER)
    in_use = AwsFault("/", ec2_error("DependencyViolation"), action="DeleteSecurityGroup", times=3)
    ec2.server.faults.append(in_use)
    here.remove(here.resources(OURS))
    assert here.resources(OURS) == ()
    assert paused == list(inventory.PAUSES[:3])
    here.create(replace(ORDER, token="t2"))
    in_use.times = 1000
    with pytest.raises(Unanswered, match=r"security group aws:us-east-1:sg-.*: still in use"):
        here.remove(here.resources(OURS))
    assert {one.state for one in here.list(OURS)} == {MachineState.GONE}
