"""Stages of a model: which layers, on how many workers, and the seconds and memory of each span of layers."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf

import numpy as np

from agileml.pipeline.profile.model_profile import CostRules, Matrix, SpanTables, stage_seconds, versioned_bytes


@dataclass(frozen=True)
class PipelineStage:
    """Layers `first` to `last`, on `replicas` workers that take inputs in turn."""

    first: int
    last: int
    replicas: int


@dataclass(frozen=True)
class ModelSplit:
    """Consecutive stages, and the seconds per input of the slowest stage or link."""

    stages: tuple[PipelineStage, ...]
    seconds: float
    search: str

    @property
    def workers(self) -> int:
        return sum(stage.replicas for stage in self.stages)

    def __str__(self) -> str:
        return "-".join(str(stage.replicas) for stage in self.stages)


def in_flight(replicas: Sequence[int]) -> list[int]:
    """Inputs in flight in each replica of every stage: workers from the stage on, over its replicas, rounded up."""
    return [ceil(sum(replicas[s:]) / count) for s, count in enumerate(replicas)]


Block = tuple[slice, slice]
"""Spans by their first and their last layer."""
WHOLE: Block = (slice(None), slice(None))


class StageTables:
    """Tables of stages of one model, by the workers of a stage, its links, and its inputs in flight."""

    def __init__(self, tables: SpanTables, rules: CostRules) -> None:
        self.spans, self.rules = tables, rules
        self._seconds: dict[tuple[int, float], Matrix] = {}
        self._surcharge: dict[int, Matrix] = {}
        """0 where a stage fits, by inputs in flight, and infinite where not: adding is faster than choosing."""

    def seconds(self, replicas: int, bandwidth: float) -> Matrix:
        """Seconds per input of a stage on some workers, in memory or not."""
        key = replicas, bandwidth
        if key not in self._seconds:
            spans = self.spans
            self._seconds[key] = stage_seconds(spans.seconds, spans.weights, replicas, bandwidth, self.rules)
        return self._seconds[key]

    def fitting(self, seconds: Matrix, in_flight: int, block: Block = WHOLE) -> Matrix:
        """These seconds of a block, infinite where a worker with `in_flight` inputs does not fit into memory."""
        if self.rules.memory_bytes == inf:
            return seconds
        if in_flight not in self._surcharge:
            need = versioned_bytes(self.spans.weights, self.spans.stash, in_flight, self.rules.optimizer)
            self._surcharge[in_flight] = np.where(need <= self.rules.memory_bytes, 0.0, inf)
        return seconds + self._surcharge[in_flight][block]
