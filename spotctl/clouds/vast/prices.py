"""Prices of Vast.ai: each fetch takes a snapshot of all offers, and the snapshots make the history
of the markets.

Vast.ai publishes no history. A market's price holds until the next fetch, so a fetch every hour
records how it moves. The offers themselves are kept below the home, in `vast/offers`: a file for
each snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pricing_data.catalog import OnDemandPrice
from pricing_data.fetched_rows import FetchedRows, PriceBatch, PriceEvent
from pricing_data.list_prices import DISKS, ListPrice
from pricing_data.market import LINUX, Market
from pricing_data.series import WatchRecord
from pricing_data.sources.base import (
    NO_REGION,
    Effort,
    FetchRequest,
    FetchTask,
    Rejects,
    SourceNeeds,
)
from pricing_data.units import DAY, Span
from spotctl.clouds.gpu_markets import types_of
from spotctl.clouds.vast import offers
from spotctl.clouds.vast.calls import MAX_OFFERS, VastCalls, VastRow
from spotctl.clouds.vast.cloud import CLOUD_NAME, VastSettings, address
from spotctl.clouds.vast.offers import HostOffer, folder_of, keep_snapshot

if TYPE_CHECKING:
    from spotctl.home.config import Settings

STORAGE = "storage"
"""The kind of disk in the list prices."""

BIDS, ON_DEMAND = "minimum bids", "on-demand prices"
NEEDS = (
    SourceNeeds(
        CLOUD_NAME,
        "minimum bids, on-demand and storage prices",
        "VAST_API_KEY",
        "offers of this moment",
    ),
)
EFFORTS = {BIDS: Effort(1, 500, 10, is_whole=True), ON_DEMAND: Effort(1, 500, 10, is_whole=True)}
_HOURS, _BILLED_HOURS = 730, 720
"""The hours of a month of list prices, and of the month for which hosts state the price of
storage."""

_SOURCE = "offers of Vast.ai's hosts"


class VastSource:
    """See `Source`: one task for the bids of all regions, another for the prices on demand."""

    cloud = CLOUD_NAME

    def __init__(self, calls: VastCalls, settings: VastSettings, folder: Path) -> None:
        self._calls, self._settings, self._folder = calls, settings, folder

    def tasks(self, request: FetchRequest) -> list[FetchTask]:
        pulls: dict[str, Callable[[FetchRequest], Iterator[FetchedRows]]] = {
            BIDS: self._bids,
            ON_DEMAND: self._on_demand,
        }
        tasks = []
        for what, pull in pulls.items():
            rows, is_spot = partial(pull, request), what == BIDS
            tasks.append(FetchTask(CLOUD_NAME, NO_REGION, what, rows, spot_prices=is_spot))
        return tasks

    def _bids(self, request: FetchRequest) -> Iterator[FetchedRows]:
        at, rejects = request.until, Rejects("Vast.ai's offers for bids")
        known = self._on_offer("bid", request, rejects)
        keep_snapshot(self._folder, at, known)
        on_offer = [offer for offer in known if not offer.unfit]
        markets: dict[Market, list[int]] = {}
        for offer in on_offer:
            markets.setdefault(offer.market, []).append(offer.price)
        events = [
            PriceEvent(market, at, offers.quartile(prices)) for market, prices in markets.items()
        ]
        seen = WatchRecord((Span(at, at),))

        # The highest price of storage in a region, for a month of list prices: a machine's disk
        # costs no more.
        highest: dict[str, float] = {}
        for offer in on_offer:
            region = offer.market.region
            highest[region] = max(offer.storage, highest.get(region, 0.0))
        storage = []
        for region, price in sorted(highest.items()):
            day, monthly = at // DAY * DAY, price * _HOURS / _BILLED_HOURS
            about = (DISKS, day, CLOUD_NAME, region, STORAGE, 0.0)
            storage.append(ListPrice(*about, monthly, "list", _SOURCE))

        yield FetchedRows(
            PriceBatch.of(events),
            types=types_of(
                CLOUD_NAME, ((offer.market.instance_type, offer.gpu_gib) for offer in on_offer)
            ),
            list_prices=tuple(storage),
            watched=dict.fromkeys(markets, seen),
        )

        rejects.report()

    def _on_demand(self, request: FetchRequest) -> Iterator[FetchedRows]:
        at, rejects = request.until, Rejects("Vast.ai's offers on demand")
        grouped: dict[tuple[str, str], list[int]] = {}
        for offer in self._on_offer("ondemand", request, rejects):
            if offer.unfit:
                continue
            kind = offer.market.region, offer.market.instance_type
            grouped.setdefault(kind, []).append(offer.price)

        listed = []
        for (region, name), prices in sorted(grouped.items()):
            price = offers.quartile(prices)
            listed.append(OnDemandPrice(CLOUD_NAME, region, name, LINUX, at, price, _SOURCE))
        yield FetchedRows(on_demand=tuple(listed))
        rejects.report()

    def _on_offer(self, kind: str, request: FetchRequest, rejects: Rejects) -> list[HostOffer]:
        """The offers of this kind in the regions and of the types that are asked for, also those
        that are unfit.
        """
        filters = offers.wanted(self._settings, self._settings.image)
        asked = offers.asked_for(filters)
        rows = self._calls.search(kind, asked, self._settings.disk_gib)
        if len(rows) >= MAX_OFFERS:
            rejects.add(f"{len(rows)} offers, of which there may be more")

        wanted = []
        for offer in rejects.good(partial(offers.offer_of, filters=filters), rows, _named):
            market = offer.market
            is_in_region = not request.regions or market.region in request.regions
            if is_in_region and request.wants_type(market.instance_type):
                wanted.append(offer)
        return wanted


def _named(row: VastRow) -> str:
    """The name of a row that cannot be read."""
    return f"offer {row.get('id')}"


def source(settings: Settings) -> VastSource:
    """See `PricesPart`."""
    calls = VastCalls(address(settings.text("vast_url")))
    return VastSource(calls, settings.table(CLOUD_NAME, VastSettings), folder_of(settings))
