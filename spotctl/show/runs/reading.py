"""Runs as they are now, read from the event log without changing anything."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec import json

from pricing_data.errors import PricingDataError
from spotctl.home.errors import BadRequest, UnreadableJob
from spotctl.home.paths import Paths
from spotctl.home.wall_clock import wall_us
from spotctl.log import store
from spotctl.log.outcomes import BrokenLog, LogFailed
from spotctl.show.runs.run_view import MarketView, Money, RunView, run_view

if TYPE_CHECKING:
    # Only runs that go on need these; they take longer to import than thousands of ended runs to
    # show.
    from pricing_data.market import Market
    from pricing_data.series import PriceSeries
    from spotctl.clouds.provider import CloudProvider
    from spotctl.files.job.spec import JobSpec
    from spotctl.home.config import Settings
    from spotctl.log.budget import Tariff
    from spotctl.log.events import Planned, RowsLost
    from spotctl.log.schema import ChainEnd, StoredRow
    from spotctl.log.state import RunState
    from spotctl.show.runs.timeline import MachineCount, TimelineEvent


class RunViews:
    """Makes the views of runs. The job, the provider and the prices of a run are each read once."""

    def __init__(self, settings: Settings) -> None:
        from spotctl.log.ledger_reader import stored_prices

        self.settings, self._stored = settings, stored_prices(settings)
        self._known: dict[str, tuple[JobSpec, CloudProvider, Tariff]] = {}

    def terms(self, state: RunState) -> tuple[JobSpec, CloudProvider, Tariff]:
        """The job of a run, its provider, and the provider's prices."""
        from spotctl.clouds.wiring import provider_of
        from spotctl.files.job.reader import restored
        from spotctl.log.budget import tariff_of

        assert state.began is not None
        if state.run not in self._known:
            spec = restored(state.began.spec, self.settings.home)
            provider = provider_of(self.settings, spec)
            self._known[state.run] = spec, provider, tariff_of(provider, state.started)

        return self._known[state.run]

    def listed(self, state: RunState, elsewhere: Collection[str] = ()) -> RunView:
        """The view of a run in a list of all runs. Nothing is asked of its provider, so its money
        is only the cost so far and, of an active run, the budget.

        `elsewhere` names the runs that a runner on another computer attends to.
        """
        from spotctl.log.ledger.project import spending
        from spotctl.log.ledger_reader import present_of

        now, attended = present_of(state, self.settings, elsewhere)
        spent = spending(state, self._stored, now, attended=attended)
        unreadable, limit = "", None
        if state.ended is None:
            from spotctl.files.job.reader import restored

            assert state.began is not None
            try:
                stated = restored(state.began.spec, self.settings.home).budget
            except UnreadableJob as error:
                unreadable = str(error)
            else:
                limit = state.limit(None if stated is None else stated * 3600)

        return run_view(
            state, now, attended=attended, money=Money(spent, budget=limit), unreadable=unreadable
        )

    def of(self, state: RunState, *, attended: bool = True) -> RunView:
        """The view of a run now, or at its end if it has ended. `attended`: a process renews its
        leases."""
        from spotctl.log.ledger_reader import present_of

        now, _ = present_of(state, self.settings)
        return self.at(state, now, attended=attended)

    def at(self, state: RunState, now: int, *, attended: bool = True) -> RunView:
        """The view of a run whose state is given, at a moment of its clock."""
        from spotctl.clouds.errors import ProviderError
        from spotctl.clouds.link import LeaseTimes
        from spotctl.files.job.programs import Training
        from spotctl.log.budget import committed as committed_by
        from spotctl.log.ledger.project import recorded, spending
        from spotctl.log.ledger.same_work import same_work

        spec, _, tariff = self.terms(state)
        spent = spending(state, self._stored, now, attended=attended)
        limit = state.limit(None if spec.budget is None else spec.budget * 3600)
        if state.ended is not None:
            facts = state.ended.facts
            money = Money(
                spent,
                facts.get("on_demand"),
                limit,
                spent.amount,
                facts.get("on_demand_unknown", ""),
            )
        else:
            try:
                teardown = LeaseTimes.of(spec).teardown
                committed = committed_by(state, now, recorded(state, tariff), teardown)
            except (ProviderError, PricingDataError):
                # Prices are missing, or the local market was restarted at an earlier time since the
                # run was interrupted.
                committed = None
            work = same_work(state, now)
            money = Money(
                spent, None if work.unknown else work.amount, limit, committed, work.unknown
            )

        goal = spec.program.stop.clocks if isinstance(spec.program, Training) else None
        return run_view(state, now, attended=attended, money=money, goal=goal)


@dataclass(frozen=True, slots=True)
class WatchedRun:
    """A run now and before: the number of its machines and its loss over time, its events, its
    plan, and the price histories of its markets, as far as they are known."""

    view: RunView
    footprint: tuple[MachineCount, ...] = ()
    losses: tuple[tuple[int, float], ...] = ()
    events: tuple[TimelineEvent, ...] = ()
    planned: Planned | None = None
    prices: Mapping[Market, PriceSeries] = field(default_factory=dict)

    def price_of(self, line: MarketView) -> int | None:
        """The price of a market's machines now; None if it is unknown."""
        if line.reserved_price is not None:
            return line.reserved_price
        series = self.prices.get(line.market)
        if series is None:
            return None
        return int(series.prices[-1])


class Watcher:
    """Reads the latest run of a job from the event log; switches to a newer run once this one has
    ended.
    """

    def __init__(self, job: str, settings: Settings, elsewhere: Collection[str] = ()) -> None:
        from spotctl.show.runs.timeline import Timeline

        self._job, self._settings, self._elsewhere = job, settings, elsewhere
        self._paths = Paths(settings.home)
        if not self._paths.log.exists():
            raise BadRequest(f"no job named {job!r} was launched (spotctl launch FILE)")

        self._log = store.EventLog(self._paths.log)
        self._timeline = Timeline()
        self._views = RunViews(settings)

    def close(self) -> None:
        """Closes the event log."""
        self._log.close()

    @property
    def state(self) -> RunState:
        """The run as of the last look."""
        return self._timeline.state

    def look(self) -> WatchedRun:
        """The run as it is now; reads the events that were logged since the last call."""
        from spotctl.clouds.errors import NotFound
        from spotctl.log.ledger_reader import present_of
        from spotctl.log.statuses import latest_run
        from spotctl.show.runs.timeline import Timeline, follow

        newest = (
            latest_run(self._log, self._job)
            if self._timeline.state.ended or not self._timeline.state.run
            else None
        )

        if newest is not None and newest.run != self._timeline.state.run:
            self._timeline = Timeline()
        run = self._timeline.state.run or (newest.run if newest else "")
        if not run:
            raise BadRequest(
                f"no job named {self._job!r} was launched (spotctl status lists the jobs that were)"
            )

        self._timeline = follow(
            self._timeline, self._log.of_run(run, self._timeline.state.last_row)
        )
        known, state = self._timeline, self._timeline.state
        now, attended = present_of(state, self._settings, self._elsewhere)
        prices: dict[Market, PriceSeries] = {}

        try:
            view, tariff = (
                self._views.at(state, now, attended=attended),
                self._views.terms(state)[2],
            )
        except UnreadableJob:
            view = self._views.listed(state, self._elsewhere)
        else:
            for line in view.markets:
                with suppress(NotFound, PricingDataError):
                    prices[line.market] = tariff.prices(line.market, view.now)

        return WatchedRun(view, known.footprint, known.losses, known.events, state.planned, prices)


@dataclass(frozen=True, slots=True)
class LatestRuns:
    """The latest run of each job, and why that may not be all: what is damaged, and what a repair
    has dropped that may be of any run."""

    runs: Sequence[RunView] = ()
    damage: tuple[str, ...] = ()
    lost: tuple[RowsLost, ...] = ()


def latest_views(settings: Settings, elsewhere: Collection[str] = ()) -> LatestRuns:
    """The latest run of each job. `elsewhere` names the runs that a runner on another computer
    attends to."""
    paths = Paths(settings.home)
    if not store.exists(paths.log):
        return LatestRuns()

    try:
        with store.EventLog(paths.log) as log:
            log.check(wall_us())
            with log.snapshot():
                newest, lost = list(log.latest().values()), log.losses()
                ends = {run: end for run, end in log.ends().items() if run in newest}
                kept = log.final("final_views", ends)
                rows = {run: log.rows_of(run) for run in newest if run not in kept}
            made = _from_rows(rows, settings, elsewhere) if rows else {}
            final: list[tuple[ChainEnd, tuple[str, str]]] = []
            for run, (view, is_final) in made.items():
                if is_final and run in ends:
                    written = json.encode(view, enc_hook=str).decode()
                    final.append((ends[run], (written, "")))
            if final:
                log.keep("final_views", final)
    except (BrokenLog, LogFailed) as error:
        damage = str(error)
        from spotctl.log.statuses import read_log

        damaged, views = read_log(settings), RunViews(settings)
        newest_of = {state.job: state for state in damaged.latest}
        for state in damaged.headless:
            if state.job not in newest_of or newest_of[state.job].started < state.started:
                newest_of[state.job] = state

        listed = [views.listed(state, elsewhere) for state in newest_of.values()]
        return LatestRuns(listed, damaged.damage or (damage,), damaged.lost)

    known = {run: view for run, (view, _) in made.items()}
    for run, (content, _) in kept.items():
        read = json.decode(content, type=RunView, dec_hook=lambda kind, text: kind(text))
        known.setdefault(run, read)

    return LatestRuns([known[run] for run in newest], (), lost)


def _from_rows(
    runs: Mapping[str, Sequence[StoredRow]], settings: Settings, elsewhere: Collection[str]
) -> dict[str, tuple[RunView, bool]]:
    """The views of runs with these rows, and whether they follow from the log alone."""
    # These imports take longer than to show runs that have ended.
    from spotctl.log.event_json import log_rows
    from spotctl.log.folding import fold
    from spotctl.log.ledger.project import is_settled

    made, views = dict[str, tuple[RunView, bool]](), RunViews(settings)
    for run, rows in runs.items():
        state = fold(log_rows(rows))
        is_final = state.ended is not None and ("spent" in state.ended.facts or is_settled(state))
        made[run] = views.listed(state, elsewhere), is_final

    return made
