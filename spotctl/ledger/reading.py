"""The ledger as it lies under the home: events from the log, and prices for what is not settled."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import format_time
from spotctl.errors import BadRequest
from spotctl.jobspec.file import restored
from spotctl.launch.launching import Rooms, local_provider
from spotctl.ledger.project import Ledger, project
from spotctl.orchestrator import log
from spotctl.orchestrator.events import RunBegan, RunEnded
from spotctl.orchestrator.guard import Tariff
from spotctl.planning.regimes import billing_of
from spotctl.wiring import library

if TYPE_CHECKING:
    from pricing_data.library import Library
    from spotctl.config import Settings


@dataclass(frozen=True, slots=True)
class RunRead:
    """A run: its events, and its part of the ledger."""

    events: tuple[log.Row, ...]
    ledger: Ledger


def read(settings: Settings, jobs: Collection[str] = ()) -> list[RunRead]:
    """The runs of jobs, or all, in the order in which they began; those that go on as they stand now."""
    rooms = Rooms(settings.home)
    if not rooms.log.exists():
        return []
    tariff = stored(library(settings))
    with log.EventLog(rooms.log) as opened:
        begun = [(row.run, row.event.job) for row in opened.beginnings() if isinstance(row.event, RunBegan)]
        found = [tuple(opened.of_run(run)) for run, job in begun if not jobs or job in jobs]
    return [RunRead(events, project(events, tariff, _now(events, settings))) for events in found]


def stored(known: Library) -> Tariff:
    """Prices as they are stored, and the rules by which clouds bill today."""

    @cache
    def history(market: Market) -> PriceSeries:
        return known.series(market)

    def prices(market: Market, now: int) -> PriceSeries:
        series = history(market)
        if now < series.first:
            raise BadRequest(
                f"{market}: prices are stored from {format_time(series.first)} on, and {format_time(now)} is asked for;"
                " import or fetch an earlier history"
            )
        return series.window(series.first, min(now, series.last))

    return Tariff(lambda market: billing_of(market.cloud), prices)


def _now(events: tuple[log.Row, ...], settings: Settings) -> int | None:
    """The provider's clock for a run that goes on."""
    began = next(row.event for row in events if isinstance(row.event, RunBegan))
    if any(isinstance(row.event, RunEnded) for row in events) or began.provider != "local":
        return None
    provider = local_provider(settings, restored(began.spec, settings.home))
    return provider.now() if provider.has_begun else None
