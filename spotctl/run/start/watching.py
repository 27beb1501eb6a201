"""Watches the prices of a run's markets, which decide what it buys and what it costs, and the
machines of other runs, which count against the same quotas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from threading import Event, Thread
from typing import TYPE_CHECKING

from pricing_data.catalog import Catalog
from pricing_data.units import DAY, MINUTE, SECOND
from spotctl.clouds.wiring import library, price_store, sources
from spotctl.home import account_quotas
from spotctl.home.config import Settings
from spotctl.home.paths import Paths
from spotctl.home.wall_clock import wall_us
from spotctl.log.events import RentIntended
from spotctl.log.state import RunState
from spotctl.log.statuses import latest_runs
from spotctl.log.store import EventLog
from spotctl.planning.quotas import used

if TYPE_CHECKING:
    from pricing_data.ingest import TaskReport
    from pricing_data.market import Market
    from spotctl.home.config import Settings


FETCH_EVERY = 10 * MINUTE
"""AWS publishes prices every few minutes, the other clouds every few days."""


@contextmanager
def fresh_prices(markets: Sequence[Market], settings: Settings) -> Iterator[None]:
    """Fetches the markets' spot prices repeatedly in the background, until the block is left."""
    stop = Event()
    thread = Thread(target=_fetch_repeatedly, args=(markets, settings, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        # A fetch in progress ends with the process: whatever it has stored is complete.
        stop.set()


def fetch_spot_prices(
    settings: Settings,
    clouds: Iterable[str],
    regions: Iterable[str],
    types: Iterable[str],
    systems: Iterable[str] = (),
) -> list[TaskReport]:
    """Stores the newest spot prices. A part that fails is fetched next time; the last known price
    applies.
    """
    from pricing_data.ingest import fetch
    from pricing_data.sources.base import FetchRequest

    store = price_store(settings)
    now = wall_us()
    request = FetchRequest(
        now - DAY, now, tuple(regions), tuple(types), tuple(systems), store.covered
    )
    return fetch(
        store,
        sources(settings, clouds),
        request,
        workers=settings.fetch_workers,
        spot_prices_only=True,
    )


def _fetch_repeatedly(markets: Sequence[Market], settings: Settings, stop: Event) -> None:
    while not stop.wait(FETCH_EVERY / SECOND):
        # Whatever goes wrong now, a run of many hours needs prices again later.
        with suppress(Exception):
            places = [(market.cloud, market.region, market.instance_type) for market in markets]
            fetch_spot_prices(
                settings, *(tuple(dict.fromkeys(column)) for column in zip(*places, strict=True))
            )


class OtherRuns:
    """The other runs of a home, and the machines that they hold."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._read = dict[str, RunState]()

    def shared(self, state: RunState) -> bool:
        """Whether another run of the home holds machines, which may fill a quota that this run
        needs.
        """
        with EventLog(Paths(self._settings.home).log) as log:
            return any(other.alive for other in self._unfinished(log) if other.run != state.run)

    def leave_room(self, log: EventLog, order: RentIntended, now: int) -> bool:
        """Whether the quotas of the home hold an order next to all machines that exist now; a
        machine exists until its end, or that of its lease."""
        spot = order.bid is not None
        held = Counter({order.market: order.machines})
        if order.market.reservation:
            return True

        for other in self._unfinished(log):
            held += other.by_market(spot=spot, at=now)
        known = account_quotas.known(self._settings, wall_us(), spot=spot)
        quotas = (quota.within(order.market.region) for quota in known)
        return all(
            not used(quota, {order.market: 1}, self._catalog)
            or used(quota, held, self._catalog) <= quota.amount
            for quota in quotas
        )

    def _unfinished(self, log: EventLog) -> list[RunState]:
        self._read = {run.run: run for run in latest_runs(log, self._read)}
        return [run for run in self._read.values() if run.ended is None]

    @cached_property
    def _catalog(self) -> Catalog:
        return library(self._settings).catalog
