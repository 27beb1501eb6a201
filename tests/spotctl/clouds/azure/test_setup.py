"""`spotctl setup azure` against the simulated subscription, which checks permissions and bodies."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spotctl.clouds.azure.cloud import AzureMachineSettings
from spotctl.clouds.azure.session import AzureSession
from spotctl.home import config
from tests.cloud.azure import AzureServer
from tests.cloud.azure_admin import ACCOUNTS, IDENTITIES
from tests.cloud.azure_state import Item
from tests.cloud.host import Records
from tests.servers.azure import SUBSCRIPTION
from tests.servers.loopback import Fault, Reply, Request, serving
from tests.servers.objects import Stored, error
from tests.spotctl.clouds.planned import plan
from tests.spotctl.command_line import spotctl

WORDS = ("setup", "azure", "--region", "East US")
SCOPE = f"/subscriptions/{SUBSCRIPTION}"
GROUP = f"{SCOPE}/resourceGroups/spotctl"
IDENTITY = f"{GROUP}/providers/{IDENTITIES}/spotctl"
NAMESPACES = {f"microsoft.{name}" for name in ("compute", "network", "managedidentity", "storage")}


class Subscription:
    """What exists in the simulated subscription."""

    def __init__(self, server: AzureServer) -> None:
        self.server, self.admin = server, server.admin

    def things(self) -> set[str]:
        return {f"{left.kind} {left.id}" for left in self.server.resources()} | self.admin.things()

    @property
    def account(self) -> str:
        (account,) = (
            item for left in self.server.resources() if left.kind == ACCOUNTS for item in [left.id]
        )
        return account.rpartition("/")[2]

    def everything(self) -> set[str]:
        return {
            "Microsoft.Resources/resourceGroups spotctl",
            f"{ACCOUNTS} spotctl/{self.account}",
            f"{IDENTITIES} spotctl/spotctl",
            "container spotctl",
            "role spotctl",
            "role spotctl-machine",
            f"spotctl of launcher at {SUBSCRIPTION}",
            f"Storage Blob Data Contributor of launcher at {self.account}",
            "Storage Blob Data Contributor of machines at spotctl",
        }

    def changes(self) -> int:
        return sum(request.method != "GET" for request in self.server.server.requests)

    def conditions(self) -> dict[str, str]:
        """The condition of each assignment, by the name of its role's scope."""
        rows = (each["properties"] for each in self.admin.assignments.values())
        return {each["scope"]: each["condition"] for each in rows if "condition" in each}


@pytest.fixture
def azure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Subscription]:
    page = SimpleNamespace(answer=lambda _: Reply(200, b"203.0.113.7\n"))
    server = AzureServer(Records())
    server.roles.clear()
    with serving(page) as shown:
        monkeypatch.setenv("SPOTCTL_HOME", str(tmp_path / "home"))
        monkeypatch.setenv("SPOTCTL_ADDRESS_URL", shown.url)
        monkeypatch.setattr("spotctl.clouds.setup._FIRST_PAUSE", 0.01)
        monkeypatch.setattr("spotctl.clouds.azure.session.POLL_SECONDS", 0.01)
        for name, value in server.environment().items():
            if name != "SPOTCTL_AZURE":
                monkeypatch.setenv(name, value)
        yield Subscription(server)
    server.close()


def azure_settings() -> AzureMachineSettings:
    return config.load(dict(os.environ)).table("azure", AzureMachineSettings)


def test_a_subscription_is_set_up_once_and_only_what_was_made_is_removed(
    azure: Subscription,
) -> None:
    azure.server.add_group("theirs", "eastus", {})
    before = azure.things()
    asked = spotctl(*WORDS)
    assert (asked.code, azure.changes(), azure.things()) == (2, 0, before)
    assert "would make  role spotctl, which allows launches" in asked.err

    made = spotctl(*WORDS, "--yes")
    assert made.code == 0, made.err
    assert azure.things() == azure.everything() | before
    assert made.out == f"checkpoint: {{path: az://spotctl@{azure.account}/JOB/}}\n"
    assert azure_settings().identity == IDENTITY
    assert azure_settings().ssh_from == ("203.0.113.7/32",)

    changes = azure.changes()
    again = spotctl(*WORDS, "--yes")
    assert (again.code, azure.changes()) == (0, changes)
    assert not {"would make", "is older  "} & {line[:10] for line in again.err.splitlines()}

    undone = spotctl(*WORDS, "--undo")
    assert undone.code == 0, undone.err
    gone(azure, before)
    assert azure_settings() == AzureMachineSettings()


def gone(azure: Subscription, before: set[str] | None = None) -> None:
    """Groups are deleted some time after Azure was asked to."""
    group = azure.server._groups.get("spotctl")
    assert group is None or group.state == "Deleting"
    while "spotctl" in azure.server._groups:
        time.sleep(0.01)
    assert azure.things() == (before or set())


def test_the_doctor_then_finds_nothing_and_conditions_limit_what_is_assigned(
    azure: Subscription, tmp_path: Path
) -> None:
    assert spotctl(*WORDS, "--yes").code == 0
    findings = spotctl("doctor", "azure", "--json").json["findings"]
    about = {one["what"]: one["level"] for one in findings if one["about"] == "azure"}
    assert {about[what] for what in ("permissions", "providers", "identity")} == {"good"}

    assert plan(tmp_path, "azure", "eastus", "Standard_D4s_v5").code == 0
    conditions = azure.conditions()
    (guid,) = (
        each
        for each, role in azure.admin.roles.items()
        if "machine" in str(role["properties"])
        and role["properties"]["roleName"] == "spotctl-machine"
    )
    assert f"ForAnyOfAnyValues:GuidEquals {{{guid}}}" in conditions[SCOPE]
    (written,) = (text for scope, text in conditions.items() if scope != SCOPE)
    assert "StringNotLike 'spotctl-data/*'" in written
    account = azure.server._groups["spotctl"].get(ACCOUNTS, azure.account)
    assert account is not None
    assert account.body["properties"]["allowBlobPublicAccess"] is False


def test_a_new_subscription_that_is_slow_to_know_what_was_made(azure: Subscription) -> None:
    azure.server.unregistered |= NAMESPACES
    azure.admin.settling, azure.admin.late = 2, 2
    made = spotctl(*WORDS, "--yes")
    assert made.code == 0, made.err
    assert (azure.things(), azure.server.unregistered) == (azure.everything(), set())
    undone = spotctl(*WORDS, "--undo")
    assert undone.code == 0, undone.err
    gone(azure)


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("containers/spotctl", 409, "StorageAccountIsNotProvisioned"),
        ("containers/spotctl", 409, "ContainerBeingDeleted"),
        ("/resourceGroups/spotctl", 409, "ResourceGroupBeingDeleted"),
        (IDENTITIES, 409, "MissingSubscriptionRegistration"),
        ("/roleAssignments/", 400, "RoleDefinitionDoesNotExist"),
        ("/roleAssignments/", 400, "PrincipalNotFound"),
    ],
)
def test_what_succeeds_a_little_later_is_asked_for_again(
    azure: Subscription, path: str, status: int, code: str
) -> None:
    refusal = Reply.of_json({"error": {"code": code, "message": "not yet"}}, status)
    # Looking at it is answered first.
    skip = sum(path in request.path for request in looked(azure))
    azure.server.server.faults.append(Fault(path, refusal, skip=skip))
    made = spotctl(*WORDS, "--yes")
    assert (made.code, azure.server.server.faults[0].times) == (0, 0), made.err
    assert azure.things() == azure.everything()


def looked(azure: Subscription) -> Sequence[Request]:
    """The requests of a command that makes nothing."""
    assert spotctl(*WORDS).code == 2
    return azure.server.server.requests


def test_older_roles_and_conditions_are_renewed_and_stay(azure: Subscription) -> None:
    assert spotctl(*WORDS, "--yes").code == 0
    for file in (Path(os.environ["SPOTCTL_HOME"]) / "setup").iterdir():
        file.unlink()
    for role in azure.admin.roles.values():
        del role["properties"]["permissions"][0]["actions"][1:]
    for each in azure.admin.assignments.values():
        each["properties"].pop("condition", None)
    made = spotctl(*WORDS, "--yes")
    assert made.code == 0, made.err
    assert made.err.count("is older") == 4
    assert len(azure.conditions()) == 2
    assert all(
        len(role["properties"]["permissions"][0]["actions"]) > 1
        for role in azure.admin.roles.values()
    )
    assert spotctl(*WORDS, "--undo").code == 0
    assert azure.things() == azure.everything()


def test_what_holds_something_of_others_is_left(azure: Subscription) -> None:
    assert spotctl(*WORDS, "--yes").code == 0
    account = azure.account
    azure.server.buckets.store.others["spotctl"].objects["kept"] = Stored(b"1")
    group = azure.server._groups["spotctl"]
    group.put(Item(group, "Microsoft.Network/virtualNetworks", "theirs", {"location": "eastus"}))
    undone = spotctl(*WORDS, "--undo")
    assert undone.code == 1
    assert "containers) still holds kept" in undone.err
    assert azure.things() == {
        "Microsoft.Resources/resourceGroups spotctl",
        f"{ACCOUNTS} spotctl/{account}",
        "Microsoft.Network/virtualNetworks spotctl/theirs",
        "container spotctl",
    }
    del azure.server.buckets.store.others["spotctl"].objects["kept"]
    group.items.pop(("microsoft.network/virtualnetworks", "theirs"))
    fault = Fault("/spotctl", error(403, "AuthorizationPermissionMismatch"), times=1)
    azure.server.buckets.server.faults.append(fault)
    assert "AuthorizationPermissionMismatch" in spotctl(*WORDS, "--undo").err
    assert spotctl(*WORDS, "--undo").code == 0
    gone(azure)


@pytest.mark.parametrize(
    "right",
    [
        "Microsoft.Storage/register/action",
        "Microsoft.Resources/subscriptions/resourceGroups/write",
        f"{ACCOUNTS}/write",
        f"{ACCOUNTS}/blobServices/containers/write",
        f"{IDENTITIES}/write",
        "Microsoft.Authorization/roleDefinitions/write",
        "Microsoft.Authorization/roleAssignments/write",
        "Microsoft.Authorization/roleAssignments/read",
    ],
)
def test_a_missing_right_is_named_and_nothing_is_half_made(azure: Subscription, right: str) -> None:
    azure.server.unregistered.add("microsoft.storage")
    azure.server.access.denied.add(right)
    # Right after a container was made, nobody may look into it.
    refusal = error(403, "AuthorizationPermissionMismatch")
    azure.server.buckets.server.faults.append(Fault("/spotctl", refusal, times=99))
    refused = spotctl(*WORDS, "--yes")
    assert (refused.code, right in refused.err.splitlines()[-1]) == (5, True), refused.err
    gone(azure)
    assert azure_settings() == AzureMachineSettings()


class Killed(BaseException):
    pass


def killed_after(azure: Subscription, monkeypatch: pytest.MonkeyPatch, calls: int) -> None:
    """Sets up until a change was made, whose answer is lost."""
    usual = AzureSession.carry_out

    def carry_out(self: AzureSession, *given: Any, **options: Any) -> Any:  # noqa: ANN401
        answer = usual(self, *given, **options)
        if azure.changes() == calls:
            raise Killed
        return answer

    with monkeypatch.context() as patched:
        patched.setattr(AzureSession, "carry_out", carry_out)
        with pytest.raises(Killed):
            spotctl(*WORDS, "--yes")


@pytest.mark.parametrize("calls", range(1, 10))
def test_a_command_that_was_killed_is_repeated_and_undone(
    azure: Subscription, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    killed_after(azure, monkeypatch, calls)
    made = spotctl(*WORDS, "--yes")
    assert made.code == 0, made.err
    assert azure.things() == azure.everything()
    assert spotctl(*WORDS, "--undo").code == 0
    gone(azure)


def test_blobs_that_came_after_a_kill_are_kept_whatever_fails(
    azure: Subscription, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_after(azure, monkeypatch, 4)
    azure.server.buckets.store.others["spotctl"].objects["kept"] = Stored(b"1")
    azure.server.access.denied.add(f"{IDENTITIES}/write")
    refused = spotctl(*WORDS, "--yes")
    assert (refused.code, "still holds kept" in refused.err) == (5, True), refused.err
    assert set(azure.server.buckets.store.others["spotctl"].objects) == {"kept"}
    azure.server.access.denied.clear()
    assert spotctl(*WORDS, "--yes").code == 0
    assert azure.things() == azure.everything()
    assert set(azure.server.buckets.store.others["spotctl"].objects) == {"kept"}


FLAGS = {
    "provider register": {"namespace", "wait"},
    "group create": {"name", "location"},
    "storage account create": {
        "name",
        "resource-group",
        "location",
        "kind",
        "sku",
        "allow-blob-public-access",
        "allow-shared-key-access",
        "min-tls-version",
        "https-only",
    },
    "storage container-rm create": {"name", "storage-account", "resource-group"},
    "identity create": {"name", "resource-group", "location"},
    "role definition create": {"role-definition"},
    "role assignment create": {
        "assignee-object-id",
        "assignee-principal-type",
        "role",
        "scope",
        "condition",
        "condition-version",
    },
}
"""Commands and flags of https://learn.microsoft.com/cli/azure/reference-index."""


def test_printed_commands_are_ones_of_azures_own_command_line(azure: Subscription) -> None:
    lines = spotctl(*WORDS, "--print").out.splitlines()
    used = list[str]()
    for line in lines:
        program, *words = shlex.split(line)
        command = " ".join(words).partition(" --")[0]
        used.append(command)
        flags = {word[2:] for word in words if word.startswith("--")}
        assert program == "az"
        assert {"subscription"} < flags <= FLAGS[command] | {"subscription"}
    assert (set(used), len(lines)) == (set(FLAGS), 13)
    assert used.count("role assignment create") == 3
    # The shell puts the role's id into the condition.
    (condition,) = (line for line in lines if "ForAnyOfAnyValues" in line)
    run = subprocess.run(
        [
            "bash",
            "-c",
            f"az() {{ case $2 in definition) echo GUID;; *) printf '%s\\n' \"$@\"; esac; }}\n{condition}",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    (written,) = (line for line in run.stdout.splitlines() if "GuidEquals" in line)
    assert written.endswith("ForAnyOfAnyValues:GuidEquals {GUID}))")
    assert azure.changes() == 0


def test_a_region_is_needed_and_types_have_no_quotas_here(azure: Subscription) -> None:
    assert "name one: --region" in spotctl("setup", "azure").err
    said = spotctl(*WORDS, "--type", "Standard_D4s_v5").err
    assert "portal under Quotas, or with az quota create --resource-name lowPriorityCores" in said
    assert "/providers/Microsoft.Compute/locations/eastus" in said
    assert azure.changes() == 0
