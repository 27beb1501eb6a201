"""The markets of runs that go on: the local one, whose clock the first launch starts and later
launches join while others run; fresh prices, which decide what a run buys and what it costs; and
the machines of other runs, which count against the same quotas.

A clock is never set back under a run that uses it, and no failed fetch ends a run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from threading import Event, Thread
from typing import TYPE_CHECKING

from pricing_data.catalog import Catalog
from pricing_data.library import Selection
from pricing_data.units import DAY, HOUR, MINUTE, SECOND, format_time
from spotctl.clouds.local.provider import LocalProvider
from spotctl.clouds.wiring import library, local_provider, price_store, sources
from spotctl.files.job.spec import JobSpec
from spotctl.home import account_quotas
from spotctl.home.config import Settings
from spotctl.home.errors import BadRequest
from spotctl.home.paths import Paths
from spotctl.home.wall_clock import wall_us
from spotctl.log import store
from spotctl.log.events import RentIntended
from spotctl.log.jobs import is_running
from spotctl.log.state import RunState
from spotctl.log.statuses import latest_runs, not_ended
from spotctl.log.store import EventLog
from spotctl.planning.quotas import used

if TYPE_CHECKING:
    from pricing_data.ingest import TaskReport
    from pricing_data.market import Market


def on_one_market(specs: Sequence[JobSpec]) -> tuple[list[JobSpec], tuple[str, ...]]:
    """The jobs changed to share one local market, which has one clock, and a remark if any of the
    jobs changed.

    The market begins at the first `local.start`, and runs at the lowest `local.speed`: at a higher
    speed, the start-up of that job's program would take more market time than the job file allows
    for.
    """
    asked = [spec.local for spec in specs if spec.is_local]
    if len({(local.start, local.speed) for local in asked}) < 2:
        return list(specs), ()

    start = next((local.start for local in asked if local.start is not None), None)
    speed = min(local.speed for local in asked)
    shared = [
        replace(spec, local=replace(spec.local, start=start, speed=speed))
        if spec.is_local
        else spec
        for spec in specs
    ]

    begins = "" if start is None else f" from {format_time(start)} on"
    return shared, (f"the jobs share one local market, which runs at speed {speed:g}{begins}",)


def begin_market(spec: JobSpec, settings: Settings) -> None:
    """Sets the market's clock, unless other jobs run on it. It begins where the local market's
    stored prices can be replayed from, unless the job sets `local.start`.
    """
    from spotctl.planning.facts import replay_start

    provider = local_provider(settings, spec)
    moment = spec.local.start
    if moment is None:
        known = library(settings)
        moment = replay_start(known.table(known.require(Selection(clouds=("local",)))))

    if not _start_market(provider, moment, spec, settings) and provider.speed != spec.local.speed:
        raise BadRequest(
            f"local.speed is {spec.local.speed:g}, but other jobs run on the local market at "
            f"{provider.speed:g}"
            f" (its time is {format_time(provider.now())}); wait for them, or set the same speed"
        )


def continue_market(state: RunState, spec: JobSpec, settings: Settings) -> None:
    """Sets the market back to where a run was interrupted, if another job has restarted the market
    since then.
    """
    assert state.began is not None
    provider = local_provider(settings, spec)
    now = provider.now()
    waited = wall_us() - state.began.wall_us
    if state.at <= now <= state.started + round(waited * spec.local.speed) + HOUR:
        return

    # The run's last machines have ended with their leases at the latest.
    moment = max([state.at, *(held.lease_until for held in state.alive)])
    if not _start_market(provider, moment, spec, settings) and now < state.at:
        raise BadRequest(
            f"run {state.run} was interrupted at {format_time(state.at)}, but the local market was "
            "started again for"
            f" other jobs (its time is {format_time(now)}); resume it once they have ended "
            "(spotctl status)"
        )


def _start_market(provider: LocalProvider, moment: int, spec: JobSpec, settings: Settings) -> bool:
    """Starts the market at a moment; False if other jobs run on it."""
    from spotctl.clouds.local.provider import MarketBusy

    if _is_used(settings, spec.name):
        return False

    try:
        provider.begin(moment, spec.local.speed)
    except MarketBusy:
        return False
    return True


def _is_used(settings: Settings, job: str = "") -> bool:
    """Whether processes attend to runs on the local market, other than of a `job`. A run may hold
    no machine now.
    """
    from spotctl.clouds.local.provider import LocalProvider

    paths = Paths(settings.home)
    if not store.exists(paths.log):
        return False
    with EventLog(paths.log) as log:
        return any(
            began.job != job
            and began.provider == LocalProvider.name
            and is_running(paths.locks, began.job)
            for began in not_ended(log).values()
        )


def market_now(specs: Sequence[JobSpec], settings: Settings) -> int | None:
    """The local market's time while jobs run on it; None if the next launch starts the market
    again.
    """
    from spotctl.clouds.provider import MachineState

    if not all(spec.is_local for spec in specs):
        return None

    provider = local_provider(settings, specs[0])
    if not provider.has_begun:
        return None

    held = any(machine.state is not MachineState.GONE for machine in provider.list({}))
    return provider.now() if held or _is_used(settings) else None


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
