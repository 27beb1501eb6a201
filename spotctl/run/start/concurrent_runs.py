"""Several jobs launched together: one plan for all, and a run for each, side by side or one after
the other.

If the launcher of a job that waits for its turn was killed, another process begins the job.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import combinations
from math import inf, isfinite
from pathlib import Path
from threading import Thread
from types import MappingProxyType

from pricing_data.units import SECOND
from spotctl.files.job.data_places import checkpoint_place
from spotctl.files.job.programs import Training
from spotctl.files.job.reader import load
from spotctl.files.job.spec import JobSpec, check_planned_together
from spotctl.home.config import Settings
from spotctl.home.errors import BadRequest
from spotctl.home.paths import Paths
from spotctl.log.events import Planned
from spotctl.log.jobs import (
    JobLock,
    WaitingJob,
    add_waiting,
    is_running,
    is_waiting,
    remove_waiting,
)
from spotctl.log.outcomes import WITHDRAWN
from spotctl.log.queue import JobJoined
from spotctl.log.store import EventLog
from spotctl.planning.values import JobPlan
from spotctl.run.following import RunEnd, RunObserver
from spotctl.run.start import runs
from spotctl.run.start.admission import check_launchable
from spotctl.run.start.live_markets import begin_market
from spotctl.run.start.shared_queue import SharedQueue, queue_of

_LOOK_SECONDS = 0.2


@dataclass(slots=True)
class Launched:
    """A job that was launched with others, and the end of its run or the error that prevented the
    run. A job `is_withdrawn` if it was stopped while it waited."""

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
                f"{first.name} and {second.name} both keep their checkpoint at {place}, and would "
                "resume from each other's; give each its own checkpoint.path"
            )

    if len({spec.is_local for spec in specs}) > 1:
        names = ", ".join(spec.name for spec in specs)
        raise BadRequest(
            f"{names}: jobs on the local market and jobs on clouds have different clocks; launch "
            "them separately"
        )


def launch(
    plans: Sequence[JobPlan],
    settings: Settings,
    observer: RunObserver,
    *,
    files: Sequence[Path],
    fresh: bool = False,
    expected: Mapping[str, Planned] = MappingProxyType({}),
) -> list[Launched]:
    """Runs planned jobs, each to its end, even if others fail. Under quotas that are too small for
    all jobs of this home, the rounds of their queue decide who begins. `expected` are the forecasts
    that the user has seen, by job: each is logged as it was.

    This process locks all jobs before any begins, so that no other one launches a job that waits.
    """
    paths = Paths(settings.home)
    held = list[JobLock]()
    specs = [plan.job.spec for plan in plans]
    with ExitStack() as locks:
        for spec in specs:
            held.append(locks.enter_context(JobLock(paths.locks, spec.name)))
            with EventLog(paths.log) as log:
                runs.check_ended(spec.name, log)
        if specs[0].is_local:
            begin_market(specs[0], settings)
        queue = queue_of(specs[0], settings)
        for spec in specs:
            locks.callback(queue.leave, spec.name)
        queue.join([_joined(plan) for plan in plans if plan.share.claim is not None])
        for plan, file in zip(plans, files, strict=True):
            name = plan.job.spec.name
            if plan.share.claim is None or queue.parts(name) is not None:
                continue
            locks.callback(remove_waiting, paths, name)
            ahead = queue.ahead(name)
            begins = plan.share.turn.begin
            add_waiting(
                paths,
                WaitingJob(
                    name, ahead, plan.at if 0 < begins < inf else None, str(file.absolute())
                ),
            )
            observer.on_remark(name, f"waits for {' and '.join(ahead) or 'its turn'}")

        # From here on, each job's thread decides.
        locks.pop_all()

    jobs = [Launched(spec) for spec in specs]
    turns = _Turns(queue, settings, observer, fresh, expected)
    if len(jobs) == 1:
        turns.run(jobs[0], plans[0], held[0])
        return jobs

    # Daemons: a second Ctrl-C ends the process at once, and the leases end what still runs.
    threads = [
        Thread(target=turns.keep_end_of, args=(job, plan, lock), daemon=True)
        for job, plan, lock in zip(jobs, plans, held, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    return jobs


def _joined(plan: JobPlan) -> JobJoined:
    """A planned job as the queue keeps it."""
    program = plan.job.spec.program
    decider = plan.decider
    claim = plan.share.claim
    assert claim is not None
    on_demand = {quota.name: quota.amount for quota in plan.share.on_demand_quotas}
    deadline = (
        None
        if claim.job.deadline is None or plan.job.deadline is None
        else plan.job.deadline / SECOND
    )

    job = replace(claim.job, deadline=deadline)
    row = JobJoined(
        job, claim.quotas, on_demand, usd_per_hour=claim.usd_per_hour, terms=claim.terms
    )
    if isinstance(program, Training):
        return replace(row, clocks=program.stop.clocks, span=program.stop.span)

    lasts = plan.fleet.work / (decider.most_nu * decider.speed)
    return replace(row, lasts=lasts if isfinite(lasts) else None)


def within(plan: JobPlan, parts: Mapping[str, int]) -> JobPlan:
    """The plan with other parts of some quotas, with which its run begins."""
    shares = tuple(
        replace(
            share,
            slice=replace(share.slice, amount=parts.get(share.quota.name, share.slice.amount)),
        )
        for share in plan.share.quotas
    )

    on_demand = tuple(
        replace(quota, amount=parts.get(quota.name, quota.amount))
        for quota in plan.share.on_demand_quotas
    )
    return replace(plan, share=replace(plan.share, quotas=shares, on_demand_quotas=on_demand))


def _begins_with(plan: JobPlan, parts: Mapping[str, int]) -> bool:
    """Whether these parts of the quotas are those with which the plan begins: they hold as many
    machines.
    """
    claim = plan.share.claim
    assert claim is not None or not parts
    each = {quota.name: min(quota.per_machine.values()) for quota in claim.quotas} if claim else {}
    planned = {
        part.quota.name: own.amount
        for part in plan.share.quotas
        for own in part.slices
        if own.job == plan.demand.name
    }

    return all(
        0 <= parts[name] - planned[name] < each[name]
        for name in parts.keys() & planned.keys() & each.keys()
    )


@dataclass(frozen=True, slots=True)
class _Turns:
    """Runs jobs of a launch once it is their turn. `expected`: see `launch`."""

    queue: SharedQueue
    settings: Settings
    observer: RunObserver
    fresh: bool
    expected: Mapping[str, Planned]

    def keep_end_of(self, job: Launched, plan: JobPlan, lock: JobLock) -> None:
        """Runs a job next to others, and keeps how that ended."""
        try:
            self.run(job, plan, lock)
        # One job's failure ends no other; its exit code follows at the end.
        except Exception as error:  # noqa: BLE001
            job.error = error
            self.observer.on_remark(job.spec.name, str(error))

    def run(self, job: Launched, plan: JobPlan, lock: JobLock) -> None:
        """Runs a job, within its parts of the quotas."""
        name = job.spec.name
        with lock:
            try:
                parts = dict[str, int]() if plan.share.claim is None else self.awaited_parts(name)
                job.is_withdrawn = parts is None
                if parts is None:
                    self.observer.on_remark(name, WITHDRAWN)
                    return

                given = within(plan, parts)
                job.ending = runs.launch_locked(
                    job.spec,
                    self.settings,
                    self.observer,
                    fresh=self.fresh,
                    plan=given,
                    expected=self.expected.get(name),
                    is_as_planned=not plan.share.turn.begin and _begins_with(plan, parts),
                )
            finally:
                self.queue.leave(name)

    def awaited_parts(self, name: str) -> Mapping[str, int] | None:
        """Waits for a job's turn, and returns its parts of the quotas; None if it was withdrawn
        before.
        """
        paths = Paths(self.settings.home)
        waits = is_waiting(paths, name)
        while (parts := self.queue.parts(name)) is None:
            if self.observer.is_stopped() or (waits and not is_waiting(paths, name)):
                break
            time.sleep(_LOOK_SECONDS)

        # The last word: `spotctl stop` removes it, too.
        is_left = not waits or remove_waiting(paths, name)
        return parts if is_left and not self.observer.is_stopped() else None


def begin_late(job: WaitingJob, settings: Settings, observer: RunObserver) -> RunEnd | None:
    """Waits for the turn of a job whose launcher was killed, and runs it as a new launch of its
    file. None if it was withdrawn while it waited."""
    paths = Paths(settings.home)
    spec = load(Path(job.file), home=settings.home, to_launch=True)
    if spec.name != job.name:
        raise BadRequest(
            f"{job.file} now describes job {spec.name}, not {job.name}: 'spotctl launch "
            f"{job.file}' launches it, 'spotctl stop {job.name}' forgets the other"
        )

    check_launchable(spec)
    queue = queue_of(spec, settings)
    turns = _Turns(queue, settings, observer, fresh=False, expected={})
    with JobLock(paths.locks, job.name):
        parts: Mapping[str, int] | None = {}
        if queue.has(job.name):
            if queue.parts(job.name) is None:
                ahead = [
                    name
                    if is_running(paths.locks, name)
                    # Its process is gone.
                    else f"{name}, which no process attends to: its machines end with their leases "
                    f"('spotctl resume {name}' continues it, 'spotctl stop {name}' ends it)"
                    for name in queue.ahead(job.name)
                ]
                observer.on_remark(job.name, f"waits for {' and '.join(ahead) or 'its turn'}")
            parts = turns.awaited_parts(job.name)
        elif not remove_waiting(paths, job.name):
            parts = None
        try:
            if parts is not None:
                return runs.launch_locked(spec, settings, observer)
            observer.on_remark(job.name, WITHDRAWN)
            return None
        finally:
            queue.leave(job.name)
