"""Looks at a job's latest run, again and again, and changes nothing."""

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
from spotctl.machines.base import NotFound
from spotctl.paths import Paths
from spotctl.run.runs import latest_run
from spotctl.run.terms import tariff_of
from spotctl.runlog import budget
from spotctl.runlog.state import RunState
from spotctl.runlog.store import EventLog, is_running
from spotctl.show.run_tables import RunStatus
from spotctl.show.top.snapshot import Money, Shown, shown
from spotctl.show.top.timeline import Timeline, follow
from spotctl.wiring import local_provider

if TYPE_CHECKING:
    from spotctl.config import Settings
    from spotctl.machines.local import LocalProvider
    from spotctl.runlog.budget import Tariff


class Watcher:
    """Follows the latest run of a job by its log; a newer run of the job takes its place."""

    def __init__(self, job: str, settings: Settings) -> None:
        self._job, self._settings = job, settings
        self._paths = Paths(settings.home)
        if not self._paths.log.exists():
            raise BadRequest(f"no job named {job!r} was launched (spotctl launch FILE)")
        self._log = EventLog(self._paths.log)
        self._past = Timeline()
        self._market: tuple[str, JobSpec, LocalProvider, Tariff] | None = None

    def __enter__(self) -> Watcher:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._log.close()

    def look(self) -> Shown:
        """The run now."""
        newest = latest_run(self._log, self._job) if self._past.state.ended or not self._past.state.run else None
        if newest is not None and newest.run != self._past.state.run:
            self._past = Timeline()
        run = self._past.state.run or (newest.run if newest else "")
        if not run:
            raise BadRequest(f"no job named {self._job!r} was launched (spotctl status shows those that were)")
        self._past = follow(self._past, self._log.of_run(run, self._past.state.last_row))
        return self._shown(self._past)

    def _shown(self, past: Timeline) -> Shown:
        state = past.state
        spec, provider, tariff = self._market_of(state)
        over = state.ended is not None
        now = state.at if over or not provider.has_begun else max(provider.now(), state.at)

        def prices(market: Market) -> PriceSeries | None:
            try:
                return tariff.prices(market, now)
            except (NotFound, PricingDataError):
                return None

        program = spec.program
        goal = program.stop.clocks if isinstance(program, Training) else None
        word = RunStatus(state, not over and is_running(self._paths.locks, self._job), None).word
        return shown(past, word, now, _money(state, spec, now, tariff), goal, prices)

    def _market_of(self, state: RunState) -> tuple[JobSpec, LocalProvider, Tariff]:
        assert state.began is not None
        if self._market is None or self._market[0] != state.run:
            spec = restored(state.began.spec, self._paths.home)
            provider = local_provider(self._settings, spec)
            self._market = (state.run, spec, provider, tariff_of(provider, state.started))
        return self._market[1:]


def _money(state: RunState, spec: JobSpec, now: int, tariff: Tariff) -> Money:
    limit = None if spec.budget is None else spec.budget * 3600
    if state.ended is not None:
        return Money(state.ended.facts.get("spent"), state.ended.facts.get("on_demand"), limit)
    try:
        return Money(budget.spent(state, now, tariff), ledger.on_demand(state, now, tariff), limit)
    except NotFound:
        # The local market has begun anew since the run was interrupted, at a time before it.
        return Money(None, None, limit)
