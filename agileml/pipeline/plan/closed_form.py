"""Speed and memory of p stages and d pipelines in closed form (Narayanan, sections 2.2 and 3.3)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from agileml.pipeline.profile.costs import OPTIMIZER_STATE, Matrix

_Bytes = TypeVar("_Bytes", float, Matrix)


@dataclass(frozen=True)
class StageCost:
    """Costs of one microbatch in a stage, and the bytes that the stage holds."""

    forward_seconds: float
    backward_seconds: float
    link_seconds: float
    """Time of the activation and its gradient over the link before the stage."""
    sync_seconds: float
    """Time of one all-reduce of the gradients."""
    weight_bytes: float
    stash_bytes: float
    input_bytes: float
    recompute: bool = False
    update_seconds: float = 0.0
    """Time of an update of the weights."""

    @property
    def seconds(self) -> float:
        """Compute of one microbatch, the second forward pass included."""
        return self.forward_seconds * (2 if self.recompute else 1) + self.backward_seconds


def step_seconds(stages: Sequence[StageCost]) -> float:
    """Seconds per microbatch of the slowest stage; links are not hidden."""
    return max(stage.seconds + stage.link_seconds for stage in stages)


def double_buffered_seconds(stages: Sequence[StageCost], microbatches: int) -> float:
    """Seconds per microbatch under 2BW: the slowest stage, or its all-reduce spread over a batch."""
    return max(
        max(stage.seconds + stage.link_seconds + stage.update_seconds / microbatches, stage.sync_seconds / microbatches)
        for stage in stages
    )


def unpipelined_seconds(stages: Sequence[StageCost], microbatches: int) -> float:
    """Seconds per microbatch when one stage works at a time."""
    worked = sum(stage.seconds + stage.link_seconds for stage in stages)
    return worked + _flush_seconds(stages) / microbatches


def flush_batch_seconds(stages: Sequence[StageCost], microbatches: int, chunks: int = 1) -> float:
    """Seconds per batch when the pipeline drains before each update."""
    drained = (len(stages) - 1) / chunks
    return (microbatches + drained) * step_seconds(stages) + _flush_seconds(stages)


def _flush_seconds(stages: Sequence[StageCost]) -> float:
    """All stages synchronize and update at the same time."""
    return max(stage.sync_seconds + stage.update_seconds for stage in stages)


def held_bytes(stage: StageCost, versions: int, in_flight: float, optimizer: str) -> float:
    """Weight versions, gradients, optimizer state, and the stash or stage inputs of microbatches in flight."""
    sizes = (stage.weight_bytes, stage.stash_bytes, stage.input_bytes)
    return bytes_in_use(sizes, versions, in_flight, optimizer, recompute=stage.recompute)


def bytes_in_use(
    sizes: tuple[_Bytes, _Bytes, _Bytes], versions: int, in_flight: float, optimizer: str, *, recompute: bool
) -> _Bytes:
    """As `held_bytes`, from the bytes of weights, stash and input: of one stage, or of many in matrices."""
    weights, stash, inputs = sizes
    stashes = 1 if recompute else in_flight
    return (versions + 1 + OPTIMIZER_STATE[optimizer]) * weights + stashes * stash + in_flight * inputs
