"""What every policy is asked and answers."""

from __future__ import annotations

from typing import Protocol, TypeVar

import numpy as np

from bidbrain.errors import BidBrainError
from bidbrain.gavel.lp import FloatArray
from bidbrain.gavel.problem import AllocationProblem, BadProblem, ClusterAllocation
from bidbrain.gavel.shares import effective_throughput, nowhere, runnable, scale_of_rows

Kept = TypeVar("Kept")


class UnknownPolicy(BidBrainError):
    """There is no policy of that name."""


class Warm:
    """What a caller keeps between calls of one policy, so that the next problem, much like the last, is solved faster.

    It changes how an optimum is found, never its value; where several X are optimal it may change which is answered.
    One `Warm` belongs to one policy of one caller.
    """

    def __init__(self) -> None:
        self._kept: dict[type, object] = {}

    def keep(self, make: type[Kept]) -> Kept:
        """The one of its kind that is kept here, made when it is first asked for."""
        found = self._kept.get(make)
        if not isinstance(found, make):
            found = self._kept[make] = make()
        return found


class Policy(Protocol):
    """One way of dividing a cluster among jobs."""

    def allocate(self, problem: AllocationProblem, warm: Warm | None = None, /) -> ClusterAllocation:
        """The shares of time that are best by this policy, and what it could not keep."""
        ...


def allocation(
    problem: AllocationProblem,
    shares: FloatArray,
    objective: float,
    infeasible: tuple[str, ...] = (),
    notes: dict[str, float] | None = None,
) -> ClusterAllocation:
    """An allocation and what it comes to; jobs that run nowhere are named."""
    stuck = () if runnable(problem).any(axis=1).all() else nowhere(problem)
    return ClusterAllocation(
        shares, effective_throughput(problem, shares), objective, (*stuck, *infeasible), notes=notes or {}
    )


def require_steps(problem: AllocationProblem, policy: str) -> None:
    """Refuses a problem in which the steps of some job are unknown."""
    unknown = np.flatnonzero(~np.isfinite(problem.jobs.steps))
    if len(unknown):
        name = problem.jobs.ids[unknown[0]]
        raise BadProblem(f"job {name!r}: steps: are missing: {policy} needs the steps that remain of every job")


def require_prices(problem: AllocationProblem, policy: str) -> FloatArray:
    """The prices of all types."""
    price = problem.cluster.usd_per_hour
    if price is None:
        raise BadProblem(f"prices: are missing: {policy} needs the price of every type of workers")
    free = np.flatnonzero(~(price > 0))
    if len(free):
        name = problem.cluster.types[free[0]]
        raise BadProblem(f"prices.{name}: {price[free[0]]:g} is no price: {policy} needs prices above 0")
    return price


def usd_per_hour(problem: AllocationProblem, shares: FloatArray) -> float | None:
    """What the workers held under X cost an hour; unknown without prices."""
    if problem.cluster.usd_per_hour is None:
        return None
    held = (scale_of_rows(problem)[:, None] * shares).sum(axis=0)
    used = held > 0
    return float(np.dot(held[used], problem.cluster.usd_per_hour[used]))
