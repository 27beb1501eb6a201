"""Every request to a cloud fits the SDK's description of the service, also those that are sent
without the SDK.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from google.iam.v1 import iam_policy_pb2
from google.protobuf.json_format import ParseDict

from spotctl.agent.lease.self_deletion import METADATA_HOST
from spotctl.clouds.azure.calls import ArmCall, Operation, TrialOperation
from spotctl.clouds.azure.cloud import AzureSettings
from spotctl.clouds.azure.session import AzureSession, NoToken
from spotctl.clouds.gcp import calls as gcp_permissions
from spotctl.clouds.provider import MachineRequest
from spotctl.home.installation import INSTALLATION_TAG
from tests.cloud.aws_reservations import CapacityReservation
from tests.servers.aws import action_of, arguments_of
from tests.servers.aws_models import misfits
from tests.servers.loopback import Request
from tests.spotctl.agent.lease.test_self_deletion import AZURE
from tests.spotctl.clouds.aws.ec2 import Ec2, running_ec2
from tests.spotctl.clouds.aws.standins import BID, MARKET, provider
from tests.spotctl.clouds.aws.test_provider_leftovers import scatter
from tests.spotctl.command_line import spotctl

_RUN = "Action=RunInstances&MinCount=1&MaxCount=1"
OURS = {INSTALLATION_TAG: "i1"}
ORDER = MachineRequest("t1", MARKET, 1, BID, 4_000_000_000 * 1_000_000, OURS)


# -- AWS -------------------------------------------------------------------------------------------


@pytest.fixture
def ec2(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ec2]:
    with running_ec2(monkeypatch, Ec2) as world:
        yield world


def rents_and_removes() -> None:
    here = provider()
    here.check_order(ORDER)
    (machine,) = here.create(ORDER)
    here.create(MachineRequest("t2", MARKET, 1, None, ORDER.lease_until, OURS, identity="spotctl"))
    here.console(machine.id)
    here.quotas("us-east-1", [MARKET.instance_type])
    here.admit_ssh(OURS, ["203.0.113.9/32"])
    here.simulate_eviction(machine.id)
    here.terminate([machine.id])
    scatter(OURS)
    here.remove(here.resources(OURS))


def asks_the_doctor() -> None:
    scatter(OURS)
    provider().create(ORDER)
    assert spotctl("doctor", "--json").code in (0, 1)


def fetches_prices() -> None:
    ended = spotctl(
        "prices", "fetch", "--cloud", "aws", "--region", "us-east-1", "--type", MARKET.instance_type
    )
    assert ended.code == 0, ended.err


PATHS: Mapping[Callable[[], None], set[str]] = {
    rents_and_removes: {
        "RunInstances",
        "TerminateInstances",
        "DeleteVolume",
        "DeleteNetworkInterface",
        "DeleteSecurityGroup",
        "DeleteKeyPair",
        "DeleteLaunchTemplate",
        "ReleaseAddress",
        "GetConsoleOutput",
        "AuthorizeSecurityGroupIngress",
        "AmazonSSM.GetParameter",
    },
    asks_the_doctor: {
        "RunInstances",
        "TerminateInstances",
        "DescribeSpotPriceHistory",
        "GetProducts",
    },
    fetches_prices: {"DescribeSpotPriceHistory", "GetSpotPlacementScores", "GetProducts"},
}


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.__name__)
def test_requests_to_aws_fit_its_service_models(ec2: Ec2, path: Callable[[], None]) -> None:
    path()
    requests = [request for request in ec2.server.requests if "advisor" not in request.path]
    assert PATHS[path] <= {action_of(request) for request in requests}
    assert [problem for request in requests for problem in misfits(request)] == []


@pytest.mark.parametrize("block", [False, True])
def test_orders_of_reserved_machines_fit_the_model_of_ec2(ec2: Ec2, block: bool) -> None:
    ec2.reservations.reserve(
        CapacityReservation("cr-0abc", MARKET.instance_type, MARKET.zone, 2, block=block)
    )
    market = replace(MARKET, reservation="cr-0abc")
    order = MachineRequest(
        "t1", market, 2, None, ORDER.lease_until, OURS, reservation="cr-0abc", block=block
    )
    here = provider()
    here.check_order(order)
    assert len(here.create(order)) == 2
    requests = [request for request in ec2.server.requests if action_of(request) == "RunInstances"]
    for request in requests:
        arguments = arguments_of(request)
        assert arguments[
            "CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId"
        ]
        assert arguments.get("InstanceMarketOptions.MarketType") == (
            "capacity-block" if block else None
        )
    assert requests
    assert [problem for request in ec2.server.requests for problem in misfits(request)] == []


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("Action=TerminateInstances&InstanceId.1=i-1&InstanceIds.1=i-1", "no member 'InstanceIds'"),
        ("Action=TerminateInstances", "InstanceIds is missing"),
        ("Action=TerminateInstances&InstanceId.1=i-1&DryRun=yes", "not a boolean"),
        ("Action=DeleteVolume&VolumeId.1=v", "has no parts"),
        ("Action=DeleteVolumes&VolumeId=v", "no service has the action"),
        (
            "Action=RunInstances&MinCount=1&MaxCount=1&InstanceInitiatedShutdownBehavior=delete",
            "not one of stop",
        ),
        (f"{_RUN}&InstanceMarketOptions.MarketType=block", "not one of spot, capacity-block"),
        (
            f"{_RUN}&CapacityReservationSpecification.CapacityReservationId=cr-1",
            "no member 'CapacityReservationId'",
        ),
    ],
)
def test_a_request_that_does_not_fit_is_seen(body: str, problem: str) -> None:
    form = {"content-type": "application/x-www-form-urlencoded"}
    (found,) = misfits(Request("POST", "/", {}, form, f"{body}&Version=2016-11-15".encode()))
    assert problem in found


# -- Google Cloud ----------------------------------------------------------------------------------


def fetched(host: str, path: str, headers: Mapping[str, str]) -> str:
    """A metadata service's answers to a machine."""
    assert (host, bool(headers)) == (METADATA_HOST, True)
    answers = {
        "service-accounts/default/token": '{"access_token": "earned"}',
        "project/project-id": "p-1",
        "instance/zone": "projects/7/zones/us-central1-a",
        "instance/name": "machine-0",
        "metadata/instance": f'{{"compute": {{"resourceId": "{AZURE}", "azEnvironment": "AzurePublicCloud"}}}}',
        "metadata/identity": '{"access_token": "earned"}',
    }
    return next(answer for part, answer in answers.items() if part in path)


def test_the_permissions_of_a_project_are_asked_for_as_its_iam_takes_them() -> None:
    body = {"permissions": list(gcp_permissions.ALL)}
    assert list(ParseDict(body, iam_policy_pb2.TestIamPermissionsRequest()).permissions) == list(
        gcp_permissions.ALL
    )


# -- Azure -----------------------------------------------------------------------------------------

_COMPUTE, _NETWORK = "compute.operations._operations", "network.operations._operations"
OF_NETWORKS: Mapping[ArmCall, str] = {
    Operation.GET_INTERFACE: "network_interfaces_get",
    Operation.GET_ADDRESS: "public_ip_addresses_get",
    Operation.GET_NETWORK: "virtual_networks_get",
    Operation.GET_RULES: "network_security_groups_get",
    Operation.PUT_RULES: "network_security_groups_create_or_update",
    Operation.DELETE_INTERFACE: "network_interfaces_delete",
    Operation.DELETE_ADDRESS: "public_ip_addresses_delete",
    Operation.DELETE_NETWORK: "virtual_networks_delete",
    Operation.DELETE_RULES: "network_security_groups_delete",
}
"""Calls by a resource's id, and the functions of the SDK of networks that make the same request."""
OF_IMAGES: Mapping[ArmCall, str] = {
    Operation.GET_IMAGE: "images_get",
    Operation.GET_IMAGE_VERSION: "gallery_image_versions_get",
}
"""Calls by an image's id, and the functions of the SDK of machines."""
VERBS = {"get_by_id": "GET", "begin_create_or_update_by_id": "PUT", "begin_delete_by_id": "DELETE"}


def test_the_calls_by_id_are_those_to_networks_to_images_and_to_the_identity() -> None:
    by_id = {call for call in (*Operation, *TrialOperation) if call.version}
    assert by_id == {*OF_NETWORKS, *OF_IMAGES, Operation.GET_IDENTITY}


@pytest.mark.parametrize("call", OF_NETWORKS, ids=lambda call: call.name)
def test_a_call_by_id_is_the_request_of_the_sdk_of_networks(call: ArmCall) -> None:
    method, path, newest = request_of_sdk(_NETWORK, OF_NETWORKS[call])
    kind = call.permissions[0].rpartition("/")[0]
    own = f"/subscriptions/{{subscription}}/resourceGroups/{{group}}/providers/{kind}/{{name}}"
    assert (VERBS[call.method.rpartition(".")[2]], shape_of(own)) == (method, shape_of(path))
    assert call.version == newest


@pytest.mark.parametrize("call", OF_IMAGES, ids=lambda call: call.name)
def test_an_image_is_read_by_the_request_of_the_sdk_of_machines(call: ArmCall) -> None:
    method, path, newest = request_of_sdk(_COMPUTE, OF_IMAGES[call])
    assert (VERBS[call.method.rpartition(".")[2]], call.version) == (method, newest)
    kind = call.permissions[0].removesuffix("/read").lower()
    assert [part for part in path.lower().split("/providers/")[1].split("/") if part != "x1"] == (
        kind.split("/")
    )


@pytest.mark.parametrize("call", [*Operation, *TrialOperation], ids=lambda call: call.name)
def test_a_call_to_azure_is_a_method_of_an_sdk(call: ArmCall) -> None:
    session = AzureSession(
        "subscription", AzureSettings(management_endpoint="http://127.0.0.1:1"), NoToken()
    )
    assert callable(session._method(call.method))


def request_of_sdk(module: str, operation: str) -> tuple[str, str, str]:
    """The method, path and version of a request that the SDK builds."""
    build: Any = getattr(import_module(f"azure.mgmt.{module}"), f"build_{operation}_request")
    needed = [
        one.name
        for one in inspect.signature(build).parameters.values()
        if one.default is inspect.Parameter.empty
    ]
    needed = [name for name in needed if name != "kwargs"]
    request = build(**dict.fromkeys(needed, "x1"))
    parts = urlsplit(request.url)
    return str(request.method), parts.path, parse_qs(parts.query)["api-version"][0]


def shape_of(path: str) -> str:
    """A path with its variable parts as a pattern; Azure ignores case."""
    return re.sub(r"\{\w+\}|\bx1\b", "[^/]+", path.lower()).rstrip("/")
