"""The search by levels: pipelines within a server become the building blocks of pipelines over servers."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agileml.pipeline.plan.splits import ModelSplit, PipelineStage
from agileml.pipeline.plan.topology import Topology
from agileml.pipeline.profile.costs import CostRules, Matrix, SpanTables, Vector, stage_seconds, versioned_bytes

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class _LevelTables:
    """Best times A^k(i, j, m) for all m of a level, and how they split; index m - 1."""

    times: list[Matrix]
    cuts: list[Indices]
    """The last layer before the last stage; -1 where one stage takes all."""
    last_replicas: list[Indices]


def level_splits(tables: SpanTables, topology: Topology, rules: CostRules) -> list[ModelSplit]:
    """The best split for every number of the largest components."""
    levels: list[_LevelTables] = []
    compute = _leaves(tables, rules)
    for k, (count, bandwidth) in enumerate(zip(topology.counts, topology.bandwidths, strict=True), 1):
        # The last level is asked for the whole model only: pipelines that start at the first layer.
        rows = 1 if k == len(topology.counts) else len(tables.outputs)
        bare = [stage_seconds(compute, tables.weights, m, bandwidth, rules) for m in range(1, count + 1)]
        levels.append(_solve(bare, 2 * tables.outputs / bandwidth, rows))
        compute = levels[-1].times[-1]
    last = len(tables.outputs) - 1
    splits = []
    for m, times in enumerate(levels[-1].times, 1):
        seconds = float(times[0, last])
        if np.isfinite(seconds):
            stages = tuple(_stages(levels, len(levels) - 1, 0, last, m))
            splits.append(ModelSplit(stages, seconds, "levels"))
    return splits


def _leaves(tables: SpanTables, rules: CostRules) -> Matrix:
    """A^0: the compute time on one device, infinite where even one input in flight does not fit."""
    need = versioned_bytes(tables.weights, tables.stash, 1, rules.optimizer)
    return np.where(need <= rules.memory_bytes, tables.seconds, np.inf)


def _solve(bare: list[Matrix], links: Vector, rows: int) -> _LevelTables:
    """Splits a level whose single stage on m components takes `bare[m - 1]` seconds."""
    level = _LevelTables([], [], [])
    for m, alone in enumerate(bare, 1):
        times = alone[:rows].copy()
        cuts, replicas = np.full(times.shape, -1), np.full(times.shape, m)
        for last in range(1, m):
            _improve((times, cuts, replicas), (level.times[m - last - 1], links, bare[last - 1]), last)
        level.times.append(times)
        level.cuts.append(cuts)
        level.last_replicas.append(replicas)
    return level


def _improve(best: tuple[Matrix, Indices, Indices], parts: tuple[Matrix, Vector, Matrix], last: int) -> None:
    """Tries a last stage on `last` components after every layer s."""
    times, cuts, replicas = best
    before, links, stage = parts
    for s in range(len(links) - 1):
        head = np.maximum(before[: s + 1, s], links[s])
        slowest = np.maximum(head[:, np.newaxis], stage[np.newaxis, s + 1, s + 1 :])
        block = (slice(0, len(head)), slice(s + 1, None))
        better = slowest < times[block]
        if better.any():
            times[block][better] = slowest[better]
            cuts[block][better] = s
            replicas[block][better] = last


def _stages(levels: list[_LevelTables], k: int, first: int, last: int, m: int) -> list[PipelineStage]:
    """The stages of A^k(first, last, m), each with the replicas of all levels."""
    if k < 0:
        return [PipelineStage(first, last, 1)]
    cut, replicas = int(levels[k].cuts[m - 1][first, last]), int(levels[k].last_replicas[m - 1][first, last])
    inner = len(levels[k - 1].times) if k else 1
    start = first if cut < 0 else cut + 1
    block = _stages(levels, k - 1, start, last, inner)
    tail = [PipelineStage(stage.first, stage.last, stage.replicas * replicas) for stage in block]
    return tail if cut < 0 else [*_stages(levels, k, first, cut, m - replicas), *tail]
