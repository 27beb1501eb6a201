"""The jobs that were launched, and the latest run of each."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pricing_data.known_clouds import is_cloud
from spotctl.home.cloud import is_replayed
from spotctl.home.config import Settings
from spotctl.home.paths import Paths
from spotctl.log import store
from spotctl.log.events import RowsLost, RunBegan, RunEnded
from spotctl.log.folding import fold
from spotctl.log.outcomes import BrokenLog, LogFailed
from spotctl.log.salvage import salvage
from spotctl.log.state import RunState
from spotctl.log.store import EventLog

_NO_STATES: Mapping[str, RunState] = MappingProxyType({})


def latest_run(log: EventLog, job: str) -> RunState | None:
    """The newest run of a job; None if the job was never launched."""
    runs = [run for run, began in log.runs().items() if began.job == job]
    return fold(log.of_run(runs[-1])) if runs else None


def latest_ending(settings: Settings, job: str) -> tuple[RunState, RunEnded] | None:
    """The newest run of a job and its end; None if it goes on, or the job was never launched."""
    path = Paths(settings.home).log
    if not store.exists(path):
        return None

    with EventLog(path) as log:
        state = latest_run(log, job)
    return None if state is None or state.ended is None else (state, state.ended)


@dataclass(frozen=True, slots=True)
class LogRead:
    """The beginnings of all runs, the latest run of each job, and why that may not be all: what is
    damaged, rows of an unknown run that a repair has dropped, and runs whose beginning cannot be
    read."""

    began: tuple[RunBegan, ...] = ()
    latest: tuple[RunState, ...] = ()
    damage: tuple[str, ...] = ()
    lost: tuple[RowsLost, ...] = ()
    headless: tuple[RunState, ...] = ()

    @property
    def clouds(self) -> dict[str, set[str]]:
        """The real clouds of all runs, each with the regions that jobs named, also those of
        incomplete job files.
        """
        named = dict[str, set[str]]()
        for began in self.began:
            resources = began.spec.get("resources")
            regions = resources.get("regions") if isinstance(resources, dict) else None
            for cloud in filter(is_cloud, began.provider.split("+")):
                if not is_replayed(cloud):
                    named.setdefault(cloud, set()).update(
                        map(str, regions if isinstance(regions, list) else ())
                    )

        return named


def read_log(settings: Settings) -> LogRead:
    """Reads the log, even if the log is damaged or the disk is full: machines must be found and
    returned then, too.
    """
    path = Paths(settings.home).log
    if not store.exists(path):
        return LogRead()
    try:
        with EventLog(path) as log, log.snapshot():
            log.verify()
            began = log.runs()
            return LogRead(
                tuple(began.values()), tuple(latest_runs(log, began=began)), lost=log.losses()
            )
    except (BrokenLog, LogFailed) as error:
        salvaged = salvage(path)
        headless = tuple(run for run in salvaged.runs if run.run in salvaged.headless)
        damage = (str(error), *map(str, salvaged.damage))
        return LogRead(salvaged.began, salvaged.latest, damage, headless=headless)


def job_names(settings: Settings) -> list[str]:
    """The jobs that were launched, in the order of their first launches."""
    path = Paths(settings.home).log
    if not store.exists(path):
        return []

    try:
        with EventLog(path) as log:
            began: Iterable[RunBegan] = log.runs().values()
    except (BrokenLog, LogFailed):
        began = salvage(path).began

    return list(dict.fromkeys(event.job for event in began))


def unfinished_runs(settings: Settings) -> dict[str, RunState]:
    """The latest runs of jobs that have not ended, by job."""
    path = Paths(settings.home).log
    if not store.exists(path):
        return {}

    with EventLog(path) as log:
        states = latest_runs(log)
    return {
        state.began.job: state
        for state in states
        if state.ended is None and state.began is not None
    }


def latest_runs(
    log: EventLog,
    known: Mapping[str, RunState] = _NO_STATES,
    began: Mapping[str, RunBegan] | None = None,
) -> list[RunState]:
    """The newest run of every job; `known` are states, and `began` all beginnings, that were read
    before, by run."""
    beginnings = log.runs() if began is None else began
    newest = {event.job: run for run, event in beginnings.items()}
    states = list[RunState]()
    for run in newest.values():
        before = known.get(run, RunState())
        if before.ended is None:
            before = fold(log.of_run(run, before.last_row), before)
        states.append(before)
    return states


def not_ended(log: EventLog) -> dict[str, RunBegan]:
    """How the newest run of each job began, by run, if it has not ended. No run is read as a
    whole."""
    ended = log.ended_runs()
    newest = {event.job: (run, event) for run, event in log.runs().items()}
    return {run: began for run, began in newest.values() if run not in ended}
