"""Faults of Azure: rows that arrived are kept, and the error is reported."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from pricing_data.errors import (
    AccessDenied,
    IncompleteAnswer,
    MissingCredentials,
    NoAnswer,
    RateLimited,
    UnknownResource,
)
from pricing_data.sources.base import FetchRequest
from pricing_data.units import DAY, Span, parse_time
from spotctl.clouds.azure.prices import AzureSource
from tests.servers.azure import (
    GRAPH,
    RETAIL,
    SKUS,
    AzureWorld,
    azure_error,
    eviction_row,
    price_row,
    retail_item,
    running_azure,
    sku,
)
from tests.servers.loopback import Fault, Reply, Request, serving
from tests.servers.pulling import Pulled, pulled

NOW = parse_time("2026-03-01T12:00:00Z")
START = NOW - 30 * DAY
SIZES = [f"Standard_D{vcpus}s_v5" for vcpus in (2, 4, 8, 16, 32)]
REQUEST = FetchRequest(since=START, until=NOW, regions=("eastus",))
PATHS = {"prices": RETAIL, "machine types": SKUS, "spot history": GRAPH, "eviction rates": GRAPH}
FOR_EVER = 1000


@pytest.fixture
def azure(monkeypatch: pytest.MonkeyPatch) -> Iterator[AzureWorld]:
    """Five sizes in one region, two per page."""
    with running_azure(monkeypatch) as world:
        world.cloud.page_limit = 2
        for number, size in enumerate(SIZES, start=1):
            fill(world, "eastus", size, number * 10**8)
        yield world


def fill(azure: AzureWorld, region: str, size: str, price: int) -> None:
    azure.cloud.retail.append(retail_item(region, size, price, START, kind="Spot"))
    azure.cloud.skus.append(sku(region, size, vCPUs="2", MemoryGB="8"))
    azure.cloud.spot.append(price_row(region, size, "linux", [(START, price)]))
    azure.cloud.spot.append(eviction_row(region, size, "5-10"))


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The delays between retries, recorded instead of slept."""
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    return pauses


@dataclass
class TaskFault(Fault):
    """A fault of one task's requests; the two tasks that use Resource Graph differ by their
    query."""

    what: str = ""

    def strikes(self, request: Request) -> bool:
        kinds = {"spot history": b"skuspotpricehistory", "eviction rates": b"skuspotevictionrate"}
        return kinds.get(self.what, b"") in request.body and super().strikes(request)


def fault(
    what: str, reply: Reply | None = None, *, cut: int = 0, times: int = 1, skip: int = 0
) -> TaskFault:
    return TaskFault(PATHS[what], reply, cut, times, skip, what)


def pull(azure: AzureWorld, what: str) -> Pulled:
    """The result of one task of the region."""
    return next(
        pulled(task) for task in AzureSource(azure.settings()).tasks(REQUEST) if task.what == what
    )


def sizes_of(result: Pulled) -> list[str]:
    fetched = result.all
    sizes = {market.instance_type for market in fetched.prices.markets} | {
        found.name for found in fetched.types
    }
    return sorted(
        sizes | {rate.market.instance_type for rate in fetched.interruptions}, key=SIZES.index
    )


def asked(azure: AzureWorld, what: str) -> int:
    probe = fault(what, times=FOR_EVER)
    return sum(probe.strikes(request) for request in azure.server.requests)


every_task = pytest.mark.parametrize("what", PATHS)


@every_task
def test_throttling_waits_for_the_retry_after_of_azure(
    azure: AzureWorld, slept: list[float], what: str
) -> None:
    azure.breaks(
        fault(
            what,
            azure_error("TooManyRequests", status=429, **{"Retry-After": "7"}),
            times=2,
            skip=1,
        )
    )
    result = pull(azure, what)
    assert result.error is None
    assert sizes_of(result) == SIZES
    assert slept == [7.0, 7.0]


@every_task
@pytest.mark.parametrize("status", [429, 500, 503, 504])
def test_failures_without_a_hint_are_retried_too(
    azure: AzureWorld, slept: list[float], what: str, status: int
) -> None:
    azure.breaks(fault(what, azure_error("InternalError", status=status), times=4))
    result = pull(azure, what)
    assert result.error is None
    assert sizes_of(result) == SIZES
    assert all(pause < 1 for pause in slept)


@every_task
@pytest.mark.usefixtures("slept")
def test_endless_throttling_ends_after_the_retries_and_affects_no_other_task(
    azure: AzureWorld, what: str
) -> None:
    throttled = azure_error("TooManyRequests", status=429, **{"Retry-After": "7"})
    azure.breaks(fault(what, throttled, times=FOR_EVER, skip=1))
    result = azure.pull(REQUEST)
    failed = result.pop(("eastus", what))
    assert isinstance(failed.error, NoAnswer if what == "prices" else RateLimited)
    assert "eastus" in str(failed.error)
    assert "\n" not in str(failed.error)
    assert len(sizes_of(failed)) == 2
    assert failed.all.covered == {}
    assert asked(azure, what) == 1 + 5, "one good page, then one try and four retries"
    assert all(other.error is None and sizes_of(other) == SIZES for other in result.values())


@every_task
@pytest.mark.usefixtures("slept")
def test_permanently_truncated_pages_keep_the_whole_ones(azure: AzureWorld, what: str) -> None:
    azure.breaks(fault(what, cut=20, skip=2, times=FOR_EVER))
    result = pull(azure, what)
    assert isinstance(result.error, NoAnswer)
    assert len(sizes_of(result)) == 4
    assert result.all.covered == {}


@every_task
@pytest.mark.parametrize(
    "body",
    [
        b'{"value": [',
        b"<html>busy</html>",
        b"",
        b"null",
        b"[]",
        b'"x"',
        b"7",
        b'{"value": 3, "data": null}',
    ],
)
def test_an_undocumented_answer_is_reported(azure: AzureWorld, what: str, body: bytes) -> None:
    azure.breaks(
        fault(what, Reply(200, body, {"Content-Type": "application/json"}), skip=1, times=FOR_EVER)
    )
    result = pull(azure, what)
    assert isinstance(result.error, NoAnswer)
    assert "\n" not in str(result.error)
    assert len(sizes_of(result)) == 2
    assert result.all.covered == {}


@pytest.mark.parametrize("what", ["machine types", "spot history", "eviction rates"])
def test_a_token_that_expires_between_pages_keeps_the_rows_and_covers_nothing(
    azure: AzureWorld, what: str
) -> None:
    expired = azure_error("ExpiredAuthenticationToken", "the access token expired", 401)
    azure.breaks(fault(what, expired, skip=1, times=FOR_EVER))
    result = pull(azure, what)
    assert isinstance(result.error, MissingCredentials)
    for cure in (
        "AZURE_TENANT_ID",
        "AZURE_CLIENT_ID",
        "AZURE_CLIENT_SECRET",
        "az login",
        "AZURE_SUBSCRIPTION_ID",
    ):
        assert cure in str(result.error)
    assert len(sizes_of(result)) == 2
    assert result.all.covered == {}


def test_a_denied_region_does_not_affect_the_others(azure: AzureWorld) -> None:
    fill(azure, "westus", SIZES[0], 10**8)
    azure.cloud.denied_regions.add("westus")
    result = azure.pull(FetchRequest(since=START, until=NOW, regions=("westus", "eastus")))
    permissions = {
        "machine types": "Microsoft.Compute/skus/read",
        "spot history": "Microsoft.ResourceGraph/resources/read",
        "eviction rates": "Microsoft.ResourceGraph/resources/read",
    }
    for what, permission in permissions.items():
        error = result["westus", what].error
        assert isinstance(error, AccessDenied)
        assert f"{permission} on /subscriptions/" in str(error)
        assert sizes_of(result["eastus", what]) == SIZES
    assert sizes_of(result["westus", "prices"]) == SIZES[:1]
    assert result["eastus", "spot history"].all.covered == {"azure/eastus": Span(START, NOW)}


def test_an_unknown_subscription_is_named(azure: AzureWorld) -> None:
    source = AzureSource(azure.settings(subscription="another"))
    error = azure.pull(REQUEST, source)["eastus", "machine types"].error
    assert isinstance(error, AccessDenied)
    assert "/subscriptions/another" in str(error)
    assert "AZURE_SUBSCRIPTION_ID" in str(error)


def test_a_server_that_does_not_run_fails_every_task(azure: AzureWorld) -> None:
    with serving(azure.cloud) as closed:
        gone = closed.url
    source = AzureSource(
        azure.settings(management_endpoint=gone, retail_prices_url=gone, retries=1)
    )
    result = azure.pull(REQUEST, source)
    assert len(result) == len(PATHS)
    assert all(isinstance(pulled.error, NoAnswer) for pulled in result.values())


def test_bad_records_are_left_out_and_counted(azure: AzureWorld) -> None:
    item, machine = azure.cloud.retail[0], azure.cloud.skus[0]
    azure.cloud.retail += [item | {"retailPrice": "dear"}, item | {"effectiveStartDate": None}]
    azure.cloud.skus += [machine | {"capabilities": []}, machine | {"name": 7}]
    azure.cloud.spot += [
        price_row("eastus", "Standard_D64s_v5", "linux", []) | {"sku": {}, "id": "zz"},
        price_row("eastus", "Standard_D64s_v5", "linux", [(START, -1)]),
        eviction_row("eastus", "Standard_D64s_v5", "seldom"),
        eviction_row("eastus", "Standard_D64s_v5", "10-5") | {"id": "zz"},
    ]
    for (_, what), result in azure.pull(REQUEST).items():
        assert isinstance(result.error, IncompleteAnswer), what
        assert ": 2 records left out, the others were kept" in str(result.error), what
        assert sizes_of(result) == SIZES
        assert result.all.covered == {}, "what was skipped is asked for again"
    assert f"{SIZES[0]}: price 'dear'" in str(pull(azure, "prices").error)


def test_records_that_are_not_objects_are_left_out(azure: AzureWorld) -> None:
    replies: dict[str, dict[str, object]] = {
        "prices": {"Items": ["junk", azure.cloud.retail[0]], "NextPageLink": None},
        "machine types": {"value": ["junk", azure.cloud.skus[0]]},
        "spot history": {
            "data": [
                "junk",
                {"skuName": SIZES[0], "location": "eastus", "osType": "linux", "spotPrices": []},
            ]
        },
        "eviction rates": {
            "data": [None, {"skuName": SIZES[0], "location": "eastus", "evictionRate": "0-5"}]
        },
    }
    for what, value in replies.items():
        whole = {"totalRecords": 2, "count": 2, "resultTruncated": "false", **value}
        azure.breaks(fault(what, Reply.of_json(whole)))
    for (_, what), result in azure.pull(REQUEST).items():
        assert ": 1 record left out, the others were kept" in str(result.error), what
        assert "the record is not an object" in str(result.error), what
        assert sizes_of(result) == ([] if what == "spot history" else SIZES[:1])


def test_a_retry_after_that_is_too_long_fails_at_once(
    azure: AzureWorld, slept: list[float]
) -> None:
    azure.breaks(
        fault("prices", azure_error("TooManyRequests", status=429, **{"Retry-After": "100000"}))
    )
    assert isinstance(pull(azure, "prices").error, NoAnswer)
    assert asked(azure, "prices") == 1
    assert slept == []


def test_an_error_that_stays_is_not_retried(azure: AzureWorld) -> None:
    azure.breaks(fault("prices", azure_error("BadRequest"), times=FOR_EVER))
    assert isinstance(pull(azure, "prices").error, NoAnswer)
    assert asked(azure, "prices") == 1


def test_a_truncated_answer_of_resource_graph_covers_nothing(azure: AzureWorld) -> None:
    rows = [{"skuName": SIZES[0], "location": "eastus", "osType": "linux", "spotPrices": []}]
    short = {"totalRecords": 9, "count": 1, "resultTruncated": "true", "data": rows}
    azure.breaks(fault("spot history", Reply.of_json(short)))
    result = pull(azure, "spot history")
    assert "truncated its answer" in str(result.error)
    assert result.all.covered == {}


def test_a_region_where_nothing_is_sold_is_reported_as_unknown(azure: AzureWorld) -> None:
    error = azure.pull(FetchRequest(since=START, until=NOW, regions=("eastuss",)))[
        "eastuss", "prices"
    ].error
    assert isinstance(error, UnknownResource)
    assert "no machine is sold there" in str(error)


def test_the_azure_test_server_rejects_undocumented_requests(azure: AzureWorld) -> None:
    """Every other test relies on this: an undocumented request gets no rows."""
    azure.pull(REQUEST)
    sent = next(request for request in azure.server.requests if request.path == GRAPH)
    assert azure.cloud.answer(sent).status == 200
    changes: list[dict[str, object]] = [
        {"query": "SpotResources | take 5"},
        {"subscriptions": ["another"]},
        {"unknown": 1},
        {"options": {"$top": 5000, "resultFormat": "objectArray"}},
    ]
    for change in changes:
        wrong = replace(sent, body=json.dumps(sent.json() | change).encode())
        assert azure.cloud.answer(wrong).status == 400
    for sent in azure.server.requests:
        assert (
            azure.cloud.answer(replace(sent, query={"api-version": ["2001-01-01"]})).status == 400
        )


@every_task
@pytest.mark.usefixtures("slept")
def test_half_a_page_is_requested_again(azure: AzureWorld, what: str) -> None:
    azure.breaks(fault(what, cut=20, skip=1))
    result = pull(azure, what)
    assert result.error is None
    assert sizes_of(result) == SIZES


@pytest.mark.parametrize(
    "link",
    ["http://127.0.0.2/api/retail/prices?$skip=2", "ftp://[broken", "{here}?$skip=0&again=1", 7],
)
def test_a_next_page_on_another_server_is_not_followed(azure: AzureWorld, link: object) -> None:
    here = azure.server.url + RETAIL
    target = link.format(here=here) if isinstance(link, str) else link
    astray = Reply.of_json({"Items": azure.cloud.retail[:2], "NextPageLink": target})
    azure.breaks(Fault(RETAIL, astray, times=FOR_EVER))
    result = pull(azure, "prices")
    assert isinstance(result.error, NoAnswer)
    assert sizes_of(result) == SIZES[:2]
    assert asked(azure, "prices") <= 2


def test_a_price_list_that_names_no_region_says_what_to_do(azure: AzureWorld) -> None:
    azure.cloud.spot.clear()
    azure.cloud.retail.clear()
    with pytest.raises(NoAnswer, match="--region"):
        AzureSource(azure.settings()).tasks(FetchRequest(since=START, until=NOW))
