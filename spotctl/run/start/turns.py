"""Turns of jobs that were launched together under quotas that do not hold all of them at the same time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from threading import Condition
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spotctl.planning.allocation import AllocatedJob
    from spotctl.planning.turns import QuotaPart
    from spotctl.planning.values import JobPlan

_LOOK_SECONDS = 0.2


class LaunchTurns:
    """Lets each job begin as soon as quotas have enough for it, in the order of the plan."""

    def __init__(self, jobs: Sequence[AllocatedJob]) -> None:
        self._changed = Condition()
        self._free = Counter({share.quota.name: share.quota.amount for share in jobs[0].quotas})
        self._waiting = sorted(jobs, key=lambda job: job.share.turn.begin)
        self._held = dict[int, Mapping[str, int]]()

    @property
    def waiting(self) -> bool:
        """Whether a job has not begun; until then, the others keep to their parts."""
        with self._changed:
            return bool(self._waiting)

    def begin(
        self, job: AllocatedJob, is_withdrawn: Callable[[], bool], claim: Callable[[], bool]
    ) -> Mapping[str, int] | None:
        """Waits until a job may begin, and returns its parts of the quotas that are too small for all: the planned ones
        as far as they are free. None if the job was withdrawn before; its `claim`, then the last word, is False."""
        with self._changed:
            while not (self._is_next(job) and self._has_enough(job)) and not is_withdrawn():
                self._changed.wait(_LOOK_SECONDS)
            self._waiting = [other for other in self._waiting if other is not job]
            self._changed.notify_all()
            if not claim():
                return None
            held = {name: min(part.amount, self._free[name]) for name, part in _short(job).items()}
            self._held[id(job)] = held
            self._free.subtract(held)
            return held

    def end(self, job: AllocatedJob) -> None:
        """The end of a job that has begun: its parts are free."""
        with self._changed:
            self._free.update(self._held.pop(id(job)))
            self._changed.notify_all()

    def _is_next(self, job: AllocatedJob) -> bool:
        begin = self._waiting[0].share.turn.begin
        return job is self._waiting[0] or job.share.turn.begin == begin == 0

    def _has_enough(self, job: AllocatedJob) -> bool:
        if not self._held:
            return True
        first = not job.share.turn.begin
        return all((part.amount if first else part.least) <= self._free[name] for name, part in _short(job).items())


def within(plan: JobPlan, parts: Mapping[str, int]) -> JobPlan:
    """The plan with other parts of some quotas, with which its run begins."""
    allocated = plan.allocated
    shares = tuple(
        replace(share, part=replace(share.part, amount=parts.get(share.quota.name, share.part.amount)))
        for share in allocated.quotas
    )
    return replace(plan, built=replace(plan.built, allocated=replace(allocated, quotas=shares)))


def _short(job: AllocatedJob) -> dict[str, QuotaPart]:
    """The job's parts of quotas that are too small for all jobs, by quota."""
    return {
        share.quota.name: part
        for share in job.quotas
        if not share.is_enough
        for part in share.parts
        if part.job == job.demand.name
    }
