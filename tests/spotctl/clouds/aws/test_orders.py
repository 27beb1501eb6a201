"""What is bought: every argument of RunInstances, and what comes before it."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest

from pricing_data.units import HOUR
from spotctl.clouds.aws.orders import Ec2Hardware, MachineImage, disk_gib, parameter_for
from spotctl.clouds.errors import NoCapacity, NotFound
from spotctl.clouds.provider import MachineRequest, MachineState
from spotctl.home.errors import BadRequest
from spotctl.home.installation import INSTALLATION_TAG, INTENT_TAG, RUN_TAG
from tests.cloud.aws_market import public_image
from tests.cloud.aws_reservations import CapacityReservation
from tests.spotctl.clouds.aws.ec2 import Ec2
from tests.spotctl.clouds.aws.standins import BID, ELSEWHERE, MARKET, SETTINGS, provider

TAGS = {INSTALLATION_TAG: "i1", RUN_TAG: "job-1", INTENT_TAG: "4"}
ORDER = MachineRequest("t1", MARKET, 2, BID, 4_000_000_000 * 1_000_000, TAGS)


def bought(ec2: Ec2) -> dict[str, str]:
    (arguments,) = ec2.asked("RunInstances")
    return arguments


def tags_of(arguments: dict[str, str]) -> dict[str, dict[str, str]]:
    """The tags of a request, by the kind of resource that gets them."""
    found: dict[str, dict[str, str]] = {}
    for number in range(1, 10):
        if kind := arguments.get(f"TagSpecification.{number}.ResourceType"):
            start = f"TagSpecification.{number}.Tag."
            count = sum(name.startswith(start) and name.endswith(".Key") for name in arguments)
            found[kind] = {
                arguments[f"{start}{i}.Key"]: arguments[f"{start}{i}.Value"]
                for i in range(1, count + 1)
            }
    return found


def test_a_spot_machine_is_bought_with_all_that_its_life_and_its_end_need(ec2: Ec2) -> None:
    provider().create(ORDER)
    arguments = bought(ec2)
    subset = {
        "InstanceType": "c5.large",
        "MinCount": "1",
        "MaxCount": "2",
        "InstanceInitiatedShutdownBehavior": "terminate",
        "MetadataOptions.HttpTokens": "required",
        "MetadataOptions.HttpEndpoint": "enabled",
        "MetadataOptions.HttpPutResponseHopLimit": "1",
        "InstanceMarketOptions.MarketType": "spot",
        "InstanceMarketOptions.SpotOptions.MaxPrice": "0.1",
        "InstanceMarketOptions.SpotOptions.SpotInstanceType": "one-time",
        "InstanceMarketOptions.SpotOptions.InstanceInterruptionBehavior": "terminate",
        "BlockDeviceMapping.1.DeviceName": "/dev/sda1",
        "BlockDeviceMapping.1.Ebs.Encrypted": "true",
        "BlockDeviceMapping.1.Ebs.DeleteOnTermination": "true",
        "BlockDeviceMapping.1.Ebs.VolumeType": "gp3",
        "BlockDeviceMapping.1.Ebs.VolumeSize": "30",
        "NetworkInterface.1.DeviceIndex": "0",
        "NetworkInterface.1.AssociatePublicIpAddress": "true",
        "NetworkInterface.1.DeleteOnTermination": "true",
    }
    assert {name: arguments.get(name) for name in subset} == subset
    assert len(arguments["ClientToken"]) == 64
    assert base64.b64decode(arguments["UserData"]).startswith(b"#!/bin/sh\n# aws ")
    assert "KeyName" not in arguments
    assert "IamInstanceProfile.Name" not in arguments


def test_a_burstable_machine_is_ordered_without_credits_that_are_billed(ec2: Ec2) -> None:
    provider().create(ORDER)
    provider().create(replace(ORDER, token="t2", market=replace(MARKET, instance_type="t3.large")))
    plain, burstable = ec2.asked("RunInstances")
    assert burstable["CreditSpecification.CpuCredits"] == "standard"
    assert "CreditSpecification.CpuCredits" not in plain


def test_the_console_of_a_machine_without_nitro_is_read_once_ec2_shows_it(
    ec2: Ec2, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = provider()
    (machine,) = here.create(
        replace(ORDER, count=1, market=replace(MARKET, instance_type="m4.large"))
    )
    monkeypatch.setattr(ec2.host, "console", lambda _: "ssh-ed25519 AAAA")
    assert here.console(machine.id) == ""
    ec2.xen_console_seconds = 0.0
    assert here.console(machine.id) == "ssh-ed25519 AAAA"


def test_everything_that_is_created_is_tagged_at_its_creation(ec2: Ec2) -> None:
    company = {"cost-center": "1234"}
    provider(replace(SETTINGS, tags=company)).create(ORDER)
    kinds = tags_of(bought(ec2))
    assert set(kinds) == {"instance", "volume", "network-interface", "spot-instances-request"}
    for tags in kinds.values():
        assert tags.items() >= {**TAGS, **company}.items()
    (group,) = ec2.asked("CreateSecurityGroup")
    on_group = tags_of(group)["security-group"]
    assert on_group.items() >= {INSTALLATION_TAG: "i1", RUN_TAG: "job-1", **company}.items()
    assert INTENT_TAG not in on_group
    assert not ec2.asked("CreateTags")


@pytest.mark.usefixtures("ec2")
def test_tags_of_the_company_are_not_the_requests() -> None:
    here = provider(replace(SETTINGS, tags={"cost-center": "1234"}))
    (machine, _) = here.create(ORDER)
    assert dict(machine.tags) == TAGS
    assert here.list(TAGS)[0].tags == machine.tags


def test_a_machine_on_demand_has_no_spot_request_to_tag(ec2: Ec2) -> None:
    provider().create(replace(ORDER, bid=None))
    arguments = bought(ec2)
    assert not [name for name in arguments if name.startswith("InstanceMarketOptions")]
    assert "spot-instances-request" not in tags_of(arguments)


@pytest.mark.parametrize(
    ("type_", "image"),
    [
        ("c5.large", "canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"),
        ("m6g.large", "canonical/ubuntu/server/24.04/stable/current/arm64/hvm/ebs-gp3/ami-id"),
        (
            "g4dn.xlarge",
            "deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id",
        ),
    ],
)
def test_architecture_and_gpu_decide_the_image(ec2: Ec2, type_: str, image: str) -> None:
    provider().create(replace(ORDER, market=replace(MARKET, instance_type=type_)))
    named = ec2.backend("us-east-1").amis[bought(ec2)["ImageId"]]
    assert named.name == image


def test_an_image_can_be_named_in_the_job_or_in_the_settings(ec2: Ec2) -> None:
    own = image_in(ec2, "x86_64")
    provider().create(replace(ORDER, image=own))
    provider(replace(SETTINGS, image=own)).create(replace(ORDER, token="t2"))
    parameter = "/aws/service/debian/release/12/latest/amd64"
    provider(replace(SETTINGS, image=own)).create(replace(ORDER, token="t3", image=parameter))
    *ours, last = (one["ImageId"] for one in ec2.asked("RunInstances"))
    assert ours == [own, own]
    assert ec2.backend("us-east-1").amis[last].name == "debian/release/12/latest/amd64"


def test_gpus_whose_driver_no_image_of_aws_has() -> None:
    with pytest.raises(BadRequest, match="no driver for its V100; name one that has"):
        parameter_for(Ec2Hardware("p3.2xlarge", "x86_64", ("V100",)))
    amd = {"InstanceType": "g4ad.xlarge", "ProcessorInfo": {"SupportedArchitectures": ["x86_64"]}}
    gpus = {"GpuInfo": {"Gpus": [{"Name": "Radeon Pro V520", "Manufacturer": "AMD"}]}}
    assert "ubuntu/server" in parameter_for(Ec2Hardware.of({**amd, **gpus}))
    with pytest.raises(NotFound, match="neither x86_64 nor arm64"):
        parameter_for(Ec2Hardware("mac1.metal", ""))


def test_a_disk_has_room_for_the_image_and_for_the_libraries_of_gpus() -> None:
    disk = {"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 75}}
    row = {"ImageId": "ami-1", "RootDeviceName": "/dev/sda1", "BlockDeviceMappings": [disk]}
    least = MachineImage(row, Ec2Hardware("g4dn.xlarge", "x86_64", ("T4",))).least_gib
    assert (disk_gib("g4dn.xlarge", None, least), disk_gib("g4dn.xlarge", 200, least)) == (150, 200)
    assert (disk_gib("c5.xlarge", None, least), disk_gib("c5.xlarge", 20, least)) == (75, 75)


@pytest.mark.parametrize("wanted", [None, 40, 300])
def test_a_disk_is_billed_as_large_as_its_image_makes_it(
    ec2: Ec2, wanted: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = image_in(ec2, "x86_64")
    image = ec2.backend("us-east-1").amis[own]
    image.ebs_snapshot.volume.size = 200
    disk = {"DeviceName": image.root_device_name, "Ebs": {"VolumeSize": 200}}
    # moto describes all images with 15 GiB.
    monkeypatch.setattr(type(image), "block_device_mappings", [disk])
    in_settings = provider(replace(SETTINGS, image=own))
    in_settings.create(replace(ORDER, count=1, disk_gib=wanted))
    ordered = int(bought(ec2)["BlockDeviceMapping.1.Ebs.VolumeSize"])
    assert ordered == max(wanted or 0, 200)
    of_size = provider().holdings(MARKET, spot=True, disk_gib=ordered)
    assert in_settings.holdings(MARKET, spot=True, disk_gib=wanted) == of_size
    assert provider().holdings(MARKET, spot=True, disk_gib=wanted, image=own) == of_size
    assert provider().holdings(MARKET, spot=True, disk_gib=wanted).disk != of_size.disk or wanted


def test_what_is_billed_for_a_disk_needs_no_account_unless_an_image_is_named(ec2: Ec2) -> None:
    provider().holdings(MARKET, spot=True, disk_gib=None)
    assert not ec2.asked("DescribeImages")
    unknown = provider().holdings(MARKET, spot=True, disk_gib=None, image="ami-00000000")
    assert unknown == provider().holdings(MARKET, spot=True, disk_gib=None)


@pytest.mark.parametrize(
    "market",
    [
        replace(MARKET, zone="us-east-1z"),
        replace(MARKET, os="windows"),
        replace(MARKET, instance_type="z9.big"),
    ],
)
def test_a_market_that_does_not_exist_is_not_found(ec2: Ec2, market: object) -> None:
    with pytest.raises(NotFound, match="EC2 has no such market"):
        provider().create(replace(ORDER, market=market))  # type: ignore[arg-type]
    assert not ec2.asked("RunInstances")


def test_machines_of_several_regions_are_listed_together(ec2: Ec2) -> None:
    here = provider()
    one, other = (
        here.create(replace(ORDER, count=1)),
        here.create(replace(ORDER, token="t2", market=ELSEWHERE, count=1)),
    )
    assert {machine.id for machine in here.list(TAGS)} == {one[0].id, other[0].id}
    assert other[0].id.startswith("aws:us-west-2:i-")
    # Without regions in the settings, all that the account has enabled.
    everywhere = provider(replace(SETTINGS, regions=()))
    assert {machine.id for machine in everywhere.list(TAGS)} == {one[0].id, other[0].id}
    everywhere.terminate([one[0].id, other[0].id])
    ec2.wait()
    assert {machine.state for machine in here.list(TAGS)} == {MachineState.GONE}


def test_a_list_of_more_than_a_page_is_complete(ec2: Ec2) -> None:
    here = provider()
    for number in range(7):
        here.create(replace(ORDER, token=f"t{number}", count=1))
    ec2.page = 3
    assert len(here.list(TAGS)) == 7
    assert len(ec2.asked("DescribeInstances")) >= 7 + 3


def test_a_repeated_request_is_the_same_order_but_for_its_lease(ec2: Ec2) -> None:
    here = provider()
    ec2.hidden = 100
    here.create(ORDER)
    here.create(ORDER)
    first, second = ec2.asked("RunInstances")
    assert first == second
    ec2.hidden = 0
    here.create(replace(ORDER, lease_until=ORDER.lease_until + HOUR))
    assert len(ec2.asked("RunInstances")) == 2


def image_in(ec2: Ec2, architecture: str) -> str:
    """An image of the account."""
    name = {"x86_64": "amd64"}.get(architecture, architecture)
    image = public_image(f"/aws/service/debian/release/12/latest/{name}", ec2.backend("us-east-1"))
    assert image is not None
    return str(image["Parameter"]["Value"])


class TestReservedMachines:
    """Machines of a Capacity Reservation, and of a Capacity Block."""

    RESERVED = replace(
        ORDER,
        market=replace(MARKET, instance_type="c5.large", reservation="cr-0abc"),
        count=2,
        bid=None,
        reservation="cr-0abc",
    )

    def test_they_are_taken_from_the_reservation_and_from_nowhere_else(self, ec2: Ec2) -> None:
        held = ec2.reservations.reserve(CapacityReservation("cr-0abc", "c5.large", MARKET.zone, 2))
        ec2.market.quotas.update(dict.fromkeys(ec2.market.quotas, 0.0))
        here = provider()
        machines = here.create(self.RESERVED)
        assert (len(machines), held.free) == (2, 0)
        asked = ec2.asked("RunInstances")[0]
        target = "CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId"
        assert asked[target] == "cr-0abc"
        assert not [name for name in asked if name.startswith("InstanceMarketOptions")]
        with pytest.raises(NoCapacity, match="does not have sufficient"):
            here.create(replace(self.RESERVED, token="t2"))
        here.terminate([machine.id for machine in machines])
        ec2.wait()
        assert held.free == 2

    def test_an_order_for_more_gets_what_is_reserved(self, ec2: Ec2) -> None:
        ec2.reservations.reserve(CapacityReservation("cr-0abc", "c5.large", MARKET.zone, 1))
        assert len(provider().create(self.RESERVED)) == 1

    def test_a_capacity_block_is_a_market_type_of_its_own(self, ec2: Ec2) -> None:
        ec2.reservations.reserve(
            CapacityReservation("cr-0abc", "c5.large", MARKET.zone, 2, block=True)
        )
        assert len(provider().create(replace(self.RESERVED, block=True))) == 2
        assert ec2.asked("RunInstances")[0]["InstanceMarketOptions.MarketType"] == "capacity-block"
        with pytest.raises(BadRequest, match="market type does not match"):
            provider().create(replace(self.RESERVED, token="t2"))

    def test_a_reservation_that_does_not_exist_is_refused_by_name(self, ec2: Ec2) -> None:
        ec2.reservations.reserve(CapacityReservation("cr-0def", "c5.large", MARKET.zone, 2))
        with pytest.raises(
            NotFound,
            match=r"cr-0abc: .* does not exist; correct the id among the job's reservations",
        ):
            provider().create(self.RESERVED)

    @pytest.mark.parametrize(
        "kept", [{"type": "c5.xlarge"}, {"zone": "us-east-1c"}], ids=["type", "zone"]
    )
    def test_a_reservation_of_another_type_or_zone_is_refused(
        self, ec2: Ec2, kept: dict[str, str]
    ) -> None:
        ec2.reservations.reserve(
            replace(CapacityReservation("cr-0abc", "c5.large", MARKET.zone, 2), **kept)  # type: ignore[arg-type]
        )
        with pytest.raises(BadRequest, match="type or zone do not match the capacity reservation"):
            provider().create(self.RESERVED)

    def test_a_reservation_that_has_ended_is_refused(self, ec2: Ec2) -> None:
        ec2.reservations.reserve(
            CapacityReservation("cr-0abc", "c5.large", MARKET.zone, 2, state="expired")
        )
        with pytest.raises(NotFound, match=r"not active.*; it has ended, or has not begun"):
            provider().create(self.RESERVED)

    def test_a_repeated_order_brings_the_same_machines(self, ec2: Ec2) -> None:
        ec2.reservations.reserve(CapacityReservation("cr-0abc", "c5.large", MARKET.zone, 4))
        machines = provider().create(self.RESERVED)
        assert [one.id for one in provider().create(self.RESERVED)] == [
            machine.id for machine in machines
        ]
