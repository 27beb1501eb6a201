"""What a policy is asked and what it answers: jobs, types of workers, and the share of time each job gets on each.

Matrices follow the paper: T[m, j] is the throughput of job m on type j, X[m, j] the fraction of wall-clock time it gets
there (section 5.3 of the dissertation). Rows of X are the jobs in order, then the pairs in order.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from bidbrain.errors import BidBrainError

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

ENTITY_POLICIES = ("fairness", "fifo")


class BadProblem(BidBrainError):
    """A problem lacks something that the policy needs, or contradicts itself."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Types of workers, how many there are of each (or a cloud account's quota), and what one costs an hour.

    Where placement matters, workers side by side on one server and workers apart are two types, `v100` and
    `v100_unconsolidated`, with throughputs of their own.
    """

    types: tuple[str, ...]
    workers: FloatArray
    usd_per_hour: FloatArray | None = None


@dataclass(frozen=True, slots=True)
class Entity:
    """Who jobs belong to: its weight among the entities, and what holds within it (`fairness` or `fifo`)."""

    name: str
    weight: float = 1.0
    policy: str = "fairness"


@dataclass(frozen=True, slots=True)
class Jobs:
    """Jobs as columns, one entry a job. Throughputs are steps a second while all `scale` workers are held.

    `steps` are those that remain; `slo_seconds` counts from the job's start of waiting, as `elapsed_seconds` does, so
    that what is left is their difference. Infinite where there is no deadline. `isolated_seconds` is how long the steps
    that are done would have taken under a 1/n share; where it is unknown, the time elapsed stands for it.
    """

    ids: tuple[str, ...]
    throughputs: FloatArray
    scale: IntArray
    weight: FloatArray
    steps: FloatArray
    elapsed_seconds: FloatArray
    slo_seconds: FloatArray
    arrival: FloatArray
    entity: tuple[str | None, ...]
    isolated_seconds: FloatArray | None = None


@dataclass(frozen=True, slots=True)
class Pairs:
    """Two jobs that can share a worker: their rows in `Jobs`, and the throughput of each while they do (pair, type, 2).

    Both have the same scale.
    """

    members: IntArray
    throughputs: FloatArray


@dataclass(frozen=True, slots=True)
class Problem:
    """Everything a policy may know."""

    cluster: Cluster
    jobs: Jobs
    pairs: Pairs | None = None
    entities: tuple[Entity, ...] = ()
    budget_usd: float | None = None


@dataclass(frozen=True, slots=True)
class Allocation:
    """X over jobs and pairs, and what it comes to. `infeasible` says in words what could not be kept, and its cure.

    `hours` (rows of X by types) and `cost_usd` are of plans that reach to the end of the work.
    """

    shares: FloatArray
    effective_throughput: FloatArray
    objective: float
    infeasible: tuple[str, ...] = ()
    hours: FloatArray | None = None
    cost_usd: float | None = None
    notes: dict[str, float] = field(default_factory=dict)
