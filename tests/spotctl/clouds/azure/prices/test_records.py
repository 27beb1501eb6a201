"""Parsers of single records of Azure's answers."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, strategies as st

from pricing_data.catalog import InstanceType, MachineTraits
from pricing_data.errors import BadInput
from pricing_data.fetched_rows import FetchedRows, PriceEvent
from pricing_data.market import Market
from pricing_data.sources.base import FetchRequest
from pricing_data.units import DAY, HOUR, parse_time
from spotctl.clouds.azure.prices.records import (
    PriceSheet,
    events_between,
    read_change,
    read_eviction_rate,
    read_history,
    read_price,
    read_type,
)
from tests.servers.azure import Row, retail_item, sku

NOW = parse_time("2026-03-15T12:00:00Z")
REQUEST = FetchRequest(since=NOW - 30 * DAY, until=NOW)
D2 = Market("azure", "eastus", "-", "Standard_D2s_v3")


def test_a_machine_is_described_by_its_capabilities() -> None:
    record = sku(
        "eastus",
        "standard_nc12s_v3",
        vCPUs="12",
        MemoryGB="224",
        GPUs="2",
        HyperVGenerations="V1,V2",
    )
    traits = MachineTraits(boots="V1 V2")
    assert read_type(record) == InstanceType(
        "azure", "Standard_NC12s_v3", 12, 224.0, "V100", 2, traits=traits
    )


def test_a_size_with_constrained_cores_has_those_that_it_may_use() -> None:
    found = read_type(
        sku("eastus", "Standard_E4-2s_v3", vCPUs="4", vCPUsAvailable="2", MemoryGB="32")
    )
    assert found is not None
    assert found.vcpus == 2


def test_a_fraction_of_an_accelerator_is_not_a_whole_one() -> None:
    found = read_type(
        sku("eastus", "Standard_NC36ds_xl_RTXPRO6000BSE_v6", vCPUs="36", MemoryGB="1", GPUs="0.25")
    )
    assert found is not None
    assert (found.accelerator, found.accelerators) == ("RTXPRO6000BSE-slice", 1)


def test_skus_of_other_products_are_left_out() -> None:
    assert read_type(sku("eastus", "Premium_LRS") | {"resourceType": "disks"}) is None


BROKEN_SKUS: list[Row] = [
    {"name": ""},
    {"resourceType": None},
    {"capabilities": None},
    {"capabilities": [7, {"name": ["vCPUs"]}]},
    {"capabilities": [{"name": "vCPUs", "value": "many"}, {"name": "MemoryGB", "value": "8"}]},
    {"capabilities": [{"name": "vCPUs", "value": "2"}, {"name": "MemoryGB", "value": "NaN"}]},
    {"capabilities": [{"name": "vCPUs", "value": "0"}, {"name": "MemoryGB", "value": "8"}]},
]


@pytest.mark.parametrize("change", BROKEN_SKUS)
def test_an_invalid_sku_is_rejected(change: Row) -> None:
    with pytest.raises(BadInput):
        read_type(sku("eastus", "Standard_D2s_v3", vCPUs="2", MemoryGB="8") | change)


def item(**changes: object) -> Row:
    return retail_item("eastus", "Standard_D2s_v3", 96_000_000, NOW - DAY, **changes)  # type: ignore[arg-type]


def test_a_price_is_read_to_its_last_digit() -> None:
    offer = read_price(item(retailPrice=json.loads("9999.000000019")))
    assert offer is not None
    assert (offer.market, offer.spot, offer.start, offer.end, offer.price) == (
        D2,
        False,
        NOW - DAY,
        None,
        9_999_000_000_019,
    )


@pytest.mark.parametrize("product", ["Virtual Machines Dsv3 Series Windows", "Dsv3 series windows"])
def test_windows_comes_from_the_product_name(product: str) -> None:
    offer = read_price(item(productName=product, kind="Spot"))
    assert offer is not None
    assert offer.market == Market("azure", "eastus", "-", "Standard_D2s_v3", "windows")
    assert offer.spot


OTHER_ITEMS: list[Row] = [
    {"kind": "Low Priority"},
    {"kind": "Expired"},
    {"type": "Reservation"},
    {"type": "DevTestConsumption"},
    {"unitOfMeasure": "1/Month"},
    {"currencyCode": "EUR"},
    {"productName": "Dsv3 Series CloudServices"},
    {"productName": "Dsv3 Series Cloud Services"},
    {"productName": "DSv3 Series Dedicated Host"},
    {"armSkuName": ""},
    {"armSkuName": None},
    {"tierMinimumUnits": 100.0},
    {"retailPrice": 0.0},
]


@pytest.mark.parametrize("change", OTHER_ITEMS)
def test_other_products_are_left_out(change: Row) -> None:
    assert read_price(item(**change)) is None


BROKEN_ITEMS: list[Row] = [
    {"retailPrice": None},
    {"retailPrice": True},
    {"retailPrice": "free"},
    {"retailPrice": -0.5},
    {"retailPrice": 1e300},
    {"effectiveStartDate": "soon"},
    {"effectiveStartDate": "0001-01-01T00:00:00Z"},
    {"effectiveEndDate": 7},
    {"armRegionName": ""},
    {"armSkuName": "Standard D2s v3!"},
    {"productName": None},
    {"currencyCode": None},
]


@pytest.mark.parametrize("change", BROKEN_ITEMS)
def test_an_invalid_item_is_rejected(change: Row) -> None:
    with pytest.raises(BadInput):
        read_price(item(**change))


def read(*items: Row) -> tuple[list[PriceEvent], list[tuple[Market, int]], FetchedRows]:
    """The changes, the ends of observation and the other rows of a price list."""
    sheet = PriceSheet(REQUEST)
    page = sheet.rows_of(offer for offer in map(sheet.read, items) if offer is not None)
    confirmed = [
        (market, watched.complete[-1].end) for market, watched in sheet.in_force().watched.items()
    ]
    return events_of(page), confirmed, page


def events_of(fetched: FetchedRows) -> list[PriceEvent]:
    batch = fetched.prices
    return [
        PriceEvent(batch.markets[code], int(time), int(price))
        for code, time, price in zip(batch.codes, batch.times, batch.prices, strict=True)
    ]


def spot(price: int, start: str, end: str | None = None) -> Row:
    dates = {"effectiveEndDate": end} if end else {}
    return retail_item("eastus", "Standard_D2s_v3", price, parse_time(start), kind="Spot", **dates)


def test_the_price_in_force_is_observed_at_the_end_of_the_request() -> None:
    changes, observed, _ = read(
        spot(2 * 10**8, "2026-03-01"), spot(10**8, "2026-02-01", "2026-02-28")
    )
    assert sorted(event.price for event in changes) == [10**8, 2 * 10**8]
    assert observed == [(D2, NOW)]


def test_a_price_that_ended_is_not_observed_now() -> None:
    changes, observed, _ = read(spot(10**8, "2026-02-01", "2026-02-28"))
    assert changes == [PriceEvent(D2, parse_time("2026-02-01"), 10**8)]
    assert observed == []


def test_a_price_is_in_force_on_its_last_day() -> None:
    _, observed, _ = read(spot(10**8, "2026-03-01", "2026-03-15"))
    assert observed == [(D2, NOW)]


def test_announced_prices_have_not_taken_effect() -> None:
    announced = retail_item("eastus", "Standard_D2s_v3", 10**8, NOW + HOUR)
    changes, observed, page = read(spot(2 * 10**8, "2026-04-01"), announced)
    assert (changes, observed, page.on_demand) == ([], [], ())


def test_two_prices_with_one_start_are_rejected() -> None:
    sheet = PriceSheet(REQUEST)
    sheet.read(spot(10**8, "2026-03-01"))
    sheet.read(spot(10**8, "2026-03-01"))
    with pytest.raises(BadInput, match=re.escape("both 0.1 and 0.2 USD")):
        sheet.read(spot(2 * 10**8, "2026-03-01"))


@pytest.mark.parametrize(
    ("band", "low", "high"),
    [("0-5", 0.0, 0.05), ("5-10", 0.05, 0.1), ("15-20", 0.15, 0.2), ("20+", 0.2, 1.0)],
)
def test_eviction_bands_are_fractions(band: str, low: float, high: float) -> None:
    rate = read_eviction_rate(
        {"location": "eastus", "skuName": "standard_d2s_v3", "evictionRate": band}, NOW
    )
    assert (rate.market, rate.measure, rate.as_of, rate.low, rate.high) == (
        D2,
        "eviction-rate",
        NOW,
        low,
        high,
    )


@pytest.mark.parametrize("band", ["", "low", "5", "10-5", "-5", "5-", "0-500", None])
def test_an_invalid_eviction_band_is_rejected(band: object) -> None:
    with pytest.raises(BadInput):
        read_eviction_rate(
            {"location": "eastus", "skuName": "standard_d2s_v3", "evictionRate": band}, NOW
        )


def test_a_history_row_is_a_market_with_points() -> None:
    row = {"location": "eastus", "skuName": "standard_d2s_v3", "osType": "Windows"}
    entry = {"effectiveDate": "2026-03-01T00:00:00.1234567Z", "priceUSD": 0.019200001}
    market = Market("azure", "eastus", "-", "Standard_D2s_v3", "windows")
    assert read_history({**row, "spotPrices": [entry]}) == (market, [entry])
    assert read_change(D2, entry) == PriceEvent(
        D2, parse_time("2026-03-01T00:00:00.123456Z"), 19_200_001
    )


times = st.integers(0, 20).map(lambda day: NOW - 10 * DAY + day * DAY)
listed = st.dictionaries(times, st.integers(1, 9)).map(
    lambda prices: [PriceEvent(D2, *pair) for pair in prices.items()]
)


@given(listed, times, times)
def test_events_give_the_price_at_every_time(
    known: list[PriceEvent], start: int, until: int
) -> None:
    """Oracle: at each time of [start, until], the newest change up to then, looked up one by
    one."""
    events = events_between(known, start, until)
    for moment in range(start, until + 1, DAY):
        truth = max((change for change in known if change.time <= moment), default=None)
        reason = max(
            (event for event in events if event.time <= moment),
            key=lambda event: event.time,
            default=None,
        )
        assert (reason and reason.price) == (truth and truth.price)
    assert all(event.time <= until for event in events)
    assert sum(event.time <= start for event in events) <= 1 or until <= start
