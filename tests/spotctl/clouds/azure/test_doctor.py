"""What doctor finds of a subscription of Azure."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.servers.azure import SUBSCRIPTION, azure_error
from tests.servers.loopback import Fault
from tests.spotctl.clouds.gcp.test_doctor_findings import (
    AzureSubscription,
    azure,
    found,
    kept,
    of_account,
)
from tests.spotctl.command_line import spotctl

pytestmark = pytest.mark.usefixtures("_nowhere_else")


def test_azure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with azure(monkeypatch, AzureSubscription()):
        monkeypatch.setenv("SPOTCTL_AZURE", f'identity = "{AzureSubscription.identity}"')
        ended = spotctl("doctor", "--json")
    assert ended.err == ""
    one = of_account(ended, "azure")
    assert {each["level"] for each in one.values()} == {"good"}
    assert one["spot quota in eastus"]["told"] == "100 vCPUs"
    assert one["on-demand quota in eastus"]["told"] == "350 vCPUs"
    assert kept(tmp_path, spot=False) == ["azure/eastus on demand=350 vCPUs"]


def test_the_identity_of_machines_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    with azure(monkeypatch, AzureSubscription()):
        unset = spotctl("doctor", "--json")
        monkeypatch.setenv("SPOTCTL_AZURE", 'identity = "/subscriptions/s/none"')
        missing = spotctl("doctor", "--json")
    assert found(unset, "azure")["identity"]["level"] == "note"
    assert "set identity in [azure]" in found(unset, "azure")["identity of machines"]["cure"]
    assert (missing.code, found(missing, "azure")["identity"]["level"]) == (1, "fails")
    assert "spotctl setup azure" in found(missing, "azure")["identity"]["cure"]


def test_machines_that_may_delete_everything_in_the_subscription_are_noted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Earlier instructions had users assign the machines' role there."""
    with azure(monkeypatch, AzureSubscription(wide=(f"/subscriptions/{SUBSCRIPTION}",))):
        monkeypatch.setenv("SPOTCTL_AZURE", f'identity = "{AzureSubscription.identity}"')
        ended = spotctl("doctor", "--json")
    finding = found(ended, "azure")["identity"]
    assert finding["level"] == "note"
    assert finding["cure"].startswith(
        f"az role assignment delete --assignee 1 --scope /subscriptions/{SUBSCRIPTION}"
    )


def test_resource_providers_that_a_new_subscription_lacks_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with azure(monkeypatch, AzureSubscription(unregistered=("Microsoft.Network",))):
        ended = spotctl("doctor", "--json")
    finding = found(ended, "azure")["providers"]
    assert (ended.code, finding["level"], finding["told"]) == (
        1,
        "fails",
        "not registered: Microsoft.Network",
    )
    assert "az provider register -n Microsoft.Network" in finding["cure"]


def test_missing_azure_permissions_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with azure(
        monkeypatch, AzureSubscription(not_actions=("Microsoft.Compute/virtualMachines/delete",))
    ):
        ended = spotctl("doctor", "--json")
    assert ended.code == 5
    assert (
        "missing: Microsoft.Compute/virtualMachines/delete"
        in found(ended, "azure")["permissions"]["told"]
    )


@pytest.mark.parametrize(("status", "code", "level"), [(403, 5, "no access"), (409, 1, "fails")])
def test_an_error_of_azure_becomes_a_finding(
    monkeypatch: pytest.MonkeyPatch, status: int, code: int, level: str
) -> None:
    with azure(monkeypatch, AzureSubscription()) as server:
        server.faults.append(Fault("permissions", azure_error("No", status=status)))
        ended = spotctl("doctor", "--json")
    assert (ended.code, found(ended, "azure")["access"]["level"]) == (code, level)


def test_the_role_of_machines_of_azure_ends_machines_and_makes_none() -> None:
    role = spotctl("doctor", "--policy", "azure-machines").json
    assert "Microsoft.Compute/virtualMachines/delete" in role["Actions"]
    assert all(action.endswith("/delete") for action in role["Actions"])
