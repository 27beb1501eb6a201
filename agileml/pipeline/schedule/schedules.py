"""The schemes, the order of operations on each device, and the weight versions that follow from
it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import ceil

from agileml.errors import BadArgument

SCHEMES = ("gpipe", "flush", "interleaved", "pipedream", "vertical-sync", "2bw")
FLUSHING = ("gpipe", "flush", "interleaved")
STASHING = ("pipedream", "vertical-sync")
"""Update after every input, with one stashed version per input in flight."""


def delay(scheme: str, stages: int) -> int:
    """Updates that the oldest gradient misses."""
    if scheme in FLUSHING:
        return 0
    if scheme == "2bw":
        return 1
    return stages - 1


def bubble(scheme: str, stages: int, microbatches: int, chunks: int = 1) -> float:
    """Time lost to filling and draining, relative to the ideal time of a batch."""
    if scheme in FLUSHING:
        return (stages - 1) / (chunks * microbatches)
    return 0.0


def versions(scheme: str, stages: int, stage: int) -> int:
    """Weight versions that stage `stage` (from 1) holds."""
    if scheme in FLUSHING:
        return 1
    if scheme == "2bw":
        return 2
    if scheme == "vertical-sync":
        return stages
    return stages - stage + 1


def in_flight(scheme: str, stages: int, stage: int, microbatches: int, chunks: int = 1) -> int:
    """Microbatches (interleaved: chunks of them) whose stash stage `stage` (from 1) holds at its
    peak.
    """
    if scheme == "gpipe":
        return microbatches
    if scheme == "flush":
        return min(microbatches, stages - stage + 1)
    if scheme == "interleaved":
        return min(microbatches * chunks, 2 * (stages - stage) + (chunks - 1) * stages + 1)
    return stages - stage + 1


def check_scheme(scheme: str, stages: int, microbatches: int, chunks: int = 1) -> None:
    """Raises BadArgument for a shape that the scheme cannot run."""
    if scheme not in SCHEMES:
        raise BadArgument(f"scheme is {scheme!r}; choose from {', '.join(SCHEMES)}")
    if chunks > 1 and scheme != "interleaved":
        raise BadArgument(
            f"chunks is {chunks}: only the interleaved scheme runs several; set chunks to 1"
        )
    if scheme == "interleaved" and microbatches % stages:
        raise BadArgument(
            f"microbatches is {microbatches}, not a multiple of {stages} stages: the interleaved "
            "scheme needs one"
        )
    if scheme == "2bw" and microbatches < stages:
        raise BadArgument(
            f"microbatches is {microbatches}: 2bw needs at least one per stage ({stages}):"
            " use a larger batch, smaller microbatches or fewer stages"
        )


class Pass(Enum):
    """Kinds of operations on a microbatch."""

    FORWARD = "F"
    BACKWARD = "B"
    UPDATE = "U"


@dataclass(frozen=True, slots=True)
class PipelineStep:
    """One operation of a device. For an update, `microbatch` is the last one whose gradient is
    included.
    """

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


def orders(shape: ScheduleShape) -> tuple[StepOrder, ...]:
    """The operations of every device of a pipeline."""
    return tuple(_order(shape, s) for s in range(1, shape.stages + 1))


def _order(shape: ScheduleShape, s: int) -> StepOrder:
    m = shape.microbatches
    warm = shape.stages - s
    total = m * shape.batches
    if shape.scheme not in FLUSHING:
        every = 1 if shape.scheme in STASHING else m
        return _with_updates(_alternating(range(total), warm), every)

    steps: list[PipelineStep] = []
    for first in range(0, total, m):
        if shape.scheme == "interleaved":
            steps += _interleaved(shape, s, first)
        else:
            steps += _alternating(
                range(first, first + m), m if shape.scheme == "gpipe" else min(m, warm)
            )
        steps.append(PipelineStep(Pass.UPDATE, first + m - 1))

    return tuple(steps)


def _alternating(inputs: Sequence[int], warm: int) -> list[PipelineStep]:
    """`warm` forward passes, then a forward and a backward pass in turn, then the remaining
    backward passes.
    """
    steps = [PipelineStep(Pass.FORWARD, k) for k in inputs[:warm]]
    for i, k in enumerate(inputs):
        if warm + i < len(inputs):
            steps.append(PipelineStep(Pass.FORWARD, inputs[warm + i]))
        steps.append(PipelineStep(Pass.BACKWARD, k))
    return steps


def _interleaved(shape: ScheduleShape, s: int, first: int) -> list[PipelineStep]:
    p = shape.stages
    m = shape.microbatches
    v = shape.chunks

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


def replicated_orders(
    replicas: Sequence[int], rounds: int, extra: int = 0
) -> tuple[tuple[StepOrder, ...], ...]:
    """Operations of every replica of every stage under PipeDream: input k goes to replica k mod r
    of each stage.

    `extra` inputs more than the pipeline holds by its depth are admitted: unequal stages may need
    them.
    """
    inputs = range(rounds)
    stages = []
    for s, count in enumerate(replicas):
        warm = ceil(sum(replicas[s:]) / count) - 1 + (extra if s < len(replicas) - 1 else 0)
        stages.append(
            tuple(_with_updates(_alternating(inputs[r::count], warm), 1) for r in range(count))
        )
    return tuple(stages)


def versions_used(
    scheme: str, order: StepOrder, stages: int, microbatches: int, start: int = 0
) -> dict[int, int]:
    """The version of each microbatch of a device, for both of its passes. Version t is there after
    t updates.

    The order begins with an empty pipeline after `start` updates.

    Weight stashing takes the newest of the device. Vertical sync takes the version that the first
    stage took, and 2bw the version of one batch earlier, so that all stages take the same.
    """
    used: dict[int, int] = {}
    updates = start
    for step in order:
        if step.kind is Pass.UPDATE:
            updates += 1
        elif step.kind is Pass.FORWARD and step.microbatch not in used:
            if scheme == "vertical-sync":
                used[step.microbatch] = max(step.microbatch - stages + 1, start)
            elif scheme == "2bw":
                used[step.microbatch] = max(step.microbatch // microbatches - 1, 0)
            else:
                used[step.microbatch] = updates

    return used


def peak_versions(order: StepOrder, used: Mapping[int, int]) -> int:
    """The most versions that a device holds: the newest, and older ones that a pass will still
    need.
    """
    # For each version the position of the last pass that needs it.
    last = {
        used[step.microbatch]: i for i, step in enumerate(order) if step.kind is not Pass.UPDATE
    }
    held = {0}
    newest = 0
    peak = 1

    for i, step in enumerate(order):
        if step.kind is Pass.UPDATE:
            newest += 1
            held.add(newest)
        held = {version for version in held if version == newest or last.get(version, -1) >= i}
        peak = max(peak, len(held))

    return peak


def peak_in_flight(order: StepOrder) -> int:
    """The most forward passes whose backward pass has not run yet."""
    flying = peak = 0
    for step in order:
        if step.kind is Pass.FORWARD:
            flying += 1
        elif step.kind is Pass.BACKWARD:
            flying -= 1
        peak = max(peak, flying)
    return peak
