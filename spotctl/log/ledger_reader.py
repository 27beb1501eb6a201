"""Reads the ledger: events from the log under the home, prices for runs that are not settled, and
their present.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import format_time
from spotctl.home.errors import BadRequest, UnreadableJob
from spotctl.home.paths import Paths
from spotctl.home.wall_clock import wall_us
from spotctl.log import store
from spotctl.log.budget import Tariff, rule_of
from spotctl.log.event_json import job_of, log_rows
from spotctl.log.events import (
    Corrected,
    Decided,
    QuotasShared,
    Renewed,
    RenewIntended,
    RunBegan,
    RunEnded,
)
from spotctl.log.folding import fold
from spotctl.log.jobs import is_running
from spotctl.log.ledger.project import Ledger, project_run
from spotctl.log.schema import StoredRow
from spotctl.log.state import LogRow, RunState

if TYPE_CHECKING:
    from pricing_data.library import Library
    from spotctl.home.config import Settings


@dataclass(frozen=True, slots=True)
class RunRead:
    """A run: its events, the state that follows from them, and its part of the ledger."""

    events: tuple[LogRow, ...]
    state: RunState
    ledger: Ledger


def read(settings: Settings, jobs: Collection[str] = ()) -> list[RunRead]:
    """The runs of some jobs, or of all, oldest first; active runs up to now."""
    paths = Paths(settings.home)
    if not store.exists(paths.log):
        return []
    with store.EventLog(paths.log) as log, log.snapshot():
        runs = [
            rows
            for run in log.names()
            if (rows := log.rows_of(run)) and (not jobs or job_of(rows) in jobs)
        ]
        return list(read_from(sorted(runs), settings))


def read_from(
    runs: Iterable[Sequence[StoredRow]], settings: Settings, elsewhere: Collection[str] = ()
) -> Iterator[RunRead]:
    """The runs with these rows. `elsewhere` names the runs that a runner on another computer
    attends to."""
    tariff = stored_prices(settings)
    for rows in runs:
        has_ended = any(row[3] == RunEnded.__name__ for row in rows)
        events = log_rows([row for row in rows if not (has_ended and row[3] in _NO_COSTS)])
        state = fold(events)
        now, attended = present_of(state, settings, elsewhere)
        ledger = project_run(state, tariff, now, attended=attended)
        yield RunRead(tuple(events), state, ledger)


_NO_COSTS = frozenset(kind.__name__ for kind in (Decided, QuotasShared, RenewIntended, Renewed))
"""Events that change nothing about what a run that has ended did and cost: a third of a long
log."""


def present_of(
    state: RunState, settings: Settings, elsewhere: Collection[str] = ()
) -> tuple[int, bool]:
    """The present of a run: until when, by the provider's clock, it is charged, and whether a
    process attends to it.

    Without a process, the leases of its machines are not renewed, and they end by themselves. To
    those `elsewhere`, a runner on another computer attends. A run that has ended stays at its end.
    """
    if state.began is None or state.ended is not None:
        return state.at, False

    attended = state.run in elsewhere or is_running(Paths(settings.home).locks, state.began.job)
    if not state.is_replayed:
        return max(wall_us(), state.at), attended

    from spotctl.clouds.errors import NotFound
    from spotctl.clouds.wiring import provider_of
    from spotctl.files.job.reader import restored

    try:
        provider = provider_of(settings, restored(state.began.spec, settings.home))
    except UnreadableJob:
        return state.at, attended

    try:
        return max(provider.now(), state.at), attended
    except NotFound:
        # A local market that was never started.
        return state.at, attended


def events_of(
    settings: Settings, wanted: Callable[[RunBegan], bool], newest: int
) -> list[tuple[LogRow, ...]]:
    """The events of those wanted runs that began last, oldest first."""
    paths = Paths(settings.home)
    if not store.exists(paths.log):
        return []
    with store.EventLog(paths.log) as log:
        runs = [run for run, began in log.runs().items() if wanted(began)]
        return [tuple(log.of_run(run)) for run in runs[-newest:]]


def correct(settings: Settings, corrections: Iterable[tuple[str, Corrected]]) -> None:
    """Appends corrections of runs to the log."""
    with store.EventLog(Paths(settings.home).log) as opened:
        for run, correction in corrections:
            opened.append(run, correction.at, correction)


def stored_prices(settings: Settings, known: Library | None = None) -> Tariff:
    """The prices in the home's store, or in a library that is `known`, and the present billing
    rules of clouds, for runs that are not settled. Without such a run, the price store is not
    opened.

    The last known price holds until now: a run may be younger than the stored prices.
    """

    @cache
    def history(market: Market) -> PriceSeries:
        from spotctl.clouds.wiring import library

        opened = library(settings) if known is None else known
        return opened.series(market)

    def prices(market: Market, now: int) -> PriceSeries:
        series = history(market)
        if now < series.first:
            raise BadRequest(
                f"{market}: stored prices begin at {format_time(series.first)}, but the run needs "
                f"{format_time(now)}; import or fetch earlier prices"
            )
        return series.held_until(now).window(series.first, now)

    return Tariff(rule_of, prices)
