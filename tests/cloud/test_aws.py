"""AWS on this computer: what EC2 does and moto does not, asked through boto3. Most tests need no
machines.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest
from botocore.exceptions import BotoCoreError, HTTPClientError

from tests.cloud.aws import AwsServer
from tests.cloud.aws_market import SPOT_QUOTA
from tests.cloud.ec2_client import (
    TYPE,
    ZONE,
    client_of,
    described,
    group_of,
    on_demand,
    order,
    ran,
    reachable,
    refused,
    ssh_rule,
    terminated,
)
from tests.cloud.host import Records
from tests.cloud.namespaces import namespaces
from tests.cloud.ssh import Ssh
from tests.servers.aws import ADVISOR_PATH, AwsFault, ec2_error
from tests.servers.loopback import Request
from tests.waiting import eventually


@pytest.fixture
def host() -> Records:
    return Records()


@pytest.fixture
def aws(host: Records, monkeypatch: pytest.MonkeyPatch) -> Iterator[AwsServer]:
    with serving_on(host, monkeypatch) as server:
        yield server


@contextmanager
def serving_on(host: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[AwsServer]:  # noqa: ANN401
    server = AwsServer(host)
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    try:
        yield server
    finally:
        server.close()


@pytest.fixture
def ec2(aws: AwsServer) -> Iterator[Any]:
    client = client_of(aws, "ec2")
    yield client
    client.close()


def test_an_instance_is_a_machine_with_its_addresses_and_tags(
    aws: AwsServer,
    ec2: Any,  # noqa: ANN401
    host: Records,
) -> None:
    (id_,) = ran(ec2.run_instances(**order(ec2, UserData="#!/bin/sh\ntrue\n")))
    assert host.running() == (id_,)
    assert host.spec(id_).user_data == b"#!/bin/sh\ntrue\n"
    (one,) = described(ec2)
    (rented,) = aws.machines()
    assert (one["PrivateIpAddress"], one["PublicIpAddress"]) == (rented.private, rented.public)
    assert (one["InstanceLifecycle"], one["State"]["Name"]) == ("spot", "running")
    assert {left.kind: dict(left.tags) for left in aws.resources()} == {
        "instance": {"run": "a"},
        "volume": {"run": "a"},
        "network interface": {"run": "a"},
        "spot request": {"run": "a"},
    }


def test_a_token_is_served_once(aws: AwsServer, ec2: Any) -> None:  # noqa: ANN401
    request = order(ec2)
    first = ran(ec2.run_instances(**request))
    assert ran(ec2.run_instances(**request)) == first
    assert refused(ec2.run_instances, **{**request, "MaxCount": 2}) == "IdempotentParameterMismatch"
    assert len(aws.machines()) == 1
    ec2.terminate_instances(InstanceIds=first)
    terminated(ec2, *first)
    assert refused(ec2.run_instances, **request) == "IdempotentInstanceTerminated"
    assert ran(ec2.run_instances(**{**request, "ClientToken": "t2"})) != first


def test_an_answer_is_lost_after_the_machine_was_bought(aws: AwsServer, ec2: Any) -> None:  # noqa: ANN401
    request = order(ec2)
    aws.breaks(AwsFault("", action="RunInstances", lost=True))
    with pytest.raises(HTTPClientError):
        ec2.run_instances(**request)
    (bought,) = aws.machines()
    assert ran(ec2.run_instances(**request)) == [bought.id]


@pytest.mark.parametrize("action", ["start_instances", "stop_instances", "reboot_instances"])
def test_what_is_not_simulated_is_refused(ec2: Any, action: str) -> None:  # noqa: ANN401
    assert (
        refused(getattr(ec2, action), InstanceIds=["i-0123456789abcdef0"]) == "UnsupportedOperation"
    )


def test_faults_of_the_api(aws: AwsServer, ec2: Any) -> None:  # noqa: ANN401
    aws.breaks(
        AwsFault(
            "", reply=ec2_error("RequestLimitExceeded", status=503), action="DescribeInstances"
        )
    )
    assert refused(ec2.describe_instances) == "RequestLimitExceeded"
    aws.breaks(AwsFault("", action="DescribeInstances", delay_seconds=0.2))
    assert described(ec2) == []
    aws.denied.add("DescribeInstances")
    assert refused(ec2.describe_instances) == "UnauthorizedOperation"
    aws.denied.clear()
    aws.expired = True
    assert refused(ec2.describe_instances) == "RequestExpired"
    assert aws.calls()["DescribeInstances"] == 4


def test_a_new_instance_is_listed_late(aws: AwsServer, ec2: Any) -> None:  # noqa: ANN401
    aws.unseen_for = 2
    ids = ran(ec2.run_instances(**order(ec2)))
    assert described(ec2) == []
    assert refused(ec2.describe_instances, InstanceIds=ids) == "InvalidInstanceID.NotFound"
    assert [one["InstanceId"] for one in described(ec2)] == ids
    assert aws.machines()[0].ended is None


def test_instances_that_ended_are_forgotten_in_time(aws: AwsServer, ec2: Any) -> None:  # noqa: ANN401
    ids = ran(ec2.run_instances(**order(ec2)))
    ec2.terminate_instances(InstanceIds=ids)
    terminated(ec2, *ids)
    aws.forget_ended()
    assert described(ec2) == []
    assert [one.state for one in aws.machines()] == ["terminated"]


def test_orders_get_what_there_is(aws: AwsServer, ec2: Any) -> None:  # noqa: ANN401
    aws.market.capacity[ZONE, TYPE] = 3
    request = order(ec2, MaxCount=8)
    assert (
        refused(ec2.run_instances, **{**request, "MinCount": 4}) == "InsufficientInstanceCapacity"
    )
    assert len(ran(ec2.run_instances(**request))) == 3
    assert (
        refused(ec2.run_instances, **{**request, "ClientToken": "t2"})
        == "InsufficientInstanceCapacity"
    )


def test_quotas_count_virtual_cpus(aws: AwsServer, ec2: Any) -> None:  # noqa: ANN401
    aws.market.quotas = dict.fromkeys(aws.market.quotas, 4.0)
    ec2.run_instances(**order(ec2, MaxCount=2))
    assert (
        refused(ec2.run_instances, **order(ec2, ClientToken="t2")) == "MaxSpotInstanceCountExceeded"
    )
    ec2.run_instances(**on_demand(ec2, ClientToken="t3"))
    assert (
        refused(ec2.run_instances, **on_demand(ec2, MaxCount=2, ClientToken="t4"))
        == "VcpuLimitExceeded"
    )
    quotas = client_of(aws, "service-quotas")
    assert (
        quotas.get_service_quota(ServiceCode="ec2", QuotaCode=SPOT_QUOTA)["Quota"]["Value"] == 4.0
    )
    assert (
        refused(quotas.get_service_quota, ServiceCode="ec2", QuotaCode="L-0")
        == "NoSuchResourceException"
    )
    quotas.close()


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        ("InvalidAMIID.NotFound", {"ImageId": "ami-0123456789abcdef0"}),
        ("InvalidAMIID.Malformed", {"ImageId": "ubuntu"}),
        ("InvalidParameterValue", {"InstanceType": "c6i.tiny"}),
        ("InvalidParameterValue", {"InstanceType": "c6g.large"}),
        ("Unsupported", {"InstanceType": "p3dn.24xlarge"}),
        ("InvalidParameterValue", {"UserData": "#!/bin/sh\n" + "#" * 16375}),
        ("InvalidParameterValue", {"InstanceInitiatedShutdownBehavior": "hibernate"}),
        ("InvalidParameterValue", {"InstanceMarketOptions": None}),
        ("InvalidParameterCombination", {"SubnetId": "subnet-1"}),
        (
            "InvalidParameterCombination",
            {
                "InstanceMarketOptions": {
                    "MarketType": "spot",
                    "SpotOptions": {"InstanceInterruptionBehavior": "stop"},
                }
            },
        ),
        (
            "SpotMaxPriceTooLow",
            {"InstanceMarketOptions": {"MarketType": "spot", "SpotOptions": {"MaxPrice": "0.01"}}},
        ),
        (
            "InvalidBlockDeviceMapping",
            {"BlockDeviceMappings": [{"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 1}}]},
        ),
        ("InvalidParameterValue", {"MinCount": 2}),
        ("InvalidParameterValue", {"ClientToken": "t" * 65}),
        (
            "InvalidParameterValue",
            {
                "TagSpecifications": [
                    {"ResourceType": "instance", "Tags": [{"Key": "aws:run", "Value": "a"}]}
                ]
            },
        ),
    ],
)
def test_what_ec2_refuses(aws: AwsServer, ec2: Any, code: str, changes: dict[str, Any]) -> None:  # noqa: ANN401
    assert refused(ec2.run_instances, **order(ec2, **changes)) == code
    assert aws.machines() == ()
    assert aws.resources() == ()


def test_terminating_ends_the_bill_at_once_and_the_machine_soon(
    aws: AwsServer,
    ec2: Any,  # noqa: ANN401
    host: Records,
) -> None:
    ids = ran(ec2.run_instances(**order(ec2, MaxCount=2)))
    assert (
        refused(ec2.terminate_instances, InstanceIds=[ids[0], "i-0123456789abcdef0"])
        == "InvalidInstanceID.NotFound"
    )
    (row,) = ec2.terminate_instances(InstanceIds=ids[:1])["TerminatingInstances"]
    assert row["PreviousState"]["Name"] == "running"
    gone, kept = aws.machines()
    assert gone.ended is not None
    assert kept.ended is None
    (ended,) = terminated(ec2, ids[0])
    assert ended["StateReason"]["Code"] == "Client.UserInitiatedShutdown"
    assert ended["StateTransitionReason"].startswith("User initiated (")
    assert host.running() == (ids[1],)
    assert {left.kind: left.id for left in aws.resources()}["instance"] == ids[1]
    assert len(aws.resources()) == 4
    ec2.terminate_instances(InstanceIds=ids)
    terminated(ec2, *ids)
    assert aws.machines()[0] == replace(gone, state="terminated")
    assert aws.resources() == ()


def test_a_machine_that_powers_itself_off_is_terminated(
    aws: AwsServer,
    ec2: Any,  # noqa: ANN401
    host: Records,
) -> None:
    (id_,) = ran(ec2.run_instances(**order(ec2)))
    host.end(id_)
    (one,) = terminated(ec2, id_)
    assert one["StateReason"]["Code"] == "Client.InstanceInitiatedShutdown"
    assert one["StateTransitionReason"] == "User initiated"
    (request,) = ec2.describe_spot_instance_requests()["SpotInstanceRequests"]
    assert (request["State"], request["Status"]["Code"]) == (
        "closed",
        "instance-terminated-by-user",
    )
    assert aws.resources() == ()


def test_by_default_a_machine_that_powers_itself_off_is_only_stopped(
    aws: AwsServer,
    ec2: Any,  # noqa: ANN401
    host: Records,
) -> None:
    (id_,) = ran(ec2.run_instances(**order(ec2, InstanceInitiatedShutdownBehavior=None)))
    host.end(id_)
    (one,) = described(ec2)
    assert one["State"]["Name"] == "stopped"
    assert aws.machines()[0].ended is None
    assert {left.kind for left in aws.resources()} == {
        "instance",
        "volume",
        "network interface",
        "spot request",
    }


def imds(host: Records, machine: str, path: str, token: str | None = None) -> tuple[int, str]:
    headers = {"x-aws-ec2-metadata-token": token} if token else {}
    reply = host.ask(machine, Request("GET", quote(path), {}, headers, b""))
    return reply.status, reply.body.decode()


def token_of(host: Records, machine: str) -> str:
    headers = {"x-aws-ec2-metadata-token-ttl-seconds": "60"}
    return host.ask(machine, Request("PUT", "/latest/api/token", {}, headers, b"")).body.decode()


def test_metadata_needs_a_token(ec2: Any, host: Records) -> None:  # noqa: ANN401
    (id_,) = ran(ec2.run_instances(**order(ec2, UserData="#!/bin/sh\n")))
    assert imds(host, id_, "/latest/meta-data/instance-id")[0] == 401
    assert imds(host, id_, "/latest/meta-data/instance-id", "guessed")[0] == 401
    token = token_of(host, id_)
    assert imds(host, id_, "/latest/meta-data/instance-id", token) == (200, id_)
    assert imds(host, id_, "/latest/user-data", token) == (200, "#!/bin/sh\n")
    assert imds(host, id_, "/latest/meta-data/placement/", token) == (
        200,
        "availability-zone\nregion",
    )
    assert imds(host, id_, "/latest/meta-data/spot/instance-action", token)[0] == 404
    document = json.loads(imds(host, id_, "/latest/dynamic/instance-identity/document", token)[1])
    assert (document["instanceId"], document["region"]) == (id_, "us-east-1")
    no_lifetime = host.ask(id_, Request("PUT", "/latest/api/token", {}, {}, b""))
    assert no_lifetime.status == 400


def test_an_eviction_is_announced_and_carried_out(aws: AwsServer, ec2: Any, host: Records) -> None:  # noqa: ANN401
    (id_,) = ran(ec2.run_instances(**order(ec2)))
    token = token_of(host, id_)
    aws.evict(id_, 0.2)
    action = json.loads(imds(host, id_, "/latest/meta-data/spot/instance-action", token)[1])
    assert action["action"] == "terminate"
    (one,) = terminated(ec2, id_)
    assert one["StateReason"]["Code"] == "Server.SpotInstanceTermination"
    (request,) = ec2.describe_spot_instance_requests()["SpotInstanceRequests"]
    assert request["Status"]["Code"] == "instance-terminated-no-capacity"
    assert aws.machines()[0].usd == 0.0
    assert host.running() == ()


def test_an_eviction_without_warning(aws: AwsServer, ec2: Any) -> None:  # noqa: ANN401
    (id_,) = ran(ec2.run_instances(**order(ec2)))
    aws.recommend_rebalance(id_)
    aws.evict(id_, None)
    terminated(ec2, id_)
    with pytest.raises(KeyError):
        aws.evict(id_, None)


def test_only_spot_machines_are_evicted(aws: AwsServer, ec2: Any) -> None:  # noqa: ANN401
    (id_,) = ran(ec2.run_instances(**on_demand(ec2)))
    with pytest.raises(ValueError, match="not a spot instance"):
        aws.evict(id_, None)


def test_a_price_above_the_maximum_evicts(aws: AwsServer, ec2: Any) -> None:  # noqa: ANN401
    cheap, rich = (
        ran(ec2.run_instances(**order(ec2, ClientToken=limit, InstanceMarketOptions=spot(limit))))[
            0
        ]
        for limit in ("0.04", "0.06")
    )
    aws.set_spot_price(ZONE, TYPE, 0.05, warning_seconds=None)
    terminated(ec2, cheap)
    assert [one.id for one in aws.machines() if one.ended is None] == [rich]
    history = ec2.describe_spot_price_history(InstanceTypes=[TYPE], AvailabilityZone=ZONE)[
        "SpotPriceHistory"
    ]
    assert float(history[0]["SpotPrice"]) == 0.05
    assert refused(
        ec2.run_instances, **order(ec2, ClientToken="t2", InstanceMarketOptions=spot("0.04"))
    )


def spot(limit: str) -> dict[str, Any]:
    return {"MarketType": "spot", "SpotOptions": {"MaxPrice": limit}}


def test_a_machine_is_paid_by_the_second_and_for_a_minute_at_least(
    aws: AwsServer,
    ec2: Any,  # noqa: ANN401
) -> None:
    ec2.run_instances(**order(ec2))
    ec2.run_instances(**on_demand(ec2, ClientToken="t2"))
    by_spot, by_demand = aws.books.leases.values()
    usd = aws.market.on_demand(TYPE)
    assert by_demand.usd(by_demand.started + 7_200_000_000) == pytest.approx(2 * usd)
    assert by_demand.usd(by_demand.started + 1_000_000) == pytest.approx(usd / 60)
    started, spot_usd = by_spot.started, aws.market.spot(ZONE, TYPE)
    aws.market.spot_changes(ZONE, TYPE).append((started + 3_600_000_000, 2 * spot_usd))
    assert by_spot.usd(started + 7_200_000_000) == pytest.approx(3 * spot_usd)


def test_the_console_is_the_machines_own(ec2: Any, host: Records) -> None:  # noqa: ANN401
    (id_,) = ran(ec2.run_instances(**order(ec2)))
    host.write_console(id_, "booted\n")
    assert ec2.get_console_output(InstanceId=id_, Latest=True)["Output"] == "booted\n"


def test_a_security_group_in_use_stays(ec2: Any) -> None:  # noqa: ANN401
    group = group_of(ec2, "g")
    request = order(ec2)
    request["NetworkInterfaces"][0]["Groups"] = [group]
    ids = ran(ec2.run_instances(**request))
    assert refused(ec2.delete_security_group, GroupId=group) == "DependencyViolation"
    ec2.terminate_instances(InstanceIds=ids)
    terminated(ec2, *ids)
    ec2.delete_security_group(GroupId=group)


def test_only_a_security_group_admits_ssh(ec2: Any, host: Records) -> None:  # noqa: ANN401
    group = group_of(ec2, "g")
    request = order(ec2)
    request["NetworkInterfaces"][0]["Groups"] = [group]
    (id_,) = ran(ec2.run_instances(**request))
    assert not host.spec(id_).admits_ssh()
    for rule in (ssh_rule(443, "0.0.0.0/0"), ssh_rule(22, "198.51.100.0/24")):
        ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=[rule])
        assert not host.spec(id_).admits_ssh()
    ours = ssh_rule(22, "203.0.113.7/32")
    ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=[ours])
    assert host.spec(id_).admits_ssh()
    ec2.revoke_security_group_ingress(GroupId=group, IpPermissions=[ours])
    assert not host.spec(id_).admits_ssh()


def test_accounts_share_nothing(aws: AwsServer, ec2: Any) -> None:  # noqa: ANN401
    other = AwsServer(Records())
    ec2.run_instances(**order(ec2))
    client = client_of(other, "ec2")
    assert described(client) == []
    other.close()
    with pytest.raises(BotoCoreError):
        client.describe_instances()
    client.close()
    assert len(described(ec2)) == 1
    assert len(aws.machines()) == 1


def test_blobs_are_kept(aws: AwsServer) -> None:
    s3 = client_of(aws, "s3")
    s3.create_bucket(Bucket="outputs")
    s3.put_object(Bucket="outputs", Key="model/part 1", Body=b"weights" * 9999)
    assert s3.get_object(Bucket="outputs", Key="model/part 1")["Body"].read() == b"weights" * 9999
    assert s3.head_object(Bucket="outputs", Key="model/part 1")["ContentLength"] == 69993
    (listed,) = s3.list_objects_v2(Bucket="outputs", Prefix="model/")["Contents"]
    assert listed["Key"] == "model/part 1"
    s3.delete_object(Bucket="outputs", Key="model/part 1")
    assert s3.list_objects_v2(Bucket="outputs")["KeyCount"] == 0
    s3.close()


_ASK = """
import urllib.request as u
base = 'http://169.254.169.254/latest/'
life = {'X-aws-ec2-metadata-token-ttl-seconds': '60'}
token = u.urlopen(u.Request(base + 'api/token', method='PUT', headers=life)).read().decode()
told = u.Request(base + 'meta-data/instance-id', headers={'X-aws-ec2-metadata-token': token})
print('I am', u.urlopen(told).read().decode())
"""


@pytest.mark.cloud
def test_a_machine_from_its_order_to_the_end_of_its_bill(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    ssh = Ssh.in_folder(tmp_path_factory.mktemp("ssh"))
    with namespaces() as host, serving_on(host, monkeypatch) as aws:
        ec2 = client_of(aws, "ec2")
        script = f'python3 -c "{_ASK}"'
        (id_,) = ran(
            ec2.run_instances(**reachable(ec2, order(ec2, UserData=ssh.user_data(script).decode())))
        )
        (one,) = described(ec2)
        address = one["PublicIpAddress"]
        assert ssh.run(address, "hostname").strip() == id_
        eventually(lambda: "I am" in ec2.get_console_output(InstanceId=id_, Latest=True)["Output"])
        assert ec2.get_console_output(InstanceId=id_)["Output"] == f"I am {id_}\n"
        reached = "from urllib.request import urlopen as u; u('$AWS_ENDPOINT_URL/bucket')"
        assert "404" in ssh.run(address, f'python3 -c "{reached}" 2>&1 || true')
        ssh.try_run(address, "shutdown -h now")
        eventually(lambda: aws.machines()[0].ended is not None)
        terminated(ec2, id_)
        (rented,) = aws.machines()
        assert rented.reason == "Client.InstanceInitiatedShutdown"
        assert rented.usd == pytest.approx(aws.market.spot(ZONE, TYPE) / 60)
        assert [one.kind for one in aws.resources()] == ["security group"]
        ec2.close()


def test_what_aws_publishes_can_be_asked(aws: AwsServer, ec2: Any) -> None:  # noqa: ANN401
    zones = {zone["ZoneId"] for zone in ec2.describe_availability_zones()["AvailabilityZones"]}
    scores = ec2.get_spot_placement_scores(
        InstanceTypes=[TYPE],
        RegionNames=["us-east-1"],
        SingleAvailabilityZone=True,
        TargetCapacity=1,
    )["SpotPlacementScores"]
    assert {one["AvailabilityZoneId"] for one in scores} == zones
    wanted = {"instanceType": TYPE, "regionCode": "us-east-1"}
    filters = [
        {"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in wanted.items()
    ]
    pricing = client_of(aws, "pricing")
    (product,) = pricing.get_products(ServiceCode="AmazonEC2", Filters=filters)["PriceList"]
    assert f"{aws.market.on_demand(TYPE):.10f}" in product
    pricing.close()
    now = datetime.now(UTC)
    history = ec2.describe_spot_price_history(
        Filters=[{"Name": "instance-type", "Values": ["c6i.l*"]}],
        StartTime=now - timedelta(days=8),
        EndTime=now,
    )["SpotPriceHistory"]
    assert {one["InstanceType"] for one in history} == {TYPE}
    assert len({one["AvailabilityZone"] for one in history}) > 3
    reply = aws.answer(Request("GET", ADVISOR_PATH, {}, {}, b""))
    assert json.loads(reply.body)["spot_advisor"]["us-east-1"]["Linux"][TYPE]["r"] == 0
