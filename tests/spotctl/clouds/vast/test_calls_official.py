"""Requests of spotctl's provider next to those that Vast.ai's own client makes for the same
things."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from spotctl.clouds.vast.calls import VastCalls
from tests.servers.loopback import Request
from tests.spotctl.clouds.vast.official import official_client
from tests.spotctl.clouds.vast.world import World, order, world

pytestmark = pytest.mark.slow

IMAGE = "nvidia/cuda:12.8.1-cudnn-runtime-ubuntu24.04"
CREATE = (
    "--image",
    IMAGE,
    "--disk",
    "32",
    "--label",
    "ours",
    "--ssh",
    "--direct",
    "--env",
    "-e A=b -p 7071:7071",
)
NOT_THEIRS = {"target_state"}
"""Fields that the documentation has, and the client does not send."""


@pytest.fixture
def made(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        yield made


def shape(request: Request) -> tuple[str, str]:
    """The method and the path of a request, without the numbers of instances and offers."""
    return request.method, re.sub(r"/\d+(?=/)", "/N", request.path)


def taken(made: World) -> list[Request]:
    """The requests since the last call."""
    requests = list(made.server.requests)
    made.server.requests.clear()
    return requests


def theirs(made: World, folder: Path) -> list[Request]:
    """The requests of the official client that searches, orders with a bid, raises it, lists, shows
    and destroys."""
    client = official_client(made.server.url, folder)
    (offer, *_) = client.answer("search", "offers", "num_gpus=1", "--type", "bid")
    words = (*CREATE, "--bid_price", "0.2", "--onstart-cmd", "true", "--cancel-unavail")
    number = str(client.answer("create", "instance", str(offer["id"]), *words)["new_contract"])
    assert client.ended("change", "bid", number, "--price", "0.25").returncode == 0
    client.answer("show", "user")
    client.answer("show", "instances")
    client.answer("show", "instance", number)
    assert client.ended("destroy", "instance", number, "-y").returncode == 0
    return taken(made)


def ours(made: World) -> list[Request]:
    with closing(made.provider()) as provider:
        machines = provider.create(order(machines=1, ports=(7071,)))
        provider.raise_bid(machines[0].id, 250_000_000)
        provider.terminate([machine.id for machine in machines])
    with closing(VastCalls(made.server.url)) as calls:
        calls.user()
    return taken(made)


def body(requests: list[Request], path: str) -> dict[str, Any]:
    (found,) = [request for request in requests if path in request.path]
    sent: dict[str, Any] = json.loads(found.body)
    return sent


def test_every_call_is_one_that_the_official_client_makes_too(made: World, tmp_path: Path) -> None:
    known = {shape(request) for request in theirs(made, tmp_path)}
    called = {shape(request) for request in ours(made)}
    assert called <= known


def test_an_order_has_the_fields_and_the_forms_of_the_official_clients(
    made: World, tmp_path: Path
) -> None:
    their, our = body(theirs(made, tmp_path), "/asks/"), body(ours(made), "/asks/")
    assert our.keys() - their.keys() == NOT_THEIRS
    assert our["price"] == their["price"]
    assert our["runtype"] == their["runtype"]
    assert our["cancel_unavail"] == their["cancel_unavail"]
    assert (
        our["env"].items()
        >= {name: value for name, value in their["env"].items() if name != "A"}.items()
        > set()
    )
    assert {
        name for name in our.keys() & their.keys() if type(our[name]) is not type(their[name])
    } == set()


def test_a_raised_bid_is_sent_as_by_the_official_client(made: World, tmp_path: Path) -> None:
    assert body(ours(made), "/bid_price/") == body(theirs(made, tmp_path), "/bid_price/")


def test_a_search_has_the_filters_of_the_official_client(made: World, tmp_path: Path) -> None:
    their, our = body(theirs(made, tmp_path), "/bundles/"), body(ours(made), "/bundles/")
    assert our["type"] == their["type"] == "bid"
    assert our["order"][0][1] in ("asc", "desc")
    assert {name for name in ("order", "limit", "allocated_storage") if name in their} <= our.keys()
    operators = {
        operator for value in our.values() if isinstance(value, dict) for operator in value
    }
    assert operators <= {"eq", "gte", "lte", "in"}
