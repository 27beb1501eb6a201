"""The simulated Compute Engine refuses what the real one refuses, and bills what it rents out."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from pricing_data.fetched_rows import FetchedRows
from pricing_data.market import Market
from pricing_data.sources.base import FetchRequest
from pricing_data.units import DAY
from spotctl.clouds.gcp.cloud import GcpSettings
from spotctl.clouds.gcp.prices import GcpSource
from tests.cloud.api import now_micros
from tests.cloud.gcp import GcpServer
from tests.cloud.gcp_project import SPOT_USD
from tests.cloud.host import MetadataRequest, Records
from tests.servers.gcp import PROJECT

ZONE = "us-central1-a"
BODY: dict[str, Any] = {
    "name": "one",
    "machineType": f"zones/{ZONE}/machineTypes/n2-standard-4",
    "disks": [
        {
            "boot": True,
            "autoDelete": True,
            "initializeParams": {
                "sourceImage": "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-amd64"
            },
        }
    ],
    "networkInterfaces": [{"network": "global/networks/default"}],
    "scheduling": {
        "provisioningModel": "SPOT",
        "instanceTerminationAction": "DELETE",
        "onHostMaintenance": "TERMINATE",
        "automaticRestart": False,
        "maxRunDuration": {"seconds": "3600"},
    },
    "metadata": {"items": [{"key": "user-data", "value": "#!/bin/sh\n"}]},
    "serviceAccounts": [
        {"email": "default", "scopes": ["https://www.googleapis.com/auth/cloud-platform"]}
    ],
}


@pytest.fixture
def host() -> Records:
    return Records()


@pytest.fixture
def server(host: Records) -> Iterator[GcpServer]:
    made = GcpServer(host)
    yield made
    made.close()


def asked(
    server: GcpServer, method: str, path: str, body: object = None, token: str = ""
) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    data = None if body is None else json.dumps(body).encode()
    url = f"{server.http.url}/compute/v1/projects/{PROJECT}/{path}"
    request = urllib.request.Request(url, data=data, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def insert(server: GcpServer, body: object, request_id: str = "") -> tuple[int, Any]:
    query = f"?requestId={request_id}" if request_id else ""
    status, answer = asked(server, "POST", f"zones/{ZONE}/instances{query}", body)
    if status == 200:
        asked(server, "POST", f"zones/{ZONE}/operations/{answer['name']}/wait")
    return status, answer


def changed(path: str, value: object) -> dict[str, Any]:
    """The body with one field changed; None: without it."""
    body: dict[str, Any] = json.loads(json.dumps(BODY))
    *parents, last = path.split(".")
    target: Any = body
    for one in parents:
        target = target[int(one)] if one.isdigit() else target[one]
    if value is None:
        del target[last]
    else:
        target[last] = value
    return body


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("machineTyp", "x"),
        ("name", None),
        ("name", "Upper"),
        ("name", "x" * 64),
        ("machineType", None),
        ("machineType", f"zones/{ZONE}/machineTypes/n9-standard-4"),
        ("machineType", "zones/us-central1-b/machineTypes/n2-standard-4"),
        ("disks", None),
        ("disks.0.boot", False),
        ("disks.0.initializeParams.sourceImage", "projects/nobody/global/images/none"),
        ("disks.0.autoDelete", "maybe"),
        ("networkInterfaces", None),
        ("networkInterfaces.0.network", "global/networks/none"),
        ("scheduling.provisioningModel", "CHEAP"),
        ("scheduling.instanceTerminationAction", "KEEP"),
        ("scheduling.onHostMaintenance", "MIGRATE"),
        ("scheduling.automaticRestart", True),
        ("scheduling.maxRunDuration", {"seconds": "7"}),
        ("labels", {"Team": "a"}),
        ("labels", {"team": "A team"}),
        ("serviceAccounts.0.scopes", []),
    ],
)
def test_what_the_messages_of_the_sdk_do_not_allow_is_refused(
    server: GcpServer, field: str, value: object
) -> None:
    status, answer = insert(server, changed(field, value))
    assert status == 400
    assert answer["error"]["code"] == 400
    assert answer["error"]["errors"][0]["reason"] in ("invalid", "required")
    assert server.machines() == ()
    assert insert(server, BODY)[0] == 200


def test_a_request_id_belongs_to_one_request(server: GcpServer) -> None:
    known = str(uuid.uuid4())
    _, first = insert(server, BODY, known)
    _, again = insert(server, BODY, known)
    assert again["name"] == first["name"]
    assert len(server.machines()) == 1
    status, other = insert(server, changed("name", "two"), known)
    assert (status, len(server.machines())) == (400, 1)
    assert "was used for another request" in other["error"]["message"]
    assert insert(server, changed("name", "two"), "7")[0] == 400
    status, taken = insert(server, BODY, str(uuid.uuid4()))
    assert (status, taken["error"]["errors"][0]["reason"]) == (409, "alreadyExists")


def test_a_filter_that_is_not_understood_is_refused(server: GcpServer) -> None:
    for filter_ in ("labels.run=a%20OR%20x", "status%20eq%20RUNNING", "labels.run%20=%20a"):
        assert asked(server, "GET", f"aggregated/instances?maxResults=5&filter={filter_}")[0] == 400
    assert asked(server, "GET", "aggregated/instances?maxResults=501")[0] == 400


def test_a_machine_deletes_itself_with_the_token_of_its_metadata(
    server: GcpServer, host: Records
) -> None:
    insert(server, BODY)
    (name,) = host.running()

    def told(path: str, **headers: str) -> tuple[int, str]:
        answer = host.ask(
            name, MetadataRequest("GET", f"/computeMetadata/v1/{path}", {}, headers, b"")
        )
        return answer.status, answer.body.decode()

    flavor = {"metadata-flavor": "Google"}
    assert told("instance/name")[0] == 403
    assert told("instance/name", **flavor) == (200, "one")
    assert told("instance/zone", **flavor)[1].endswith(f"/zones/{ZONE}")
    assert told("instance/attributes/user-data", **flavor) == (200, "#!/bin/sh\n")
    assert told("instance/attributes/", **flavor) == (200, "user-data")
    assert told("instance/attributes/none", **flavor)[0] == 404
    token = json.loads(told("instance/service-accounts/default/token", **flavor)[1])["access_token"]
    assert asked(server, "DELETE", f"zones/{ZONE}/instances/one", token="forged")[0] == 401
    status, operation = asked(server, "DELETE", f"zones/{ZONE}/instances/one", token=token)
    assert (status, operation["user"]) == (
        200,
        "314159265358-compute@developer.gserviceaccount.com",
    )
    asked(server, "POST", f"zones/{ZONE}/operations/{operation['name']}/wait")
    assert (host.running(), server.resources()) == ((), ())
    (rented,) = server.machines()
    assert rented.ended is not None
    assert rented.ended - rented.started < 60_000_000
    assert rented.usd == pytest.approx(0.01 * 4 / 60), "a minute at least"


def test_an_eviction_is_announced_in_the_metadata_and_then_happens(
    server: GcpServer, host: Records
) -> None:
    insert(server, BODY)
    (name,), (rented,) = host.running(), server.machines()
    flavor = {"metadata-flavor": "Google"}
    path = "/computeMetadata/v1/instance/preempted"
    before = host.ask(name, MetadataRequest("GET", path, {}, flavor, b""))
    assert before.body == b"FALSE"
    server.evict(rented.id, 0.3)
    query = {"wait_for_change": ["true"], "last_etag": [before.headers["ETag"]]}
    assert host.ask(name, MetadataRequest("GET", path, query, flavor, b"")).body == b"TRUE"
    give_up = time.monotonic() + 60
    while server.resources():
        assert time.monotonic() < give_up
        time.sleep(0.01)
    (gone,) = server.machines()
    assert (gone.state, gone.reason, host.running()) == ("DELETED", "preempted", ())
    with pytest.raises(KeyError):
        server.evict(rented.id, None)


def test_on_demand_machines_are_not_evicted(server: GcpServer) -> None:
    insert(server, changed("scheduling", {"provisioningModel": "STANDARD"}))
    with pytest.raises(ValueError, match="not a spot machine"):
        server.evict(server.machines()[0].id, None)
    with pytest.raises(ValueError, match="run forever"):
        server.project.expire(server.machines()[0].id)


def test_a_machine_that_switches_itself_off_is_still_there(
    server: GcpServer, host: Records
) -> None:
    insert(server, BODY)
    host.end(host.running()[0])
    assert [one.kind for one in server.resources()] == ["machine"]
    assert server.machines()[0].state == "TERMINATED"


def test_prices_of_its_machines_can_be_fetched(server: GcpServer) -> None:
    settings = GcpSettings(PROJECT, server.http.url, server.http.url)
    tasks = GcpSource(settings).tasks(
        FetchRequest(since=now_micros() - 7 * DAY, until=now_micros())
    )
    rows = FetchedRows.joined([step for task in tasks for step in task.pull()]).prices
    prices = {
        rows.markets[code]: price for code, price in zip(rows.codes, rows.prices, strict=True)
    }
    assert prices[Market("gcp", "us-central1", "-", "n2-standard-4")] == 4 * SPOT_USD * 1e9


@pytest.mark.parametrize(
    ("rule", "tags", "admitted"),
    [
        (
            {
                "sourceRanges": ["203.0.113.0/24"],
                "allowed": [{"IPProtocol": "tcp", "ports": ["22"]}],
            },
            ["a"],
            True,
        ),
        (
            {"sourceRanges": ["192.0.2.0/24"], "allowed": [{"IPProtocol": "tcp", "ports": ["22"]}]},
            ["a"],
            False,
        ),
        (
            {
                "sourceRanges": ["203.0.113.0/24"],
                "allowed": [{"IPProtocol": "tcp", "ports": ["80"]}],
            },
            ["a"],
            False,
        ),
        (
            {
                "sourceRanges": ["203.0.113.0/24"],
                "allowed": [{"IPProtocol": "all"}],
                "targetTags": ["b"],
            },
            ["a"],
            False,
        ),
        ({"sourceTags": ["a"], "allowed": [{"IPProtocol": "all"}]}, ["a"], False),
    ],
)
def test_a_firewall_rule_admits_what_it_says(
    server: GcpServer, host: Records, rule: dict[str, Any], tags: list[str], admitted: bool
) -> None:
    server.networks["vpc"] = "global/networks/vpc"
    body = changed("networkInterfaces.0.network", "global/networks/vpc")
    insert(server, {**body, "tags": {"items": tags}})
    (name,) = host.running()
    assert not host.spec(name).admits_ssh()
    status, _ = asked(
        server, "POST", "global/firewalls", {"name": "r", "network": "global/networks/vpc", **rule}
    )
    assert (status, host.spec(name).admits_ssh()) == (200, admitted)
