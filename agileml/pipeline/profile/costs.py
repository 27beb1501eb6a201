"""Seconds and bytes of a pipeline stage, shared by the partitioners and the planner."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from agileml.checks import check_number
from agileml.errors import BadArgument
from agileml.pipeline.profile.model_profile import ModelProfile

Sync = Literal["ring", "shared"]
Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

OPTIMIZER_STATE = {"sgd": 0, "momentum": 1, "adam": 2}
"""Extra copies of the weights that an optimizer keeps."""


@dataclass(frozen=True)
class CostRules:
    """How seconds and bytes of a stage are counted."""

    sync: Sync = "ring"
    overlap: float = 1.0
    """Share of the shorter of compute and synchronization that is hidden behind the longer."""
    memory_bytes: float = float("inf")
    optimizer: str = "sgd"


def cost_rules(sync: str, overlap: float, memory_bytes: float, optimizer: str) -> CostRules:
    """The rules of a user's settings; raises BadArgument for an unknown value."""
    check_number("overlap", overlap, 0, 1)
    for kind in get_args(Sync):
        if sync == kind:
            return CostRules(kind, overlap, memory_bytes, optimizer)
    raise BadArgument(f"sync is {sync!r}; choose from {', '.join(get_args(Sync))}")


def sync_factor(replicas: int, sync: Sync) -> float:
    """Bytes that the busiest link carries per byte of weights while `replicas` inputs are processed.

    A ring moves 2(m-1)/m of the weights over each link; on a shared bus all workers' traffic adds up to 2(m-1).
    """
    return 2 * (replicas - 1) / (replicas if sync == "ring" else 1)


def stage_seconds(compute: Matrix, weights: Matrix, replicas: int, bandwidth: float, rules: CostRules) -> Matrix:
    """Seconds per input of a stage on `replicas` workers, which process one input each per round."""
    if replicas == 1:
        return compute
    synced = sync_factor(replicas, rules.sync) * weights / bandwidth
    longer = np.maximum(compute, synced)
    if rules.overlap < 1:
        longer = longer + (1 - rules.overlap) * np.minimum(compute, synced)
    return longer / replicas


def versioned_bytes(weights: Matrix, stash: Matrix, in_flight: int, optimizer: str) -> Matrix:
    """Bytes of a stage that keeps weights and stash of every input in flight, gradients and optimizer state."""
    return (in_flight + 1 + OPTIMIZER_STATE[optimizer]) * weights + in_flight * stash


@dataclass(frozen=True)
class SpanTables:
    """Sums over layers i..j of a model, as matrices; entries below the diagonal are infinite."""

    seconds: Matrix
    weights: Matrix
    stash: Matrix
    outputs: Vector

    @classmethod
    def of(cls, profile: ModelProfile) -> "SpanTables":
        layers = profile.layers
        return cls(
            _spans([layer.seconds for layer in layers]),
            _spans([layer.weight_bytes for layer in layers]),
            _spans([layer.stash_bytes for layer in layers]),
            np.array([layer.output_bytes for layer in layers]),
        )


def _spans(values: Sequence[float]) -> Matrix:
    count = len(values)
    table = np.full((count, count), np.inf)
    for i in range(count):
        # Summed from i on, as a plain loop would: differences of prefix sums would round differently.
        table[i, i:] = list(accumulate(values[i:]))
    return table
