"""Input and output of a policy: jobs, worker types, and the fraction of time that each job gets on each type.

Matrices follow the paper: T[m, j] is the throughput of job m on type j, X[m, j] the fraction of wall-clock time it gets
there (section 5.3 of the dissertation). Rows of X are the jobs in order, then the pairs in order.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from bidbrain.arrays import Floats, Ints
from bidbrain.errors import BidBrainError

ENTITY_POLICIES = ("fairness", "fifo")
NO_TYPE = -1
"""Stands for the type of a job that has not begun."""


class BadProblem(BidBrainError):
    """The problem is inconsistent, or lacks an input that the policy needs."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Worker types, the number of workers of each (or the account's quota), and the hourly price of one.

    Where placement matters, workers on one server and workers on several servers are two types, `v100` and
    `v100_unconsolidated`, each with its own throughputs.
    """

    types: tuple[str, ...]
    workers: Floats
    usd_per_hour: Floats | None = None


@dataclass(frozen=True, slots=True)
class Entity:
    """An owner of jobs: its weight among the entities, and the policy within it (`fairness` or `fifo`)."""

    name: str
    weight: float = 1.0
    policy: str = "fairness"


@dataclass(frozen=True, slots=True)
class ClusterJobs:
    """Jobs as columns, one entry per job. Throughputs are steps per second while all `scale` workers are held.

    `steps` are the remaining steps; `slo_seconds` and `elapsed_seconds` both count from the job's arrival, so that
    their difference is the time left. `slo_seconds` is infinite without a deadline. `isolated_seconds` is how long
    the completed steps would have taken with a 1/n share; if it is None, the elapsed time is used. `begun` is the type
    that a job was given all of the time last, or `NO_TYPE`; `allox` does not move such jobs.
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


@dataclass(frozen=True, slots=True)
class Pairs:
    """Two jobs that can share a worker: their rows in `ClusterJobs`, and each one's throughput while they share it, as
    an array (pair, type, 2).

    Both have the same scale.
    """

    members: Ints
    throughputs: Floats


@dataclass(frozen=True, slots=True)
class AllocationProblem:
    """Everything a policy may use.

    `centered` asks fairness policies and `makespan` for the middle of all optimal X, as the published solvers give it,
    instead of the one with the most throughput.
    """

    cluster: Cluster
    jobs: ClusterJobs
    pairs: Pairs | None = None
    entities: tuple[Entity, ...] = ()
    budget_usd: float | None = None
    centered: bool = False


@dataclass(frozen=True, slots=True)
class Pieces:
    """Pieces of time as columns: a row of X (a job or a pair) runs on a type from `start` to `end`, in seconds from
    now, for a share of that time."""

    row: Ints
    type: Ints
    start: Floats
    end: Floats
    share: Floats

    @classmethod
    def joined(cls, parts: "Sequence[Pieces]") -> "Pieces":
        """The pieces of several plans."""
        names = ("row", "type", "start", "end", "share")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


@dataclass(frozen=True, slots=True)
class ClusterAllocation:
    """X over jobs and pairs, and its cost. `infeasible` names the constraint that could not be kept, and a way to fix
    it.

    Plans that extend to the end of the work also have `hours` (rows of X by types) and `cost_usd`, and `pieces` of time
    for the rows whose times are fixed; the other rows with hours run when workers are free. A plan that is not `exact`
    may cost more than the best one, which would take too long to find.
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
