"""Follows a job's latest run without changing anything."""

from collections.abc import Collection
from types import TracebackType

from pricing_data.errors import PricingDataError
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from spotctl.clouds.errors import NotFound
from spotctl.home.config import Settings
from spotctl.home.errors import BadRequest
from spotctl.home.paths import Paths
from spotctl.log.present import present_of
from spotctl.log.state import RunState
from spotctl.log.statuses import latest_run, status_word
from spotctl.log.store import EventLog
from spotctl.show.runs.figures import RunMarkets
from spotctl.show.top.snapshot import RunSnapshot, take_snapshot
from spotctl.show.top.timeline import Timeline, follow


class Watcher:
    """Reads the latest run of a job from the event log; switches to a newer run once this one has ended."""

    def __init__(self, job: str, settings: Settings, elsewhere: Collection[str] = ()) -> None:
        self._job, self._settings, self._elsewhere = job, settings, elsewhere
        self._paths = Paths(settings.home)
        if not self._paths.log.exists():
            raise BadRequest(f"no job named {job!r} was launched (spotctl launch FILE)")
        self._log = EventLog(self._paths.log)
        self._timeline = Timeline()
        self._markets = RunMarkets(settings)

    def __enter__(self) -> "Watcher":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._log.close()

    @property
    def state(self) -> RunState:
        """The run as of the last snapshot."""
        return self._timeline.state

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
        present = present_of(state, self._settings, self._elsewhere)
        figures, tariff = self._markets.figures(state, attended=present.attended), self._markets.of(state)[2]

        def prices(market: Market) -> PriceSeries | None:
            try:
                return tariff.prices(market, figures.now)
            except (NotFound, PricingDataError):
                return None

        status = status_word(state, attended=present.attended)
        return take_snapshot(timeline, status, figures.now, figures.money, figures.goal, prices)
