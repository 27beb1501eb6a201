"""What simulated Azure refuses, and its metadata service."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.cloud.azure_models import BadBody, check_body, check_version, newest_versions
from tests.cloud.host import MetadataAnswer
from tests.servers.azure import SUBSCRIPTION
from tests.servers.loopback import Request
from tests.spotctl.clouds.azure.world import World, order, running_world
from tests.waiting import eventually

Body = dict[str, Any]
VERSION = {"api-version": newest_versions()["microsoft.resources/deployments"]}
DEPLOYMENTS = "/providers/Microsoft.Resources/deployments/"


@pytest.fixture
def world() -> Iterator[World]:
    with running_world() as here:
        yield here


def deployed(world: World) -> tuple[str, Body]:
    """The request that bought two machines."""
    world.provider().create(order())
    (sent,) = [
        one
        for one in world.server.server.requests
        if one.method == "PUT" and DEPLOYMENTS in one.path
    ]
    return sent.path, json.loads(sent.body)


def machine_in(body: Body) -> Body:
    machine: Body = body["properties"]["template"]["resources"][-1]
    return machine


def changed(change: Callable[[Body], object]) -> Callable[[Body], None]:
    def apply(body: Body) -> None:
        change(machine_in(body))

    return apply


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (
            changed(lambda vm: vm["properties"].update(evictionPolicies="Delete")),
            "InvalidRequestContent",
        ),
        (changed(lambda vm: vm["properties"].update(vmId="1")), "PropertyReadOnly"),
        (changed(lambda vm: vm["properties"].update(priority="spot")), "InvalidParameter"),
        (
            changed(lambda vm: vm["properties"]["billingProfile"].update(maxPrice="1")),
            "InvalidParameter",
        ),
        (
            changed(lambda vm: vm["properties"]["storageProfile"]["osDisk"].pop("createOption")),
            "InvalidParameter",
        ),
        (changed(lambda vm: vm.pop("location")), "InvalidParameter"),
        (changed(lambda vm: vm.pop("apiVersion")), "InvalidTemplate"),
        (changed(lambda vm: vm.update(apiVersion="2999-01-01")), "InvalidApiVersionParameter"),
        (changed(lambda vm: vm.update(apiVersion="2024-07-01")), "InvalidApiVersionParameter"),
        (changed(lambda vm: vm.update(apiVersion="latest")), "InvalidApiVersionParameter"),
        (changed(lambda vm: vm["tags"].update(cost="[sum(1)]")), "InvalidTemplate"),
        (
            changed(lambda vm: vm.update(dependsOn=["Microsoft.Network/virtualNetworks/none"])),
            "InvalidTemplate",
        ),
        (
            changed(lambda vm: vm["properties"]["osProfile"].pop("linuxConfiguration")),
            "InvalidTemplateDeployment",
        ),
        (
            changed(lambda vm: vm["properties"].update(priority="Regular")),
            "InvalidTemplateDeployment",
        ),
        (lambda body: body["properties"].update(mode="Complete"), "InvalidDeploymentMode"),
        (lambda body: body["properties"].pop("mode"), "InvalidParameter"),
        (lambda body: body["properties"]["template"].pop("$schema"), "InvalidTemplate"),
        (lambda body: body.update(provisioningState="Succeeded"), "InvalidRequestContent"),
    ],
)
def test_a_request_that_does_not_fit_is_refused(
    world: World, change: Callable[[Body], None], code: str
) -> None:
    path, body = deployed(world)
    wrong = copy.deepcopy(body)
    change(wrong)
    url = f"{world.server.url}{path}-again"
    answer = httpx.put(url, json=wrong, params=VERSION)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)
    assert len(world.server.machines()) == 2


@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        ({}, "MissingApiVersionParameter"),
        ({"api-version": "2999-01-01"}, "InvalidApiVersionParameter"),
        ({"api-version": "2024-03-01", "expand": "x"}, "InvalidQueryParameters"),
        ({"api-version": "2024-03-01", "$filter": "tag eq x"}, "InvalidFilterInQueryString"),
    ],
)
def test_a_query_that_does_not_fit_is_refused(
    world: World, parameters: dict[str, str], code: str
) -> None:
    answer = httpx.get(
        f"{world.server.url}/subscriptions/{SUBSCRIPTION}/resourcegroups", params=parameters
    )
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)


def test_a_token_that_azure_did_not_issue_is_refused(world: World) -> None:
    answer = httpx.get(
        f"{world.server.url}/subscriptions/{SUBSCRIPTION}/resourcegroups",
        params={"api-version": "2024-03-01"},
        headers={"Authorization": "Bearer guess"},
    )
    assert (answer.status_code, answer.json()["error"]["code"]) == (
        401,
        "InvalidAuthenticationToken",
    )


def test_a_token_of_a_machine_does_not_buy(world: World) -> None:
    path, body = deployed(world)
    (name, _) = world.host.running()
    query = {"api-version": "2018-02-01", "resource": "https://management.azure.com/"}
    token = world.host.metadata(name, "identity/oauth2/token", query)["access_token"]
    answer = httpx.put(
        f"{world.server.url}{path}-again",
        json=body,
        params=VERSION,
        headers={"Authorization": f"Bearer {token}"},
    )
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "AuthorizationFailed")


def test_types_that_the_models_do_not_know() -> None:
    with pytest.raises(BadBody, match="cannot be made"):
        check_body("Microsoft.Storage/storageAccounts", {})
    with pytest.raises(BadBody, match="is invalid"):
        check_version("Microsoft.Compute/virtualMachines", "")


# -- the metadata service --------------------------------------------------------------------------


def asked(
    world: World,
    path: str,
    method: str = "GET",
    body: bytes = b"",
    **changes: Any,  # noqa: ANN401
) -> MetadataAnswer:
    query, headers = (
        changes.get("query", {"api-version": ["2021-02-01"]}),
        changes.get("headers", {"metadata": "true"}),
    )
    name = world.host.running()[0]
    return world.host.ask(name, Request(method, f"/metadata/{path}", query, headers, body))


def test_the_metadata_of_a_machine(world: World) -> None:
    (machine, _) = world.provider().create(order())
    compute = json.loads(asked(world, "instance").body)["compute"]
    assert compute["resourceId"].endswith(machine.id.rpartition("/")[2])
    assert (compute["vmSize"], compute["location"], compute["priority"]) == (
        "Standard_D4s_v5",
        "eastus",
        "Spot",
    )
    text = asked(
        world, "instance/compute/vmSize", query={"api-version": ["2021-02-01"], "format": ["text"]}
    )
    assert text.body == b"Standard_D4s_v5"


@pytest.mark.parametrize(
    ("path", "changes"),
    [
        ("instance", {"headers": {}}),
        ("instance", {"headers": {"metadata": "true", "x-forwarded-for": "10.0.0.1"}}),
        ("instance", {"query": {}}),
        ("identity/oauth2/token", {}),
        (
            "identity/oauth2/token",
            {"query": {"api-version": ["2018-02-01"], "resource": ["https://example.com/"]}},
        ),
    ],
)
def test_metadata_is_not_told_to_a_request_that_a_proxy_may_have_passed_on(
    world: World, path: str, changes: Body
) -> None:
    world.provider().create(order())
    assert asked(world, path, **changes).status == 400


def test_an_eviction_is_announced_and_begins_when_the_machine_agrees(world: World) -> None:
    (machine, _) = world.provider().create(order())
    assert json.loads(asked(world, "scheduledevents").body)["Events"] == []
    world.server.evict(machine.id, 1000.0)
    told = json.loads(asked(world, "scheduledevents").body)
    (event,) = told["Events"]
    assert (event["EventType"], event["EventStatus"], told["DocumentIncarnation"]) == (
        "Preempt",
        "Scheduled",
        2,
    )
    assert (
        asked(world, "scheduledevents", "POST", b'{"StartRequests": [{"EventId": "guess"}]}').status
        == 400
    )
    assert len(world.host.running()) == 2
    agreed = json.dumps({"StartRequests": [{"EventId": event["EventId"]}]}).encode()
    assert asked(world, "scheduledevents", "POST", agreed).status == 200
    assert len(world.host.running()) == 1


def test_an_eviction_comes_after_its_warning(world: World) -> None:
    (machine, _) = world.provider().create(order())
    world.server.evict(machine.id, 0.05)
    eventually(lambda: len(world.host.running()) == 1)
    with pytest.raises(KeyError):
        world.server.evict(machine.id, None)


def test_a_machine_that_is_only_switched_off_is_still_billed(world: World) -> None:
    world.provider().create(order())
    (name, _) = world.host.running()
    world.host.end(name)
    (off, on) = world.server.machines()
    assert (off.state, off.ended, on.state) == ("stopped", None, "running")
    assert off.usd == 0.0, "not a full minute yet"
