"""Which jobs were launched, and how the latest run of each stands: what every reader of runs asks first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spotctl.files.job.reader import restored
from spotctl.paths import Paths
from spotctl.runlog import budget
from spotctl.runlog.events import RunBegan
from spotctl.runlog.state import RunState, fold
from spotctl.runlog.store import EventLog, is_running
from spotctl.wiring import local_provider

if TYPE_CHECKING:
    from spotctl.config import Settings


@dataclass(frozen=True, slots=True)
class RunStatus:
    """A run, whether a process attends to it, and what it has cost so far (nano-dollar-seconds; None if unknown)."""

    state: RunState
    attended: bool
    spent: int | None

    @property
    def word(self) -> str:
        """The outcome of a run that has ended; else interrupted, stopping or running."""
        if self.state.ended is not None:
            return self.state.ended.outcome
        if not self.attended:
            return "interrupted"
        return "running" if self.state.stopping is None else "stopping"


def latest_run(log: EventLog, job: str) -> RunState | None:
    """The newest run of a job; None if the job was never launched."""
    began = [row for row in log.beginnings() if isinstance(row.event, RunBegan) and row.event.job == job]
    return fold(log.of_run(began[-1].run)) if began else None


def job_names(settings: Settings) -> list[str]:
    """The jobs that were launched, in the order of their first launches."""
    paths = Paths(settings.home)
    if not paths.log.exists():
        return []
    with EventLog(paths.log) as log:
        return list(dict.fromkeys(row.event.job for row in log.beginnings() if isinstance(row.event, RunBegan)))


def unfinished_jobs(settings: Settings) -> list[str]:
    """Jobs whose latest run has not ended."""
    return [state.began.job for state in _latest_runs(settings) if state.ended is None and state.began is not None]


def statuses(settings: Settings) -> list[RunStatus]:
    """The latest run of each job."""
    return [_status(state, settings) for state in _latest_runs(settings)]


def _latest_runs(settings: Settings) -> list[RunState]:
    jobs = job_names(settings)
    if not jobs:
        return []
    with EventLog(Paths(settings.home).log) as log:
        return [state for job in jobs if (state := latest_run(log, job)) is not None]


def _status(state: RunState, settings: Settings) -> RunStatus:
    from spotctl.machines.base import NotFound

    assert state.began is not None
    if state.ended is not None:
        return RunStatus(state, False, state.ended.facts.get("spent"))
    paths = Paths(settings.home)
    provider = local_provider(settings, restored(state.began.spec, paths.home))
    now = max(provider.now(), state.at)
    try:
        spent = budget.spent(state, now, budget.tariff_of(provider, state.started))
    except NotFound:
        # The local market was started again after the run was interrupted, at an earlier time.
        spent = None
    return RunStatus(state, is_running(paths.locks, state.began.job), spent)
