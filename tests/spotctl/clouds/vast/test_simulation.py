"""The simulated Vast.ai: its market and its bills, and that Vast.ai's own client works with its
API.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.servers.loopback import LoopbackServer, serving
from tests.servers.vast import KEY, Vast
from tests.servers.vast_market import Contract, Host, VastMarket
from tests.spotctl.clouds.vast.official import OfficialClient, official_client

HOUR = 3600.0
IMAGE = {"image": "nvidia/cuda:12.8.0-base-ubuntu24.04"}


def market_of(*hosts: Host, loads_seconds: float = 0.0) -> VastMarket:
    return VastMarket(list(hosts), loads_seconds=loads_seconds)


def bid(market: VastMarket, host: Host, price: float | None) -> Contract:
    return market.order(host, price, 72.0, dict(IMAGE))


def running(market: VastMarket) -> list[int]:
    return [contract.id for contract in market.alive() if market.runs(contract)]


def test_the_highest_bid_runs_and_a_contract_on_demand_before_all() -> None:
    host = Host(1)
    market = market_of(host)
    low, high = bid(market, host, 0.2), bid(market, host, 0.3)
    assert running(market) == [high.id]
    market.change_bid(low, 0.4)
    assert running(market) == [low.id]
    fixed = bid(market, host, None)
    assert running(market) == [fixed.id]
    market.destroy(fixed)
    assert running(market) == [low.id]


def test_a_contract_that_was_outbid_comes_back_with_its_disk() -> None:
    host = Host(1)
    market = market_of(host)
    ours = bid(market, host, 0.2)
    market.outbid(host, 0.25)
    assert running(market) == []
    assert market.alive() == [ours]
    market.withdraw(host)
    assert running(market) == [ours.id]
    market.take(host)
    assert running(market) == []


def test_what_runs_costs_its_bid_and_the_disk_costs_in_every_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("time.time", lambda: 1_800_000_000.0)
    host = Host(1, storage=0.1)
    market = market_of(host, loads_seconds=600)
    ours = bid(market, host, 0.2)
    market.advance(600 + HOUR)
    market.outbid(host, 0.25)
    market.advance(HOUR)
    assert market.billed(ours) == pytest.approx((0.2, 72 * 0.1 / 720 * (2 + 1 / 6)))
    market.change_bid(ours, 0.3)
    market.advance(600 + HOUR)
    market.destroy(ours)
    market.advance(HOUR)
    assert market.billed(ours) == pytest.approx((0.5, 72 * 0.1 / 720 * (3 + 2 / 6)))


def test_a_bid_must_beat_the_floor_and_the_bids_that_run() -> None:
    host = Host(1, gpus=4, gpu_floor=0.1)
    market = market_of(host)
    assert market.least_bid(host) == pytest.approx(0.4)
    bid(market, host, 0.5)
    assert market.least_bid(host) == pytest.approx(0.501)


@pytest.fixture
def hosts() -> list[Host]:
    return [Host(11), Host(12, gpus=4, country="DE"), Host(13, verified=False)]


@pytest.fixture
def api(hosts: list[Host]) -> Vast:
    return Vast(market_of(*hosts))


@pytest.fixture
def server(api: Vast) -> Iterator[LoopbackServer]:
    with serving(api) as server:
        yield server


def put(server: LoopbackServer, path: str, body: object, key: str = KEY) -> httpx.Response:
    return httpx.put(
        f"{server.url}/api/v0/{path}", json=body, headers={"Authorization": f"Bearer {key}"}
    )


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"disk": 20}, 400, "image"),
        ({**IMAGE, "bid": 0.3}, 400, "unknown"),
        ({**IMAGE, "price": 129}, 400, "Invalid price 129"),
        ({**IMAGE, "price": "0.3"}, 400, "Invalid price 0.3"),
        ({**IMAGE, "disk": 7.9}, 400, "disk"),
        ({**IMAGE, "label": "x" * 257}, 400, "label"),
        ({**IMAGE, "onstart": "x" * 4097}, 400, "onstart"),
        ({**IMAGE, "env": {"A": "x" * 257}}, 400, "env"),
        ({**IMAGE, "runtype": "vm"}, 400, "runtype"),
        ({**IMAGE, "price": 0.1}, 410, "no longer available"),
    ],
)
def test_an_order_is_refused_as_documented(
    server: LoopbackServer, hosts: list[Host], body: dict[str, object], status: int, said: str
) -> None:
    refused = put(server, f"asks/{hosts[0].ask}/", body)
    assert (refused.status_code, refused.json()["success"]) == (status, False)
    assert said in refused.json()["msg"]


def test_a_bid_that_is_too_low_leaves_a_stopped_instance_unless_that_is_cancelled(
    server: LoopbackServer, api: Vast, hosts: list[Host]
) -> None:
    cancelled = put(
        server, f"asks/{hosts[0].ask}/", {**IMAGE, "price": 0.1, "cancel_unavail": True}
    )
    assert "new_contract" not in cancelled.json()
    assert api.market.alive() == []
    left = put(server, f"asks/{hosts[0].ask}/", {**IMAGE, "price": 0.1}).json()["new_contract"]
    assert [contract.id for contract in api.market.alive()] == [left]
    assert running(api.market) == []


@pytest.mark.parametrize("body", [IMAGE, {**IMAGE, "price": None}])
def test_an_order_without_a_price_is_bought_on_demand_without_a_word(
    server: LoopbackServer, api: Vast, hosts: list[Host], body: dict[str, object]
) -> None:
    answer = put(server, f"asks/{hosts[1].ask}/", body)
    assert answer.json().keys() == {"success", "new_contract", "instance_api_key"}
    assert api.market.contracts[answer.json()["new_contract"]].rate == pytest.approx(1.6)


def test_an_offer_is_used_once(server: LoopbackServer, hosts: list[Host]) -> None:
    ask = hosts[0].ask
    assert put(server, f"asks/{ask}/", {**IMAGE, "price": 0.3}).status_code == 200
    refused = put(server, f"asks/{ask}/", {**IMAGE, "price": 0.5})
    assert (refused.status_code, refused.json()["ask_id"]) == (404, ask)


def test_the_key_of_an_instance_ends_this_instance_and_nothing_else(
    server: LoopbackServer, api: Vast, hosts: list[Host]
) -> None:
    made = [put(server, f"asks/{host.ask}/", {**IMAGE, "price": 1.0}).json() for host in hosts[:2]]
    keys = {"Authorization": f"Bearer {made[0]['instance_api_key']}"}
    ended = [
        httpx.delete(
            f"{server.url}/api/v0/instances/{one['new_contract']}/", headers=keys
        ).status_code
        for one in made
    ]
    assert ended == [200, 401]
    assert (
        put(server, f"asks/{hosts[2].ask}/", IMAGE, made[0]["instance_api_key"]).status_code == 401
    )
    assert len(api.market.alive()) == 1


def test_searches_are_limited_by_the_minute_and_their_rows_by_the_day(
    server: LoopbackServer, api: Vast
) -> None:
    api.is_paced, api.rows_a_day = True, 5
    url, keys = f"{server.url}/api/v0/bundles/", {"Authorization": f"Bearer {KEY}"}
    assert len(httpx.post(url, json={"type": "bid"}, headers=keys).json()["offers"]) == 3
    refused = httpx.post(url, json={"type": "bid"}, headers=keys)
    assert (refused.status_code, "Retry-After" in refused.headers) == (429, False)
    assert refused.json() == {"detail": "API requests too frequent endpoint threshold=6.0"}
    api.market.advance(6)
    refused = httpx.post(url, json={"type": "bid"}, headers=keys)
    assert (refused.status_code, refused.json()["error"]) == (429, "search_quota_exceeded")
    assert int(refused.headers["X-RateLimit-Reset"]) % 86_400 == 0
    api.market.advance(float(refused.headers["Retry-After"]))
    assert httpx.post(url, json={"type": "bid"}, headers=keys).status_code == 200


def test_a_new_instance_is_listed_late_and_pages_hold_25(server: LoopbackServer, api: Vast) -> None:
    host = api.market.add(Host(20))
    for _ in range(26):
        bid(api.market, host, 0.2)
    api.lists_late = 30.0
    keys = {"Authorization": f"Bearer {KEY}"}

    def listed(token: str = "") -> dict[str, object]:
        query = {"after_token": token} if token else {}
        answer: dict[str, object] = httpx.get(
            f"{server.url}/api/v1/instances/", params=query, headers=keys
        ).json()
        return answer

    assert listed()["total_instances"] == 0
    api.market.advance(31)
    first = listed()
    assert (first["instances_found"], first["total_instances"]) == (25, 26)
    assert listed(str(first["next_token"]))["instances_found"] == 1
    filters = {"select_filters": json.dumps({"num_gpus": {"eq": 1}})}
    assert (
        httpx.get(f"{server.url}/api/v1/instances/", params=filters, headers=keys).status_code
        == 400
    )


@pytest.fixture
def client(server: LoopbackServer, tmp_path: Path) -> OfficialClient:
    return official_client(server.url, tmp_path)


@pytest.mark.slow
def test_the_official_client_rents_bids_and_destroys(
    client: OfficialClient, api: Vast, hosts: list[Host]
) -> None:
    assert client.answer("show", "user")["id"] == 4242
    (offer,) = client.answer("search", "offers", "gpu_name=RTX_4090 num_gpus=4", "--type", "bid")
    assert (offer["id"], offer["min_bid"]) == (hosts[1].ask, pytest.approx(0.6))
    words = (
        "--image",
        IMAGE["image"],
        "--disk",
        "20",
        "--label",
        "ours",
        "--ssh",
        "--direct",
        "--env",
        "-e A=b",
    )
    made = client.answer("create", "instance", str(offer["id"]), *words, "--bid_price", "0.7")
    number = str(made["new_contract"])
    (row,) = client.answer("show", "instances")
    assert (row["id"], row["label"], row["is_bid"], row["extra_env"]) == (
        int(number),
        "ours",
        True,
        {"A": "b"},
    )
    api.market.outbid(hosts[1], 0.75)
    assert client.answer("show", "instance", number)["actual_status"] == "stopped"
    # The client calls it the price for a GPU, the documentation that of the machine.
    assert (
        client.ended("change", "bid", number, "--price", "0.8").stdout.strip()
        == "Per gpu bid price changed"
    )
    assert client.answer("show", "instance", number)["dph_base"] == pytest.approx(0.8)
    for state in ("stop", "start"):
        assert client.ended(state, "instance", number).returncode == 0
    assert client.ended("destroy", "instance", number, "-y").returncode == 0
    assert client.answer("show", "instances") == []
    assert client.answer("show", "instance", number) == {"instances": None}


@pytest.mark.slow
def test_the_official_client_buys_on_demand_without_a_bid_and_knows_the_quota(
    client: OfficialClient, server: LoopbackServer, api: Vast, hosts: list[Host]
) -> None:
    made = client.answer("create", "instance", str(hosts[0].ask), "--image", IMAGE["image"])
    assert b'"price": null' in next(
        request.body for request in server.requests if "asks" in request.path
    )
    assert api.market.contracts[made["new_contract"]].price is None
    api.rows_a_day = 0
    refused = client.ended("search", "offers", "--type", "bid")
    assert "Daily search quota exceeded. Resets at" in refused.stderr
