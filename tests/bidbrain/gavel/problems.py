"""Problems for tests, hand-written or random, and the conditions on a valid X."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from bidbrain.arrays import Floats
from bidbrain.gavel.problem import (
    AllocationProblem,
    Cluster,
    ClusterAllocation,
    ClusterJobs,
    Pairs,
    scale_of_rows,
)


def problem(
    throughputs: npt.ArrayLike,
    workers: npt.ArrayLike,
    *,
    prices: npt.ArrayLike | None = None,
    **columns: npt.ArrayLike,
) -> AllocationProblem:
    """Jobs j0, j1, ... on types t0, t1, ...; columns of `ClusterJobs` as given, or defaults."""
    t = np.asarray(throughputs, dtype=np.float64)
    count, kinds = t.shape
    given = {name: np.asarray(value) for name, value in columns.items()}

    def column(name: str, default: float) -> Floats:
        return np.asarray(given.get(name, np.full(count, default)), dtype=np.float64)

    return AllocationProblem(
        Cluster(
            tuple(f"t{j}" for j in range(kinds)),
            np.asarray(workers, dtype=np.float64),
            None if prices is None else np.asarray(prices, dtype=np.float64),
        ),
        ClusterJobs(
            ids=tuple(f"j{m}" for m in range(count)),
            throughputs=t,
            scale=np.asarray(given.get("scale", np.ones(count)), dtype=np.int64),
            weight=column("weight", 1.0),
            steps=column("steps", 1000.0),
            elapsed_seconds=column("elapsed_seconds", 0.0),
            slo_seconds=column("slo_seconds", np.inf),
            arrival=np.asarray(given.get("arrival", np.arange(count)), dtype=np.float64),
            entity=(None,) * count,
        ),
    )


def of_entities(asked: AllocationProblem, *names: str | None) -> AllocationProblem:
    """The same problem with an entity for each job."""
    return replace(asked, jobs=replace(asked.jobs, entity=names))


def random_problem(
    rng: np.random.Generator, *, holes: float = 0.15, spread: float = 3.0, most_jobs: int = 9
) -> AllocationProblem:
    """A few jobs on one to four types; some cannot run everywhere, some are identical."""
    count, kinds = int(rng.integers(1, most_jobs)), int(rng.integers(1, 5))
    t = 10 ** rng.uniform(-spread / 2, spread / 2, (count, kinds)) * (
        rng.random((count, kinds)) >= holes
    )
    twins = rng.integers(0, count, count // 3)
    t[twins] = t[0]
    return problem(
        t,
        rng.integers(0, 6, kinds),
        prices=rng.uniform(0.1, 4, kinds),
        scale=rng.choice([1, 1, 1, 2, 4], count),
        weight=rng.choice([1.0, 1.0, 2.0, 5.0], count),
        steps=10 ** rng.uniform(2, 5, count),
        arrival=rng.permutation(count),
        elapsed_seconds=rng.choice([0.0, 100.0, 5000.0], count),
    )


def with_pairs(asked: AllocationProblem, rng: np.random.Generator) -> AllocationProblem:
    """All pairs of jobs of one scale, each with a random slowdown of both."""
    scale, t = asked.jobs.scale, asked.jobs.throughputs
    members = [(a, b) for a in range(len(scale)) for b in range(a) if scale[a] == scale[b]]
    if not members:
        return asked
    rows = np.array(members)
    slowed = t[rows].transpose(0, 2, 1) * rng.uniform(0, 1, (len(rows), t.shape[1], 2))
    return replace(asked, pairs=Pairs(rows, slowed))


def assert_valid(asked: AllocationProblem, found: ClusterAllocation) -> None:
    """Equations 5.1-5.3, with pairs."""
    x, jobs = found.shares, len(asked.jobs.ids)
    assert np.isfinite(x).all()
    assert (x >= 0).all()
    time = x[:jobs].sum(axis=1)
    if asked.pairs is not None:
        np.add.at(time, asked.pairs.members, x[jobs:].sum(axis=1)[:, None])
    assert (time <= 1 + 1e-6).all()
    held = (scale_of_rows(asked)[:, None] * x).sum(axis=0)
    assert (held <= asked.cluster.workers + 1e-6 * np.maximum(1, asked.cluster.workers)).all()
