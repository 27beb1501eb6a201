"""Straight pipelines: cut into stages of nearly equal compute as memory allows, and their speed in
closed form.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from agileml.pipeline.profile.model_profile import (
    OPTIMIZER_STATE,
    CostRules,
    Matrix,
    ModelProfile,
    SpanTables,
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
    """The spans of layers whose slowest stage is fastest, among those of which each stage fits into
    memory.
    """

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
            self._by_copies[key] = self._best(
                [self._fitting(*copies, recompute) for copies in held]
            )

        return self._by_copies[key]

    def _fitting(self, versions: int, in_flight: float, recompute: bool) -> Matrix:
        """Seconds of all spans, infinite where a stage with these copies does not fit."""
        key = versions, in_flight, recompute
        if key not in self._seconds:
            tables = self._tables
            rules = self._rules
            sizes = (tables.weights, tables.stash, self._inputs)
            needed = bytes_in_use(sizes, versions, in_flight, rules.optimizer, recompute=recompute)
            self._seconds[key] = np.where(needed <= rules.memory_bytes, tables.seconds, np.inf)
        return self._seconds[key]

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


def step_seconds(stages: Sequence[StageCost]) -> float:
    """Seconds per microbatch of the slowest stage; links are not hidden."""
    return max(stage.seconds + stage.link_seconds for stage in stages)


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
    return (microbatches + drained) * step_seconds(stages) + _flush_seconds(stages)


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
