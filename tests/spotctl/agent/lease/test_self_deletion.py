"""A machine deletes itself through its cloud's API: the file runs alone, as it does from a start-up
script.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from spotctl.agent.lease import self_deletion
from spotctl.clouds.azure import self_deletion as azure
from spotctl.clouds.gcp import self_deletion as gcp
from tests.servers.loopback import Fault, LoopbackServer, Reply, Request, serving

GOOGLE = "/compute/v1/projects/p-1/zones/us-central1-a/instances/machine-0"
AZURE = "/subscriptions/s-1/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/machine-0"


@dataclass
class Cloud:
    """Metadata services and APIs of Google and Azure for one machine."""

    deleted: list[str] = field(default_factory=list)

    def answer(self, request: Request) -> Reply:
        if request.method == "DELETE":
            if request.headers.get("authorization") != "Bearer earned":
                return Reply(401, b"who are you?")
            self.deleted.append(request.path)
            return Reply(202)
        google = request.headers.get("metadata-flavor") == "Google"
        azure = request.headers.get("metadata") == "true"
        compute = {"resourceId": AZURE, "azEnvironment": "AzurePublicCloud"}
        token = Reply.of_json({"access_token": "earned"})
        answers = {
            "/computeMetadata/v1/instance/service-accounts/default/token": token
            if google
            else None,
            "/computeMetadata/v1/project/project-id": Reply(200, b"p-1") if google else None,
            "/computeMetadata/v1/instance/zone": Reply(200, b"projects/7/zones/us-central1-a")
            if google
            else None,
            "/computeMetadata/v1/instance/name": Reply(200, b"machine-0") if google else None,
            "/metadata/instance": Reply.of_json({"compute": compute}) if azure else None,
            "/metadata/identity/oauth2/token": token
            if azure and request.query.get("resource") == ["https://management.azure.com/"]
            else None,
        }
        return answers.get(request.path) or Reply(404, b"unknown")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackServer]:
    with serving(Cloud()) as running:
        host = running.url.removeprefix("http://")
        monkeypatch.setenv("GCE_METADATA_HOST", host)
        monkeypatch.setenv("AZURE_METADATA_HOST", host)
        monkeypatch.setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE", f"{running.url}/compute/v1/")
        monkeypatch.setenv("AZURE_RESOURCE_MANAGER_URL", running.url)
        yield running


def deleted(server: LoopbackServer) -> list[str]:
    assert isinstance(server.api, Cloud)
    return server.api.deleted


PARTS = {"gcp": gcp, "azure": azure}


@pytest.mark.parametrize(("cloud", "path"), [("gcp", GOOGLE), ("azure", AZURE)])
def test_the_file_alone_deletes_the_machine(
    server: LoopbackServer, tmp_path: Path, cloud: str, path: str
) -> None:
    assert self_deletion.__file__ is not None
    copy = shutil.copy(self_deletion.__file__, tmp_path / "self_deletion.py")
    part = shutil.copy(str(PARTS[cloud].__file__), tmp_path / "this_cloud.py")
    done = subprocess.run(
        [sys.executable, "-I", "-S", copy, part], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert deleted(server) == [path]


def test_on_aws_there_is_nothing_to_ask_for(server: LoopbackServer) -> None:
    assert self_deletion.delete_self({}, pytest.fail)
    assert server.requests == []


def test_a_refusal_is_reported_and_the_call_repeated(server: LoopbackServer) -> None:
    server.faults.append(Fault("/compute/v1/projects", Reply(503, b"later, please")))
    said: list[str] = []
    assert self_deletion.delete_self(vars(PARTS["gcp"]), said.append, 60)
    assert len(said) == 1
    assert "status 503: later, please" in said[0]
    assert deleted(server) == [GOOGLE]


def test_a_machine_that_is_gone_already_needs_nothing_more(server: LoopbackServer) -> None:
    server.faults.append(Fault("/compute/v1/projects", Reply(404)))
    assert self_deletion.delete_self(vars(PARTS["gcp"]), pytest.fail, 0)


@pytest.mark.parametrize(
    ("cloud", "fault", "reason"),
    [
        (
            "gcp",
            Fault("service-accounts", Reply(404), times=-1),
            "service-accounts/default/token: status 404",
        ),
        (
            "azure",
            Fault("oauth2", Reply(400, b"Identity not found"), times=-1),
            "Identity not found",
        ),
        (
            "azure",
            Fault("virtualMachines", Reply(403, b"AuthorizationFailed"), times=-1),
            "AuthorizationFailed",
        ),
        ("azure", Fault("/metadata/instance", Reply(200, b"no JSON"), times=-1), "Expecting value"),
    ],
)
def test_a_failure_that_lasts_is_reported(
    server: LoopbackServer, cloud: str, fault: Fault, reason: str
) -> None:
    server.faults.append(fault)
    said: list[str] = []
    assert not self_deletion.delete_self(vars(PARTS[cloud]), said.append, 0)
    assert len(said) == 1
    assert reason in said[0]
    assert "earned" not in said[0]
    assert deleted(server) == []


def test_variables_of_the_image_are_read(tmp_path: Path) -> None:
    path = tmp_path / "environment"
    path.write_text(
        '# a comment\nPATH="/usr/bin:/bin"\nexport https_proxy=http://proxy:3128\n\nbroken\n'
    )
    found = self_deletion.system_variables(str(path))
    assert found == {"PATH": "/usr/bin:/bin", "https_proxy": "http://proxy:3128"}
    assert self_deletion.system_variables(str(tmp_path / "missing")) == {}
