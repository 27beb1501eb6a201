"""A fetch from Azure returns exactly what the server has."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import pytest

from pricing_data.availability import Interruption
from pricing_data.catalog import InstanceType, OnDemandPrice
from pricing_data.fetched_rows import FetchedRows, PriceEvent
from pricing_data.market import Market
from pricing_data.sources.base import FetchRequest
from pricing_data.units import DAY, HOUR, Span, parse_time
from spotctl.clouds.azure.prices import AzureSource
from tests.servers.azure import (
    GRAPH,
    RETAIL,
    AzureWorld,
    azure_error,
    eviction_row,
    price_row,
    retail_item,
    running_azure,
    sku,
)
from tests.servers.loopback import Fault
from tests.servers.pulling import pulled

NOW = parse_time("2026-03-01T12:00:00Z")
SINCE = NOW - 60 * DAY
REGIONS = ("eastus", "westeurope", "japaneast")
SIZES = {
    "Standard_D2s_v3": (2, 8.0, None, 0),
    "Standard_NC6s_v3": (6, 112.0, "V100", 1),
    "Standard_NC24ads_A100_v4": (24, 220.0, "A100-80GB", 1),
    "Standard_ND96asr_v4": (96, 900.0, "A100", 8),
    "Standard_M416s_8_v2": (416, 7600.0, None, 0),
}
BANDS = {
    "0-5": (0.0, 0.05),
    "5-10": (0.05, 0.1),
    "10-15": (0.1, 0.15),
    "15-20": (0.15, 0.2),
    "20+": (0.2, 1.0),
}


@pytest.fixture
def azure(monkeypatch: pytest.MonkeyPatch) -> Iterator[AzureWorld]:
    with running_azure(monkeypatch) as world:
        yield world


@dataclass
class Truth:
    """The expected rows of a complete fetch, by region."""

    price_events: set[PriceEvent] = field(default_factory=set)
    on_demand: set[OnDemandPrice] = field(default_factory=set)
    history: set[PriceEvent] = field(default_factory=set)
    types: set[InstanceType] = field(default_factory=set)
    rates: set[Interruption] = field(default_factory=set)


def filled(azure: AzureWorld, seed: int, since: int = SINCE) -> dict[str, Truth]:
    """Fills the server with random rows, and returns the expected result."""
    rng = random.Random(seed)
    truths = {region: Truth() for region in REGIONS}
    for region, truth in truths.items():
        for size, (vcpus, memory, accelerator, count) in SIZES.items():
            gpus = {"GPUs": str(count)} if count else {}
            azure.cloud.skus.append(
                sku(region, size, vCPUs=str(vcpus), MemoryGB=f"{memory:g}", **gpus)
            )
            truth.types.add(InstanceType("azure", size, vcpus, memory, accelerator, count))
            band, (low, high) = rng.choice(list(BANDS.items()))
            azure.cloud.spot.append(eviction_row(region, size, band))
            market = Market("azure", region, "-", size)
            truth.rates.add(
                Interruption(market, "eviction-rate", NOW, low, high, "azure-resource-graph")
            )
            for os_name in ("linux", "windows"):
                fill_prices(azure, rng, truth, Market("azure", region, "-", size, os_name))
                fill_history(azure, rng, truth, Market("azure", region, "-", size, os_name), since)
    for held in (azure.cloud.retail, azure.cloud.skus, azure.cloud.spot):
        rng.shuffle(held)
    return truths


def fill_prices(azure: AzureWorld, rng: random.Random, truth: Truth, market: Market) -> None:
    product = "Virtual Machines X Series" + (" Windows" if market.os == "windows" else "")
    region, size = market.region, market.instance_type
    on_demand, starts = price(rng), sorted(rng.sample(range(NOW - 400 * DAY, NOW, HOUR), 3))
    azure.cloud.retail.append(retail_item(region, size, on_demand, starts[0], productName=product))
    truth.on_demand.add(
        OnDemandPrice("azure", region, size, market.os, starts[0], on_demand, "azure-retail-prices")
    )
    for start in starts[1:]:
        spot = price(rng)
        azure.cloud.retail.append(
            retail_item(region, size, spot, start, kind="Spot", productName=product)
        )
        truth.price_events.add(PriceEvent(market, start, spot))
    truth.price_events.add(PriceEvent(market, NOW, spot))
    azure.cloud.retail.append(
        retail_item(region, size, price(rng), starts[0], kind="Low Priority", productName=product)
    )


def fill_history(
    azure: AzureWorld, rng: random.Random, truth: Truth, market: Market, since: int
) -> None:
    times = rng.sample(range(NOW - 90 * DAY, NOW), rng.randrange(1, 8))
    points = [(time, price(rng)) for time in times]
    azure.cloud.spot.append(price_row(market.region, market.instance_type, market.os, points))
    in_force = max((point for point in points if point[0] <= since), default=None)
    seen = [point for point in points if point[0] > since or point == in_force]
    truth.history |= {PriceEvent(market, *point) for point in [*seen, (NOW, max(points)[1])]}


def price(rng: random.Random) -> int:
    return rng.choice([rng.randrange(1, 10**11), rng.randrange(1, 10**6) * 10**5])


def request(**changes: object) -> FetchRequest:
    return FetchRequest(**{"since": SINCE, "until": NOW, "regions": REGIONS} | changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("page_limit", [4, 1000])
def test_everything_on_azure_is_fetched_once(azure: AzureWorld, seed: int, page_limit: int) -> None:
    azure.cloud.page_limit = page_limit
    truths = filled(azure, seed)
    result = azure.pull(request())
    assert all(found.error is None for found in result.values())
    for region, truth in truths.items():
        assert set(result[region, "prices"].observed) == truth.price_events
        assert set(result[region, "prices"].all.on_demand) == truth.on_demand
        assert set(result[region, "spot history"].observed) == truth.history
        assert set(result[region, "machine types"].all.types) == truth.types
        assert sorted(result[region, "eviction rates"].all.interruptions) == sorted(truth.rates)
        assert result[region, "spot history"].all.covered == {f"azure/{region}": Span(SINCE, NOW)}
    assert len(result) == 4 * len(REGIONS)


def test_tasks_run_in_parallel(azure: AzureWorld) -> None:
    truths = filled(azure, 7)
    tasks = AzureSource(azure.settings()).tasks(request())
    with ThreadPoolExecutor(len(tasks)) as pool:
        result = {
            (task.region, task.what): found
            for task, found in zip(tasks, pool.map(pulled, tasks), strict=True)
        }
    for region, truth in truths.items():
        assert set(result[region, "prices"].observed) == truth.price_events
        assert set(result[region, "spot history"].observed) == truth.history
        assert set(result[region, "machine types"].all.types) == truth.types


def test_a_fetch_without_regions_uses_those_with_spot_markets(azure: AzureWorld) -> None:
    filled(azure, 1)
    azure.cloud.spot.append(eviction_row("uksouth", "Standard_D2s_v3", "0-5"))
    regions = {region for region, _ in azure.pull(request(regions=()))}
    assert regions == {*REGIONS, "uksouth"}


@pytest.mark.parametrize("denied", [True, False])
def test_without_regions_of_the_account_those_of_the_price_list_are_used(
    azure: AzureWorld, denied: bool
) -> None:
    filled(azure, 1)
    if denied:
        azure.breaks(Fault(GRAPH, azure_error("AuthorizationFailed", status=403)))
    else:
        azure.cloud.spot.clear()
    azure.cloud.retail.append(retail_item("austriaeast", "Standard_D2s_v5", 10**8, SINCE))
    assert {region for region, _ in azure.pull(request(regions=()))} == {*REGIONS, "austriaeast"}


def test_only_hourly_linux_and_windows_prices_are_requested(azure: AzureWorld) -> None:
    filled(azure, 1)
    azure.pull(request(regions=("eastus",)))
    filters = {
        query["$filter"][0]
        for query in (r.query for r in azure.server.requests if r.path == RETAIL)
    }
    assert filters == {
        "serviceName eq 'Virtual Machines' and armRegionName eq 'eastus' and priceType eq "
        "'Consumption'"
    }


def test_regions_are_accepted_in_any_spelling_and_fetched_once(azure: AzureWorld) -> None:
    truths = filled(azure, 2)
    tasks = AzureSource(azure.settings()).tasks(request(regions=("us_east", "East US", "eastus")))
    assert [task.region for task in tasks] == ["eastus"] * 4
    assert set(pulled(tasks[0]).observed) == truths["eastus"].price_events


def test_only_the_requested_types_are_kept_and_covered_separately(azure: AzureWorld) -> None:
    truths = filled(azure, 3)
    result = azure.pull(request(regions=("eastus",), types=("Standard_NC*",)))
    every = FetchedRows.joined(found.all for found in result.values())
    assert {found.name for found in every.types} == {"Standard_NC6s_v3", "Standard_NC24ads_A100_v4"}
    assert {market.instance_type for market in every.prices.markets} == {
        found.name for found in every.types
    }
    assert {found.instance_type for found in every.on_demand} == {
        found.name for found in every.types
    }
    assert {found.market.instance_type for found in every.interruptions} == {
        found.name for found in every.types
    }
    wanted = {
        event
        for event in truths["eastus"].history
        if event.market.instance_type.startswith("Standard_NC")
    }
    assert set(result["eastus", "spot history"].observed) == wanted
    assert every.covered == {"azure/eastus Standard_NC*": Span(SINCE, NOW)}


def test_history_continues_where_the_last_fetch_ended(azure: AzureWorld) -> None:
    resumed_at = NOW - 5 * DAY
    truths = filled(azure, 4, since=resumed_at)
    covered = {f"azure/{region}": Span(SINCE, resumed_at) for region in REGIONS}
    result = azure.pull(request(covered=covered))
    for region in REGIONS:
        assert set(result[region, "spot history"].observed) == truths[region].history
        assert result[region, "spot history"].all.covered == {
            f"azure/{region}": Span(resumed_at, NOW)
        }


def test_covered_history_is_not_requested(azure: AzureWorld) -> None:
    filled(azure, 4)
    result = azure.pull(request(regions=("eastus",), covered={"azure/eastus": Span(SINCE, NOW)}))
    assert result["eastus", "spot history"].steps == []
    assert [r for r in azure.server.requests if r.path == GRAPH and b"spotPrices" in r.body] == []


def test_history_beyond_the_retention_of_azure_counts_as_covered(azure: AzureWorld) -> None:
    """All available history was fetched, so the next fetch of an equally long one continues where
    it ended.
    """
    filled(azure, 5)
    year = request(since=NOW - 365 * DAY, regions=("eastus",))
    first = azure.pull(year)["eastus", "spot history"]
    assert first.all.covered == {"azure/eastus": Span(year.since, NOW)}
    later = replace(year, until=NOW + HOUR, covered=first.all.covered)
    second = azure.pull(later)["eastus", "spot history"]
    assert second.all.covered == {"azure/eastus": Span(NOW, NOW + HOUR)}
    newest = {
        event.market: event.price for event in sorted(first.observed, key=lambda event: event.time)
    }
    assert {event for event in second.observed if event.time > NOW} == {
        PriceEvent(market, NOW + HOUR, price) for market, price in newest.items()
    }
    assert len(second.observed) == 2 * len(newest), "the price at the start and at the end"


def test_an_empty_history_covers_nothing(azure: AzureWorld) -> None:
    result = azure.pull(request(regions=("eastus",)))["eastus", "spot history"]
    assert result.error is None
    assert result.all.covered == {}


def test_without_an_account_the_price_list_is_fetched_and_one_task_reports_what_is_missing(
    azure: AzureWorld,
) -> None:
    truths = filled(azure, 6)
    result = azure.pull(request(regions=()), AzureSource(azure.settings(subscription=None)))
    missing = result.pop(("-", "spot history, eviction rates, machine types"))
    assert "AZURE_SUBSCRIPTION_ID" in str(missing.error)
    assert set(result) == {(region, "prices") for region in REGIONS}
    assert all(
        set(result[region, "prices"].observed) == truths[region].price_events for region in REGIONS
    )
    assert not [r for r in azure.server.requests if "Microsoft" in r.path]
