"""Prices of a Slurm cluster: what its user says that a node is worth. A fetch asks the cluster for
its partitions, which are the markets, and for the kinds of their nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pricing_data.catalog import OnDemandPrice
from pricing_data.fetched_rows import FetchedRows, PriceBatch, PriceEvent
from pricing_data.market import LINUX
from pricing_data.series import WatchRecord
from pricing_data.sources.base import NO_REGION, Effort, FetchRequest, FetchTask, SourceNeeds
from pricing_data.units import Span
from spotctl.clouds.slurm.cloud import CLOUD_NAME, SlurmSettings
from spotctl.clouds.slurm.partitions import offers

if TYPE_CHECKING:
    from spotctl.home.config import Settings

PARTITIONS = "partitions"
NEEDS = (SourceNeeds(CLOUD_NAME, PARTITIONS, "sinfo and scontrol", "usd_per_hour in [slurm]"),)
EFFORTS = {PARTITIONS: Effort(2, 20, 0.1, is_whole=True)}
_SOURCE = "usd_per_hour in [slurm]"


@dataclass(frozen=True)
class SlurmSource:
    """See `Source`: one task."""

    settings: SlurmSettings
    cloud: str = CLOUD_NAME

    def tasks(self, request: FetchRequest) -> list[FetchTask]:
        rows = partial(self._rows, request)
        return [FetchTask(CLOUD_NAME, NO_REGION, PARTITIONS, rows, spot_prices=True)]

    def _rows(self, request: FetchRequest) -> Iterator[FetchedRows]:
        """Preemptible partitions have spot prices, the others are on demand: the cheapest of a type
        counts. Where nothing is preempted, both are the same."""
        at, known = request.until, offers(self.settings)
        wanted = [
            offer
            for offer in known
            if request.wants_type(offer.market.instance_type)
            and (not request.regions or offer.market.region in request.regions)
        ]
        spot = [offer for offer in wanted if offer.is_preemptible] or wanted
        events = [PriceEvent(offer.market, at, offer.price) for offer in spot]
        listed: dict[tuple[str, str], int] = {}
        for offer in wanted:
            if not offer.is_preemptible:
                kind = offer.market.region, offer.market.instance_type
                listed[kind] = min(offer.price, listed.get(kind, offer.price))

        yield FetchedRows(
            PriceBatch.of(events),
            types=tuple({offer.hardware.name: offer.hardware for offer in wanted}.values()),
            on_demand=tuple(
                OnDemandPrice(CLOUD_NAME, *kind, LINUX, at, price, _SOURCE)
                for kind, price in sorted(listed.items())
            ),
            watched=dict.fromkeys((offer.market for offer in spot), WatchRecord((Span(at, at),))),
        )


def source(settings: Settings) -> SlurmSource:
    """See `PricesPart`."""
    return SlurmSource(settings.table(CLOUD_NAME, SlurmSettings))
