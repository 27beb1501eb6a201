"""Every request to a cloud fits the SDK's description of the service, also those that are sent without the SDK."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import pytest
from google.api_core import path_template
from google.cloud.compute_v1.services.instances.transports import rest_base
from google.iam.v1 import iam_policy_pb2
from google.protobuf.json_format import ParseDict

from spotctl.agent.data.blobs.http import Caller, HttpCall
from spotctl.agent.data.blobs.s3 import S3Bucket
from spotctl.agent.lease.self_deletion import METADATA_HOST
from spotctl.clouds.azure import self_deletion as azure
from spotctl.clouds.azure.calls import ArmCall, Operation, TrialOperation
from spotctl.clouds.gcp import permissions as gcp_permissions, self_deletion as gcp
from spotctl.clouds.provider import MachineRequest
from spotctl.home.installation import INSTALLATION_TAG
from tests.cloud.aws_reservations import CapacityReservation
from tests.cloud.azure_models import check_version
from tests.servers.aws import action_of, arguments_of
from tests.servers.aws_models import misfits, objects_operation
from tests.servers.loopback import Request
from tests.spotctl.agent.lease.test_self_deletion import AZURE, GOOGLE
from tests.spotctl.clouds.aws.ec2 import Ec2, running_ec2
from tests.spotctl.clouds.aws.standins import BID, MARKET, provider
from tests.spotctl.clouds.aws.test_leftovers import scatter
from tests.spotctl.command_line import spotctl

_RUN = "Action=RunInstances&MinCount=1&MaxCount=1"
OURS = {INSTALLATION_TAG: "i1"}
ORDER = MachineRequest("t1", MARKET, 1, BID, 4_000_000_000 * 1_000_000, OURS)


# -- AWS ---------------------------------------------------------------------------------------------------------------


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
    ended = spotctl("prices", "fetch", "--cloud", "aws", "--region", "us-east-1", "--type", MARKET.instance_type)
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
    asks_the_doctor: {"RunInstances", "TerminateInstances", "DescribeSpotPriceHistory", "GetProducts"},
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
    ec2.reservations.reserve(CapacityReservation("cr-0abc", MARKET.instance_type, MARKET.zone, 2, block=block))
    market = replace(MARKET, reservation="cr-0abc")
    order = MachineRequest("t1", market, 2, None, ORDER.lease_until, OURS, reservation="cr-0abc", block=block)
    here = provider()
    here.check_order(order)
    assert len(here.create(order)) == 2
    requests = [request for request in ec2.server.requests if action_of(request) == "RunInstances"]
    for request in requests:
        arguments = arguments_of(request)
        assert arguments["CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId"]
        assert arguments.get("InstanceMarketOptions.MarketType") == ("capacity-block" if block else None)
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
        ("Action=RunInstances&MinCount=1&MaxCount=1&InstanceInitiatedShutdownBehavior=delete", "not one of stop"),
        (f"{_RUN}&InstanceMarketOptions.MarketType=block", "not one of spot, capacity-block"),
        (f"{_RUN}&CapacityReservationSpecification.CapacityReservationId=cr-1", "no member 'CapacityReservationId'"),
    ],
)
def test_a_request_that_does_not_fit_is_seen(body: str, problem: str) -> None:
    form = {"content-type": "application/x-www-form-urlencoded"}
    (found,) = misfits(Request("POST", "/", {}, form, f"{body}&Version=2016-11-15".encode()))
    assert problem in found


@dataclass
class Listener:
    """Answers the calls about a bucket, and keeps them."""

    calls: list[HttpCall] = field(default_factory=list)

    def call(self, call: HttpCall) -> tuple[bytes, Mapping[str, str]]:
        self.calls.append(call)
        upload = "<Upload><Key>k</Key><UploadId>u</UploadId><Initiated>2020-01-01T00:00:00Z</Initiated></Upload>"
        answer = f"<R>{upload if call.method == 'GET' else '<UploadId>u</UploadId>'}</R>"
        return answer.encode(), {"etag": '"1"'}


def test_calls_about_objects_fit_the_model_of_s3() -> None:
    """They are made and signed without the SDK, by machines and by the launcher."""
    listener = Listener()
    bucket = S3Bucket("s3://b", "https://s3.amazonaws.com/b", cast("Caller", listener))
    bucket.put("runs/model", b"1")
    assert list(bucket.list("runs/")) == ["k"]
    upload = bucket.upload("runs/model")
    upload.part(1, b"1")
    upload.finish()
    bucket.upload("runs/model").abort()
    bucket.delete("runs/model")
    named = [objects_operation(call.method, urlsplit(call.url).path, call.query) for call in listener.calls]
    assert sorted(set(named)) == [
        "AbortMultipartUpload",
        "CompleteMultipartUpload",
        "CreateMultipartUpload",
        "DeleteObject",
        "ListMultipartUploads",
        "ListObjectsV2",
        "PutObject",
        "UploadPart",
    ]


# -- Google Cloud ------------------------------------------------------------------------------------------------------


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


def test_a_machine_of_google_deletes_itself_with_the_sdks_request() -> None:
    url, _ = gcp.deletion(fetched)
    (option,) = rest_base._BaseInstancesRestTransport._BaseDelete._get_http_options()  # type: ignore[no-untyped-call]
    assert option["method"] == "delete"
    assert urlsplit(url).path == GOOGLE
    assert path_template.validate(option["uri"], urlsplit(url).path)  # type: ignore[no-untyped-call]


def test_the_permissions_of_a_project_are_asked_for_as_its_iam_takes_them() -> None:
    body = {"permissions": list(gcp_permissions.ALL)}
    assert list(ParseDict(body, iam_policy_pb2.TestIamPermissionsRequest()).permissions) == list(gcp_permissions.ALL)


# -- Azure -------------------------------------------------------------------------------------------------------------

_COMPUTE, _NETWORK = "compute.operations._operations", "network.operations._operations"
_RESOURCES = "resource.resources.operations._operations"
_DEPLOYMENTS = "resource.deployments.operations._operations"
BUILDERS: Mapping[ArmCall, tuple[str, str]] = {
    Operation.LIST_GROUPS: (_RESOURCES, "resource_groups_list"),
    Operation.GET_GROUP: (_RESOURCES, "resource_groups_get"),
    Operation.PUT_GROUP: (_RESOURCES, "resource_groups_create_or_update"),
    Operation.DELETE_GROUP: (_RESOURCES, "resource_groups_delete"),
    Operation.LIST_RESOURCES: (_RESOURCES, "resources_list_by_resource_group"),
    Operation.LIST_DEPLOYMENTS: (_DEPLOYMENTS, "deployments_list_by_resource_group"),
    Operation.GET_DEPLOYMENT: (_DEPLOYMENTS, "deployments_get"),
    Operation.LIST_STEPS: (_DEPLOYMENTS, "deployment_operations_list"),
    Operation.DEPLOY: (_DEPLOYMENTS, "deployments_create_or_update"),
    Operation.LIST_RESERVATIONS: (_COMPUTE, "capacity_reservations_list_by_capacity_reservation_group"),
    Operation.GET_RESERVATION: (_COMPUTE, "capacity_reservations_get"),
    Operation.LIST_MACHINES: (_COMPUTE, "virtual_machines_list"),
    Operation.GET_MACHINE: (_COMPUTE, "virtual_machines_get"),
    Operation.DELETE_MACHINE: (_COMPUTE, "virtual_machines_delete"),
    Operation.CONSOLE: (_COMPUTE, "virtual_machines_retrieve_boot_diagnostics_data"),
    Operation.LIST_INTERFACES: (_NETWORK, "network_interfaces_list"),
    Operation.LIST_ADDRESSES: (_NETWORK, "public_ip_addresses_list"),
    Operation.GET_NETWORK: (_NETWORK, "virtual_networks_get"),
    Operation.DELETE_DISK: (_COMPUTE, "disks_delete"),
    Operation.DELETE_INTERFACE: (_NETWORK, "network_interfaces_delete"),
    Operation.DELETE_ADDRESS: (_NETWORK, "public_ip_addresses_delete"),
    Operation.DELETE_NETWORK: (_NETWORK, "virtual_networks_delete"),
    Operation.GET_RULES: (_NETWORK, "network_security_groups_get"),
    Operation.PUT_RULES: (_NETWORK, "network_security_groups_create_or_update"),
    Operation.DELETE_RULES: (_NETWORK, "network_security_groups_delete"),
    Operation.LIST_USAGES: (_COMPUTE, "usage_list"),
    TrialOperation.VALIDATE: (_DEPLOYMENTS, "deployments_validate"),
    TrialOperation.SIMULATE_EVICTION: (_COMPUTE, "virtual_machines_simulate_eviction"),
}
"""Calls to Resource Manager, and the SDK's functions that make the same request."""
OF_OTHER_SDKS = {
    Operation.READ_LOG: "azure-mgmt-monitor",
    Operation.LIST_ROLES: "azure-mgmt-authorization",
    Operation.LIST_ASSIGNMENTS: "azure-mgmt-authorization",
    Operation.ASSIGN_ROLE: "azure-mgmt-authorization",
    Operation.GET_IDENTITY: "azure-mgmt-msi",
}
"""Calls whose SDKs spotctl does not need, and the packages."""


def test_each_call_to_azure_is_compared_or_belongs_to_another_sdk() -> None:
    calls = {*Operation, *TrialOperation}
    assert (set(BUILDERS) | set(OF_OTHER_SDKS), set(BUILDERS) & set(OF_OTHER_SDKS)) == (calls, set())


@pytest.mark.parametrize("call", BUILDERS, ids=lambda call: call.name)
def test_a_call_to_azure_is_the_sdks_request(call: ArmCall) -> None:
    method, path, newest = request_of_sdk(*BUILDERS[call])
    assert (call.method, shape_of(call.path)) == (method, shape_of(path))
    assert call.version <= newest
    if call.method == "PUT":
        assert call.version == newest


def test_a_machine_of_azure_deletes_itself_with_the_sdks_request() -> None:
    url, _ = azure.deletion(fetched)
    method, path, newest = request_of_sdk(_COMPUTE, "virtual_machines_delete")
    asked = urlsplit(url)
    assert (method, re.fullmatch(shape_of(path), asked.path.lower()) is not None) == ("DELETE", True)
    (version,) = parse_qs(asked.query)["api-version"]
    check_version("Microsoft.Compute/virtualMachines", version)
    assert version <= newest


def request_of_sdk(module: str, operation: str) -> tuple[str, str, str]:
    """The method, path and version of a request that the SDK builds."""
    build: Any = getattr(import_module(f"azure.mgmt.{module}"), f"build_{operation}_request")
    needed = [
        one.name for one in inspect.signature(build).parameters.values() if one.default is inspect.Parameter.empty
    ]
    needed = [name for name in needed if name != "kwargs"]
    request = build(**dict.fromkeys(needed, "x1"))
    parts = urlsplit(request.url)
    return str(request.method), parts.path, parse_qs(parts.query)["api-version"][0]


def shape_of(path: str) -> str:
    """A path with its variable parts as a pattern; Azure ignores case."""
    return re.sub(r"\{\w+\}|\bx1\b", "[^/]+", path.lower()).rstrip("/")
