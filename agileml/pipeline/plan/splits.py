"""Stages of a model: which layers, on how many workers."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil


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
