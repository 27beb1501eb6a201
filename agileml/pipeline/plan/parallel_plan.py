"""The planner's input, `SplitRequest`, and its result, `ParallelPlan`: how a model is split and
run, and how fast that is expected to be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import ceil, inf, prod
from typing import Any, Literal

import numpy as np

from agileml.errors import BadArgument, check_whole
from agileml.pipeline.profile.model_profile import (
    OPTIMIZER_STATE,
    BadProfile,
    CostRules,
    Matrix,
    SpanTables,
    stage_seconds,
    versioned_bytes,
)
from agileml.pipeline.schedule import schedules
from agileml.pipeline.schedule.schedules import (
    STASHING,
    ScheduleShape,
    StepOrder,
    orders,
    peak_in_flight,
    peak_versions,
    replicated_orders,
    versions_used,
)
from agileml.pipeline.schedule.simulator import PipelineRun, StageTimes, play


@dataclass(frozen=True)
class SplitRequest:
    """Devices, batch and limits. `None` and "auto" leave the choice to the planner."""

    topology: Topology
    batch: int
    rules: CostRules = field(default_factory=CostRules)
    scheme: str = "auto"
    allow_delay: int = 0
    """Updates that a gradient may miss in a scheme that the planner chooses."""
    stages: int | None = None
    pipelines: int | None = None
    chunks: int | None = None
    recompute: bool | None = None
    tensor: int | None = None
    """Devices of a server that share each split layer; None compares 1 with the parts that the
    layers have."""

    def __post_init__(self) -> None:
        check_whole("batch", self.batch, 1)
        check_whole("allow_delay", self.allow_delay, 0)
        for name in ("stages", "pipelines", "chunks", "tensor"):
            wanted = getattr(self, name)
            if wanted is not None:
                check_whole("replicas" if name == "pipelines" else name, wanted, 1)

        if self.scheme not in ("auto", *schedules.SCHEMES):
            raise BadArgument(
                f"scheme is {self.scheme!r}; choose from auto, {', '.join(schedules.SCHEMES)}"
            )
        if self.rules.optimizer not in OPTIMIZER_STATE:
            raise BadArgument(
                f"optimizer is {self.rules.optimizer!r}; choose from {', '.join(OPTIMIZER_STATE)}"
            )

        tensor = self.tensor or 1
        needed = (self.stages or 1) * (self.pipelines or 1) * tensor
        if needed > self.topology.devices:
            each = f" of {tensor} devices each" if tensor > 1 else ""
            raise BadArgument(
                f"{self.stages or 1} stages{each} in {self.pipelines or 1} pipelines need {needed} "
                f"devices, and there are {self.topology.devices}: use fewer stages or more devices"
            )

    def allows(self, scheme: str, stages: int) -> bool:
        """Whether the scheme was named, or delays no gradient more than allowed."""
        if self.scheme != "auto":
            return self.scheme == scheme
        return (
            scheme not in ("gpipe", "vertical-sync")
            and schedules.delay(scheme, stages) <= self.allow_delay
        )


@dataclass(frozen=True)
class Topology:
    """Level k has `counts[k]` components of level k-1, connected by links of `bandwidths[k]` bytes
    per second.
    """

    counts: tuple[int, ...]
    bandwidths: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.counts) != len(self.bandwidths) or not self.counts:
            raise BadProfile(
                f"{len(self.counts)} levels of devices but {len(self.bandwidths)} bandwidths: give "
                "one per level"
            )
        if min(self.counts) < 1 or not all(
            0 < bandwidth < float("inf") for bandwidth in self.bandwidths
        ):
            raise BadProfile("every level needs at least one component and a bandwidth above 0")

    @property
    def devices(self) -> int:
        return prod(self.counts)

    def sizes(self) -> tuple[int, ...]:
        """Devices of one component of each level."""
        return tuple(prod(self.counts[: k + 1]) for k in range(len(self.counts)))

    def grouped(self, tensor: int) -> Topology:
        """Groups of `tensor` devices of one server as devices."""
        if self.counts[0] % tensor:
            raise BadProfile(
                f"tensor is {tensor}, and a server has {self.counts[0]} devices: use servers with "
                "a multiple of it"
            )
        return Topology((self.counts[0] // tensor, *self.counts[1:]), self.bandwidths)

    def slowest(self, first: int, last: int) -> float:
        """The bandwidth between devices `first` to `last`, counted from the end of the pipeline."""
        crossed = (size for size in self.sizes()[:-1] if first // size != last // size)
        levels = 1 + sum(1 for _ in crossed)
        return min(self.bandwidths[:levels])


@dataclass(frozen=True)
class PipelineStage:
    """Layers `first` to `last`, on `replicas` workers that take inputs in turn."""

    first: int
    last: int
    replicas: int


@dataclass(frozen=True)
class ModelSplit:
    """Consecutive stages, and the seconds per input of the slowest stage or link. Of the one that
    is chosen, also what its `bottleneck` is, and the other splits with why each was `rejected`."""

    stages: tuple[PipelineStage, ...]
    seconds: float
    search: str
    bottleneck: str = ""
    rejected: tuple[tuple[str, str], ...] = ()

    @property
    def workers(self) -> int:
        return sum(stage.replicas for stage in self.stages)

    def __str__(self) -> str:
        return "-".join(str(stage.replicas) for stage in self.stages)


def in_flight(replicas: Sequence[int]) -> list[int]:
    """Inputs in flight in each replica of every stage: workers from the stage on, over its
    replicas, rounded up.
    """
    return [ceil(sum(replicas[s:]) / count) for s, count in enumerate(replicas)]


Block = tuple[slice, slice]
"""Spans by their first and their last layer."""


WHOLE: Block = (slice(None), slice(None))


class StageTables:
    """Tables of stages of one model, by the workers of a stage, its links, and its inputs in
    flight.
    """

    def __init__(self, tables: SpanTables, rules: CostRules) -> None:
        self.spans = tables
        self.rules = rules
        self._seconds: dict[tuple[int, float], Matrix] = {}
        self._surcharge: dict[int, Matrix] = {}
        """0 where a stage fits, by inputs in flight, and infinite where not: adding is faster than
        choosing."""

    def seconds(self, replicas: int, bandwidth: float) -> Matrix:
        """Seconds per input of a stage on some workers, in memory or not."""
        key = replicas, bandwidth
        if key not in self._seconds:
            spans = self.spans
            self._seconds[key] = stage_seconds(
                spans.seconds, spans.weights, replicas, bandwidth, self.rules
            )
        return self._seconds[key]

    def fitting(self, seconds: Matrix, in_flight: int, block: Block = WHOLE) -> Matrix:
        """These seconds of a block, infinite where a worker with `in_flight` inputs does not fit
        into memory.
        """
        if self.rules.memory_bytes == inf:
            return seconds
        if in_flight not in self._surcharge:
            need = versioned_bytes(
                self.spans.weights, self.spans.stash, in_flight, self.rules.optimizer
            )
            self._surcharge[in_flight] = np.where(need <= self.rules.memory_bytes, 0.0, inf)
        return seconds + self._surcharge[in_flight][block]


SpeedBasis = Literal["profiled", "scaled"]


_SPREAD = {"profiled": 0.15, "scaled": 0.4}
"""Half the width of the interval around an estimate, relative to it."""


def speed_interval(speed: float, basis: SpeedBasis) -> tuple[float, float]:
    """The interval in which the real speed is expected."""
    return speed / (1 + _SPREAD[basis]), speed * (1 + _SPREAD[basis])


@dataclass(frozen=True)
class PlannedStage:
    """Layers `layers[0]` to `layers[1]` on `replicas` devices, and what one microbatch costs
    there."""

    layers: tuple[int, int]
    """Index of the first layer, and of the last."""
    replicas: int
    """Devices that run copies of the stage."""
    forward_seconds: float
    """Time of the forward pass of a microbatch."""
    backward_seconds: float
    """Time of the backward pass of a microbatch."""
    output_bytes: float
    """Size of the output of a microbatch."""
    send_seconds: float
    """Time to send the output to the next stage; the gradient takes as long."""
    sync_seconds: float
    """Time of one all-reduce of the gradients."""
    weight_bytes: float
    """Size of the weights."""
    stash_bytes: float
    """Memory for each microbatch in flight, until its backward pass."""
    input_bytes: float
    """Size of the input of a microbatch."""
    memory_bytes: float
    """Memory that a device needs."""
    update_seconds: float = 0.0
    """Time of an update of the weights."""


@dataclass(frozen=True)
class ParallelPlan:
    """The chosen split, its expected speed and memory, and the alternatives that lost."""

    model: str
    """Name of the model."""
    scheme: str
    """Schedule of forward and backward passes."""
    stages: tuple[PlannedStage, ...]
    """Pipeline stages in order."""
    chunks: int
    """Chunks of layers per device."""
    noam: int
    """Inputs that each replica of the first stage admits before the pipeline is full."""
    microbatch: int
    """Samples in a microbatch."""
    microbatches: int
    """Microbatches per pipeline and batch."""
    recompute: bool
    """Whether the forward pass is repeated before the backward pass to save memory."""
    samples_per_second: float
    """Expected speed."""
    interval: tuple[float, float]
    """Interval of the speed."""
    idle: float
    """Share of device time without computation."""
    bubble: float
    """Time lost to filling and draining the pipeline, relative to the ideal time."""
    memory_bytes: float
    """Memory needed on the fullest device."""
    bottleneck: str
    """Bottleneck of the plan."""
    basis: SpeedBasis
    """Origin of the layer times: measured on this device type, or scaled to it."""
    unpipelined_samples_per_second: float
    """Speed if only one stage worked at a time."""
    rejected: tuple[tuple[str, str], ...] = ()
    """Plans that are slower or do not fit."""
    tensor: int = 1
    """Devices of each replica of a stage, which share its split layers."""
    every: int = 1
    """Updates between copies of all layers; training returns to a copy if the only node with a
    layer is lost."""

    @property
    def devices(self) -> int:
        return self.tensor * sum(stage.replicas for stage in self.stages[: self.depth])

    @property
    def depth(self) -> int:
        """Devices in one pipeline. With several chunks, stage i runs on device i modulo this."""
        return len(self.stages) // self.chunks

    def to_json(self) -> dict[str, Any]:
        answer = asdict(self)
        answer["rejected"] = [{"plan": name, "reason": reason} for name, reason in self.rejected]
        return answer


def plan_from_json(content: object) -> ParallelPlan:
    """A plan as `spotctl lab parallel plan --json` wrote it."""
    if not isinstance(content, Mapping) or not isinstance(content.get("stages"), list):
        raise BadProfile("is not a plan: write one with spotctl lab parallel plan PROFILE --json")

    try:
        fields = {key: value for key, value in content.items() if key != "devices"}
        fields["stages"] = tuple(
            PlannedStage(**{**stage, "layers": tuple(stage["layers"])})
            for stage in fields["stages"]
        )
        fields["interval"] = tuple(fields["interval"])
        fields["rejected"] = tuple((loser["plan"], loser["reason"]) for loser in fields["rejected"])
        plan = ParallelPlan(**fields)
        if plan.tensor < 1:
            raise ValueError(f"tensor is {plan.tensor}")
        if not isinstance(plan.every, int) or plan.every < 1:
            raise ValueError(f"every is {plan.every}")
        if not 0 < plan.chunks <= len(plan.stages) or len(plan.stages) % plan.chunks:
            raise ValueError(f"{len(plan.stages)} stages in {plan.chunks} chunks")
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise BadProfile(
            f"is not a complete plan ({error}): write it again with spotctl lab parallel plan"
        ) from None

    return plan


MAX_EXTRA = 2


@dataclass(frozen=True)
class PlayedPlan:
    """A run of a plan, its speed, and the peaks of each stage."""

    run: PipelineRun
    samples_per_second: float
    bubble: float
    peak_in_flight: tuple[int, ...]
    peak_versions: tuple[int, ...]
    extra: int
    """Inputs in flight beyond the depth, where replicas are unequal."""


def simulate(plan: ParallelPlan, batches: int) -> PlayedPlan:
    """Plays `batches` batches of a plan; with stashing, as many inputs as fill the pipeline that
    many times.
    """
    times = [
        StageTimes(
            stage.forward_seconds,
            stage.backward_seconds + stage.forward_seconds * plan.recompute,
            stage.send_seconds,
            stage.sync_seconds + stage.update_seconds,
        )
        for stage in plan.stages
    ]

    if plan.scheme in STASHING:
        # More inputs are admitted only where that is more than 1% faster: each costs a stash and a
        # weight version.
        replicas = [stage.replicas for stage in plan.stages]
        rounds = max(replicas) * len(replicas) * max(batches, 3)
        best: PlayedPlan | None = None
        for extra in range(MAX_EXTRA + 1):
            lines = replicated_orders(replicas, rounds, extra)
            played = _played(plan, play(lines, times), lines, plan.microbatch * replicas[0], extra)
            if best is None or played.samples_per_second > best.samples_per_second * 1.01:
                best = played
        assert best is not None
        return best

    shape = ScheduleShape(plan.scheme, plan.depth, plan.microbatches, batches, plan.chunks)
    run = play([[order] for order in orders(shape)], times)
    samples = plan.microbatch * plan.microbatches * plan.stages[0].replicas
    return _played(plan, run, [[order] for order in orders(shape)], samples, 0)


def _played(
    plan: ParallelPlan,
    run: PipelineRun,
    lines: Sequence[Sequence[StepOrder]],
    samples: int,
    extra: int,
) -> PlayedPlan:
    period = run.period()
    # Seconds between updates if the busiest device never waited.
    work = [
        stage.forward_seconds * (1 + plan.recompute) + stage.backward_seconds
        for stage in plan.stages
    ]

    if plan.scheme in STASHING:
        stages = zip(work, plan.stages, strict=True)
        shared = [seconds / stage.replicas for seconds, stage in stages]
        ideal = max(shared) * plan.stages[0].replicas
    else:
        busiest = max(sum(work[s :: plan.depth]) for s in range(plan.depth))
        ideal = busiest * plan.microbatches

    flying = []
    versions = []
    for stage in lines:
        # All replicas of a stage hold as much.
        order = stage[0]
        used = versions_used(plan.scheme, order, plan.depth, plan.microbatches)
        flying.append(peak_in_flight(order))
        versions.append(peak_versions(order, used))

    speed = samples / period
    bubble = period / ideal - 1
    return PlayedPlan(run, speed, bubble, tuple(flying), tuple(versions), extra)
