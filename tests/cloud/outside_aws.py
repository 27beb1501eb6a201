"""AWS of another author: moto's server in a process of its own, which checks signatures and
permissions.

In front of it stands a proxy of ours that records requests, refuses what a test schedules, and
answers what moto lacks. `OURS` says what that is: nothing that is shown with it is evidence from
outside of this project.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from boto3 import Session

from pricing_data.units import to_datetime
from spotctl.clouds.aws.permissions import policy
from tests.cloud.aws import RUNNER
from tests.cloud.aws_catalog import publish_advisor, publish_products
from tests.cloud.aws_market import AwsMarket, quota_answer
from tests.cloud.images import images
from tests.servers.aws import (
    ADVISOR_PATH,
    AwsCloud,
    action_of,
    ec2_error,
    price_history_of,
    price_list_error,
)
from tests.servers.loopback import LoopbackServer, Reply, Request, serving
from tests.servers.processes import listening

OURS: Mapping[str, str] = {
    "GetParameter": "moto has no parameter that names an image of Ubuntu or of AWS's drivers; the list of images does",
    "GetServiceQuota": "moto has none of EC2",
    "GetProducts": "moto has no Price List",
    "DescribeSpotPriceHistory": "moto makes up a price, the same for all",
    "GetSpotPlacementScores": "moto has none",
    "DescribePlacementGroups": "moto has none",
    "CreatePlacementGroup": "moto has none; only a dry run is answered",
    ADVISOR_PATH: "the Spot Advisor's file is no part of an API",
}
"""The calls that the proxy answers in place of moto, with the reason for each."""

REGION = "us-east-1"
_ZONES = "abcdef"
_USER = "launcher"
_EC2 = {"Service": "ec2.amazonaws.com"}
_TRUST = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": _EC2, "Action": "sts:AssumeRole"}],
}
_EVERYTHING = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}],
}
_KEPT_BY_HTTP = {"connection", "content-length", "date", "server", "transfer-encoding"}


@dataclass
class Proxy:
    """`images` are the ids of moto's images by the parameters that name them."""

    port: int
    images: Mapping[str, str]
    cloud: AwsCloud = field(default_factory=AwsCloud)
    market: AwsMarket = field(default_factory=AwsMarket)

    def answer(self, request: Request) -> Reply:
        own = {
            "GetParameter": self._image,
            "GetServiceQuota": self._quota,
            "GetProducts": self._products,
            "DescribeSpotPriceHistory": self._history,
            "GetSpotPlacementScores": lambda _: _empty(
                "GetSpotPlacementScores", "spotPlacementScoreSet"
            ),
            "DescribePlacementGroups": lambda _: _empty(
                "DescribePlacementGroups", "placementGroupSet"
            ),
            "CreatePlacementGroup": lambda _: ec2_error(
                "DryRunOperation", "Request would have succeeded", 412
            ),
            ADVISOR_PATH: self._advice,
        }
        assert own.keys() == OURS.keys()
        name = named(request)
        return own[name](request) if name in own else self._forwarded(request)

    def _image(self, request: Request) -> Reply:
        name = request.json()["Name"]
        if name not in self.images:
            return price_list_error("ParameterNotFound", "")
        return Reply.of_json({"Parameter": {"Name": name, "Value": self.images[name]}})

    def _quota(self, request: Request) -> Reply:
        found = quota_answer(self.market.quotas, request.json())
        return (
            Reply.of_json(found)
            if found
            else price_list_error("NoSuchResourceException", "no such quota")
        )

    def _products(self, request: Request) -> Reply:
        publish_products(
            self.cloud,
            self.market,
            {one["Field"]: one["Value"] for one in request.json()["Filters"]},
        )
        return self.cloud.answer(request)

    def _advice(self, request: Request) -> Reply:
        publish_advisor(self.cloud)
        return self.cloud.answer(request)

    def _history(self, _: Request) -> Reply:
        markets = [
            (f"{REGION}{zone}", name) for zone in _ZONES for name in ("c6i.large", "t3.micro")
        ]
        rows = (
            {
                "instanceType": name,
                "productDescription": "Linux/UNIX",
                "spotPrice": f"{usd:.6f}",
                "timestamp": _time(when),
                "availabilityZone": zone,
            }
            for zone, name in markets
            for when, usd in self.market.spot_changes(zone, name)
        )
        return price_history_of(*rows)

    def _forwarded(self, request: Request) -> Reply:
        """moto's answer to the same request, whose headers are signed."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60.0)
        try:
            connection.request(request.method, request.path, request.body, request.headers)
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        kept = {
            name: value for name, value in answer.getheaders() if name.lower() not in _KEPT_BY_HTTP
        }
        return Reply(answer.status, body, kept)


@dataclass(frozen=True)
class OutsideAws:
    """An account of moto with a user who has the policy that we print, and nothing else. `owner`
    may do everything.
    """

    proxy: LoopbackServer
    environment: Mapping[str, str]
    owner: Any
    port: int

    def ec2(self) -> Any:  # noqa: ANN401  # boto3's clients have no common type
        """A client of the account's owner, which asks moto itself."""
        return self._client("ec2")

    @contextmanager
    def without(self, action: str) -> Iterator[None]:
        """Denies the user an action for the duration of a `with` block."""
        iam = self._client("iam")
        statement = {"Effect": "Deny", "Action": action, "Resource": "*"}
        document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        iam.put_user_policy(UserName=_USER, PolicyName="denial", PolicyDocument=document)
        yield
        iam.delete_user_policy(UserName=_USER, PolicyName="denial")

    def _client(self, service: str) -> Any:  # noqa: ANN401  # see above
        return self.owner.client(service, endpoint_url=f"http://127.0.0.1:{self.port}")


@contextmanager
def outside_aws(folder: Path) -> Iterator[OutsideAws]:
    """The account, with an image under each parameter of the list of images, a profile, and a way
    to the internet.
    """
    # moto would make 1,300 images for each region.
    command = [
        "env",
        "MOTO_EC2_LOAD_DEFAULT_AMIS=false",
        sys.executable,
        "-m",
        "moto.server",
        "-p",
        "0",
    ]
    with listening(command, folder / "moto.log") as port:
        root: Any = Session("root", "root", region_name=REGION)
        ec2, iam = (
            root.client(name, endpoint_url=f"http://127.0.0.1:{port}") for name in ("ec2", "iam")
        )
        named = {
            image.name: ec2.register_image(
                Name=image.name[1:].replace("/", "-"),
                Architecture=image.architecture,
                RootDeviceName="/dev/sda1",
                VirtualizationType="hvm",
            )["ImageId"]
            for image in images("aws").values()
        }
        (network,) = ec2.describe_vpcs(Filters=[{"Name": "is-default", "Values": ["true"]}])["Vpcs"]
        gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
        ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=network["VpcId"])
        (table,) = ec2.describe_route_tables(
            Filters=[{"Name": "vpc-id", "Values": [network["VpcId"]]}]
        )["RouteTables"]
        ec2.create_route(
            RouteTableId=table["RouteTableId"], DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway
        )
        iam.create_role(RoleName=RUNNER, AssumeRolePolicyDocument=json.dumps(_TRUST))
        iam.create_instance_profile(InstanceProfileName=RUNNER)
        iam.add_role_to_instance_profile(InstanceProfileName=RUNNER, RoleName=RUNNER)
        keys = {name: _user(iam, name) for name in ("owner", _USER)}
        httpx.post(f"http://127.0.0.1:{port}/moto-api/reset-auth", content="0").raise_for_status()
        owner = Session(keys["owner"][0], keys["owner"][1], region_name=REGION)
        with serving(Proxy(port, named)) as proxy:
            yield OutsideAws(proxy, _environment(proxy.url, *keys[_USER]), owner, port)


# Boto3's clients have no common type.
def _user(iam: Any, name: str) -> tuple[str, str]:  # noqa: ANN401
    """The keys of a new user with a managed policy: the one that we print, or everything for the
    owner.
    """
    document = _actions(policy()) if name == _USER else _EVERYTHING
    iam.create_user(UserName=name)
    made = iam.create_policy(PolicyName=name, PolicyDocument=json.dumps(document))["Policy"]
    iam.attach_user_policy(UserName=name, PolicyArn=made["Arn"])
    key = iam.create_access_key(UserName=name)["AccessKey"]
    return key["AccessKeyId"], key["SecretAccessKey"]


def _actions(document: Mapping[str, Any]) -> dict[str, Any]:
    """A policy by its actions alone: moto compares neither resources nor tags."""
    statements = [
        {"Effect": one["Effect"], "Action": one["Action"], "Resource": "*"}
        for one in document["Statement"]
    ]
    return {"Version": document["Version"], "Statement": statements}


def _environment(url: str, key: str, secret: str) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": key,
        "AWS_SECRET_ACCESS_KEY": secret,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "SPOTCTL_AWS": f'regions = ["{REGION}"]\nssh_from = ["203.0.113.7/32"]',
        "SPOTCTL_AWS_SPOT_ADVISOR_URL": url + ADVISOR_PATH,
    }


def named(request: Request) -> str:
    """The action of a request, or the path of a file."""
    return action_of(request).rpartition(".")[2] or request.path


def _empty(action: str, holding: str) -> Reply:
    space = 'xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"'
    body = f"<{action}Response {space}><requestId>0-0</requestId><{holding}/></{action}Response>"
    return Reply(200, body.encode(), {"Content-Type": "text/xml"})


def _time(micros: int) -> str:
    return to_datetime(micros).strftime("%Y-%m-%dT%H:%M:%SZ")
