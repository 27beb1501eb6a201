"""Retail prices: finds the hourly prices of machines in the price list, and parses them."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation

from pricing_data.catalog import OnDemandPrice
from pricing_data.errors import BadInput
from pricing_data.fetched_rows import FetchedRows, PriceBatch, PriceEvent
from pricing_data.market import LINUX, Market
from pricing_data.series import WatchRecord
from pricing_data.sources.base import FetchRequest
from pricing_data.units import DAY, Span, format_time, format_usd, parse_time, parse_usd
from spotctl.clouds.azure.machine_types import spelled
from spotctl.clouds.azure.prices.records import number, text
from spotctl.clouds.errors import ApiRecord

SOURCE = "azure-retail-prices"

# Low priority is an older product of Azure Batch; an expired meter is no longer billed.
_OTHER_METERS = ("low priority", "expired")
# Products with the same size names at other prices: a retired platform service, and dedicated hosts.
_OTHER_PRODUCTS = ("cloudservices", "dedicatedhost")


@dataclass(frozen=True, slots=True)
class RetailPrice:
    """The price of a market from `start`, until `end` if an end is announced."""

    market: Market
    spot: bool
    start: int
    end: int | None
    price: int

    def in_force(self, at: int) -> bool:
        """Whether the price applies at a time. An announced end is a date, and includes that day."""
        return self.start <= at and (self.end is None or at < self.end + DAY)


def read_price(item: ApiRecord) -> RetailPrice | None:
    """The hourly price of a machine in an item of the price list; `None` for other products.

    `isPrimaryMeterRegion` is not used: many sizes have only meters that are billed under another region's name.
    """
    if (text(item, "type"), text(item, "unitOfMeasure"), text(item, "currencyCode")) != (
        "Consumption",
        "1 Hour",
        "USD",
    ):
        return None
    meter = f"{text(item, 'skuName')}/{text(item, 'meterName')}".lower()
    product = text(item, "productName").lower().replace(" ", "")
    if any(other in meter for other in _OTHER_METERS) or any(other in product for other in _OTHER_PRODUCTS):
        return None
    if not item.get("armSkuName") or item.get("tierMinimumUnits") not in (None, 0) or _is_placeholder(item):
        return None
    end = item.get("effectiveEndDate")
    return RetailPrice(
        Market.of(
            "azure",
            text(item, "armRegionName"),
            None,
            spelled(text(item, "armSkuName")),
            "windows" if "windows" in product else LINUX,
        ),
        "spot" in meter,
        parse_time(text(item, "effectiveStartDate")),
        None if end is None else parse_time(text(item, "effectiveEndDate")),
        parse_usd(number(item, "retailPrice")),
    )


def _is_placeholder(item: ApiRecord) -> bool:
    """Whether the price is 0, which marks a meter that is not sold (yet); this is neither a price nor an error."""
    try:
        return Decimal(number(item, "retailPrice")) == 0
    except InvalidOperation:
        return False


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
            raise BadInput(
                f"{price.market} costs both {format_usd(first.price)} and {format_usd(price.price)} USD per hour"
                f" from {format_time(price.start)}"
            )
        return price

    def rows_of(self, page: Iterable[RetailPrice]) -> FetchedRows:
        """The rows of a page's prices that have taken effect; announced prices are not history yet."""
        requested = [price for price in page if self._is_requested(price)]
        return FetchedRows(
            prices=PriceBatch.of(PriceEvent(p.market, p.start, p.price) for p in requested if p.spot),
            on_demand=tuple(_on_demand(price) for price in requested if not price.spot),
        )

    def in_force(self) -> FetchedRows:
        """No prices: only that each spot market was watched from its first listed price to the end of the request."""
        at = self.request.until
        newest: dict[Market, RetailPrice] = {}
        since: dict[Market, int] = {}
        for price in sorted(self._seen.values(), key=lambda price: price.start):
            if price.spot and self._is_requested(price):
                newest[price.market] = price
                since.setdefault(price.market, price.start)
        return FetchedRows(
            watched={p.market: WatchRecord((Span(since[p.market], at),)) for p in newest.values() if p.in_force(at)}
        )

    def _is_requested(self, price: RetailPrice) -> bool:
        return price.start <= self.request.until and self.request.wants_type(price.market.instance_type)


def _on_demand(price: RetailPrice) -> OnDemandPrice:
    market = price.market
    return OnDemandPrice(market.cloud, market.region, market.instance_type, market.os, price.start, price.price, SOURCE)
