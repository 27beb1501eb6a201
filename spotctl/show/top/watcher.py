"""Follows a job's latest run without changing anything."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from pricing_data.errors import PricingDataError
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from spotctl import ledger
from spotctl.errors import BadRequest
from spotctl.files.job.reader import restored
from spotctl.files.job.spec import JobSpec, Training
from spotctl.machines.base import NotFound, now_of
from spotctl.paths import Paths
from spotctl.runlog import budget
from spotctl.runlog.state import RunState
from spotctl.runlog.statuses import RunStatus, latest_run
from spotctl.runlog.store import EventLog, is_running
from spotctl.show.top.snapshot import Money, RunSnapshot, take_snapshot
from spotctl.show.top.timeline import Timeline, follow
from spotctl.wiring import provider_of

if TYPE_CHECKING:
    from spotctl.config import Settings
    from spotctl.machines.base import CloudProvider
    from spotctl.runlog.budget import Tariff


class Watcher:
    """Reads the latest run of a job from the event log; switches to a newer run once this one has ended."""

    def __init__(self, job: str, settings: Settings) -> None:
        self._job, self._settings = job, settings
        self._paths = Paths(settings.home)
        if not self._paths.log.exists():
            raise BadRequest(f"no job named {job!r} was launched (spotctl launch FILE)")
        self._log = EventLog(self._paths.log)
        self._timeline = Timeline()
        self._market: tuple[str, JobSpec, CloudProvider, Tariff] | None = None

    def __enter__(self) -> Watcher:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._log.close()

    def snapshot(self) -> RunSnapshot:
        """The run as it is now; reads the events that were logged since the last call."""
        newest = (
            latest_run(self._log, self._job) if self._timeline.state.ended or not self._timeline.state.run else None
        )
        if newest is not None and newest.run != self._timeline.state.run:
            self._timeline = Timeline()
        run = self._timeline.state.run or (newest.run if newest else "")
        if not run:
            raise BadRequest(f"no job named {self._job!r} was launched (spotctl status lists the jobs that were)")
        self._timeline = follow(self._timeline, self._log.of_run(run, self._timeline.state.last_row))
        return self._snapshot(self._timeline)

    def _snapshot(self, timeline: Timeline) -> RunSnapshot:
        state = timeline.state
        spec, provider, tariff = self._market_of(state)
        ended = state.ended is not None
        now = state.at if ended else max(now_of(provider, state.at), state.at)

        def prices(market: Market) -> PriceSeries | None:
            try:
                return tariff.prices(market, now)
            except (NotFound, PricingDataError):
                return None

        program = spec.program
        goal = program.stop.clocks if isinstance(program, Training) else None
        status = RunStatus(state, not ended and is_running(self._paths.locks, self._job), None).word
        return take_snapshot(timeline, status, now, _money(state, spec, now, tariff), goal, prices)

    def _market_of(self, state: RunState) -> tuple[JobSpec, CloudProvider, Tariff]:
        assert state.began is not None
        if self._market is None or self._market[0] != state.run:
            spec = restored(state.began.spec, self._paths.home)
            provider = provider_of(self._settings, spec)
            self._market = (state.run, spec, provider, budget.tariff_of(provider, state.started))
        return self._market[1:]


def _money(state: RunState, spec: JobSpec, now: int, tariff: Tariff) -> Money:
    limit = None if spec.budget is None else spec.budget * 3600
    if state.ended is not None:
        return Money(state.ended.facts.get("spent"), state.ended.facts.get("on_demand"), limit)
    try:
        return Money(budget.spent(state, now, tariff), ledger.same_work(state, now).amount, limit)
    except NotFound:
        # The local market was restarted at an earlier time since the run was interrupted.
        return Money(None, None, limit)
