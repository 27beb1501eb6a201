"""Watches the prices of a run's markets, which decide what it buys and what it costs, and the ends of other runs, which
leave it more of the quotas.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from threading import Event, Thread
from typing import TYPE_CHECKING

from pricing_data.catalog import Catalog
from pricing_data.units import DAY, MINUTE, SECOND
from spotctl.clouds.wiring import library, price_store, sources
from spotctl.home import account_quotas
from spotctl.home.config import Settings
from spotctl.home.paths import Paths
from spotctl.home.quotas import quotas_from
from spotctl.home.wall_clock import wall_us
from spotctl.log.jobs import is_running
from spotctl.log.state import RunState
from spotctl.log.statuses import latest_runs
from spotctl.log.store import EventLog
from spotctl.planning.quotas import grown_slices, whole_of

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


def _fetch_repeatedly(markets: Sequence[Market], settings: Settings, stop: Event) -> None:
    while not stop.wait(FETCH_EVERY / SECOND):
        # Whatever goes wrong now, a run of many hours needs prices again later.
        with suppress(Exception):
            places = [(market.cloud, market.region, market.instance_type) for market in markets]
            fetch_spot_prices(settings, *(tuple(dict.fromkeys(column)) for column in zip(*places, strict=True)))


@dataclass(slots=False)
class QuotaWatch:
    """Reads the logs of other runs whenever this run decides. `_read` has the other runs' states so far.

    There `_is_more` that this run may use after the end of another; None until this run has machines: before its first
    look, others may have ended.
    """

    settings: Settings
    _read: dict[str, RunState] = field(default_factory=dict)
    _is_more: bool | None = None

    def __call__(self, state: RunState, *, may_grow: bool = True) -> str | None:
        """The parts of the quotas that the run may use from now on; None for no change.

        An end is remembered until the run `may_grow`, and those that have just begun have rented their parts.
        """
        if not state.quotas:
            return None
        before = {run for run, other in self._read.items() if other.ended is None}
        others, parts, now = self._others(state), quotas_from(state.quotas), wall_us()
        if self._is_more is None and state.alive:
            known = (*account_quotas.known(self.settings, now), *account_quotas.known(self.settings, now, spot=False))
            taken = Counter[tuple[str, bool]]()
            for part in chain(parts, *(quotas_from(other.quotas) for other in others.values() if other.quotas)):
                taken[part.name, part.spot] += part.amount
            self._is_more = any(taken[part.name, part.spot] < whole_of(part, known) for part in parts)
        if before - others.keys():
            self._is_more = True
        if not (self._is_more and may_grow):
            return None
        locks = Paths(self.settings.home).locks
        for other in others.values():
            if other.began is not None and not other.machines and is_running(locks, other.began.job):
                # It is about to rent its first machines.
                return None
        self._is_more = False
        every = (*others.values(), state)
        spot = grown_slices(
            [part for part in parts if part.spot],
            account_quotas.known(self.settings, now),
            state.run,
            {other.run: other.by_market(spot=True) for other in every},
            self._catalog,
        )
        on_demand = grown_slices(
            [part for part in parts if not part.spot],
            account_quotas.known(self.settings, now, spot=False),
            state.run,
            {other.run: other.by_market(spot=False) for other in every},
            self._catalog,
        )
        text = ", ".join(map(str, (*spot, *on_demand)))
        return None if text == state.quotas else text

    def shared(self, state: RunState) -> bool:
        """Whether another run of the home holds machines, which may fill a quota that this run needs."""
        return any(other.alive for other in self._others(state).values())

    def _others(self, state: RunState) -> dict[str, RunState]:
        """The other runs that have not ended."""
        with EventLog(Paths(self.settings.home).log) as log:
            self._read = {other.run: other for other in latest_runs(log, self._read) if other.run != state.run}
        return {run: other for run, other in self._read.items() if other.ended is None}

    @cached_property
    def _catalog(self) -> Catalog:
        return library(self.settings).catalog
