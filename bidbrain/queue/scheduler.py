"""The next round of a queue: an allocation X by the queue's policy, carried out in whole machines.

X is a mean number of machines by job and type. Machines are handed out one by one by the priorities
of Algorithm 2 (section 5.5), X over the time received: with the debts of earlier rounds that is the
order in which jobs lag behind their shares. What a job holds already counts as owed `_SWAP_PAYS`
times its swap, so that at most about one part in that many of a queue's time is lost to swaps.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from heapq import heapify, heappop, heappush

import numpy as np

from bidbrain.gavel import POLICIES
from bidbrain.gavel.linear import BudgetTooLow
from bidbrain.gavel.policies import policy_named
from bidbrain.gavel.problem import (
    AllocationProblem,
    Cluster,
    ClusterAllocation,
    ClusterJobs,
    Entity,
)
from bidbrain.queue.order import MachinesHeld, as_foreseen, default_shares, length_of, must_go_first
from bidbrain.queue.values import (
    MEAN_COMPLETION,
    BadQueue,
    FreeQuota,
    JobQueue,
    MeanMachines,
    QueueJob,
    QueueRound,
    QueueUser,
)

_BUDGETED = "makespan-within-budget"
_FRUGAL = frozenset({"min-cost", "min-cost-slo", _BUDGETED})
"""They leave machines idle on purpose."""
_OF_EACH_ROUND = frozenset({"min-cost-slo"})
"""They have another X as deadlines come closer; that of the others is new if a job comes, ends or
changes."""

_SWAP_PAYS = 10
_MAX_DEBT_ROUNDS = 20
_WHOLE = 1e-6
# So that rounding does not make the least cost of the jobs insufficient.
_MIN_COST_MARGIN = 1 + 1e-6


def next_round(queue: JobQueue, previous: QueueRound | None = None) -> QueueRound:
    """The round that begins now. Pure; `previous` is the queue's last round, whose debts are
    carried on.
    """
    terms = queue.terms
    kept = _kept(queue)
    fixed: MachinesHeld = {job.name: dict(job.held) for job in queue.jobs if job.name in kept}
    by_arrival = sorted(queue.jobs, key=lambda job: (job.arrival, job.name))
    order = tuple(job.name for job in by_arrival)
    remarks: tuple[str, ...] = ()

    if not queue.jobs:
        shares: MeanMachines = {}
    elif terms.policy == MEAN_COMPLETION:
        shares, order = default_shares(queue, previous, fixed)
    elif (
        previous is not None
        and terms == previous.queue.terms
        and len(queue.jobs) == len(previous.queue.jobs)
        and terms.policy not in _OF_EACH_ROUND
        and as_foreseen(queue, queue.jobs, previous)
    ):
        # X of the last round is that of this one.
        shares = previous.shares
        remarks = previous.remarks
    else:
        shares, remarks = published_shares(queue)

    owed = _owed(queue, previous, shares)
    machines = _handed_out(queue, shares, owed, fixed, order)
    return QueueRound(queue, shares, owed, machines, order, kept, remarks)


def _kept(queue: JobQueue) -> dict[str, str]:
    """Jobs whose machines are not worth taking in this round, and why."""
    kept = {}
    for job in queue.jobs:
        if not job.holds():
            continue

        length = length_of(job, queue)
        speed = job.speed(job.held)
        seconds = length / max(speed, 1e-300)
        if not job.interruptible:
            kept[job.name] = "would lose its work"
        elif job.work is not None and seconds <= job.swap_seconds:
            kept[job.name] = f"ends in {seconds:.0f} s, less than a swap"
        elif queue.now - job.since < queue.terms.round_seconds:
            kept[job.name] = "began less than a round ago"
        elif job.paid_until - queue.now >= queue.terms.round_seconds:
            kept[job.name] = f"paid for another {job.paid_until - queue.now:.0f} s"

    return kept


def _owed(
    queue: JobQueue, previous: QueueRound | None, shares: MeanMachines
) -> dict[str, dict[str, float]]:
    """The machine-seconds by which jobs lag behind their shares, where these are not whole numbers
    of machines.
    """
    owed = dict[str, dict[str, float]]()
    known = {} if previous is None else {old.name: old for old in previous.queue.jobs}
    for job in queue.jobs:
        for kind, share in shares.get(job.name, {}).items():
            debt = 0.0
            part = share / (job.least if job.gang else 1)
            before = known.get(job.name)
            # A job that was not in the last round has no debts, whatever one of its name had.
            if previous is not None and before is not None and abs(part - round(part)) > _WHOLE:
                debt = previous.owed.get(job.name, {}).get(kind, 0.0)
                got = job.received.get(kind, 0.0) - before.received.get(kind, 0.0)
                seconds = queue.now - previous.queue.now
                due_share = previous.shares.get(job.name, {}).get(kind, 0.0)
                debt += due_share * seconds - got
                most_shares = _MAX_DEBT_ROUNDS * queue.terms.round_seconds * job.most
                swap_worth = _SWAP_PAYS * job.swap_seconds
                most = most_shares + swap_worth
                debt = min(max(debt, -most), most)

            owed.setdefault(job.name, {})[kind] = debt

    return owed


def _handed_out(
    queue: JobQueue,
    shares: MeanMachines,
    owed: MeanMachines,
    fixed: MachinesHeld,
    order: Iterable[str],
) -> dict[str, dict[str, int]]:
    """Whole machines by job and type."""
    deal = _Deal(queue, owed)
    for job in sorted(queue.jobs, key=lambda job: (job.since, job.name)):
        if job.name in fixed:
            for kind, count in job.held.items():
                free = deal.free.machines(kind)
                deal.gives(job, kind, min(count, free))

    frugal = queue.terms.policy in _FRUGAL
    deal.by_priority(shares, only_owed=frugal)
    if not frugal:
        named = {job.name: job for job in queue.jobs}
        jobs = [named[name] for name in order]
        first = must_go_first(queue)
        others = (job for job in jobs if job not in first)
        in_order = [*first, *others]
        deal.what_is_left(in_order)

    return {
        name: given
        for name, kinds in deal.given.items()
        if (given := {k: n for k, n in kinds.items() if n})
    }


class _Deal:
    """Machines given so far."""

    def __init__(self, queue: JobQueue, owed: MeanMachines) -> None:
        self._queue = queue
        self._owed = owed
        self.free = FreeQuota(queue)
        self.given: dict[str, dict[str, int]] = {job.name: {} for job in queue.jobs}

    def gives(self, job: QueueJob, kind: str, count: int) -> None:
        if count > 0:
            self.free.take(kind, count)
            own = self.given[job.name]
            before = own.get(kind, 0)
            self.given[job.name][kind] = before + count

    def by_priority(self, shares: MeanMachines, *, only_owed: bool) -> None:
        """One machine after the other to the job that lags most behind its share; jobs begin with
        their least.
        """
        claims = list[tuple[float, int, str]]()
        jobs = self._queue.jobs
        for number, job in enumerate(jobs):
            claims += [
                (-self._lag(job, kind, share, self._step(job)), number, kind)
                for kind, share in sorted(shares.get(job.name, {}).items())
                if share > 0 and job.rates.get(kind, 0.0) > 0
            ]

        heapify(claims)
        while claims:
            late, number, kind = heappop(claims)
            job = jobs[number]
            step = self._step(jobs[number])
            share = shares[job.name][kind]
            current = -self._lag(job, kind, share, step)
            if current > late + 1e-9:
                heappush(claims, (current, number, kind))
                continue

            if only_owed and late >= -1e-9:
                return
            if self._begins_or_grows(job, kind, step, shares):
                heappush(claims, (-self._lag(job, kind, share, self._step(job)), number, kind))

    def what_is_left(self, jobs: Iterable[QueueJob]) -> None:
        """Free machines: first to those that hold them, then to jobs in their order, on their
        fastest types.
        """
        jobs = list(jobs)
        for job in jobs:
            for kind, count in job.held.items():
                have = self.given[job.name].get(kind, 0)
                own = self.given[job.name]
                used = sum(own.values())
                room = job.most - used
                wanted = min(count - have, room, self.free.machines(kind))
                if (
                    wanted > 0
                    and (have or wanted >= job.least)
                    and job.joins(kind, self.given[job.name])
                ):
                    self.gives(job, kind, wanted)

        for job in jobs:
            kinds = sorted(job.rates, key=lambda kind: (-job.rates[kind], kind))
            for kind in kinds:
                while job.rates[kind] > 0 and self._begins_or_grows(
                    job, kind, self._step(job), {job.name: job.rates}
                ):
                    pass

    def _step(self, job: QueueJob) -> int:
        if self.given[job.name]:
            return 1
        return job.least

    def _begins_or_grows(
        self, job: QueueJob, kind: str, step: int, shares: Mapping[str, Mapping[str, float]]
    ) -> bool:
        """Gives the next machines of a job, on this type first; False if they do not fit."""
        own = self.given[job.name]
        held_now = sum(own.values())
        held_then = held_now + step
        full = held_then > job.most or job.is_complete()
        if full or not job.joins(kind, self.given[job.name]):
            return False

        here = min(step, self.free.machines(kind))
        if here == step or (here and not job.gang):
            others = sorted(shares[job.name], key=lambda other: (-shares[job.name][other], other))
            parts = [(kind, here)]
            lacking = step - here
            self.gives(job, kind, here)

            for other in others if lacking else ():
                works = (
                    other != kind
                    and job.rates.get(other)
                    and job.joins(other, self.given[job.name])
                )
                count = 0
                if works:
                    count = min(lacking, self.free.machines(other))
                self.gives(job, other, count)
                parts.append((other, count))
                lacking -= count

            if not lacking:
                return True

            for other, count in parts:
                self.free.take(other, -count)
                self.given[job.name].pop(other, None)

        return False

    def _lag(self, job: QueueJob, kind: str, share: float, step: int) -> float:
        """Seconds by which the job lags behind its share halfway through the next step of
        machines."""
        have = self.given[job.name].get(kind, 0)
        length = self._queue.terms.round_seconds
        own_debts = self._owed[job.name]
        lacking = share - have - step / 2
        growth = lacking * length
        owed = own_debts[kind] + growth
        held_before = job.held.get(kind, 0)
        if have + step <= held_before and have < share - _WHOLE:
            owed += _SWAP_PAYS * job.swap_seconds * step
        return owed / share


def published_shares(queue: JobQueue) -> tuple[MeanMachines, tuple[str, ...]]:
    """Mean machines by job and type under a published policy, and what it could not keep.

    Types that share a quota are one type of workers, on which each job uses the type of the most
    work (per dollar where prices count). A job holds `most` workers while it runs, and less of the
    time where it should have fewer.
    """
    if queue.terms.policy not in POLICIES:
        raise BadQueue(
            f"policy {queue.terms.policy!r} is not one of a queue (known: "
            f"{', '.join((MEAN_COMPLETION, *POLICIES))})"
        )

    # The types, those that share a quota together.
    joined_pools = list[set[str]]()
    for quota in queue.quotas:
        joined = {kind for kind, use in quota.per_machine.items() if use > 0}
        apart = [pool for pool in joined_pools if not pool & joined]
        for pool in joined_pools:
            joined |= pool if pool & joined else set()
        joined_pools = [*apart, joined] if joined else apart
    pools = sorted(sorted(kind for kind in pool if queue.machines(kind)) for pool in joined_pools)

    prices = queue.usd_per_hour if queue.terms.policy in _FRUGAL else {}
    jobs = [job for job in queue.jobs if any(_type_in(pool, job, prices) for pool in pools)]
    if not jobs:
        return {}, ()

    chosen = [[_type_in(pool, job, prices) for pool in pools] for job in jobs]
    problem = _problem(queue, jobs, chosen, pools)
    allocation, low = _allocated(queue.terms.policy, problem)
    scales = problem.jobs.scale.tolist()
    rows = zip(jobs, chosen, allocation.shares, scales, strict=True)
    shares = {
        job.name: {
            kind: float(share * scale)
            for kind, share in zip(kinds, row, strict=True)
            if kind is not None and share * scale > _WHOLE
        }
        for job, kinds, row, scale in rows
    }

    return shares, (*low, *allocation.infeasible)


def _allocated(
    policy: str, problem: AllocationProblem
) -> tuple[ClusterAllocation, tuple[str, ...]]:
    """The policy's answer; a budget that is too low is raised to the least that all work costs, and
    said to be, and without one the policy is `makespan`."""
    if policy == _BUDGETED and problem.budget_usd is None:
        return policy_named("makespan")(problem), ("no budget: not every job has one",)
    try:
        return policy_named(policy)(problem), ()
    except BudgetTooLow as error:
        raised = replace(problem, budget_usd=error.least_usd * _MIN_COST_MARGIN)
        return policy_named(policy)(raised), (str(error),)


def _type_in(pool: Iterable[str], job: QueueJob, prices: Mapping[str, float]) -> str | None:
    """The job's type among those of a pool."""
    usable = [kind for kind in pool if job.rates.get(kind, 0.0) > 0]
    return max(usable, key=lambda kind: job.rates[kind] / prices.get(kind, 1.0), default=None)


def _problem(
    queue: JobQueue, jobs: list[QueueJob], chosen: list[list[str | None]], pools: list[list[str]]
) -> AllocationProblem:
    counts = [max((queue.machines(kind) for kind in pool), default=0) for pool in pools]
    workers = np.array(counts, dtype=np.float64)
    price = None

    if queue.terms.policy in _FRUGAL:
        missing = [
            kind for kinds in chosen for kind in kinds if kind and not queue.usd_per_hour.get(kind)
        ]
        if missing:
            raise BadQueue(
                f"usd_per_hour: no price of {missing[0]!r}: policy {queue.terms.policy} needs that "
                "of every type"
            )
        usd = [
            min((queue.usd_per_hour[k] for k in pool if k in queue.usd_per_hour), default=1.0)
            for pool in pools
        ]
        price = np.array(usd)

    least = np.array([job.least for job in jobs])
    rows = []
    for job, kinds in zip(jobs, chosen, strict=True):
        rates_of_job = [job.rates[kind] if kind else 0.0 for kind in kinds]
        rows.append(rates_of_job)
    rates = np.array(rows)

    # No job holds more than its types have.
    usable = np.where(rates > 0, workers, 0)
    there = usable.sum(axis=1)
    most = np.minimum([job.most for job in jobs], there)
    scale = np.maximum(most, least)

    # A job with a fixed time takes it on however many machines.
    timed = [[job.timed] for job in jobs]
    column = scale[:, None]
    scaled = rates * column
    per_hour = np.where(timed, rates > 0, scaled)
    throughputs = per_hour / 3600

    arrival = np.array([job.arrival for job in jobs])
    due = [np.inf if job.deadline is None else job.deadline for job in jobs]
    deadline = np.array(due)
    entities = []
    for name in sorted({job.user for job in jobs}):
        user = queue.terms.users.get(name, QueueUser())
        entities.append(Entity(name, user.weight, user.policy))

    names = tuple(job.name for job in jobs)
    weights = np.array([job.weight for job in jobs])
    lengths = np.array([length_of(job, queue) for job in jobs])
    elapsed = queue.now - arrival
    users = tuple(job.user for job in jobs)
    columns = ClusterJobs(
        ids=names,
        throughputs=throughputs,
        scale=scale.astype(np.int64),
        weight=weights,
        steps=lengths,
        elapsed_seconds=elapsed,
        slo_seconds=deadline - arrival,
        arrival=arrival,
        entity=users,
        least=least,
    )

    names_of_pools = tuple("+".join(pool) for pool in pools)
    cluster = Cluster(names_of_pools, workers, price)
    budget = queue.budget_usd
    if budget is None and all(job.budget_usd is not None for job in jobs):
        budgets = (job.budget_usd for job in jobs if job.budget_usd is not None)
        budget = sum(budgets)

    return AllocationProblem(cluster, columns, None, tuple(entities), budget)
