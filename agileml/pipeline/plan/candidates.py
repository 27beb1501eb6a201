"""Straight pipelines of balanced stages, replicated equally: what each would cost.

They are cut into stages of nearly equal compute as memory allows; their speed has a closed form.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from agileml.pipeline.plan.parallel_plan import (
    ParallelPlan,
    PlannedStage,
    SpeedBasis,
    SplitRequest,
    Topology,
    speed_interval,
)
from agileml.pipeline.profile.model_profile import (
    OPTIMIZER_STATE,
    CostRules,
    Matrix,
    ModelProfile,
    SpanTables,
    sync_factor,
)
from agileml.pipeline.schedule import schedules

LayerSpans = tuple[tuple[int, int], ...]


def balanced_spans(tables: SpanTables, most: int) -> dict[int, LayerSpans]:
    """For each number of stages up to `most`, the spans of layers whose slowest stage is
    fastest."""
    count = len(tables.outputs)
    best = tables.seconds[0].copy()
    cuts: list[NDArray[np.int64]] = []
    spans = {1: _spans(cuts, count)}

    for stages in range(2, min(most, count) + 1):
        # Rows: the last layer before the last stage; columns: the last layer of all.
        total = np.full((count, count), np.inf)
        total[:-1] = np.maximum(best[:-1, np.newaxis], tables.seconds[1:])
        cuts.append(total.argmin(axis=0))
        best = total.min(axis=0)
        spans[stages] = _spans(cuts, count)

    return spans


class FittingSpans:
    """The split into stages that all fit into memory and whose slowest one is fastest."""

    def __init__(self, profile: ModelProfile, rules: CostRules) -> None:
        self._tables = SpanTables.of(profile)
        self._rules = rules
        before = [profile.input_bytes, *(layer.output_bytes for layer in profile.layers[:-1])]
        self._inputs = np.array(before)[:, np.newaxis]
        self._by_copies: dict[tuple[object, ...], LayerSpans | None] = {}
        self._seconds: dict[tuple[object, ...], Matrix] = {}

    def of(
        self, scheme: str, stages: int, microbatches: int, *, recompute: bool
    ) -> LayerSpans | None:
        """Stages without chunks; None if no cut fits."""
        held = [
            (
                schedules.versions(scheme, stages, s),
                schedules.in_flight(scheme, stages, s, microbatches),
            )
            for s in range(1, stages + 1)
        ]

        key = (tuple(held), recompute)
        if key not in self._by_copies:
            # Seconds of all spans, infinite where a stage with these copies does not fit.
            tables = self._tables
            rules = self._rules
            sizes = (tables.weights, tables.stash, self._inputs)
            for copies in held:
                if (*copies, recompute) not in self._seconds:
                    needed = bytes_in_use(sizes, *copies, rules.optimizer, recompute=recompute)
                    fits = needed <= rules.memory_bytes
                    self._seconds[*copies, recompute] = np.where(fits, tables.seconds, np.inf)
            self._by_copies[key] = self._best(
                [self._seconds[*copies, recompute] for copies in held]
            )

        return self._by_copies[key]

    @staticmethod
    def _best(stages: Sequence[Matrix]) -> LayerSpans | None:
        best = stages[0][0]
        count = len(stages[0])
        cuts: list[NDArray[np.int64]] = []
        for seconds in stages[1:]:
            # As in `balanced_spans`; no stage follows the last layer.
            total = np.maximum(best[:-1, np.newaxis], seconds[1:])
            cuts.append(total.argmin(axis=0))
            best = total[cuts[-1], np.arange(count)]
        if np.isfinite(best[-1]):
            return _spans(cuts, count)
        return None


def _spans(cuts: Sequence[NDArray[np.int64]], count: int) -> LayerSpans:
    spans = []
    last = count - 1
    for cut in reversed(cuts):
        spans.append((int(cut[last]) + 1, last))
        last = int(cut[last])
    return ((0, last), *reversed(spans))


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


def double_buffered_seconds(stages: Sequence[StageCost], microbatches: int) -> float:
    """Seconds per microbatch under 2BW: the slowest stage, or its all-reduce spread over a
    batch."""
    return max(
        max(
            stage.seconds + stage.link_seconds + stage.update_seconds / microbatches,
            stage.sync_seconds / microbatches,
        )
        for stage in stages
    )


def unpipelined_seconds(stages: Sequence[StageCost], microbatches: int) -> float:
    """Seconds per microbatch when one stage works at a time."""
    worked = sum(stage.seconds + stage.link_seconds for stage in stages)
    return worked + _flush_seconds(stages) / microbatches


def flush_batch_seconds(stages: Sequence[StageCost], microbatches: int, chunks: int = 1) -> float:
    """Seconds per batch when the pipeline drains before each update."""
    drained = (len(stages) - 1) / chunks
    # Links are not hidden.
    slowest = max(stage.seconds + stage.link_seconds for stage in stages)
    return (microbatches + drained) * slowest + _flush_seconds(stages)


def _flush_seconds(stages: Sequence[StageCost]) -> float:
    """All stages synchronize and update at the same time."""
    return max(stage.sync_seconds + stage.update_seconds for stage in stages)


def held_bytes(stage: StageCost, versions: int, in_flight: float, optimizer: str) -> float:
    """Weight versions, gradients, optimizer state, and the stash or stage inputs of microbatches in
    flight.
    """
    sizes = (stage.weight_bytes, stage.stash_bytes, stage.input_bytes)
    return bytes_in_use(sizes, versions, in_flight, optimizer, recompute=stage.recompute)


def bytes_in_use(
    sizes: tuple[_Bytes, _Bytes, _Bytes],
    versions: int,
    in_flight: float,
    optimizer: str,
    *,
    recompute: bool,
) -> _Bytes:
    """As `held_bytes`, from the bytes of weights, stash and input: of one stage, or of many in
    matrices.
    """
    weights, stash, inputs = sizes
    stashes = 1 if recompute else in_flight
    return (
        (versions + 1 + OPTIMIZER_STATE[optimizer]) * weights + stashes * stash + in_flight * inputs
    )


CHUNKS = (2, 3, 4)


@dataclass(frozen=True)
class _Shape:
    """`stages` devices in each of `pipelines`; a batch is `microbatches` for each pipeline."""

    profile: ModelProfile
    stages: int
    pipelines: int
    microbatches: int
    recompute: bool


def straight_plans(
    profile: ModelProfile, request: SplitRequest, basis: SpeedBasis
) -> Iterator[ParallelPlan]:
    """Every depth, replication, scheme and recomputation that the request allows."""
    n = request.topology.devices
    spans = balanced_spans(SpanTables.of(profile), n * max(CHUNKS))
    smaller = FittingSpans(profile, request.rules)

    for stages in [request.stages] if request.stages else range(1, min(n, len(profile.layers)) + 1):
        for pipelines in [request.pipelines] if request.pipelines else range(1, n // stages + 1):
            microbatches, rest = divmod(request.batch, pipelines * profile.microbatch)
            if rest or not microbatches:
                continue
            for recompute in (False, True) if request.recompute is None else (request.recompute,):
                shape = _Shape(profile, stages, pipelines, microbatches, recompute)
                for scheme, chunks in _schemes(shape, request):
                    if stages * chunks not in spans:
                        continue
                    candidate = _candidate(
                        shape, spans[stages * chunks], request, (scheme, chunks), basis
                    )
                    if candidate.memory_bytes > request.rules.memory_bytes and chunks == 1:
                        others = smaller.of(scheme, stages, microbatches, recompute=recompute)
                        candidate = (
                            _candidate(shape, others, request, (scheme, 1), basis)
                            if others
                            else candidate
                        )
                    yield candidate


def _schemes(shape: _Shape, request: SplitRequest) -> Iterator[tuple[str, int]]:
    """Schemes and numbers of chunks that this shape can run."""
    p = shape.stages
    m = shape.microbatches
    for scheme in ("gpipe", "flush", "2bw"):
        runs = scheme != "2bw" or 1 < p <= m
        if runs and request.chunks in (None, 1) and request.allows(scheme, p):
            yield scheme, 1

    if p > 1 and m % p == 0 and request.allows("interleaved", p):
        for chunks in CHUNKS if request.chunks is None else (request.chunks,):
            if chunks > 1:
                yield "interleaved", chunks


def _candidate(
    shape: _Shape, spans: LayerSpans, request: SplitRequest, how: tuple[str, int], basis: SpeedBasis
) -> ParallelPlan:
    scheme, chunks = how
    p = shape.stages
    m = shape.microbatches
    devices = [
        _device(shape, [spans[c * p + s] for c in range(chunks)], request, s) for s in range(p)
    ]

    if scheme == "2bw":
        seconds_per_microbatch = double_buffered_seconds(devices, m)
        seconds = seconds_per_microbatch * m
    else:
        seconds = flush_batch_seconds(devices, m, chunks)

    held = []
    for s, cost in enumerate(devices, 1):
        flying = schedules.in_flight(scheme, p, s, m, chunks) / chunks
        versions = schedules.versions(scheme, p, s)
        held.append(held_bytes(cost, versions, flying, request.rules.optimizer))

    worked = sum(cost.forward_seconds + cost.backward_seconds for cost in devices) * m / p
    speed = request.batch / seconds
    stages = []
    for i, span in enumerate(spans):
        stage = planned_stage(shape.profile, span, shape.pipelines, request.rules.optimizer)
        # The output of a virtual stage goes to the next one.
        send_seconds = 0.0
        if shape.profile.layers[span[1]] is not shape.profile.layers[-1]:
            bandwidth = _bandwidth_before(request.topology, shape, (i + 1) % p)
            send_seconds = stage.output_bytes / bandwidth
        sync_seconds = devices[i % p].sync_seconds
        stages.append(
            replace(
                stage,
                memory_bytes=held[i % p],
                send_seconds=send_seconds,
                sync_seconds=sync_seconds,
            )
        )

    alone = unpipelined_seconds(devices, m) * m
    return ParallelPlan(
        model=shape.profile.model,
        scheme=scheme,
        stages=tuple(stages),
        chunks=chunks,
        noam=p,
        microbatch=shape.profile.microbatch,
        microbatches=m,
        recompute=shape.recompute,
        samples_per_second=speed,
        interval=speed_interval(speed, basis),
        idle=1 - worked / seconds,
        bubble=schedules.bubble(scheme, p, m, chunks),
        memory_bytes=max(held),
        bottleneck=_bottleneck(devices, m),
        basis=basis,
        unpipelined_samples_per_second=request.batch / alone,
    )


def planned_stage(
    profile: ModelProfile, span: tuple[int, int], replicas: int, optimizer: str
) -> PlannedStage:
    """The sums over the layers of a stage. Memory and links depend on the rest of the plan and are
    filled in later.
    """
    first, last = span
    layers = profile.layers[first : last + 1]
    # At each cut a stage has one end of two messages: an output, and its gradient.
    cuts = [cut for cut in (first - 1, last) if 0 <= cut < len(profile.layers) - 1]
    passing = sum(profile.layers[cut].output_seconds for cut in cuts)
    forward_seconds = sum(layer.forward_seconds for layer in layers)
    backward_seconds = sum(layer.backward_seconds for layer in layers) + passing
    weight_bytes = sum(layer.weight_bytes for layer in layers)
    stash_bytes = sum(layer.stash_bytes for layer in layers)
    input_bytes = profile.layers[first - 1].output_bytes if first else profile.input_bytes
    update_seconds = sum(layer.update_seconds.get(optimizer, 0.0) for layer in layers)
    return PlannedStage(
        layers=span,
        replicas=replicas,
        forward_seconds=forward_seconds,
        backward_seconds=backward_seconds,
        output_bytes=profile.layers[last].output_bytes,
        send_seconds=0.0,
        sync_seconds=0.0,
        weight_bytes=weight_bytes,
        stash_bytes=stash_bytes,
        input_bytes=input_bytes,
        memory_bytes=0.0,
        update_seconds=update_seconds,
    )


def _device(
    shape: _Shape, spans: Sequence[tuple[int, int]], request: SplitRequest, s: int
) -> StageCost:
    """All chunks of device `s` of a pipeline. Chunk c of device s is the virtual stage c p + s."""
    own = [
        planned_stage(shape.profile, span, shape.pipelines, request.rules.optimizer)
        for span in spans
    ]
    weights = sum(stage.weight_bytes for stage in own)
    received = sum(stage.input_bytes for stage in own if stage.layers[0])
    sync_bandwidth = request.topology.slowest(s, s + shape.stages * (shape.pipelines - 1))
    sync = sync_factor(shape.pipelines, request.rules.sync) * weights / sync_bandwidth

    forward_seconds = sum(stage.forward_seconds for stage in own)
    backward_seconds = sum(stage.backward_seconds for stage in own)
    link_seconds = 2 * received / _bandwidth_before(request.topology, shape, s) if received else 0.0
    stash_bytes = sum(stage.stash_bytes for stage in own)
    input_bytes = sum(stage.input_bytes for stage in own)
    update_seconds = sum(stage.update_seconds for stage in own)
    return StageCost(
        forward_seconds,
        backward_seconds,
        link_seconds,
        sync,
        weights,
        stash_bytes,
        input_bytes,
        shape.recompute,
        update_seconds,
    )


def _bandwidth_before(topology: Topology, shape: _Shape, s: int) -> float:
    """The slowest link into a stage in any pipeline. Pipelines follow each other, so few of their
    links leave a server.

    The input of an interleaved device 0 comes from the last device.
    """
    ends = sorted((s, (s - 1) % shape.stages))
    starts = range(0, shape.stages * shape.pipelines, shape.stages)
    return min(topology.slowest(start + ends[0], start + ends[1]) for start in starts)


def _bottleneck(devices: Sequence[StageCost], microbatches: int) -> str:
    busy = [device.seconds + device.link_seconds for device in devices]
    slowest = busy.index(max(busy))
    device = devices[slowest]
    if max(cost.sync_seconds for cost in devices) > busy[slowest] * microbatches:
        return "the all-reduce of the gradients"
    if device.link_seconds > device.seconds:
        return f"the link before pipeline stage {slowest + 1}"

    return f"compute of pipeline stage {slowest + 1}"
