"""What machines need besides an order: a subnet, a security group, an image that fits, a place close to others."""

from __future__ import annotations

from dataclasses import replace

import pytest
from moto.iam.models import iam_backends

from spotctl.clouds.aws.cloud import AwsMachineSettings
from spotctl.clouds.errors import NotFound, NotHere, Scope, TokenTaken
from spotctl.home.errors import BadRequest
from spotctl.home.installation import INSTALLATION_TAG, INTENT_TAG, RUN_TAG
from tests.spotctl.clouds.aws.ec2 import Ec2
from tests.spotctl.clouds.aws.standins import MARKET, SETTINGS, provider
from tests.spotctl.clouds.aws.test_orders import ORDER, TAGS, bought, image_in


def test_the_runs_group_admits_itself_and_ssh_from_where_the_settings_say(ec2: Ec2) -> None:
    settings = replace(SETTINGS, ssh_from=("203.0.113.7/32", "2001:db8::/32"))
    here = provider(settings)
    here.create(ORDER)
    here.create(replace(ORDER, token="t2"))
    assert len(ec2.asked("CreateSecurityGroup")) == 1
    (group,) = own_groups(ec2)
    sources = [
        (rule.ip_protocol, rule.from_port, rule.to_port, source_of(rule))
        for rule in group.ingress_rules
    ]
    assert sorted(sources, key=str) == sorted(
        [
            ("-1", None, None, group.id),
            ("tcp", 22, 22, "203.0.113.7/32"),
            ("tcp", 22, 22, "2001:db8::/32"),
        ],
        key=str,
    )


def test_a_group_without_all_its_rules_is_completed_and_others_are_revoked(ec2: Ec2) -> None:
    """A caller was killed between creating the group and its rules; the laptop has a new
    address."""
    provider(replace(SETTINGS, ssh_from=("198.51.100.9/32",))).create(ORDER)
    (group,) = own_groups(ec2)
    group.ingress_rules = [rule for rule in group.ingress_rules if rule.ip_protocol != "-1"]
    provider().create(replace(ORDER, token="t2"))
    (group,) = own_groups(ec2)
    assert {source_of(rule) for rule in group.ingress_rules} == {group.id, "203.0.113.7/32"}
    assert len(ec2.asked("CreateSecurityGroup")) == 1


def test_without_an_address_that_may_log_in_nothing_is_bought(ec2: Ec2) -> None:
    with pytest.raises(BadRequest, match=r"ssh_from in \[aws\] of config\.toml"):
        provider(AwsMachineSettings()).create(ORDER)
    assert not ec2.asked("RunInstances")
    assert not ec2.asked("CreateSecurityGroup")


def test_existing_network_key_and_no_public_address_are_used_as_set(ec2: Ec2) -> None:
    backend = ec2.backend("us-east-1")
    (subnet,) = backend.describe_subnets(filters={"availability-zone": ["us-east-1a"]})
    group = backend.create_security_group("theirs", "theirs", subnet.vpc_id)
    settings = AwsMachineSettings(
        subnets=("subnet-elsewhere", subnet.id),
        security_groups=(group.id,),
        public_ip=False,
        kms_key="alias/theirs",
        regions=("us-east-1",),
    )
    iam_backends[ec2.account]["aws"].create_instance_profile("trainer", "/", [])
    (machine, _) = provider(settings).create(replace(ORDER, identity="trainer", disk_gib=200))
    arguments = bought(ec2)
    subset = {
        "NetworkInterface.1.SubnetId": subnet.id,
        "NetworkInterface.1.SecurityGroupId.1": group.id,
        "NetworkInterface.1.AssociatePublicIpAddress": "false",
        "BlockDeviceMapping.1.Ebs.KmsKeyId": "alias/theirs",
        "BlockDeviceMapping.1.Ebs.VolumeSize": "200",
        "IamInstanceProfile.Name": "trainer",
    }
    assert {name: arguments.get(name) for name in subset} == subset
    assert not ec2.asked("CreateSecurityGroup")
    assert machine.address


def test_a_zone_without_a_subnet_is_not_a_market(ec2: Ec2) -> None:
    with pytest.raises(NotFound, match=r"none of the subnets subnet-1 is in us-east-1a"):
        provider(replace(SETTINGS, subnets=("subnet-1",))).create(ORDER)
    backend = ec2.backend("us-east-1")
    for subnet in backend.describe_subnets(filters={"availabilityZone": "us-east-1a"}):
        backend.delete_subnet(subnet.id)
    with pytest.raises(
        NotHere, match=r"create-default-subnet .*--availability-zone us-east-1a"
    ) as refused:
        provider().create(ORDER)
    assert refused.value.scope is Scope.ZONE
    for subnet in list(backend.describe_subnets()):
        backend.delete_subnet(subnet.id)
    with pytest.raises(NotHere, match="create-default-vpc") as refused:
        provider().create(ORDER)
    assert refused.value.scope is Scope.REGION


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"image": "ami-00000000000000000"}, "InvalidAMIID.NotFound.*name an image of this region"),
        ({"image": "/no/such/parameter"}, "ParameterNotFound"),
        ({"image": "ubuntu"}, "'ubuntu' is neither an AMI"),
    ],
)
def test_an_image_that_does_not_fit_is_refused_before_anything_is_bought(
    ec2: Ec2, change: dict[str, object], message: str
) -> None:
    with pytest.raises(BadRequest, match=message):
        provider().create(replace(ORDER, **change))  # type: ignore[arg-type]
    assert not ec2.asked("RunInstances")
    assert not ec2.asked("CreateSecurityGroup")


def test_an_image_of_another_architecture_is_refused(ec2: Ec2) -> None:
    with pytest.raises(BadRequest, match=r"is for arm64, and c5.large is x86_64"):
        provider().create(replace(ORDER, image=image_in(ec2, "arm64")))
    assert not ec2.asked("RunInstances")


def own_groups(ec2: Ec2) -> list:  # type: ignore[type-arg]  # moto's
    groups = ec2.backend("us-east-1").describe_security_groups()
    return [group for group in groups if group.name.startswith("spotctl-")]


def source_of(rule) -> str:  # type: ignore[no-untyped-def]  # noqa: ANN001 - moto's
    return str(rule.cidr_ipv4 or rule.cidr_ipv6 or rule.source_group["GroupId"])


class TestCloseMachines:
    """Machines that are placed close together."""

    CLOSE = replace(ORDER, market=replace(MARKET, instance_type="c5.large"), close=True)

    def test_they_are_in_one_group_of_the_run_which_is_removed_with_it(self, ec2: Ec2) -> None:
        here = provider()
        machines = here.create(self.CLOSE)
        provider().create(replace(self.CLOSE, token="t2", tags={**TAGS, INTENT_TAG: "5"}))
        (group,) = ec2.placement.all()
        assert group.strategy == "cluster"
        assert [arguments["Placement.GroupName"] for arguments in ec2.asked("RunInstances")] == [
            group.name
        ] * 2
        assert group.tags.items() >= {INSTALLATION_TAG: "i1", RUN_TAG: "job-1"}.items()
        assert INTENT_TAG not in group.tags
        assert len(group.members) == 4
        of_run = {INSTALLATION_TAG: "i1", RUN_TAG: "job-1"}
        (listed,) = [one for one in here.resources(of_run) if one.kind == "placement group"]
        assert listed.id.endswith(group.name)
        here.terminate([machine.id for machine in machines])
        here.remove(here.resources(of_run))
        assert not [*ec2.placement.all()]
        assert not here.resources(of_run)

    def test_a_repeated_order_brings_the_same_machines_and_no_second_group(self, ec2: Ec2) -> None:
        machines = provider().create(self.CLOSE)
        again = provider().create(self.CLOSE)
        assert [machine.id for machine in again] == [machine.id for machine in machines]
        assert len([*ec2.placement.all()]) == 1
        with pytest.raises(TokenTaken):
            provider().create(replace(self.CLOSE, close=False))

    def test_a_group_that_was_removed_is_made_again(self, ec2: Ec2) -> None:
        here = provider()
        here.create(self.CLOSE)
        here.remove(here.resources(TAGS))
        ec2.wait()
        here.remove(here.resources({INSTALLATION_TAG: "i1", RUN_TAG: "job-1"}))
        here.create(replace(self.CLOSE, token="t3"))
        assert len([*ec2.placement.all()]) == 1

    def test_types_that_cannot_are_refused_by_name_before_anything_is_bought(
        self, ec2: Ec2
    ) -> None:
        with pytest.raises(NotFound, match=r"puts no t3\.large into a cluster placement group"):
            provider().create(replace(self.CLOSE, market=replace(MARKET, instance_type="t3.large")))
        assert not ec2.asked("RunInstances")
        assert not [*ec2.placement.all()]

    def test_other_machines_are_in_none(self, ec2: Ec2) -> None:
        provider().create(ORDER)
        assert not [name for name in bought(ec2) if name.startswith("Placement")]
