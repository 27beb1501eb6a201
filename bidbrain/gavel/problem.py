"""Input and output of a policy: jobs, worker types, and the fraction of time that each job gets on
each type.

Matrices follow the paper: T[m, j] is the throughput of job m on type j, X[m, j] the fraction of
wall-clock time it gets there (section 5.3 of the dissertation). Rows of X are the jobs in order,
then the pairs in order.

`ShareColumns` has the valid allocations of a problem as columns and rows of a linear program
(Equations 5.1-5.3, and with pairs). A column is a row of X (a job or a pair) on a worker type.
Combinations that cannot run have no column: a throughput of zero, or more workers needed than there
are.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from bidbrain.arrays import Bools, Floats, Ints
from bidbrain.errors import BidBrainError
from bidbrain.lp import ConstraintRows, at_most

NO_TYPE = -1
"""Stands for the type of a job that has not begun."""


class BadProblem(BidBrainError):
    """The problem is inconsistent, or lacks an input that the policy needs."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Worker types, the number of workers of each (or the account's quota), and the hourly price of
    one.
    """

    types: tuple[str, ...]
    workers: Floats
    usd_per_hour: Floats | None = None


@dataclass(frozen=True, slots=True)
class Entity:
    """An owner of jobs: its weight among the entities, and the policy within it (`fairness` or
    `fifo`).
    """

    name: str
    weight: float = 1.0
    policy: str = "fairness"


@dataclass(frozen=True, slots=True)
class ClusterJobs:
    """Jobs as columns, one entry per job. Throughputs are steps per second while all `scale`
    workers are held.

    `steps` are the remaining steps; `slo_seconds` and `elapsed_seconds` both count from the job's
    arrival, so that their difference is the time left. `slo_seconds` is infinite without a
    deadline. `isolated_seconds` is how long the completed steps would have taken with a 1/n share;
    if it is None, the elapsed time is used. `begun` is the type that a job was given all of the
    time last, or `NO_TYPE`; `allox` does not move such jobs. `least` workers are enough for a job
    that could use all `scale`.
    """

    ids: tuple[str, ...]
    throughputs: Floats
    scale: Ints
    weight: Floats
    steps: Floats
    elapsed_seconds: Floats
    slo_seconds: Floats
    arrival: Floats
    entity: tuple[str | None, ...]
    isolated_seconds: Floats | None = None
    begun: Ints | None = None
    least: Ints | None = None


@dataclass(frozen=True, slots=True)
class Pairs:
    """Two jobs that can share a worker: their rows in `ClusterJobs`, and each one's throughput
    while they share it, as an array (pair, type, 2).

    Both have the same scale.
    """

    members: Ints
    throughputs: Floats


@dataclass(frozen=True, slots=True)
class Placement:
    """Throughputs of jobs whose workers are all on one server (they are consolidated), and of those
    that are spread.

    Both kinds draw on the same workers. `per_server` is how many of each type a server has,
    infinite if unknown.
    """

    together: Floats
    spread: Floats
    per_server: Floats

    def best(self, scale: Ints) -> Floats:
        """The throughput of each job where its workers are placed as suits it best."""
        fits = scale[:, None] <= self.per_server
        on_one = np.where(fits, self.together, 0.0)
        return np.asarray(np.maximum(on_one, self.spread))

    def kinds(self, scale: Ints) -> Ints:
        """The types on which jobs may be spread."""
        spreads = (self.spread[scale > 1] > 0).any(axis=0)
        return np.flatnonzero(np.isfinite(self.per_server) | spreads)


@dataclass(frozen=True, slots=True)
class AllocationProblem:
    """Everything a policy may use.

    Policies take jobs to be placed as suits them best; `rounds.by_placement` tells them where that
    is not so.

    `centered` asks fairness policies and `makespan` for the middle of all optimal X, as the
    published solvers give it, instead of the one with the most throughput.
    """

    cluster: Cluster
    jobs: ClusterJobs
    pairs: Pairs | None = None
    entities: tuple[Entity, ...] = ()
    budget_usd: float | None = None
    centered: bool = False
    placement: Placement | None = None


@dataclass(frozen=True, slots=True)
class Pieces:
    """Pieces of time as columns: a row of X (a job or a pair) runs on a type from `start` to `end`,
    in seconds from now, for a share of that time."""

    row: Ints
    type: Ints
    start: Floats
    end: Floats
    share: Floats

    @classmethod
    def joined(cls, parts: "Sequence[Pieces]") -> "Pieces":
        """The pieces of several plans."""
        names = ("row", "type", "start", "end", "share")
        joined = (np.concatenate([getattr(part, name) for part in parts]) for name in names)
        return cls(*joined)


@dataclass(frozen=True, slots=True)
class ClusterAllocation:
    """X over jobs and pairs, and its cost. `infeasible` names the constraint that could not be
    kept, and a way to fix it.

    Plans that extend to the end of the work also have `hours` (rows of X by types) and `cost_usd`,
    and `pieces` of time for the rows whose times are fixed; the other rows with hours run when
    workers are free. A plan that is not `exact` may cost more than the best one, which would take
    too long to find.
    """

    shares: Floats
    effective_throughput: Floats
    objective: float
    infeasible: tuple[str, ...] = ()
    hours: Floats | None = None
    cost_usd: float | None = None
    pieces: Pieces | None = None
    exact: bool = True
    notes: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ShareColumns:
    """The columns of a problem: `row` and `type` of each, and the workers that one unit of it
    holds.
    """

    problem: AllocationProblem
    row: Ints
    type: Ints
    held: Floats

    @classmethod
    def of(cls, problem: AllocationProblem) -> "ShareColumns":
        """The columns of all jobs, then of all pairs that perform well."""
        row, kind = np.nonzero(runnable(problem))
        if problem.pairs is not None:
            pair, pair_kind = np.nonzero(performing(problem))
            rows_of_pairs = pair + len(problem.jobs.ids)
            row = np.concatenate([row, rows_of_pairs])
            kind = np.concatenate([kind, pair_kind])
        return cls(problem, row, kind, scale_of_rows(problem)[row])

    @property
    def count(self) -> int:
        return len(self.row)

    @cached_property
    def alone(self) -> int:
        """Number of columns for single jobs, which come first."""
        first_pair = np.searchsorted(self.row, len(self.problem.jobs.ids))
        return int(first_pair)

    @cached_property
    def progress(self) -> tuple[Ints, Ints, Floats]:
        """Effective throughput as entries (job, column, throughput); a pair's column counts for
        both of its jobs.
        """
        jobs = len(self.problem.jobs.ids)
        problem = self.problem
        alone = self.alone
        job = self.row[:alone]
        column = np.arange(alone)
        throughput = problem.jobs.throughputs[job, self.type[:alone]]
        if problem.pairs is None or alone == self.count:
            return job, column, throughput

        pair = self.row[alone:] - jobs
        kind = self.type[alone:]
        both = np.arange(alone, self.count)
        members = problem.pairs.members[pair].T.ravel()
        jobs_of_columns = np.concatenate([job, members])
        columns = np.concatenate([column, both, both])
        of_pairs = problem.pairs.throughputs[pair, kind].T.ravel()
        throughputs = np.concatenate([throughput, of_pairs])
        return (jobs_of_columns, columns, throughputs)

    def most(self) -> Floats:
        """The largest throughput of each job, alone or in a pair; scales its row of a program."""
        job, _, throughput = self.progress
        most = np.zeros(len(self.problem.jobs.ids))
        np.maximum.at(most, job, throughput)
        return most

    def best(self, price: Floats | None = None) -> Floats:
        """The largest throughput of each job alone, per price if prices are given; in pairs if it
        never runs alone.
        """
        alone = best_throughput(self.problem, price)
        job, column, throughput = self.progress
        paired = np.zeros(len(alone))
        np.maximum.at(
            paired, job, throughput if price is None else throughput / price[self.type[column]]
        )
        return np.where(alone > 0, alone, paired)

    def limits(self) -> tuple[ConstraintRows, ...]:
        """No job runs more than all of the time; no type gives more workers than it has."""
        job, column, _ = self.progress
        jobs = self.problem.jobs
        cluster = self.problem.cluster
        unit = np.ones(len(job))
        whole_time = np.ones(len(jobs.ids))
        time = at_most("job {!r}: at most all of the time", jobs.ids, job, column, unit, whole_time)
        names = list(zip(cluster.types, cluster.workers.tolist(), strict=True))
        every_column = np.arange(self.count)
        workers = at_most(
            "type {0[0]!r}: at most its {0[1]:g} workers",
            names,
            self.type,
            every_column,
            self.held,
            cluster.workers,
        )
        return (time, workers)

    def placed(self, x: Floats) -> Floats:
        """The values of the columns as a matrix, rows of X by types."""
        rows = rows_of(self.problem)
        types = len(self.problem.cluster.types)
        matrix = np.zeros((rows, types))
        matrix[self.row, self.type] = x[: self.count]
        return matrix

    def matrix(self, x: Floats) -> Floats:
        """X from the values of the columns."""
        return np.clip(self.placed(x), 0.0, 1.0) + 0.0


def rows_of(problem: AllocationProblem) -> int:
    pairs = 0
    if problem.pairs is not None:
        pairs = len(problem.pairs.members)
    return len(problem.jobs.ids) + pairs


def scale_of_rows(problem: AllocationProblem) -> Floats:
    """Workers that each row of X holds while it runs."""
    scale = problem.jobs.scale.astype(np.float64)
    if problem.pairs is None:
        return scale
    scale_of_pairs = scale[problem.pairs.members[:, 0]]
    return np.concatenate([scale, scale_of_pairs])


def runnable(problem: AllocationProblem) -> Bools:
    """Where a job can run alone: it makes progress there, and there are enough workers."""
    jobs = problem.jobs
    least = jobs.scale if jobs.least is None else jobs.least
    has_workers = least[:, None] <= problem.cluster.workers
    return np.asarray((jobs.throughputs > 0) & has_workers)


def runnable_pairs(problem: AllocationProblem) -> Bools:
    """Where both jobs of a pair make progress."""
    if problem.pairs is None:
        return np.zeros((0, len(problem.cluster.types)), dtype=bool)
    scale = problem.jobs.scale[problem.pairs.members[:, 0], None]
    enough = scale <= problem.cluster.workers
    both_run = (problem.pairs.throughputs > 0).all(axis=2)
    return np.asarray(both_run & enough)


def performing(problem: AllocationProblem) -> Bools:
    """Where a pair does more than its jobs would by taking turns: its normalized throughputs add up
    to more than 1.

    Other pairs can be left out of any program without loss, because taking turns gives both jobs as
    much.
    """
    assert problem.pairs is not None
    usable = np.where(runnable(problem), problem.jobs.throughputs, 0.0)
    alone = usable[problem.pairs.members].transpose(0, 2, 1)
    ratio = np.full(alone.shape, np.inf)
    np.divide(problem.pairs.throughputs, alone, out=ratio, where=alone > 0)
    gain = ratio.sum(axis=2)
    return np.asarray(runnable_pairs(problem) & (gain > 1))


def effective_throughput(problem: AllocationProblem, shares: Floats) -> Floats:
    """Progress per second of each job under X, alone and in its pairs."""
    jobs = problem.jobs
    alone = shares[: len(jobs.ids)]
    throughput = np.einsum("mj,mj->m", jobs.throughputs, alone)
    if problem.pairs is not None:
        of_pairs = shares[len(jobs.ids) :]
        both = np.einsum("pji,pj->pi", problem.pairs.throughputs, of_pairs)
        members = problem.pairs.members.ravel()
        from_pairs = np.bincount(members, both.ravel(), len(jobs.ids))
        throughput = throughput + from_pairs

    return np.asarray(throughput)


def equal_throughput(problem: AllocationProblem) -> Floats:
    """throughput(m, X_equal): a job's time spread over the cluster in proportion to its workers;
    zero if it runs nowhere."""
    workers = problem.cluster.workers
    total = workers.sum()
    usable = np.where(runnable(problem), problem.jobs.throughputs, 0.0)
    equal = usable @ (workers / total) if total > 0 else np.zeros(len(usable))
    return np.asarray(equal)


def best_throughput(problem: AllocationProblem, price: Floats | None = None) -> Floats:
    """throughput(m, X_fastest): on the fastest type that a job can run on alone; with prices, the
    most per price.
    """
    usable = np.where(runnable(problem), problem.jobs.throughputs, 0.0)
    worth = usable if price is None else usable / price
    return np.asarray(worth.max(axis=1, initial=0.0))


def nowhere(problem: AllocationProblem) -> tuple[str, ...]:
    """Messages for the jobs that no worker type can run, with what each would need."""
    jobs = problem.jobs
    cluster = problem.cluster
    messages = []
    runs = runnable(problem).any(axis=1)
    for m in np.flatnonzero(~runs).tolist():
        fitting = np.flatnonzero(jobs.throughputs[m] > 0)
        if not len(fitting):
            messages.append(
                f"job {jobs.ids[m]!r} runs on no type: all its throughputs are 0; add a type that "
                "it runs on"
            )
            continue

        most = fitting[cluster.workers[fitting].argmax()]
        name = cluster.types[most]
        scale = int(jobs.scale[m])
        workers, smaller = (
            ("1 worker", "") if scale == 1 else (f"{scale} workers at once", " or lower its scale")
        )
        messages.append(
            f"job {jobs.ids[m]!r} runs on no type: it needs {workers}, and of the types it runs on"
            f" {name!r} has the most, {cluster.workers[most]:g}; add {name!r} workers{smaller}"
        )

    return tuple(messages)
