"""Retail prices: which of them are hourly prices of machines, and what those say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation

from pricing_data.catalog import OnDemandPrice
from pricing_data.errors import BadInput
from pricing_data.fetched_rows import FetchedRows, PriceBatch, PriceEvent
from pricing_data.market import LINUX, Market
from pricing_data.sources.azure.records import Record, number, text
from pricing_data.sources.azure.sizes import spelt
from pricing_data.sources.base import FetchRequest
from pricing_data.units import DAY, format_time, format_usd, parse_time, parse_usd

SOURCE = "azure-retail-prices"

# Low priority is Batch's older product, an expired meter bills nobody.
_OTHER_METERS = ("low priority", "expired")
# Sold under the same size names at other prices: a retired platform service, and whole hosts.
_OTHER_PRODUCTS = ("cloudservices", "dedicatedhost")


@dataclass(frozen=True, slots=True)
class Offer:
    """The price of a machine from `start` on, until `end` where that is announced."""

    market: Market
    spot: bool
    start: int
    end: int | None
    price: int

    def in_force(self, at: int) -> bool:
        """Whether the price holds at a time. An announced end is a date, and that day is still included."""
        return self.start <= at and (self.end is None or at < self.end + DAY)


def read_offer(item: Record) -> Offer | None:
    """The hourly price of a machine in an item of the price list; `None` for what else is sold there.

    `isPrimaryMeterRegion` is no criterion: many sizes have only meters that are billed under another region's name.
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
    return Offer(
        Market.of(
            "azure",
            text(item, "armRegionName"),
            None,
            spelt(text(item, "armSkuName")),
            "windows" if "windows" in product else LINUX,
        ),
        "spot" in meter,
        parse_time(text(item, "effectiveStartDate")),
        None if end is None else parse_time(text(item, "effectiveEndDate")),
        parse_usd(number(item, "retailPrice")),
    )


def _is_placeholder(item: Record) -> bool:
    """Whether the price is 0, which the list writes for meters that are not sold (yet): not a price, and no mistake."""
    try:
        return Decimal(number(item, "retailPrice")) == 0
    except InvalidOperation:
        return False


@dataclass
class PriceSheet:
    """One region's price list, read page by page."""

    request: FetchRequest
    _seen: dict[tuple[Market, bool, int], Offer] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._seen)

    def read(self, item: Record) -> Offer | None:
        """The offer in an item, and a refusal where the list contradicts itself."""
        offer = read_offer(item)
        if offer is None:
            return None
        first = self._seen.setdefault((offer.market, offer.spot, offer.start), offer)
        if first.price != offer.price:
            raise BadInput(
                f"{offer.market} costs both {format_usd(first.price)} and {format_usd(offer.price)} USD an hour"
                f" from {format_time(offer.start)}"
            )
        return offer

    def harvest(self, offers: Iterable[Offer]) -> FetchedRows:
        """What a page says about prices that have taken effect; announced ones are not history yet."""
        wanted = [offer for offer in offers if self._wants(offer)]
        return FetchedRows(
            prices=PriceBatch.of(PriceEvent(o.market, o.start, o.price) for o in wanted if o.spot),
            on_demand=tuple(_on_demand(offer) for offer in wanted if not offer.spot),
        )

    def in_force(self) -> FetchedRows:
        """Each spot market's price at the end of the request, observed: it goes on from there."""
        at = self.request.until
        newest: dict[Market, Offer] = {}
        for offer in sorted(self._seen.values(), key=lambda offer: offer.start):
            if offer.spot and self._wants(offer):
                newest[offer.market] = offer
        return FetchedRows(
            prices=PriceBatch.of(PriceEvent(o.market, at, o.price) for o in newest.values() if o.in_force(at))
        )

    def _wants(self, offer: Offer) -> bool:
        return offer.start <= self.request.until and self.request.wants_type(offer.market.instance_type)


def _on_demand(offer: Offer) -> OnDemandPrice:
    market = offer.market
    return OnDemandPrice(market.cloud, market.region, market.instance_type, market.os, offer.start, offer.price, SOURCE)
