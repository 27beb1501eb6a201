"""The claims of jobs, and the quotas that they share, as `bidbrain.queue.scheduler` reads them:
plain values. Pure.
"""

from collections.abc import Sequence
from math import inf

import numpy as np

from bidbrain.arrays import Bools, Floats
from bidbrain.decision.mixture_strategy import Aim
from bidbrain.queue.values import QueueJob, QueueQuota
from pricing_data.units import SECOND
from spotctl.planning.facts import SAVE_TIME
from spotctl.planning.offers import MachineKind, places
from spotctl.planning.quotas import QuotaGroup
from spotctl.planning.values import Demand, Turn

_UNLIMITED = 1e6
"""More machines than all jobs of a home could use."""
_MAX_PRICE_RATIO = 1.25
"""Highest price per unit of work at which a job that is to be cheap runs rather than waits, as a
multiple of its lowest."""
_HASTE = 0.9
"""The share of the time left in which such a job would do its work with the machines that it claims
for a deadline."""


def queue_quotas(
    kinds: Sequence[MachineKind], groups: Sequence[QuotaGroup]
) -> tuple[QueueQuota, ...]:
    """The quotas of a queue. A kind without a quota gets one that is never short."""
    quotas = []
    for group in groups:
        pairs = zip(kinds, group.per_machine, strict=True)
        uses = {str(kind): float(use) for kind, use in pairs if use > 0}
        quotas.append(QueueQuota(group.quota.name, group.most, uses))

    limited = {kind for quota in quotas for kind in quota.per_machine}
    free = (name for kind in kinds if (name := str(kind)) not in limited)
    unlimited = (QueueQuota(f"{name}, unlimited", _UNLIMITED, {name: 1.0}) for name in free)
    return (*quotas, *unlimited)


def queue_job(
    demand: Demand,
    kinds: Sequence[MachineKind],
    usd_per_hour: Floats,
    groups: Sequence[QuotaGroup],
    *,
    arrival: float,
    now: float,
    startup_hours: float,
) -> QueueJob:
    """A waiting job of a queue; times are seconds on the queue's clock, and the job's time left
    counts from `now`.

    A job that is to be cheap waits for kinds of about its lowest price of work, unless its deadline
    needs others, and claims no more machines than a deadline takes.
    """
    usable = _worth_waiting_for(demand, usd_per_hour, groups)
    room = _room(demand, groups)
    usable_room = np.where(usable, room, 0.0)
    if not _can_begin(demand, kinds, usable_room):
        usable = demand.nu > 0

    # Hours of a job that ends after a fixed time are no work.
    unit = 1.0
    if demand.work.timed:
        unit = float(demand.nu.max())
    amount = demand.work.longest if demand.work.timed else demand.amount
    least = max(demand.least, 1)
    usable_kinds = np.flatnonzero(usable)
    rates = {}
    for j in usable_kinds.tolist():
        nu = float(demand.nu[j])
        rates[str(kinds[j])] = nu / unit
    work = None
    if not demand.work.assumed:
        work = amount * demand.pace

    # A job that only has to be in time claims no more machines than that takes.
    needed = demand.most
    if demand.hurries and demand.aim is Aim.LEAST_COST:
        in_time = _needed(demand)
        possible = in_time[usable & (in_time <= room)]
        needed = int(possible.max(initial=0)) or demand.most

    deadline = None
    if demand.hurries:
        deadline = now + (demand.hours_left + startup_hours) * 3600
    swap = _swap_seconds(demand, startup_hours)
    interruptible = demand.saves or not demand.gang
    return QueueJob(
        demand.name,
        rates,
        arrival,
        arrival,
        work=work,
        least=least,
        most=max(needed, least),
        gang=demand.gang,
        deadline=deadline,
        swap_seconds=swap,
        timed=demand.work.timed,
        interruptible=interruptible,
        user=demand.user,
        weight=demand.weight,
        budget_usd=demand.budget_usd,
    )


def pace_of(demand: Demand, turn: Turn, hours: float, startup_hours: float) -> float:
    """The pace of a job that is forecast to take some hours in its turn."""
    startup = _swap_seconds(demand, startup_hours) / 3600
    planned = turn.end - turn.begin - startup
    if 0 < planned < inf:
        return max(hours - startup, 0.0) / planned or 1.0
    return 1.0


def _swap_seconds(demand: Demand, startup_hours: float) -> float:
    """The time that a start takes, with the checkpoint before it."""
    startup = startup_hours * 3600 if demand.startup is None else demand.startup / SECOND
    return startup + (
        (SAVE_TIME if demand.save_time is None else demand.save_time) / SECOND
        if demand.saves
        else 0.0
    )


def _worth_waiting_for(demand: Demand, usd_per_hour: Floats, groups: Sequence[QuotaGroup]) -> Bools:
    """The kinds on which a job is to run, whichever others are free."""
    usable: Bools = demand.nu > 0
    price = np.full(len(usable), np.inf)
    np.divide(usd_per_hour, demand.nu, out=price, where=usable)
    if not np.isfinite(price).any():
        return usable
    if demand.aim is Aim.SHORTEST_TIME and demand.budget_usd is not None and not demand.work.timed:
        amount = max(demand.amount, 1e-9)
        affordable = demand.budget_usd / amount * (1 + 1e-6)
        most_usd = max(affordable, float(price.min()))
        return usable & (price <= most_usd)
    if demand.aim is not Aim.LEAST_COST:
        return usable

    highest = _MAX_PRICE_RATIO * float(price.min())
    if demand.hurries:
        in_time = usable & (_needed(demand) <= _room(demand, groups))
        lowest = float(price[in_time].min()) if in_time.any() else np.inf
        highest = max(highest, lowest)

    return usable & (price <= highest)


def _can_begin(demand: Demand, kinds: Sequence[MachineKind], room: Floats) -> bool:
    """Whether these free machines are enough for a job, all in one region, to begin."""
    together = (
        [[j] for j in range(len(kinds))]
        if demand.gang
        else [place.tolist() for place in places(kinds)]
    )
    return any(room[each].sum() >= demand.least for each in together)


def _room(demand: Demand, groups: Sequence[QuotaGroup]) -> Floats:
    """The most machines of each kind that a job could have."""
    room: Floats = np.full(len(demand.nu), float(demand.most))
    for group in groups:
        room = np.minimum(room, group.machines(np.inf))
    return room


def _needed(demand: Demand) -> Floats:
    """The machines of each kind that do a job's work somewhat before its deadline."""
    if demand.work.timed:
        return np.where(demand.nu > 0, float(demand.most), np.inf)
    rate = demand.amount / max(demand.hours_left * _HASTE, 1e-9)
    speed = np.maximum(demand.nu, 1e-9)
    machines = rate / speed
    needed: Floats = np.where(demand.nu > 0, np.ceil(machines), np.inf)
    return needed
