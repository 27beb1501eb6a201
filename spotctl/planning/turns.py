"""Whole machines for jobs under quotas that are too small for all of them, and turns where they cannot all run. Pure.

Jobs with a deadline go first, the earliest deadline first, then the others as they are named. Jobs that the quotas hold
at the same time begin together and share them fairly (`whole_machines`); the others begin, in the same way, as soon as
the end of another job leaves enough for them. A job keeps its part until it ends. If a job would so begin too late,
other orders are tried.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, permutations
from math import inf

import numpy as np

from bidbrain.decision.mixture_solver import SharedQuota
from bidbrain.decision.whole_machines import MachineClaim, fairest, possible
from bidbrain.gavel.arrays import FloatArray
from pricing_data.units import HOUR
from spotctl.planning.errors import NotInTime
from spotctl.planning.job import Demand, places
from spotctl.planning.offers import MachineKind
from spotctl.planning.quota_use import QuotaGroup

_MOST_ORDERS = 12
"""All that three jobs with deadlines could have: each order takes several integer programs."""


@dataclass(frozen=True, slots=True)
class Turn:
    """When a job begins and ends, in hours from the launch, and the machines of each kind that its part is for.

    A job that follows one of unknown length begins at infinity.
    """

    begin: float
    end: float
    machines: tuple[int, ...] = ()

    @property
    def delay(self) -> int:
        """The known time until the job begins, in microseconds."""
        return round(self.begin * HOUR) if self.begin < inf else 0


@dataclass(frozen=True, slots=True)
class QuotaPart:
    """A job's part of a quota, the least with which it can begin, and the job's turn."""

    job: str
    amount: int
    turn: Turn
    least: int = 0


def turns_of(
    jobs: Sequence[Demand],
    kinds: Sequence[MachineKind],
    usd_per_hour: FloatArray,
    groups: Sequence[QuotaGroup],
    *,
    startup_hours: float,
    by_price: bool,
) -> list[Turn]:
    """The turn of each job. `by_price` says that machines are worth the work that they do per dollar, not per hour.

    Raises NotInTime if a job would begin too late for its deadline, in whichever order they begin.
    """
    refusals = list[NotInTime]()
    for order, overtakes in islice(_orders(jobs), _MOST_ORDERS):
        try:
            turns = _turns_in(
                order,
                lambda m, at: _claim(jobs[m], at, kinds, usd_per_hour, by_price=by_price),
                lambda m, held: jobs[m].lasts_hours or startup_hours + _hours(jobs[m], held),
                groups,
                overtakes=overtakes,
            )
        except _TooLate as late:
            refusals.append(_not_in_time(jobs[late.job], late.at, groups))
        else:
            return [turns[m] for m in range(len(jobs))]
    raise refusals[0]


class _TooLate(Exception):
    """From this moment on, no machines keep the limits of a job, even if no other job runs."""

    def __init__(self, job: int, at: float) -> None:
        super().__init__(job, at)
        self.job, self.at = job, at


def _orders(jobs: Sequence[Demand]) -> Iterator[tuple[list[int], bool]]:
    """The orders to try, and whether a job that fits overtakes one that does not.

    The earliest deadlines go first; then, the jobs that must begin first; then, one job is moved behind the others.
    """
    hurried = sorted((m for m, job in enumerate(jobs) if job.hurries), key=lambda m: jobs[m].hours_left)
    others = [m for m, job in enumerate(jobs) if not job.hurries]
    urgent = sorted(hurried, key=lambda m: jobs[m].hours_left - _least_hours(jobs[m]))
    moved = ((*hurried[:i], *hurried[i + 1 :], m) for i, m in enumerate(hurried))
    every = islice(permutations(hurried), _MOST_ORDERS)
    for order in dict.fromkeys(chain([tuple(hurried), tuple(urgent)], moved, every)):
        yield [*order, *others], True
        if hurried:
            yield [*order, *others], False


def _least_hours(job: Demand) -> float:
    """How long a job takes at least, apart from quotas."""
    return job.lasts_hours or job.amount / (job.most * float(job.nu.max()))


def _turns_in(
    order: Sequence[int],
    claim: Callable[[int, float], MachineClaim],
    lasts: Callable[[int, FloatArray], float],
    groups: Sequence[QuotaGroup],
    *,
    overtakes: bool,
) -> dict[int, Turn]:
    """The turns by job, if the jobs begin in some order."""
    turns: dict[int, Turn] = {}
    running: dict[int, Turn] = {}
    waiting, at = list(order), 0.0
    while waiting:
        free = _free(groups, running)
        claims = {m: claim(m, at) for m in waiting}
        if begun := _beginning(claims, free, overtakes=overtakes):
            machines = fairest([claims[m] for m in begun], free)
            assert machines is not None, "the quotas hold them"
            for m, held in zip(begun, machines, strict=True):
                running[m] = turns[m] = Turn(at, at + lasts(m, held), tuple(held.tolist()))
            waiting = [m for m in waiting if m not in begun]
        if waiting and not running:
            raise _TooLate(waiting[0], at)
        if waiting:
            at = min(turn.end for turn in running.values())
            ended = [m for m in running if running[m].end == at]
            # Which of several jobs of unknown length ends first is not known.
            for m in ended if at < inf else ended[:1]:
                del running[m]
    return turns


def _beginning(claims: dict[int, MachineClaim], free: Sequence[SharedQuota], *, overtakes: bool) -> list[int]:
    """The jobs that begin at the same time, in the order in which they are named."""
    begun: list[int] = []
    for m in claims:
        if possible([claims[other] for other in (*begun, m)], free):
            begun.append(m)
        elif not overtakes:
            break
    return sorted(begun)


def _free(groups: Sequence[QuotaGroup], running: dict[int, Turn]) -> list[SharedQuota]:
    """The quotas without what running jobs hold."""
    held = [sum(float(group.per_machine @ turn.machines) for turn in running.values()) for group in groups]
    return [
        SharedQuota(tuple(group.per_machine.tolist()), group.most - used)
        for group, used in zip(groups, held, strict=True)
    ]


def _claim(
    job: Demand, at: float, kinds: Sequence[MachineKind], usd_per_hour: FloatArray, *, by_price: bool
) -> MachineClaim:
    usable = np.flatnonzero(job.nu > 0)
    value = job.nu / np.maximum(usd_per_hour, 1e-9) if by_price and np.isfinite(usd_per_hour[usable]).any() else job.nu
    groups = [(j,) for j in usable.tolist()] if job.gang else [tuple(place.tolist()) for place in places(kinds)]
    needs = []
    if job.hurries:
        # The machines do all the work in the time that is left; none can if it is over.
        needs.append((tuple((job.nu * max(job.hours_left - at, 0.0) / max(job.amount, 1e-9)).tolist()), 1.0))
    if job.limited_by_budget:
        dollars = usd_per_hour * job.amount
        spare = np.where(job.nu > 0, job.nu - dollars / max(job.budget_usd or 0.0, 1e-9), 0.0)
        needs.append((tuple(np.maximum(spare / job.nu.max(), -1e6).tolist()), 0.0))
    least = max(job.least, 1)
    return MachineClaim(tuple((value / value.max()).tolist()), least, max(job.most, least), tuple(groups), tuple(needs))


def _hours(job: Demand, held: FloatArray) -> float:
    """How long the work takes on some machines; infinite if its length is unknown."""
    rate = float(job.nu @ held)
    if job.work.assumed or rate <= 0:
        return inf
    return job.work.longest if job.work.timed else min(job.amount / rate, job.work.longest)


def _not_in_time(job: Demand, at: float, groups: Sequence[QuotaGroup]) -> NotInTime:
    used = [group for group in groups if group.per_machine[job.nu > 0].any()]
    quotas = ", ".join(str(replace(group.quota, amount=int(group.most))) for group in used)
    if not at:
        return NotInTime(
            f"{job.name}: no machines within the quotas ({quotas}) keep its budget and its deadline; raise one of them"
        )
    until = f"until {at:.2g} hours from now" if at < inf else "for an unknown time"
    return NotInTime(
        f"{job.name}: other jobs use the quotas ({quotas}) {until}, too long for its deadline"
        f" {job.hours_left:.2g} hours after start-up; raise a quota, or allow more time"
    )
