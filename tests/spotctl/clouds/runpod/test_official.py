"""RunPod's own client works with the simulated API, and spotctl's requests next to its."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from spotctl.clouds.runpod.calls import RunPodCalls
from tests.servers.loopback import LoopbackServer
from tests.servers.runpod import CAPACITY, FEW_GPUS
from tests.spotctl.clouds.runpod.official import OfficialClient, official_client
from tests.spotctl.clouds.runpod.world import World, order, world

pytestmark = pytest.mark.slow

GPU = "NVIDIA GeForce RTX 4090"
POD = {
    "name": "theirs",
    "image_name": "runpod/pytorch",
    "gpu_type_id": GPU,
    "cloud_type": "SECURE",
    "data_center_id": "US-TX-3",
    "container_disk_in_gb": 32,
    "ports": "22/tcp",
    "env": {"A": "b"},
}


@pytest.fixture
def made(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        yield made


@pytest.fixture
def client(made: World, tmp_path: Path) -> OfficialClient:
    return official_client(made.server.url, tmp_path)


def test_the_official_client_lists_rents_stops_resumes_and_ends(
    made: World, client: OfficialClient
) -> None:
    assert {gpu["id"] for gpu in client.answer("get_gpus")} == {GPU}
    lowest = client.answer("get_gpu", gpu_id=GPU)["lowestPrice"]
    assert lowest == {"minimumBidPrice": 0.2, "uninterruptablePrice": 0.69}
    assert client.answer("get_user")["id"] == "user_2hx9"
    number = client.answer("create_pod", **POD)["id"]
    (pod,) = client.answer("get_pods")
    assert (pod["id"], pod["env"], pod["podType"]) == (number, ["A=b"], "RESERVED")
    assert pod["runtime"]["ports"][0]["privatePort"] == 22
    assert client.answer("stop_pod", pod_id=number)["desiredStatus"] == "EXITED"
    assert client.answer("resume_pod", pod_id=number, gpu_count=1)["desiredStatus"] == "RUNNING"
    made.market.exit(made.market.pods[number], "user")
    made.market.take(made.market.pods[number])
    refused = client.ended("resume_pod", pod_id=number, gpu_count=1)
    assert refused == {"error": "QueryError", "said": FEW_GPUS}
    made.api.resumes_without_gpus = True
    client.answer("resume_pod", pod_id=number, gpu_count=1)
    assert client.answer("get_pod", pod_id=number)["gpuCount"] == 0
    assert client.answer("terminate_pod", pod_id=number) is None
    assert client.answer("get_pods") == []
    refused = client.ended("terminate_pod", pod_id=number)
    assert refused == {"error": "QueryError", "said": "pod not found to terminate"}


def test_the_official_client_is_refused_as_it_expects(made: World, client: OfficialClient) -> None:
    made.market.stocks[0].free = 0
    refused = client.ended("create_pod", **POD)
    assert refused == {"error": "QueryError", "said": CAPACITY}
    wrong = replace(client, key="rpa_wrong")
    assert wrong.ended("get_pods")["error"] == "AuthenticationError"
    made.api.says_401 = False
    assert wrong.ended("get_pods") == {"error": "QueryError", "said": "Unauthorized"}


def asked(server: LoopbackServer) -> tuple[set[str], set[str]]:
    """The calls of all requests, and the fields of pods that they ask for; forgets them."""
    calls, fields = set[str](), set[str]()
    for request in server.requests:
        query = request.json()["query"]
        calls |= set(re.findall(r"\b(pod[A-Z]\w+|gpuTypes|myself|pod(?=\())", query))
        if "desiredStatus" in query:
            fields |= set(re.findall(r"\w+", query)) - calls
    server.requests.clear()
    return calls, fields


def test_calls_and_fields_are_those_of_the_official_client(
    made: World, client: OfficialClient
) -> None:
    """It cannot bid, and asks for no places and no credit."""
    number = client.answer("create_pod", **POD)["id"]
    for name in ("get_pods", "get_gpus", "get_user"):
        client.answer(name)
    client.answer("get_pod", pod_id=number)
    client.answer("stop_pod", pod_id=number)
    client.answer("terminate_pod", pod_id=number)
    their_calls, their_fields = asked(made.server)

    with closing(made.provider()) as provider:
        (machine,) = provider.create(order("fixed", 1, bid=None))
        provider.list({})
        provider.terminate([machine.id])
    with closing(RunPodCalls(made.server.url)) as calls:
        calls.account()
    our_calls, our_fields = asked(made.server)
    words = {"podId", "PodFilter", "PodTerminateInput"}
    kinds = {"PodFindAndDeployOnDemandInput", "podFindAndDeployOnDemand"}
    assert our_calls - words - kinds <= their_calls | {"podFilter"}
    assert our_fields - their_fields <= {"query", "pods", "input"} | words | kinds
