"""Turns of jobs that were launched together under quotas that do not hold all of them at the same time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from threading import Condition
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spotctl.planning.values import JobPlan


class LaunchTurns:
    """Lets each job begin when the ends of others leave its part of the quotas, in the order of the plan."""

    def __init__(self, plans: Sequence[JobPlan]) -> None:
        self._changed = Condition()
        self._free: Counter[str] = Counter()
        for share in plans[0].allocated.quotas:
            self._free[share.quota.name] = share.quota.amount
        self._waiting = sorted(plans, key=lambda plan: plan.allocated.share.turn.begin)
        self._stopped = False

    @property
    def waiting(self) -> bool:
        """Whether a job has not begun; until then, the others keep to their parts."""
        with self._changed:
            return bool(self._waiting)

    def begins(self, plan: JobPlan) -> bool:
        """Waits until a job may begin; False if the jobs before it were stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or (self._is_next(plan) and self._fits(plan)))
            self._waiting = [other for other in self._waiting if other is not plan]
            self._changed.notify_all()
            if not self._stopped:
                self._free.subtract(_parts(plan))
            return not self._stopped

    def end(self, plan: JobPlan, *, stopped: bool) -> None:
        """The end of a job that has begun; if it was `stopped`, no other begins."""
        with self._changed:
            self._free.update(_parts(plan))
            self._stopped = self._stopped or stopped
            self._changed.notify_all()

    def _is_next(self, plan: JobPlan) -> bool:
        begin = self._waiting[0].allocated.share.turn.begin
        return plan is self._waiting[0] or plan.allocated.share.turn.begin == begin == 0

    def _fits(self, plan: JobPlan) -> bool:
        return all(amount <= self._free[name] for name, amount in _parts(plan).items())


def _parts(plan: JobPlan) -> dict[str, int]:
    """The parts of quotas that are too small for all jobs."""
    return {share.quota.name: share.part.amount for share in plan.allocated.quotas if not share.is_enough}
