"""A job whose launcher was killed while the job waited for its turn: another process begins it at the end of those
before it."""

import time
from pathlib import Path

from spotctl.files.job.reader import load
from spotctl.files.job.spec import JobSpec
from spotctl.home.config import Settings
from spotctl.home.errors import BadRequest
from spotctl.home.paths import Paths
from spotctl.log.jobs import JobLock, WaitingJob, is_running, is_waiting, remove_waiting
from spotctl.log.outcomes import WITHDRAWN
from spotctl.log.statuses import not_ended
from spotctl.log.store import EventLog
from spotctl.run.start import runs
from spotctl.run.start.observing import RunEnd, RunObserver

_LOOK_SECONDS = 0.5


def begin_late(job: WaitingJob, settings: Settings, observer: RunObserver) -> RunEnd | None:
    """Waits for the ends of the jobs before this one, and runs it as a new launch of its file. None if it was withdrawn
    while it waited."""
    paths, spec = Paths(settings.home), _spec_of(job)
    runs.check_launchable(spec)
    with JobLock(paths.locks, job.name):
        said = ""
        while line := _awaited(job, paths):
            if line != said:
                observer.on_remark(job.name, said := line)
            time.sleep(_LOOK_SECONDS)
            if observer.is_stopped() or not is_waiting(paths, job.name):
                break
        # The last word: `spotctl stop` removes it, too.
        if not remove_waiting(paths, job.name) or observer.is_stopped():
            observer.on_remark(job.name, WITHDRAWN)
            return None
        return runs.launch_locked(spec, settings, observer)


def _spec_of(job: WaitingJob) -> JobSpec:
    spec = load(Path(job.file), to_launch=True)
    if spec.name != job.name:
        raise BadRequest(
            f"{job.file} now describes job {spec.name}, not {job.name}: 'spotctl launch {job.file}' launches it,"
            f" 'spotctl stop {job.name}' forgets the other"
        )
    return spec


def _awaited(job: WaitingJob, paths: Paths) -> str:
    """The jobs before this one that have not ended, in words; empty if there are none."""
    with EventLog(paths.log) as log:
        unfinished = {began.job for began in not_ended(log).values()}
    lines = []
    for name in job.after:
        if is_running(paths.locks, name):
            lines.append(name)
        elif name in unfinished or is_waiting(paths, name):
            lines.append(
                f"{name}, which no process attends to ('spotctl resume {name}' continues it, 'spotctl stop {name}' ends"
                " it)"
            )
    return f"waits for {' and '.join(lines)}" if lines else ""
