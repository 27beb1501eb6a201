"""Several jobs launched together: one plan for all, and a run for each, side by side or one after the other.

If the launcher of a job that waits for its turn was killed, another process begins the job.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import combinations
from math import inf
from pathlib import Path
from threading import Condition, Thread

from spotctl.files.job.reader import load
from spotctl.files.job.spec import JobSpec, check_planned_together
from spotctl.home.config import Settings
from spotctl.home.errors import BadRequest
from spotctl.home.paths import Paths
from spotctl.log.jobs import JobLock, WaitingJob, add_waiting, is_running, is_waiting, remove_waiting
from spotctl.log.outcomes import WITHDRAWN
from spotctl.log.statuses import not_ended
from spotctl.log.store import EventLog
from spotctl.planning.values import JobPlan, QuotaSlice
from spotctl.run.start import runs
from spotctl.run.start.local_market import begin_market
from spotctl.run.start.observing import RunEnd, RunObserver
from spotctl.run.start.workloads import checkpoint_place

_LOOK_SECONDS = 0.2


@dataclass(slots=True)
class Launched:
    """A job that was launched with others, and the end of its run or the error that prevented the run. A job
    `is_withdrawn` if it was stopped while it waited."""

    spec: JobSpec
    ending: RunEnd | None = None
    error: Exception | None = None
    is_withdrawn: bool = False


def check_together(specs: Sequence[JobSpec]) -> None:
    """Refuses jobs that cannot be planned and run at the same time."""
    check_planned_together(specs)
    for first, second in combinations(specs, 2):
        if (place := checkpoint_place(first)) is not None and place == checkpoint_place(second):
            raise BadRequest(
                f"{first.name} and {second.name} both keep their checkpoint at {place}, and would resume from"
                " each other's; give each its own checkpoint.path"
            )
    if len({spec.is_local for spec in specs}) > 1:
        names = ", ".join(spec.name for spec in specs)
        raise BadRequest(
            f"{names}: jobs on the local market and jobs on clouds have different clocks; launch them separately"
        )


def launch(
    plans: Sequence[JobPlan],
    settings: Settings,
    observer: RunObserver,
    *,
    files: Sequence[Path],
    fresh: bool = False,
) -> list[Launched]:
    """Runs planned jobs, each to its end, even if others fail. Jobs that wait for quotas begin when others end.

    This process locks all jobs before any begins, so that no other one launches a job that waits.
    """
    paths, held = Paths(settings.home), list[JobLock]()
    with ExitStack() as locks:
        for plan in plans:
            held.append(locks.enter_context(JobLock(paths.locks, plan.job.spec.name)))
            with EventLog(paths.log) as log:
                runs.check_ended(plan.job.spec.name, log)
        if plans[0].job.spec.is_local:
            begin_market(plans[0].job.spec, settings)

        for job in _waiting_jobs(plans, files):
            add_waiting(paths, job)
            locks.callback(remove_waiting, paths, job.name)
            observer.on_remark(job.name, f"waits for {' and '.join(job.after)}")

        # From here on, each job's thread decides.
        locks.pop_all()
    turns = LaunchTurns(plans)
    jobs = [Launched(plan.job.spec) for plan in plans]
    # Daemons: a second Ctrl-C ends the process at once, and the leases end what still runs.
    threads = [
        Thread(target=_run_in_turn, args=(job, plan, lock, turns, settings, observer, fresh), daemon=True)
        for job, plan, lock in zip(jobs, plans, held, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return jobs


def _waiting_jobs(plans: Sequence[JobPlan], files: Sequence[Path]) -> list[WaitingJob]:
    """The jobs that begin later, as other commands learn of them."""
    turns = {plan.job.spec.name: plan.share.turn for plan in plans}
    return [
        WaitingJob(
            name,
            tuple(other for other, turn in turns.items() if turn.begin < turns[name].begin >= turn.end),
            plan.at if turns[name].begin < inf else None,
            str(file.absolute()),
        )
        for name, plan, file in zip(turns, plans, files, strict=True)
        if turns[name].begin
    ]


class LaunchTurns:
    """Lets each job begin as soon as quotas have enough for it, in the order of the plan."""

    def __init__(self, jobs: Sequence[JobPlan]) -> None:
        self._changed = Condition()
        self._free = Counter({share.quota.name: share.quota.amount for share in jobs[0].share.quotas})
        self._waiting = sorted(jobs, key=lambda job: job.share.turn.begin)
        self._held = dict[int, Mapping[str, int]]()

    @property
    def waiting(self) -> bool:
        """Whether a job has not begun; until then, the others keep to their parts."""
        with self._changed:
            return bool(self._waiting)

    def begin(
        self, job: JobPlan, is_withdrawn: Callable[[], bool], claim: Callable[[], bool]
    ) -> Mapping[str, int] | None:
        """Waits until a job may begin, and returns its parts of the quotas that are too small for all: the planned ones
        as far as they are free. None if the job was withdrawn before; its `claim`, then the last word, is False."""
        with self._changed:
            while not self._may_begin(job) and not is_withdrawn():
                self._changed.wait(_LOOK_SECONDS)
            self._waiting = [other for other in self._waiting if other is not job]
            self._changed.notify_all()
            if not claim():
                return None
            held = {name: min(part.amount, self._free[name]) for name, part in _short(job).items()}
            self._held[id(job)] = held
            self._free.subtract(held)
            return held

    def end(self, job: JobPlan) -> None:
        """The end of a job that has begun: its parts are free."""
        with self._changed:
            self._free.update(self._held.pop(id(job)))
            self._changed.notify_all()

    def _may_begin(self, job: JobPlan) -> bool:
        """Whether no other job comes before this one, and the quotas have enough for it."""
        at_once, first = not job.share.turn.begin, self._waiting[0]
        if job is not first and not (at_once and not first.share.turn.begin):
            return False
        if not self._held:
            return True
        return all((part.amount if at_once else part.least) <= self._free[name] for name, part in _short(job).items())


def within(plan: JobPlan, parts: Mapping[str, int]) -> JobPlan:
    """The plan with other parts of some quotas, with which its run begins."""
    shares = tuple(
        replace(share, slice=replace(share.slice, amount=parts.get(share.quota.name, share.slice.amount)))
        for share in plan.share.quotas
    )
    return replace(plan, share=replace(plan.share, quotas=shares))


def _short(job: JobPlan) -> dict[str, QuotaSlice]:
    """The job's parts of quotas that are too small for all jobs, by quota."""
    return {
        share.quota.name: part
        for share in job.share.quotas
        if not share.is_enough
        for part in share.slices
        if part.job == job.demand.name
    }


def _run_in_turn(
    job: Launched,
    plan: JobPlan,
    lock: JobLock,
    turns: LaunchTurns,
    settings: Settings,
    observer: RunObserver,
    fresh: bool,
) -> None:
    """Runs a job once it is its turn, and keeps how that ended."""
    name, paths, waits = job.spec.name, Paths(settings.home), bool(plan.share.turn.begin)

    def is_withdrawn() -> bool:
        return observer.is_stopped() or (waits and not is_waiting(paths, name))

    def claim() -> bool:
        """Whether the job may begin, and was not withdrawn at the last moment."""
        is_left = not waits or remove_waiting(paths, name)
        return is_left and not observer.is_stopped()

    with lock:
        parts = turns.begin(plan, is_withdrawn, claim)
        job.is_withdrawn = parts is None
        if parts is None:
            observer.on_remark(name, WITHDRAWN)
            return
        try:
            job.ending = runs.launch_locked(
                job.spec,
                settings,
                observer,
                fresh=fresh,
                plan=within(plan, parts),
                may_grow=lambda: not turns.waiting,
            )
        except Exception as error:  # noqa: BLE001 - one job's failure ends no other; its exit code follows at the end
            job.error = error
            observer.on_remark(name, str(error))
        finally:
            turns.end(plan)


_LATE_LOOK_SECONDS = 0.5


def begin_late(job: WaitingJob, settings: Settings, observer: RunObserver) -> RunEnd | None:
    """Waits for the ends of the jobs before this one, and runs it as a new launch of its file. None if it was withdrawn
    while it waited."""
    paths, spec = Paths(settings.home), load(Path(job.file), to_launch=True)
    if spec.name != job.name:
        raise BadRequest(
            f"{job.file} now describes job {spec.name}, not {job.name}: 'spotctl launch {job.file}' launches it,"
            f" 'spotctl stop {job.name}' forgets the other"
        )
    runs.check_launchable(spec)
    with JobLock(paths.locks, job.name):
        said = ""
        while line := _awaited(job, paths):
            if line != said:
                observer.on_remark(job.name, said := line)
            time.sleep(_LATE_LOOK_SECONDS)
            if observer.is_stopped() or not is_waiting(paths, job.name):
                break
        # The last word: `spotctl stop` removes it, too.
        if not remove_waiting(paths, job.name) or observer.is_stopped():
            observer.on_remark(job.name, WITHDRAWN)
            return None
        return runs.launch_locked(spec, settings, observer)


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
