"""A client of EC2 for tests of the simulated AWS: orders, and what is asked about them."""

from __future__ import annotations

from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.cloud.aws import OWNER, AwsServer
from tests.waiting import eventually

TYPE, ZONE = "c6i.large", "us-east-1a"
IMAGE = "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"
KINDS = ("instance", "volume", "network-interface", "spot-instances-request")


def client_of(aws: AwsServer, service: str) -> Any:  # noqa: ANN401  # boto3's
    once = Config(retries={"total_max_attempts": 1})
    key = {"aws_access_key_id": OWNER, "aws_secret_access_key": "loopback"}
    # With its type, mypy would try hundreds of overloads, one for each service.
    session: Any = boto3.Session()
    return session.client(service, endpoint_url=aws.server.url, config=once, **key)


def order(ec2: Any, **changes: Any) -> dict[str, Any]:  # noqa: ANN401
    """A spot order of one machine; a change of None leaves an argument out."""
    ssm = boto3.Session().client("ssm")
    image = ssm.get_parameter(Name=IMAGE)["Parameter"].get("Value")
    ssm.close()
    zone = [{"Name": "availability-zone", "Values": [ZONE]}]
    subnet = ec2.describe_subnets(Filters=zone)["Subnets"][0]["SubnetId"]
    usual: dict[str, Any] = {
        "ImageId": image,
        "InstanceType": TYPE,
        "MinCount": 1,
        "MaxCount": 1,
        "ClientToken": "t1",
        "InstanceInitiatedShutdownBehavior": "terminate",
        "InstanceMarketOptions": {"MarketType": "spot", "SpotOptions": {"MaxPrice": "0.08"}},
        "MetadataOptions": {"HttpTokens": "required"},
        "NetworkInterfaces": [
            {
                "DeviceIndex": 0,
                "SubnetId": subnet,
                "AssociatePublicIpAddress": True,
                "DeleteOnTermination": True,
            }
        ],
        "TagSpecifications": [
            {"ResourceType": kind, "Tags": [{"Key": "run", "Value": "a"}]} for kind in KINDS
        ],
    }
    return {name: value for name, value in {**usual, **changes}.items() if value is not None}


def on_demand(ec2: Any, **changes: Any) -> dict[str, Any]:  # noqa: ANN401
    return order(ec2, InstanceMarketOptions=None, TagSpecifications=None, **changes)


def ran(answer: dict[str, Any]) -> list[str]:
    return [one["InstanceId"] for one in answer["Instances"]]


def described(ec2: Any, **arguments: Any) -> list[dict[str, Any]]:  # noqa: ANN401
    found = ec2.describe_instances(**arguments)["Reservations"]
    return [one for reservation in found for one in reservation["Instances"]]


def refused(call: Any, **arguments: Any) -> str:  # noqa: ANN401
    with pytest.raises(ClientError) as refusal:
        call(**arguments)
    return str(refusal.value.response["Error"].get("Code"))


def terminated(ec2: Any, *ids: str) -> list[dict[str, Any]]:  # noqa: ANN401
    """The instances, once they have ended."""

    def ended() -> bool:
        return all(
            one["State"]["Name"] == "terminated" for one in described(ec2, InstanceIds=list(ids))
        )

    eventually(ended)
    return described(ec2, InstanceIds=list(ids))


def group_of(ec2: Any, name: str) -> str:  # noqa: ANN401
    vpc = ec2.describe_vpcs()["Vpcs"][0]["VpcId"]
    return str(ec2.create_security_group(GroupName=name, Description="d", VpcId=vpc)["GroupId"])


def ssh_rule(port: int, source: str) -> dict[str, Any]:
    return {"IpProtocol": "tcp", "FromPort": port, "ToPort": port, "IpRanges": [{"CidrIp": source}]}


def reachable(ec2: Any, request: dict[str, Any]) -> dict[str, Any]:  # noqa: ANN401
    """The order, in a security group that lets this computer in."""
    group = group_of(ec2, "reachable")
    ec2.authorize_security_group_ingress(
        GroupId=group, IpPermissions=[ssh_rule(22, "203.0.113.0/24")]
    )
    request["NetworkInterfaces"][0]["Groups"] = [group]
    return request
