"""`spotctl doctor`: the checks of clouds, through their real SDKs, on 127.0.0.1."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from google.cloud import compute_v1
from google.oauth2 import credentials
from google.protobuf.json_format import MessageToDict

from spotctl.clouds.azure.calls import NAMESPACES
from spotctl.clouds.errors import Answers
from spotctl.clouds.gcp import calls as policies
from spotctl.clouds.gcp.doctor import findings
from spotctl.clouds.gcp.session import ACT_AS
from spotctl.home import account_quotas
from spotctl.home.config import Settings
from spotctl.home.wall_clock import wall_us
from tests.servers.azure import SUBSCRIPTION, azure_error
from tests.servers.loopback import LoopbackServer, Reply, Request, serving
from tests.spotctl.command_line import Ended, spotctl

pytestmark = pytest.mark.usefixtures("_nowhere_else")

PROJECT, MACHINES = "tide-pool-7", "machines@p.iam.gserviceaccount.com"


def found(ended: Ended, cloud: str) -> dict[str, dict[str, Any]]:
    return {one["what"]: one for one in ended.json["findings"] if one["about"] == cloud}


OF_ACCOUNT = {"credentials", "clock", "permissions", "providers", "identity", "service account"}


def of_account(ended: Ended, cloud: str) -> dict[str, dict[str, Any]]:
    """The findings without those about orders: these servers answer no calls about them."""
    return {
        what: one
        for what, one in found(ended, cloud).items()
        if what in OF_ACCOUNT or "quota in" in what
    }


def kept(folder: Path, *, spot: bool) -> list[str]:
    """The quotas that are kept in the home for plans."""
    settings = Settings(home=folder / "home")
    return [str(one) for one in account_quotas.known(settings, wall_us(), spot=spot)]


# -- AWS -------------------------------------------------------------------------------------------


# -- Google Cloud ----------------------------------------------------------------------------------


@dataclass
class GcpProject:
    """A project that answers the requests of doctor and rejects a token sent over plain HTTP."""

    granted: set[str] = field(default_factory=lambda: set(policies.ALL))
    limits: dict[str, dict[str, float]] = field(default_factory=dict)
    acts_as_machines: bool = True

    def answer(self, request: Request) -> Reply:
        assert "authorization" not in request.headers
        if (request.method, request.path) == ("POST", f"/v1/projects/{PROJECT}:testIamPermissions"):
            (asked,) = request.json().values()
            return Reply.of_json({"permissions": [one for one in asked if one in self.granted]})
        if (request.method, request.path) == (
            "POST",
            f"/v1/projects/-/serviceAccounts/{MACHINES}:testIamPermissions",
        ):
            assert request.json() == {"permissions": [ACT_AS]}
            return Reply.of_json({"permissions": [ACT_AS]} if self.acts_as_machines else {})
        if (request.method, request.path) == ("GET", f"/compute/v1/projects/{PROJECT}/regions"):
            regions = compute_v1.RegionList(items=[self._region(name) for name in self.limits])
            return Reply.of_json(MessageToDict(type(regions).pb(regions)))
        return Reply.of_json({"error": {"code": 404, "message": "not found"}}, 404)

    def _region(self, name: str) -> compute_v1.Region:
        quotas = [
            compute_v1.Quota(metric=metric, limit=limit)
            for metric, limit in self.limits[name].items()
        ]
        return compute_v1.Region(name=name, quotas=quotas)


@contextmanager
def gcp(
    monkeypatch: pytest.MonkeyPatch, project: GcpProject, name: str = PROJECT
) -> Iterator[LoopbackServer]:
    with serving(project) as server:
        monkeypatch.setenv("SPOTCTL_GCP_PROJECT", name)
        monkeypatch.setenv("SPOTCTL_GCP_COMPUTE_ENDPOINT", server.url)
        monkeypatch.setenv("SPOTCTL_GCP_RESOURCE_MANAGER_ENDPOINT", server.url)
        monkeypatch.setenv("SPOTCTL_GCP_IAM_ENDPOINT", server.url)
        yield server


LIMITS = {
    "us-east1": {"CPUS": 8.0, "DISKS_TOTAL_GB": 900.0},
    "us-west1": {
        "CPUS": 24.0,
        "PREEMPTIBLE_CPUS": 72.0,
        "NVIDIA_L4_GPUS": 2.0,
        "PREEMPTIBLE_NVIDIA_L4_GPUS": 16.0,
    },
}


def test_gcp(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPOTCTL_GCP", f'service_account = "{MACHINES}"')
    with gcp(monkeypatch, GcpProject(limits=LIMITS)):
        ended = spotctl("doctor", "--json")
    assert ended.err == ""
    one = of_account(ended, "gcp")
    assert one["spot quota in us-west1"]["told"] == "72 vCPUs"
    assert one["on-demand quota in us-west1"]["told"] == "24 vCPUs"
    assert "gcp/us-west1/g2-standard=16 GPUs" in kept(tmp_path, spot=True)
    assert kept(tmp_path, spot=False) == ["gcp/us-west1/g2-standard on demand=2 GPUs"]
    assert {each["level"] for each in one.values()} == {"good"}


def test_machines_with_the_default_service_account_are_noted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with gcp(monkeypatch, GcpProject(limits=LIMITS)):
        ended = spotctl("doctor", "--json")
    finding = found(ended, "gcp")["service account"]
    assert (finding["level"], "rent machines" in finding["told"]) == ("note", True)


def test_whoever_may_not_give_machines_their_account_is_told_how_to_allow_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPOTCTL_GCP", f'service_account = "{MACHINES}"')
    with gcp(monkeypatch, GcpProject(limits=LIMITS, acts_as_machines=False)):
        ended = spotctl("doctor", "--json")
    finding = found(ended, "gcp")["service account"]
    assert (ended.code, finding["told"]) == (
        5,
        f"iam.serviceAccounts.actAs on {MACHINES} is missing",
    )
    assert (
        f"add-iam-policy-binding {MACHINES} --role roles/iam.serviceAccountUser" in finding["cure"]
    )


def test_a_service_account_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPOTCTL_GCP", 'service_account = "nobody@p.iam.gserviceaccount.com"')
    with gcp(monkeypatch, GcpProject(limits=LIMITS)):
        ended = spotctl("doctor", "--json")
    assert (ended.code, "nobody@p" in found(ended, "gcp")["service account"]["told"]) == (5, True)


def test_the_printed_role_lets_nobody_act_as_every_account_of_the_project() -> None:
    assert ACT_AS not in spotctl("doctor", "--policy", "gcp").json["includedPermissions"]


def test_missing_gcp_permissions_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    granted = set(policies.ALL) - {"compute.instances.create"}
    with gcp(monkeypatch, GcpProject(granted, LIMITS)):
        ended = spotctl("doctor", "--json")
    assert ended.code == 5
    assert "missing: compute.instances.create" in found(ended, "gcp")["permissions"]["told"]


def test_no_token_is_sent_over_plain_http(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if only the endpoint for permissions is plain HTTP."""
    token = credentials.Credentials("a secret")  # type: ignore[no-untyped-call]
    monkeypatch.setattr("google.auth.default", lambda **_: (token, PROJECT))
    with serving(GcpProject()) as server:
        settings = Settings(Path("/nowhere"), keys={"gcp_resource_manager_endpoint": server.url})
        assert next(findings(settings, Answers())).detail == f"project {PROJECT}"
        assert len(server.requests) == 1


def test_a_project_that_cannot_be_found_is_no_access(monkeypatch: pytest.MonkeyPatch) -> None:
    with gcp(monkeypatch, GcpProject(), "another-one"):
        ended = spotctl("doctor", "--json")
    assert ended.code == 5
    assert "another-one" in found(ended, "gcp")["access"]["told"]


# -- Azure -----------------------------------------------------------------------------------------


@dataclass
class AzureSubscription:
    """A subscription that answers the requests of doctor."""

    actions: tuple[str, ...] = (
        "Microsoft.Compute/*",
        "microsoft.network/*",
        "*/read",
        "Microsoft.Resources/*",
        "Microsoft.ManagedIdentity/userAssignedIdentities/*",
        "Microsoft.Authorization/roleAssignments/write",
    )
    not_actions: tuple[str, ...] = ()
    cores: int = 100
    unregistered: tuple[str, ...] = ()
    wide: tuple[str, ...] = ()
    identity: str = (
        "/subscriptions/s/resourceGroups/g/providers/Microsoft.ManagedIdentity"
        "/userAssignedIdentities/spotctl"
    )

    def answer(self, request: Request) -> Reply:
        assert "authorization" not in request.headers
        root = f"/subscriptions/{SUBSCRIPTION}/providers"
        if request.path == f"{root}/Microsoft.Authorization/permissions":
            return Reply.of_json(
                {"value": [{"actions": self.actions, "notActions": self.not_actions}]}
            )
        if request.path == f"{root}/Microsoft.Compute/locations/eastus/usages":
            limits = {"lowPriorityCores": self.cores, "cores": 350}
            return Reply.of_json(
                {
                    "value": [
                        {"name": {"value": name}, "limit": limit} for name, limit in limits.items()
                    ]
                }
            )
        if request.path.removeprefix(f"{root}/") in NAMESPACES:
            state = "NotRegistered" if request.path.endswith(self.unregistered) else "Registered"
            return Reply.of_json({"namespace": request.path, "registrationState": state})
        if request.path == f"{root}/Microsoft.Authorization/roleAssignments":
            assert request.query["$filter"] == ["atScope() and assignedTo('1')"]
            return Reply.of_json(
                {"value": [{"properties": {"scope": scope}} for scope in self.wide]}
            )
        if request.path == self.identity:
            return Reply.of_json({"properties": {"principalId": "1", "clientId": "2"}})
        return azure_error("NotFound", status=404)


@contextmanager
def azure(
    monkeypatch: pytest.MonkeyPatch, subscription: AzureSubscription
) -> Iterator[LoopbackServer]:
    with serving(subscription) as server:
        monkeypatch.setenv("SPOTCTL_AZURE_SUBSCRIPTION", SUBSCRIPTION)
        monkeypatch.setenv("SPOTCTL_AZURE_MANAGEMENT_ENDPOINT", server.url)
        yield server


# -- policies --------------------------------------------------------------------------------------


def test_policies_have_their_clouds_format() -> None:
    aws, gcp, azure = (
        spotctl("doctor", "--policy", cloud).json for cloud in ("aws", "gcp", "azure")
    )
    assert aws["Version"] == "2012-10-17"
    assert all(statement["Effect"] == "Allow" for statement in aws["Statement"])
    actions = [action for statement in aws["Statement"] for action in statement["Action"]]
    assert not [action for action in actions if action.endswith("*")]
    destroying = {
        statement["Sid"]
        for statement in aws["Statement"]
        if "ec2:TerminateInstances" in statement["Action"]
    }
    assert destroying == {"OwnOnly"}
    assert set(gcp) == {"title", "description", "stage", "includedPermissions"}
    assert (azure["IsCustom"], azure["AssignableScopes"]) == (True, ["/subscriptions/SUBSCRIPTION"])
    named = spotctl("doctor", "--policy", "azure", AZURE_SUBSCRIPTION_ID=SUBSCRIPTION).json
    assert named["AssignableScopes"] == [f"/subscriptions/{SUBSCRIPTION}"]
    assert json.dumps(named)


def test_the_role_of_machines_of_google_deletes_them_and_nothing_else() -> None:
    assert spotctl("doctor", "--policy", "gcp-machines").json["includedPermissions"] == [
        "compute.instances.delete"
    ]


def test_a_policy_of_an_unknown_cloud_is_a_usage_error() -> None:
    assert spotctl("doctor", "--policy", "ibm").code == 2


def test_google_and_azure_are_asked_for_exactly_the_printed_permissions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Azure lists what the identity may do, and each permission is looked up there."""
    with gcp(monkeypatch, GcpProject(limits=LIMITS)) as server:
        printed = spotctl("doctor", "--policy", "gcp").json["includedPermissions"]
        spotctl("doctor", "--json")
    asked = [
        request.json()["permissions"]
        for request in server.requests
        if request.path.endswith("testIamPermissions")
    ]
    assert [permission for some in asked for permission in some] == printed
    with azure(monkeypatch, AzureSubscription(actions=())):
        printed = spotctl("doctor", "--policy", "azure").json["Actions"]
        told = found(spotctl("doctor", "--json"), "azure")["permissions"]["told"]
    assert told == f"{len(printed)} of {len(printed)} are missing: {', '.join(printed)}"
