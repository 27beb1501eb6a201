"""Prices of a Slurm cluster: what its user says that a node is worth. A fetch asks the cluster for
its partitions, which are the markets, and for the kinds of their nodes; and its accounting, where
there is one, for the lives of past jobs, which are the odds of the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from pricing_data.availability import AvailabilitySpan, Ending
from pricing_data.catalog import OnDemandPrice
from pricing_data.errors import CloudError
from pricing_data.fetched_rows import FetchedRows, PriceBatch, PriceEvent
from pricing_data.market import LINUX
from pricing_data.series import WatchRecord
from pricing_data.sources.base import NO_REGION, Effort, FetchRequest, FetchTask, SourceNeeds
from pricing_data.units import SECOND, Span
from spotctl.clouds.slurm.calls import answer_of
from spotctl.clouds.slurm.cloud import CLOUD_NAME, SlurmSettings
from spotctl.clouds.slurm.orders import PREFIX
from spotctl.clouds.slurm.partitions import offers

if TYPE_CHECKING:
    from spotctl.home.config import Settings

PARTITIONS = "partitions"
NEEDS = (
    SourceNeeds(CLOUD_NAME, PARTITIONS, "sinfo and scontrol", "usd_per_hour in [slurm]"),
    SourceNeeds(CLOUD_NAME, "past jobs", "sacct, where there is one", "how long jobs last"),
)
PAST = "past jobs"
EFFORTS = {PARTITIONS: Effort(2, 20, 0.1, is_whole=True), PAST: Effort(3, 1000, 1)}
_MOST_LIVES = 50_000
_SOURCE = "usd_per_hour in [slurm]"


@dataclass(frozen=True)
class SlurmSource:
    """See `Source`: one task."""

    settings: SlurmSettings
    cloud: str = CLOUD_NAME

    def tasks(self, request: FetchRequest) -> list[FetchTask]:
        rows, lives = partial(self._rows, request), partial(self._lives, request)
        return [
            FetchTask(CLOUD_NAME, NO_REGION, PARTITIONS, rows, spot_prices=True),
            FetchTask(CLOUD_NAME, NO_REGION, PAST, lives, optional=True),
        ]

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

    def _lives(self, request: FetchRequest) -> Iterator[FetchedRows]:
        """The lives of jobs of all users that ended in preemptible partitions, on the smallest kind
        of nodes that has as many processors. Runs of spotctl know their own."""
        spot = sorted(
            (offer for offer in offers(self.settings) if offer.is_preemptible and offer.is_whole),
            key=attrgetter("cpus"),
        )
        seconds = (request.until - request.since) // SECOND
        words = (
            "sacct",
            "--allusers",
            "--allocations",
            "--duplicates",
            "--noheader",
            "--parsable2",
        )
        which = f"--partition={','.join({offer.market.zone for offer in spot})}"
        columns = "--format=JobIDRaw,JobName,Partition,State,Start,End,AllocCPUS,NNodes"
        try:
            since = f"--starttime=now-{seconds}"
            said = answer_of(PAST, *words, which, since, columns) if spot else ""
        except CloudError as error:
            without = f"{error.problem}: how long jobs last is known from your own runs only"
            yield FetchedRows(notes=(without,))
            return

        lives = []
        for line in said.splitlines():
            # A name with a bar in it has more cells.
            number, *name, zone, state, start, end, cpus, nodes = line.split("|")
            ours = "|".join(name).startswith(PREFIX)
            if ours or not (start.isdigit() and end.isdigit() and int(start) < int(end)):
                continue
            here = [offer for offer in spot if offer.market.zone == zone]
            each = int(cpus) // max(1, int(nodes))
            fitting = [offer for offer in here if offer.cpus >= each] or here[-1:]
            ending: Ending = "evicted" if state == "PREEMPTED" else "returned"
            life = int(start) * SECOND, int(end) * SECOND
            for offer in fitting[:1]:
                own = (offer.market, *life, 1, 1, ending, f"sacct, job {number}")
                lives.append(AvailabilitySpan(*own))
        yield FetchedRows(availability=tuple(lives[-_MOST_LIVES:]))


def source(settings: Settings) -> SlurmSource:
    """See `PricesPart`."""
    return SlurmSource(settings.table(CLOUD_NAME, SlurmSettings))
