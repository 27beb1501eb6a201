"""A policy, what all of them need to build an allocation, and policies to compare with: `isolated`,
`proportional`, `random-packing`, any policy that assumes that all workers are alike, and
`allox`, the least average completion time of single-worker jobs as a matching of jobs to queue
positions."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from bidbrain.arrays import Floats, Ints
from bidbrain.errors import BidBrainError
from bidbrain.gavel.problem import (
    NO_TYPE,
    AllocationProblem,
    BadProblem,
    Cluster,
    ClusterAllocation,
    ClusterJobs,
    Pairs,
    Pieces,
    effective_throughput,
    equal_throughput,
    nowhere,
    performing,
    rows_of,
    runnable,
    runnable_pairs,
    scale_of_rows,
)

Policy = Callable[[AllocationProblem], ClusterAllocation]
"""A way of dividing a cluster among jobs: the best shares of time under it, and the constraints
that could not be kept."""


class UnknownPolicy(BidBrainError):
    """No policy has this name."""


def allocation(
    problem: AllocationProblem,
    shares: Floats,
    objective: float,
    infeasible: tuple[str, ...] = (),
    notes: dict[str, float] | None = None,
) -> ClusterAllocation:
    """Builds an allocation from shares; names jobs that run nowhere."""
    all_run = runnable(problem).any(axis=1).all()
    stuck = () if all_run else nowhere(problem)
    throughput_of_jobs = effective_throughput(problem, shares)
    return ClusterAllocation(
        shares, throughput_of_jobs, objective, (*stuck, *infeasible), notes=notes or {}
    )


def with_least_throughput(problem: AllocationProblem, shares: Floats) -> ClusterAllocation:
    """Builds an allocation whose objective is the least weighted normalized throughput, as in
    max-min fairness.
    """
    equal = problem.jobs.weight * equal_throughput(problem)
    runs = equal > 0
    throughput = effective_throughput(problem, shares)
    relative = throughput[runs]
    level = relative / equal[runs] * problem.jobs.scale[runs]
    least_level = 0.0
    if runs.any():
        least_level = float(level.min())
    return allocation(problem, shares, least_level)


def require_steps(problem: AllocationProblem, policy: str) -> None:
    """Refuses a problem in which any job's remaining steps are unknown."""
    unknown = np.flatnonzero(~np.isfinite(problem.jobs.steps))
    if len(unknown):
        name = problem.jobs.ids[unknown[0]]
        raise BadProblem(
            f"job {name!r}: steps: missing: {policy} needs the remaining steps of every job"
        )


def require_prices(problem: AllocationProblem, policy: str) -> Floats:
    """The prices of all types; refuses missing ones."""
    price = problem.cluster.usd_per_hour
    if price is None:
        raise BadProblem(f"prices: missing: {policy} needs the price of every worker type")

    free = np.flatnonzero(~(price > 0))
    if len(free):
        name = problem.cluster.types[free[0]]
        raise BadProblem(
            f"prices.{name}: {price[free[0]]:g} is not a price: {policy} needs prices above 0"
        )

    return price


def usd_per_hour(problem: AllocationProblem, shares: Floats) -> float | None:
    """Cost per hour of the workers held under X; None without prices."""
    if problem.cluster.usd_per_hour is None:
        return None
    workers = scale_of_rows(problem)[:, None] * shares
    held = workers.sum(axis=0)
    used = held > 0
    dollars = np.dot(held[used], problem.cluster.usd_per_hour[used])
    return float(dollars)


_ROUNDS = 64


def isolated_policy(problem: AllocationProblem, /) -> ClusterAllocation:
    """`isolated`: every job has 1/n of each type to itself; unused time stays unused (section
    5.4.1).

    The objective is the least normalized throughput, as in max-min fairness.
    """
    return _of_jobs(problem, isolated_shares(problem))


def proportional_policy(problem: AllocationProblem, /) -> ClusterAllocation:
    """`proportional`: each job's time is spread over the types like the workers; worker-time is
    shared by weight.

    The objective is the least normalized throughput, as in max-min fairness.
    """
    workers = problem.cluster.workers
    jobs = problem.jobs
    total = workers.sum()
    if not total > 0:
        return _of_jobs(problem, np.zeros(jobs.throughputs.shape))
    rate = jobs.weight / jobs.scale
    scale = jobs.scale.astype(np.float64)

    # A job's time is min(1, level rate) for the level at which all workers are held, or all jobs
    # run all the time. Jobs with the highest rates are full first: the workers they hold, and what
    # the rest take per unit of level.
    order = np.argsort(-rate, kind="stable")
    before = np.cumsum(scale[order])[:-1]
    full = np.concatenate([[0.0], before])
    from_last = (scale * rate)[order][::-1]
    rest = np.cumsum(from_last)[::-1]
    level = (total - full) / rest
    enough = np.flatnonzero(level * rate[order] <= 1.0)
    reached = level[enough[0]] if len(enough) else np.inf
    time = np.minimum(1.0, reached * rate)

    by_type = time[:, None] * (workers / total)
    return _of_jobs(problem, by_type * runnable(problem))


def isolated_shares(problem: AllocationProblem) -> Floats:
    """X_isolated of the jobs: 1/n of each type's workers, divided by the workers that a job holds
    at once.

    As published, a job's time is spread over all types; what it has of those that it cannot run on
    is lost.
    """
    per_job = problem.cluster.workers / max(1, len(problem.jobs.ids))
    scale = problem.jobs.scale[:, None]
    part = per_job / scale
    time_used = np.maximum(1.0, part.sum(axis=1, keepdims=True))
    fair = part / time_used
    return np.asarray(fair * runnable(problem))


def _of_jobs(problem: AllocationProblem, shares: Floats) -> ClusterAllocation:
    every = np.zeros((rows_of(problem), shares.shape[1]))
    every[: len(shares)] = shares
    return with_least_throughput(problem, every)


def random_packing_policy(problem: AllocationProblem, /, seed: int = 0) -> ClusterAllocation:
    """The mean of many random rounds, drawn from the seed; it ignores speeds and waiting times.

    In a round jobs come in random order. Each takes a random type that it fits on; if none is free,
    it joins a random job that it can share workers with; if there is none, it waits.

    The objective is the least weighted normalized throughput, as in max-min fairness.
    """
    rng = np.random.default_rng(seed)
    shares = np.zeros((rows_of(problem), len(problem.cluster.types)))
    round_ = _Round(problem)
    for _ in range(_ROUNDS):
        round_.draw(rng, shares)
    return with_least_throughput(problem, shares / _ROUNDS)


class _Round:
    """The constants of all rounds: where jobs fit, and which jobs they can join."""

    def __init__(self, problem: AllocationProblem) -> None:
        self._jobs = len(problem.jobs.ids)
        self._workers = problem.cluster.workers
        self._scale = problem.jobs.scale
        self._can = runnable(problem)
        self._partners: dict[tuple[int, int], list[tuple[int, int]]] = {}
        if problem.pairs is None:
            return

        members = problem.pairs.members.tolist()
        for pair, kind in np.argwhere(performing(problem)).tolist():
            for job, partner in (members[pair], members[pair][::-1]):
                partners = self._partners.setdefault((job, kind), [])
                partners.append((partner, pair))

    def draw(self, rng: np.random.Generator, shares: Floats) -> None:
        """Adds one round to the shares."""
        free = self._workers.copy()
        alone = np.full(self._jobs, -1)
        for m in rng.permutation(self._jobs).tolist():
            fits = free >= self._scale[m]
            fitting = np.flatnonzero(self._can[m] & fits)
            if len(fitting):
                alone[m] = rng.choice(fitting)
                free[alone[m]] -= self._scale[m]
                continue

            joins = [
                (other, pair, kind)
                for kind in range(len(free))
                for other, pair in self._partners.get((m, kind), [])
                if alone[other] == kind
            ]

            if joins:
                other, pair, kind = joins[rng.integers(len(joins))]
                alone[other] = -1
                shares[self._jobs + pair, kind] += 1.0

        placed = np.flatnonzero(alone >= 0)
        shares[placed, alone[placed]] += 1.0


@dataclass(frozen=True, slots=True)
class Agnostic:
    """A policy over one worker type, the mean of all; each job's time is then spread over the types
    like the workers.

    Time on types that a job cannot run on is wasted: the baseline does not know better.
    """

    policy: Policy

    def __call__(self, problem: AllocationProblem, /) -> ClusterAllocation:
        """The objective is the policy's belief; throughputs and costs are the true ones."""
        workers = problem.cluster.workers
        total = workers.sum()
        part = workers / total if total > 0 else np.zeros(len(workers))
        alike = _alike(problem, part)
        believed = self.policy(alike)
        can = np.concatenate([runnable(problem), runnable_pairs(problem)])
        stuck = nowhere(alike)
        others = tuple(line for line in believed.infeasible if line not in stuck)
        given = believed.shares * part * can
        actual = allocation(problem, given, believed.objective, others, believed.notes)
        hours = None
        if believed.hours is not None:
            hours = believed.hours * part * can
        spread = None
        pieces = believed.pieces

        if pieces is not None:
            # Each piece is on every type that its row can run on, for the type's part of the time.
            on_types = []
            for kind, share in enumerate(part):
                types = 0 * pieces.type + kind
                runs = can[pieces.row, kind]
                share_of_pieces = pieces.share * share * runs
                on_types.append(replace(pieces, type=types, share=share_of_pieces))
            spread = Pieces.joined(on_types)

        return replace(
            actual, hours=hours, cost_usd=believed.cost_usd, pieces=spread, exact=believed.exact
        )


def _alike(problem: AllocationProblem, part: Floats) -> AllocationProblem:
    cluster = problem.cluster
    jobs = problem.jobs
    pairs = problem.pairs
    # Without any workers nothing is bought, but the mean price must still be positive.
    shared = part
    if not part.any():
        shared = np.full(len(part), 1 / len(part))
    price = None
    if cluster.usd_per_hour is not None:
        price = np.array([cluster.usd_per_hour @ shared])
    together = None
    if pairs is not None:
        usable = np.where(runnable_pairs(problem)[:, :, None], pairs.throughputs, 0.0)
        throughput = np.einsum("pji,j->pi", usable, part)
        of_one_type = np.asarray(throughput[:, None])
        together = Pairs(pairs.members, of_one_type)

    equal = equal_throughput(problem)[:, None]
    blind: ClusterJobs = replace(jobs, throughputs=equal)
    all_workers = np.array([cluster.workers.sum()])
    one_type = Cluster(("any",), all_workers, price)
    return replace(problem, cluster=one_type, jobs=blind, pairs=together)


# Stands for "cannot run there" in a matching, which needs finite weights: more than all jobs'
# durations together.
_CANNOT_RUN_WEIGHT = 1e3


def allox_policy(problem: AllocationProblem, /) -> ClusterAllocation:
    """Each worker has a queue. The k-th job from the end delays k jobs: itself and those after it.

    So the sum of completion times is a sum over jobs of k times the job's duration there, and a
    minimum-weight matching of jobs with (type, k) minimizes it. The first job of each queue runs
    all of the time, all others wait.

    The objective is the average completion time in seconds, over the jobs that run anywhere.
    """
    require_steps(problem, "allox")
    jobs = problem.jobs
    if (wide := np.flatnonzero(jobs.scale > 1)).size:
        name = jobs.ids[wide[0]]
        scale = jobs.scale[wide[0]]
        raise BadProblem(
            f"job {name!r}: scale {scale}: allox supports only jobs of one worker; use another "
            "policy"
        )

    can = runnable(problem)
    runs = np.flatnonzero(can.any(axis=1))
    shares = np.zeros((rows_of(problem), can.shape[1]))
    if not len(runs):
        return allocation(problem, shares, 0.0)

    duration = np.full(can.shape, np.inf)
    steps = jobs.steps[:, None]
    np.divide(steps, jobs.throughputs, out=duration, where=can)
    begun = np.full(len(can), NO_TYPE) if jobs.begun is None else jobs.begun
    stay = runs[begun[runs] != NO_TYPE]
    shares[stay, begun[stay]] = 1.0
    free = problem.cluster.workers - shares.sum(axis=0)
    waiting = np.setdiff1d(runs, stay)
    free_workers = free.astype(np.int64)
    first, kind, total = _matched(duration[waiting], free_workers, jobs.arrival[waiting])
    shares[waiting[first], kind] = 1.0

    stays = duration[stay, begun[stay]]
    staying = float(stays.sum())
    ended = total + staying
    return allocation(problem, shares, ended / len(runs))


def _matched(duration: Floats, workers: Ints, arrival: Floats) -> tuple[Ints, Ints, float]:
    """The jobs that come first in their queues, their types, and the sum of completion times."""
    from scipy.optimize import linear_sum_assignment

    count = len(duration)
    # Queues of one type differ in length by at most one: longer ones are never better.
    per_worker = -count // np.maximum(workers, 1)
    depth = np.where(workers > 0, -per_worker, 0)
    number = np.repeat(np.arange(len(workers)), workers)
    deepest = int(depth.max(initial=0))
    place, worker = (part.ravel() for part in np.indices((deepest, len(number))))
    usable = place < depth[number[worker]]
    place = place[usable]
    worker = worker[usable]
    finite = np.isfinite(duration)
    work = float(duration[finite].sum())
    dear = work * _CANNOT_RUN_WEIGHT * count
    never = dear + 1.0
    order = np.argsort(arrival, kind="stable")
    duration_there = np.where(finite, duration, never)[:, number[worker]]
    weighed = duration_there * (place + 1)
    weight = weighed[order]
    job, slot = linear_sum_assignment(weight)

    # The one farthest from the end of each worker's queue.
    last = np.full(len(number), -1)
    np.maximum.at(last, worker[slot], place[slot])
    first = place[slot] == last[worker[slot]]
    jobs_of_first = order[job[first]]
    kinds_of_first = number[worker[slot[first]]]
    total_weight = float(weight[job, slot].sum())
    return jobs_of_first, kinds_of_first, total_weight
