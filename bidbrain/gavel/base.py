"""The interface of a policy: problem in, allocation out."""

from collections.abc import Callable

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.errors import BidBrainError
from bidbrain.gavel.problem import (
    AllocationProblem,
    BadProblem,
    ClusterAllocation,
    effective_throughput,
    equal_throughput,
    nowhere,
    runnable,
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
