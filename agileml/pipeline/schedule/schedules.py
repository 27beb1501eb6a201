"""The order of operations on every device, for all schemes."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from math import ceil

from agileml.pipeline.schedule.schemes import FLUSHING, STASHING, check_scheme


class Pass(Enum):
    """Kinds of operations on a microbatch."""

    FORWARD = "F"
    BACKWARD = "B"
    UPDATE = "U"


@dataclass(frozen=True, slots=True)
class PipelineStep:
    """One operation of a device. For an update, `microbatch` is the last one whose gradient is included."""

    kind: Pass
    microbatch: int
    chunk: int = 0


StepOrder = tuple[PipelineStep, ...]


@dataclass(frozen=True)
class ScheduleShape:
    """A scheme on a straight pipeline: `microbatches` in each of `batches`, `chunks` per device."""

    scheme: str
    stages: int
    microbatches: int
    batches: int = 1
    chunks: int = 1

    def __post_init__(self) -> None:
        check_scheme(self.scheme, self.stages, self.microbatches, self.chunks)

    @property
    def total(self) -> int:
        """Microbatches of all batches, numbered from 0."""
        return self.microbatches * self.batches


def orders(shape: ScheduleShape) -> tuple[StepOrder, ...]:
    """The operations of every device of a pipeline."""
    return tuple(_order(shape, s) for s in range(1, shape.stages + 1))


def _order(shape: ScheduleShape, s: int) -> StepOrder:
    if shape.scheme in FLUSHING:
        steps: list[PipelineStep] = []
        for batch in range(shape.batches):
            steps += _flushed(shape, s, batch * shape.microbatches)
            steps.append(PipelineStep(Pass.UPDATE, (batch + 1) * shape.microbatches - 1))
        return tuple(steps)
    warm = shape.stages - s
    every = 1 if shape.scheme in STASHING else shape.microbatches
    return _with_updates(_alternating(range(shape.total), warm), every)


def _flushed(shape: ScheduleShape, s: int, first: int) -> list[PipelineStep]:
    """The forward and backward passes of one batch on device s."""
    p, m = shape.stages, shape.microbatches
    if shape.scheme == "interleaved":
        return _interleaved(shape, s, first)
    warm = m if shape.scheme == "gpipe" else min(m, p - s)
    return _alternating(range(first, first + m), warm)


def _alternating(inputs: Sequence[int], warm: int) -> list[PipelineStep]:
    """`warm` forward passes, then a forward and a backward pass in turn, then the remaining backward passes."""
    steps = [PipelineStep(Pass.FORWARD, k) for k in inputs[:warm]]
    for i, k in enumerate(inputs):
        if warm + i < len(inputs):
            steps.append(PipelineStep(Pass.FORWARD, inputs[warm + i]))
        steps.append(PipelineStep(Pass.BACKWARD, k))
    return steps


def _interleaved(shape: ScheduleShape, s: int, first: int) -> list[PipelineStep]:
    p, m, v = shape.stages, shape.microbatches, shape.chunks

    def step(kind: Pass, i: int) -> PipelineStep:
        chunk = i % (p * v) // p
        microbatch = first + p * (i // (p * v)) + i % p
        return PipelineStep(kind, microbatch, chunk if kind is Pass.FORWARD else v - 1 - chunk)

    total = m * v
    warm = min(total, 2 * (p - s) + (v - 1) * p)
    steps = [step(Pass.FORWARD, i) for i in range(warm)]
    for i in range(total):
        if warm + i < total:
            steps.append(step(Pass.FORWARD, warm + i))
        steps.append(step(Pass.BACKWARD, i))
    return steps


def _with_updates(steps: Sequence[PipelineStep], every: int) -> StepOrder:
    """An update after every `every`-th backward pass."""
    updated: list[PipelineStep] = []
    done = 0
    for step in steps:
        updated.append(step)
        if step.kind is Pass.BACKWARD:
            done += 1
            if done % every == 0:
                updated.append(PipelineStep(Pass.UPDATE, step.microbatch))
    return tuple(updated)


def replicated_orders(replicas: Sequence[int], rounds: int, extra: int = 0) -> tuple[tuple[StepOrder, ...], ...]:
    """Operations of every replica of every stage under PipeDream: input k goes to replica k mod r of each stage.

    `extra` inputs more than the pipeline holds by its depth are admitted: unequal stages may need them.
    """
    inputs = range(rounds)
    stages = []
    for s, count in enumerate(replicas):
        warm = ceil(sum(replicas[s:]) / count) - 1 + (extra if s < len(replicas) - 1 else 0)
        stages.append(tuple(_with_updates(_alternating(inputs[r::count], warm), 1) for r in range(count)))
    return tuple(stages)
