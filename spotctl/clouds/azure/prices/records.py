"""Parsers of Azure's records: machine sizes, retail prices, and Resource Graph's table
`SpotResources`. Pure.

A parser takes one record as the API gives it and raises `BadInput` if it cannot read it.
"""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from operator import attrgetter
from typing import Any

from pricing_data.availability import Interruption
from pricing_data.catalog import ARM, X86, InstanceType, MachineTraits, OnDemandPrice
from pricing_data.errors import BadInput
from pricing_data.fetched_rows import NO_SPOT, FetchedRows, PriceBatch, PriceEvent
from pricing_data.market import LINUX, Market
from pricing_data.series import WatchRecord
from pricing_data.sources.base import FetchRequest
from pricing_data.units import DAY, Span, format_time, format_usd, parse_time, parse_usd
from spotctl.clouds.azure.machine_types import accelerator_of, spelled
from spotctl.clouds.errors import ApiRecord

_NAMES = ("armSkuName", "skuName", "name", "id")


def text(record: ApiRecord, name: str) -> str:
    """A field that must contain text."""
    value = _field(record, name)
    if not isinstance(value, str) or not value.strip():
        raise BadInput(f"{name} is {value!r}, not text")
    return value.strip()


def number(record: ApiRecord, name: str) -> str:
    """The digits of a field that must contain a number, as a JSON number or as text.

    A float prints the digits it was read from if there are at most 15; prices have at most 13.
    """
    value = _field(record, name)
    if not isinstance(value, int | float | str):
        raise BadInput(f"{name} is {value!r}, not a number")
    return str(value)


def listed(record: ApiRecord, name: str) -> list[Any]:
    """A field that must contain a list."""
    value = _field(record, name)
    if not isinstance(value, list):
        raise BadInput(f"{name} is {value!r}, not a list")
    return value


def _field(record: object, name: str) -> object:
    """A field's value, or None; raises `BadInput` if the record is not an object."""
    if not isinstance(record, Mapping):
        raise BadInput("the record is not an object")
    return record.get(name)


def named(record: object) -> str:
    """The name in a record, if there is one; else the record itself."""
    names = [record.get(name) for name in _NAMES] if isinstance(record, Mapping) else []
    return next((name for name in names if isinstance(name, str) and name), repr(record))


_ARCHITECTURES = {"x64": X86, "Arm64": ARM}


def read_type(sku: ApiRecord) -> InstanceType | None:
    """The instance type that a compute SKU describes; `None` for other SKUs (disks, hosts,
    snapshots).
    """
    if text(sku, "resourceType").lower() != "virtualmachines":
        return None
    name = spelled(text(sku, "name"))
    pairs = (pair for pair in listed(sku, "capabilities") if isinstance(pair, Mapping))
    return machine_of(
        name,
        {pair["name"]: pair.get("value") for pair in pairs if isinstance(pair.get("name"), str)},
    )


def machine_of(name: str, capabilities: ApiRecord) -> InstanceType:
    """The instance type of a size with these capabilities."""
    gpus = _amount(capabilities, "GPUs") if "GPUs" in capabilities else Decimal(0)
    accelerator = accelerator_of(name) if gpus else None
    if accelerator is not None and gpus < 1:
        accelerator = f"{accelerator.removesuffix('-slice')}-slice"
    # A size with constrained cores is made from more vCPUs than the machine can use.
    usable = "vCPUsAvailable" if "vCPUsAvailable" in capabilities else "vCPUs"
    vcpus = int(_amount(capabilities, usable))
    memory_gib = float(_amount(capabilities, "MemoryGB"))
    count = max(int(gpus), 1) if gpus else 0
    # Facts that Azure states itself; the others follow from the name.
    spot = capabilities.get("LowPriorityCapable")
    generations = capabilities.get("HyperVGenerations")
    boots = None
    if isinstance(generations, str) and generations:
        boots = " ".join(generations.split(","))
    disk_gb = None
    if capabilities.get("MaxResourceVolumeMB"):
        disk_gb = float(round(_amount(capabilities, "MaxResourceVolumeMB") / 1000, 1))
    # The month comes first: `09/30/2025`.
    retires = re.match(r"(\d\d)/(\d\d)/(\d{4})", str(capabilities.get("RetirementDateUtc")))
    day = f"{retires[3]}-{retires[1]}-{retires[2]}" if retires else None
    traits = MachineTraits(
        _ARCHITECTURES.get(str(capabilities.get("CpuArchitectureType"))),
        boots=boots,
        spot=None if spot is None else spot == "True",
        local_disk_gb=disk_gb,
        retires=parse_time(day) if day else None,
    )

    return InstanceType("azure", name, vcpus, memory_gib, accelerator, count, traits=traits)


def _amount(capabilities: ApiRecord, name: str) -> Decimal:
    digits = number(capabilities, name)
    try:
        amount = Decimal(digits)
    except InvalidOperation:
        raise BadInput(f"{name} is {digits!r}, not a number") from None
    if not amount.is_finite() or amount < 0:
        raise BadInput(f"{name} is {digits}, not a number of at least 0")
    return amount


RETAIL_SOURCE = "azure-retail-prices"

# Low priority is an older product of Azure Batch; an expired meter is no longer billed.
_OTHER_METERS = ("low priority", "expired")
# Products with the same size names at other prices: a retired platform service, and dedicated
# hosts.
_OTHER_PRODUCTS = ("cloudservices", "dedicatedhost")


@dataclass(frozen=True, slots=True)
class RetailPrice:
    """The price of a market from `start`, until `end` if an end is announced."""

    market: Market
    spot: bool
    start: int
    end: int | None
    price: int


def read_price(item: ApiRecord) -> RetailPrice | None:
    """The hourly price of a machine in an item of the price list; `None` for other products.

    `isPrimaryMeterRegion` is not used: many sizes have only meters that are billed under another
    region's name.
    """
    terms = text(item, "type"), text(item, "unitOfMeasure"), text(item, "currencyCode")
    if terms != ("Consumption", "1 Hour", "USD"):
        return None

    meter = f"{text(item, 'skuName')}/{text(item, 'meterName')}".lower()
    product = text(item, "productName").lower().replace(" ", "")
    is_other_meter = any(other in meter for other in _OTHER_METERS)
    is_other_product = any(other in product for other in _OTHER_PRODUCTS)
    if is_other_meter or is_other_product or not item.get("armSkuName"):
        return None
    if item.get("tierMinimumUnits") not in (None, 0):
        return None
    # A price of 0 marks a meter that is not sold (yet): neither a price nor an error.
    with suppress(InvalidOperation):
        if Decimal(number(item, "retailPrice")) == 0:
            return None

    region, size = text(item, "armRegionName"), spelled(text(item, "armSkuName"))
    system = "windows" if "windows" in product else LINUX
    market = Market.of("azure", region, None, size, system)
    start = parse_time(text(item, "effectiveStartDate"))
    end: int | None = None
    if item.get("effectiveEndDate") is not None:
        end = parse_time(text(item, "effectiveEndDate"))
    price = parse_usd(number(item, "retailPrice"))
    return RetailPrice(market, "spot" in meter, start, end, price)


@dataclass
class PriceSheet:
    """The prices of one region, read page by page."""

    request: FetchRequest
    _seen: dict[tuple[Market, bool, int], RetailPrice] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._seen)

    def read(self, item: ApiRecord) -> RetailPrice | None:
        """The price in an item; raises `BadInput` if it contradicts an earlier item."""
        price = read_price(item)
        if price is None:
            return None

        first = self._seen.setdefault((price.market, price.spot, price.start), price)
        if first.price != price.price:
            problem = (
                f"{price.market} costs both {format_usd(first.price)} and "
                f"{format_usd(price.price)} USD per hour from {format_time(price.start)}"
            )
            raise BadInput(problem)

        return price

    def rows_of(self, page: Iterable[RetailPrice]) -> FetchedRows:
        """The rows of a page's prices that have taken effect; announced prices are not history
        yet."""
        spot: list[PriceEvent] = []
        on_demand: list[OnDemandPrice] = []
        for price in filter(self._is_requested, page):
            market = price.market
            if price.spot:
                spot.append(PriceEvent(market, price.start, price.price))
                continue
            on_demand.append(
                OnDemandPrice(
                    market.cloud,
                    market.region,
                    market.instance_type,
                    market.os,
                    price.start,
                    price.price,
                    RETAIL_SOURCE,
                )
            )

        return FetchedRows(prices=PriceBatch.of(spot), on_demand=tuple(on_demand))

    def in_force(self) -> FetchedRows:
        """That each spot market was watched from its first listed price to the end of the request;
        and the prices of machines that are sold on demand only.
        """
        at = self.request.until
        newest: dict[Market, RetailPrice] = {}
        since: dict[Market, int] = {}
        in_order = sorted(self._seen.values(), key=attrgetter("start"))
        listed = [price for price in in_order if self._is_requested(price)]
        as_spot = {price.market for price in listed if price.spot}
        fixed = [price for price in listed if price.market not in as_spot]
        for price in (*filter(attrgetter("spot"), listed), *fixed):
            newest[price.market] = price
            since.setdefault(price.market, price.start)

        watched: dict[Market, WatchRecord] = {}
        for market, price in newest.items():
            # An announced end is a date, and includes that day.
            if price.start <= at and (price.end is None or at < price.end + DAY):
                watched[market] = WatchRecord((Span(since[market], at),))
        unsold = (PriceEvent(row.market, row.start, row.price + NO_SPOT) for row in fixed)
        return FetchedRows(PriceBatch.of(unsold), watched=watched)

    def _is_requested(self, price: RetailPrice) -> bool:
        return price.start <= self.request.until and self.request.wants_type(
            price.market.instance_type
        )


GRAPH_SOURCE = "azure-resource-graph"
HISTORY = 90 * DAY
"""How far back the table's prices go."""

PRICE_HISTORY = "microsoft.compute/skuspotpricehistory/ostype/location"
"""The table of all prices of spot markets in the last 90 days, one row per size and operating
system."""
EVICTION_RATES = "microsoft.compute/skuspotevictionrate/location"
"""The table of each size's eviction rate over the last four weeks."""

_COLUMNS = {
    PRICE_HISTORY: "osType = tostring(properties.osType), spotPrices = properties.spotPrices",
    EVICTION_RATES: "evictionRate = tostring(properties.evictionRate)",
}

REGIONS_QUERY = (
    f"SpotResources | where type =~ '{EVICTION_RATES}' | distinct location | order by location asc"
)
"""The query for the regions that have spot markets."""

_BAND = re.compile(r"(\d+)(?:-(\d+)|\+)")


def rows_query(table: str, region: str) -> str:
    """The query for the rows of a region in a table."""
    # Without a total order, which only `id` gives, paging repeats and loses rows.
    return (
        f"SpotResources | where type =~ '{table}' | where location =~ '{region}'"
        f" | project id, location, skuName = tostring(sku.name), {_COLUMNS[table]} | order by id "
        "asc"
    )


def read_history(row: ApiRecord) -> tuple[Market, list[Any]]:
    """A row of price history: its market, and the entries that `read_change` reads."""
    market = Market.of(
        "azure", text(row, "location"), None, spelled(text(row, "skuName")), text(row, "osType")
    )
    return market, listed(row, "spotPrices")


def read_change(market: Market, entry: ApiRecord) -> PriceEvent:
    """One entry of a market's `spotPrices`."""
    return PriceEvent(
        market, parse_time(text(entry, "effectiveDate")), parse_usd(number(entry, "priceUSD"))
    )


def events_between(changes: Iterable[PriceEvent], start: int, until: int) -> list[PriceEvent]:
    """A market's price changes from `start` to `until`.

    They begin with the change that set the price in force at `start`, at its own, earlier time.
    """
    known = sorted(change for change in changes if change.time <= until)
    before = sum(change.time <= start for change in known)
    return known[max(before - 1, 0) :]


def read_eviction_rate(row: ApiRecord, as_of: int) -> Interruption:
    """The eviction rate of a row: a band such as `5-10` or `20+`, in percent of machines per hour.

    Azure publishes it per size, not per operating system; it is stored for the Linux market.
    """
    market = Market.of("azure", text(row, "location"), None, spelled(text(row, "skuName")))
    band = text(row, "evictionRate")
    matched = _BAND.fullmatch(band)
    if not matched:
        raise BadInput(f"{market}: eviction rate {band!r} is not a band such as 5-10 or 20+")
    low, high = int(matched[1]), int(matched[2] or 100)
    return Interruption(market, "eviction-rate", as_of, low / 100, high / 100, GRAPH_SOURCE)
