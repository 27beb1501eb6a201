"""Orders on RunPod: what is sent, refusals, states, and that nothing costs more than its bid."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import replace
from typing import Any

import httpx
import pytest

from spotctl.clouds.errors import (
    NoCapacity,
    NotFound,
    QuotaReached,
    UnknownRefusal,
)
from spotctl.clouds.order_ledger import OrderLabel
from spotctl.clouds.provider import EndReason, MachineState
from spotctl.clouds.runpod.provider import RunPodProvider, state_of
from spotctl.home.errors import BadRequest
from tests.servers.loopback import Fault, Reply
from tests.servers.runpod import RESOURCES
from tests.servers.runpod_market import Pod, Stock
from tests.spotctl.clouds.runpod.world import BID, ONE, RUN, World, order


def sent(made: World) -> list[dict[str, Any]]:
    """The inputs of the orders."""
    bodies = [request.json() for request in made.server.requests]
    orders = (body for body in bodies if body["query"].startswith("mutation order"))
    return [body["variables"]["input"] for body in orders]


def alive(made: World) -> list[Pod]:
    return made.market.alive()


def test_an_order_says_where_what_and_how_much_a_gpu_may_cost(
    made: World, provider: RunPodProvider
) -> None:
    made.market.stocks[0].free = 4
    made.market.stocks[0].bid = 0.11
    provider.create(order("four", 1, market=replace(ONE, instance_type="1xRTX_4090")))
    (given,) = sent(made)
    assert (given["bidPerGpu"], given["gpuCount"]) == (0.3, 1)
    assert (given["cloudType"], given["dataCenterId"]) == ("SECURE", "US-TX-3")
    assert (given["minCudaVersion"], given["supportPublicIp"]) == ("12.8", True)
    assert given["volumeInGb"] == 0
    assert given["ports"] == "22/tcp"
    variables = {one["key"]: one["value"] for one in given["env"]}
    assert gzip.decompress(base64.b64decode(variables["SPOTCTL_START"])).startswith(b"#!/bin/sh")
    label = OrderLabel.parse(variables["SPOTCTL_LABEL"])
    assert label is not None
    assert (label.market, label.bid, label.tags["spotctl-intent"]) == (ONE, BID, "1")
    assert json.loads(given["dockerArgs"])["entrypoint"] == ["/bin/sh", "-c"]
    assert [pod.rate for pod in alive(made)] == [0.3]


def test_the_bid_is_that_of_one_gpu(
    made: World, provider: RunPodProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    four = replace(ONE, instance_type="4xRTX_4090")
    monkeypatch.setattr(provider, "offers", lambda: (four,))
    (machine,) = provider.create(order("four", 1, market=four, bid=4 * BID))
    assert sent(made)[0]["bidPerGpu"] == pytest.approx(0.3)
    assert [pod.rate for pod in alive(made)] == [pytest.approx(1.2)]
    assert machine.bid == 4 * BID


def test_an_order_on_demand_costs_no_more_than_planned(
    made: World, provider: RunPodProvider
) -> None:
    provider.create(order("dear", 1, bid=None))
    assert "bidPerGpu" not in sent(made)[0]
    made.market.stocks[0].price = 0.71
    with pytest.raises(NoCapacity, match="on demand"):
        provider.create(order("dearer", 1, bid=None))
    assert len(alive(made)) == 1


def test_a_driver_that_is_too_old_for_the_image_is_not_ordered(
    made: World, provider: RunPodProvider
) -> None:
    made.market.stocks[0].cuda = 12.4
    with pytest.raises(NoCapacity):
        provider.create(order())
    provider.create(order("older", 1, image="pytorch/pytorch:2.5-cuda12.4-cudnn9-runtime"))
    assert sent(made)[0]["minCudaVersion"] == "12.4"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"free": 0}, "no host has a machine"),
        ({"bid": 0.31}, r"for \$0.3000 an hour"),
        ({"public_ip": False}, "no host has a machine"),
    ],
)
def test_what_is_not_in_stock_buys_nothing_and_may_be_repeated(
    made: World, provider: RunPodProvider, change: dict[str, Any], said: str
) -> None:
    stock = made.market.stocks[0]
    before = {name: getattr(stock, name) for name in change}
    for name, value in change.items():
        setattr(stock, name, value)
    with pytest.raises(NoCapacity, match=said):
        provider.create(order())
    for name, value in before.items():
        setattr(stock, name, value)
    assert len(provider.create(order())) == 2


def test_stock_that_went_to_others_meanwhile_is_no_capacity(
    made: World, provider: RunPodProvider
) -> None:
    gone = Reply.of_json({"errors": [{"message": RESOURCES}], "data": None})
    made.server.faults.append(Fault("/graphql", gone, skip=1, times=2))
    with pytest.raises(NoCapacity):
        provider.create(order())
    assert not alive(made)


def test_a_community_pod_is_ordered_by_its_country(
    made: World, provider: RunPodProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.market.stocks.append(Stock("CA"))
    market = replace(ONE, region="runpod-ca", zone="community")
    monkeypatch.setattr(provider, "offers", lambda: (market,))
    provider.create(order("far", 1, market=market))
    (given,) = sent(made)
    assert (given["cloudType"], given["countryCode"]) == ("COMMUNITY", "CA")
    assert "dataCenterId" not in given


def test_an_account_without_an_hour_of_credit_says_so(
    made: World, provider: RunPodProvider
) -> None:
    made.market.balance = 0.2
    with pytest.raises(QuotaReached, match="add credit"):
        provider.create(order())


def test_where_bids_are_gone_an_order_says_so_and_on_demand_works(
    made: World, provider: RunPodProvider
) -> None:
    made.api.takes_bids = False
    with pytest.raises(BadRequest, match=r"takes no bids any more.*strategy: on-demand"):
        provider.create(order())
    assert len(provider.create(order("fixed", bid=None))) == 2


def test_a_pod_that_was_sold_on_demand_is_ended_and_reported(
    made: World, provider: RunPodProvider
) -> None:
    wrong = made.api._row
    made.api._row = lambda pod: {**wrong(pod), "podType": "RESERVED"}  # type: ignore[method-assign]
    with pytest.raises(UnknownRefusal, match="sold for more, so it was ended"):
        provider.create(order())
    assert not alive(made)


def listed(provider: RunPodProvider) -> list[tuple[MachineState, str]]:
    return [(machine.state, machine.failure) for machine in provider.list(RUN)]


def test_states_and_their_failures(made: World, provider: RunPodProvider) -> None:
    provider.create(order(machines=1))
    (pod,) = alive(made)
    assert listed(provider) == [(MachineState.RUNNING, "")]
    made.market.loads_seconds = 600
    assert listed(provider) == [(MachineState.STARTING, "")]
    made.market.loads_seconds = 0
    made.market.advance(100)
    made.market.outbid(pod, 0.4)
    assert listed(provider) == [(MachineState.PAUSED, "")]
    # Where others have its GPUs, a pod that is resumed runs without any.
    made.market.take(pod)
    made.market.resume(pod)
    assert listed(provider) == [
        (MachineState.PAUSED, "it runs without GPUs: others have those of its machine")
    ]
    made.market.exit(pod, "user")
    assert listed(provider) == [(MachineState.PAUSED, "its user stopped it")]


def test_an_image_that_is_refused_is_no_eviction(made: World, provider: RunPodProvider) -> None:
    made.market.stocks[0].refuses = True
    (machine,) = provider.create(order(machines=1))
    assert "its image is too large, or not there" in machine.failure
    provider.terminate([machine.id])
    (gone,) = provider.list(RUN)
    assert gone.end_reason is EndReason.FAILED


def test_without_credit_a_pod_is_ended_and_gone(made: World, provider: RunPodProvider) -> None:
    provider.create(order(machines=1, bid=None))
    made.market.balance = 0.0
    made.market.advance(600)
    assert [machine.state for machine in provider.list(RUN)] == [MachineState.GONE]


@pytest.mark.parametrize(
    ("row", "state", "failure"),
    [
        ({"desiredStatus": "CREATED"}, MachineState.STARTING, ""),
        ({"desiredStatus": "RESTARTING"}, MachineState.STARTING, ""),
        ({"desiredStatus": "DEAD"}, MachineState.PAUSED, "its machine is gone"),
        ({"desiredStatus": "PAUSED"}, MachineState.PAUSED, ""),
        ({"desiredStatus": "EXITED", "podType": "RESERVED"}, MachineState.PAUSED, "credit"),
        (
            {
                "desiredStatus": "EXITED",
                "lastStatusChange": "Exited by Runpod: Wed Jul 29 2026 21:56:48 GMT+0000",
            },
            MachineState.PAUSED,
            "",
        ),
    ],
)
def test_a_row_has_a_state(row: dict[str, Any], state: MachineState, failure: str) -> None:
    seen, why = state_of(row, 0)
    assert seen is state
    assert (failure in why) if failure else not why


def test_a_stopped_pod_with_a_volume_is_billed_and_one_without_is_not(made: World) -> None:
    market = made.market
    pods = [
        market.rent(market.stocks[0], 1, 0.3, {"containerDiskInGb": 32, "volumeInGb": gib})
        for gib in (0, 73)
    ]
    for pod in pods:
        market.exit(pod, "Runpod")
        pod.usd = 0.0
    market.advance(3600)
    market.settle()
    assert [pod.usd for pod in pods] == [0.0, pytest.approx(73 * 0.20 / 730, rel=0.01)]


def test_the_disk_is_counted(provider: RunPodProvider) -> None:
    held = provider.holdings(ONE, spot=True, disk_gib=None)
    assert held.disk == pytest.approx(32 * 0.10 / 730 * 1e9, abs=1)
    assert held.address == 0


def test_a_market_that_is_not_runpods_is_not_found(provider: RunPodProvider) -> None:
    with pytest.raises(NotFound, match="not a market"):
        provider.create(order(market=replace(ONE, os="windows")))


def test_the_pod_ends_itself_with_its_own_key_and_no_other(made: World) -> None:
    market = made.market
    ours, other = (market.rent(market.stocks[0], 1, 0.3, {}) for _ in range(2))
    headers = {"Authorization": f"Bearer {ours.key}"}
    ended = [
        httpx.delete(f"{made.server.url}/v2/pods/{pod.id}", headers=headers).status_code
        for pod in (other, ours, ours)
    ]
    assert ended == [401, 204, 404]
    assert alive(made) == [other]
