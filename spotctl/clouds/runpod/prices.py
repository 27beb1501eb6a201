"""Prices of RunPod, which anyone may ask for: each fetch notes the least bids of the moment, and the
prices on demand.

RunPod publishes no history. A market's price holds until the next fetch, so a fetch every hour
records how it moves.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from pricing_data.catalog import OnDemandPrice
from pricing_data.fetched_rows import NO_SPOT, FetchedRows, PriceBatch, PriceEvent
from pricing_data.list_prices import DISKS, ListPrice
from pricing_data.market import LINUX
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
from spotctl.clouds.gpu_markets import cuda_of, types_of
from spotctl.clouds.runpod import gpus
from spotctl.clouds.runpod.calls import RunPodCalls
from spotctl.clouds.runpod.cloud import CLOUD_NAME, RunPodSettings, address

if TYPE_CHECKING:
    from spotctl.home.config import Settings

STORAGE = "container disk"
"""The kind of disk in the list prices."""

PRICES = "prices"
NEEDS = (SourceNeeds(CLOUD_NAME, "minimum bids, on-demand prices", "", "prices of this moment"),)
EFFORTS = {PRICES: Effort(30, 600, 3, is_whole=True)}

_GB_MONTH = 0.10
"""Dollars for a GB of a container's disk in a month, while the pod runs: docs.runpod.io, "Pricing",
read on 2026-12-01."""

_SOURCE = "offers of RunPod"


class RunPodSource:
    """See `Source`: one task for all places."""

    cloud = CLOUD_NAME

    def __init__(self, calls: RunPodCalls, settings: RunPodSettings) -> None:
        self._calls, self._settings = calls, settings

    def tasks(self, request: FetchRequest) -> list[FetchTask]:
        pull = partial(self._prices, request)
        return [FetchTask(CLOUD_NAME, NO_REGION, PRICES, pull, spot_prices=True)]

    def _prices(self, request: FetchRequest) -> Iterator[FetchedRows]:
        at, rejects = request.until, Rejects("RunPod's offers")
        day, cuda = at // DAY * DAY, cuda_of(self._settings.image)
        try:
            for region in gpus.regions(self._calls, community=self._settings.community):
                if request.regions and region not in request.regions:
                    continue
                offers = [*gpus.offers_in(self._calls, region, cuda, rejects)]
                yield self._rows(request, region, day, offers)
        finally:
            self._calls.close()
        rejects.report()

    def _rows(
        self, request: FetchRequest, region: str, day: int, offers: list[gpus.PodOffer]
    ) -> FetchedRows:
        """The rows of a place. Where RunPod takes no bid, a machine is sold on demand only."""
        at = request.until
        wanted = [offer for offer in offers if request.wants_type(offer.market.instance_type)]
        events = [
            PriceEvent(offer.market, at, price)
            for offer in wanted
            if (price := offer.bid or (offer.on_demand and offer.on_demand + NO_SPOT))
        ]
        fixed = [(offer.market.instance_type, offer.on_demand) for offer in wanted]
        seen = WatchRecord((Span(at, at),))
        disk = ListPrice(DISKS, day, CLOUD_NAME, region, STORAGE, 0.0, _GB_MONTH, "list", _SOURCE)
        return FetchedRows(
            PriceBatch.of(events),
            types=types_of(
                CLOUD_NAME, ((offer.market.instance_type, offer.gib) for offer in wanted)
            ),
            list_prices=(disk,),
            on_demand=tuple(
                OnDemandPrice(CLOUD_NAME, region, name, LINUX, at, price, _SOURCE)
                for name, price in fixed
                if price
            ),
            watched={event.market: seen for event in events},
        )


def source(settings: Settings) -> RunPodSource:
    """See `PricesPart`."""
    calls = RunPodCalls(address(settings.text("runpod_url")))
    return RunPodSource(calls, settings.table(CLOUD_NAME, RunPodSettings))
