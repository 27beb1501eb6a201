"""The search over all devices at once, from the last stage to the first.

Devices are counted from the end of the pipeline, so a partial solution knows how many workers follow: hence how many
inputs its first stage keeps in flight, and between which servers its links run.
"""

from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from agileml.pipeline.plan.splits import ModelSplit, PipelineStage
from agileml.pipeline.plan.stage_tables import StageTables
from agileml.pipeline.plan.topology import Topology
from agileml.pipeline.profile.costs import CostRules, Matrix, SpanTables, Vector


@dataclass(frozen=True)
class _Suffix:
    """The best pipelines for layers i.. on exactly m workers with r replicas of the first stage, for every i."""

    seconds: Vector
    cut: NDArray[np.int64]
    """The last layer of the first stage."""
    next_replicas: NDArray[np.int64]
    """Replicas of the second stage; 0 if there is none."""


def flat_splits(tables: SpanTables, topology: Topology, rules: CostRules) -> list[ModelSplit]:
    """The best split for every number of workers that has one."""
    search = _FlatSearch(tables, topology, rules)
    splits = [search.best(workers) for workers in range(1, topology.devices + 1)]
    return [split for split in splits if split is not None]


class _FlatSearch:
    """Fills the table from one worker to all."""

    def __init__(self, tables: SpanTables, topology: Topology, rules: CostRules) -> None:
        self._tables, self._topology, self._stages_of = tables, topology, StageTables(tables, rules)
        self._count = len(tables.outputs)
        self._table: dict[tuple[int, int], _Suffix] = {}
        self._after: dict[int, Matrix] = {}
        """By a number of workers: for each cut, the seconds of what follows on them, the most replicas first."""
        devices = range(topology.devices)
        self._slowest = np.array([[topology.slowest(*sorted((a, b))) for b in devices] for a in devices])
        for workers in range(1, topology.devices + 1):
            for replicas in range(1, workers + 1):
                self._table[workers, replicas] = self._solve(workers, replicas)
            self._after[workers] = np.full((workers, self._count), np.inf)
            for row, r in enumerate(range(workers, 0, -1)):
                self._after[workers][row, :-1] = self._table[workers, r].seconds[1:]

    def best(self, workers: int) -> ModelSplit | None:
        seconds, replicas = min((self._table[workers, r].seconds[0], -r) for r in range(1, workers + 1))
        if not np.isfinite(seconds):
            return None
        return ModelSplit(tuple(self._stages(workers, -replicas)), float(seconds), "flat")

    def _stages(self, workers: int, replicas: int) -> list[PipelineStage]:
        stages, first = [], 0
        while replicas:
            suffix = self._table[workers, replicas]
            last, following = int(suffix.cut[first]), int(suffix.next_replicas[first])
            stages.append(PipelineStage(first, last, replicas))
            workers, replicas, first = workers - replicas, following, last + 1
        return stages

    def _stage_times(self, workers: int, replicas: int) -> Matrix:
        """Seconds per input of a stage on the first `replicas` of `workers`, for all spans; infinite if too large."""
        bandwidth = float(self._slowest[workers - replicas, workers - 1])
        return self._stages_of.fitting(self._stages_of.seconds(replicas, bandwidth), ceil(workers / replicas))

    def _solve(self, workers: int, replicas: int) -> _Suffix:
        times = self._stage_times(workers, replicas)
        rest = workers - replicas
        if not rest:
            last = np.full(self._count, self._count - 1)
            return _Suffix(times[:, -1], last, np.zeros(self._count, dtype=np.int64))
        following, chosen = self._following(workers, rest)
        total = np.maximum(times, following[np.newaxis, :])
        cut = total.argmin(axis=1)
        return _Suffix(total[np.arange(self._count), cut], cut, chosen[cut])

    def _following(self, workers: int, rest: int) -> tuple[Vector, NDArray[np.int64]]:
        """For a cut after each layer: seconds of the cut and all that follows, and the replicas of the next stage."""
        # The most replicas first: among equals they make the fewest stages.
        replicas = np.arange(rest, 0, -1)
        bandwidths = self._slowest[rest - replicas, workers - 1]
        seconds = np.maximum(2 * self._tables.outputs / bandwidths[:, np.newaxis], self._after[rest])
        best = seconds.argmin(axis=0)
        return seconds[best, np.arange(self._count)], replicas[best]
