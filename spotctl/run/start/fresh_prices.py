"""Keeps the stored prices of a run's markets fresh while the run lasts: they decide what it buys and what it costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import TYPE_CHECKING

from pricing_data.units import DAY, MINUTE, SECOND
from spotctl.clouds.wiring import price_store, sources
from spotctl.home.wall_clock import wall_us

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
    settings: Settings, clouds: Iterable[str], regions: Iterable[str], types: Iterable[str], systems: Iterable[str] = ()
) -> list[TaskReport]:
    """Stores the newest spot prices. A part that fails is fetched next time; the last known price applies."""
    from pricing_data.ingest import fetch
    from pricing_data.sources.base import FetchRequest

    store, now = price_store(settings), wall_us()
    request = FetchRequest(now - DAY, now, tuple(regions), tuple(types), tuple(systems), store.covered)
    return fetch(store, sources(settings, clouds), request, workers=settings.fetch_workers, spot_prices_only=True)


def _fetch(markets: Sequence[Market], settings: Settings) -> None:
    places = [(market.cloud, market.region, market.instance_type) for market in markets]
    fetch_spot_prices(settings, *(tuple(dict.fromkeys(column)) for column in zip(*places, strict=True)))


def _fetch_repeatedly(markets: Sequence[Market], settings: Settings, stop: Event) -> None:
    while not stop.wait(FETCH_EVERY / SECOND):
        # Whatever goes wrong now, a run of many hours needs prices again later.
        with suppress(Exception):
            _fetch(markets, settings)
