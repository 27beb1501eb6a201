"""The search by levels: pipelines within a server become the building blocks of pipelines over servers.

Memory depends on the workers that follow a stage, on all levels: each replica keeps one input in flight, and its share
of one for each of those workers, rounded up. Rounding up at each level gives the same number as rounding once, so the
search within a server needs to know only how many workers follow each copy of a pipeline.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, inf

import numpy as np
from numpy.typing import NDArray

from agileml.pipeline.plan.splits import ModelSplit, PipelineStage
from agileml.pipeline.plan.stage_tables import Block, StageTables
from agileml.pipeline.plan.topology import Topology
from agileml.pipeline.profile.costs import CostRules, Matrix, SpanTables, stage_seconds

Indices = NDArray[np.int64]
Cube = NDArray[np.float64]


@dataclass(frozen=True)
class _Pipelines:
    """The best pipelines over a number of components, for all spans of layers, and how they split."""

    seconds: Matrix
    cuts: Indices
    """The last layer before the last stage; -1 where one stage takes all."""
    last_parts: Indices
    """Components of the last stage."""


@dataclass(frozen=True)
class _Place:
    """Where pipelines are in the whole: at a level, on `parts` of its components, in a number of equal copies."""

    level: int
    parts: int
    copies: int
    following: int
    """Workers behind each copy."""


def level_splits(tables: SpanTables, topology: Topology, rules: CostRules, most: float = inf) -> list[ModelSplit]:
    """The best split for every number of the largest components, if it takes at most `most` seconds."""
    search = _LevelSearch(tables, topology, rules, most)
    top = len(topology.counts) - 1
    splits = []
    for parts in range(1, topology.counts[top] + 1):
        place = _Place(top, parts, 1, 0)
        seconds = float(search.pipelines(place).seconds[0, -1])
        if np.isfinite(seconds):
            splits.append(ModelSplit(tuple(search.stages(place, 0, len(tables.outputs) - 1)), seconds, "levels"))
    return splits


class _LevelSearch:
    """Solves each place once. Without a limit on memory it does not matter what follows."""

    def __init__(self, tables: SpanTables, topology: Topology, rules: CostRules, most: float) -> None:
        self._tables, self._topology, self._most = tables, topology, most
        self._stages_of = StageTables(tables, rules)
        self._sizes = (1, *topology.sizes())
        self._top = len(topology.counts) - 1
        self._limited = rules.memory_bytes < inf
        self._solved: dict[_Place, _Pipelines] = {}

    def pipelines(self, place: _Place) -> _Pipelines:
        """The best pipelines of all spans at a place; spans that take too long or do not fit are infinite."""
        if not self._limited:
            place = replace(place, copies=1, following=0)
        if place not in self._solved:
            self._solved[place] = self._solve(place)
        return self._solved[place]

    def _solve(self, place: _Place) -> _Pipelines:
        # Pipelines over the largest components start at the first layer.
        rows = 1 if place.level == self._top else len(self._tables.outputs)
        seconds = self._stage(place)[:rows].copy()
        best = _Pipelines(seconds, np.full(seconds.shape, -1), np.full(seconds.shape, place.parts))
        starts, ends = self._window(place)
        starts = slice(0, min(starts.stop, rows))
        lasts = range(1, place.parts)
        if lasts and starts.stop and ends.start < ends.stop:
            links = 2 * self._tables.outputs / self._topology.bandwidths[place.level]
            heads = np.empty((len(lasts), starts.stop, len(links)))
            stages = np.empty((len(lasts), len(links), ends.stop - ends.start))
            for k, last in enumerate(lasts):
                np.maximum(self.pipelines(self._before(place, last)).seconds[starts], links, out=heads[k])
                stages[k] = self._stage(replace(place, parts=last))[:, ends]
            _improve(best, heads, stages, ends.start)
        if self._most < inf:
            block = (starts, ends)
            seconds[block][self._tables.seconds[block] > self._most * self._workers(place)] = inf
        return best

    def _workers(self, place: _Place) -> int:
        return place.parts * self._sizes[place.level] * place.copies

    def _window(self, place: _Place) -> Block:
        """Spans that leave no more compute to the workers before and behind the place than they can do."""
        compute, own = self._tables.seconds, self._workers(place)
        count = len(compute)
        if self._most == inf:
            return slice(0, count), slice(0, count)
        behind = place.following * place.copies
        ahead = self._sizes[-1] - own - max(behind - place.copies + 1, 0)
        rest = np.append(compute[1:, -1], 0.0) <= self._most * behind
        starts = 1 + int(np.count_nonzero(compute[0, :-1] <= self._most * ahead))
        return slice(0, starts), slice(int(rest.argmax()), count)

    def _before(self, place: _Place, last: int) -> _Place:
        """All but the last stage, which takes `last` components."""
        behind = place.following + last * self._sizes[place.level]
        return replace(place, parts=place.parts - last, following=behind)

    def _within(self, place: _Place) -> _Place:
        """One of the components of a stage."""
        inner = self._topology.counts[place.level - 1] if place.level else 1
        copies = place.copies * place.parts
        return _Place(place.level - 1, inner, copies, ceil(place.following / place.parts))

    def _stage(self, place: _Place) -> Matrix:
        """Seconds of a single stage on all components of a place."""
        within, bandwidth = self._within(place), self._topology.bandwidths[place.level]
        block, spans = self._window(place), self._stages_of.spans
        if place.level:
            compute, weights = self.pipelines(within).seconds[block], spans.weights[block]
            seconds = stage_seconds(compute, weights, place.parts, bandwidth, self._stages_of.rules)
        else:
            seconds = self._stages_of.seconds(place.parts, bandwidth)[block]
            seconds = self._stages_of.fitting(seconds, 1 + within.following, block)
        if self._most == inf:
            return seconds
        may_win = (seconds <= self._most * place.copies) & (spans.seconds[block] <= self._most * self._workers(place))
        whole = np.full(spans.seconds.shape, inf)
        whole[block] = np.where(may_win, seconds, inf)
        return whole

    def stages(self, place: _Place, first: int, last: int) -> Iterator[PipelineStage]:
        """The stages of the best pipeline for layers `first` to `last`, each with the replicas of all levels."""
        if place.level < 0:
            yield PipelineStage(first, last, place.copies)
            return
        best = self.pipelines(place)
        cut, parts = int(best.cuts[first, last]), int(best.last_parts[first, last])
        if cut >= 0:
            yield from self.stages(self._before(place, parts), first, cut)
        yield from self.stages(self._within(replace(place, parts=parts)), max(first, cut + 1), last)


def _improve(best: _Pipelines, heads: Cube, stages: Cube, offset: int) -> None:
    """Tries a last stage after every layer s; row k of `heads` and `stages` is for a last stage on k + 1 components.

    `stages` has the spans that end at layer `offset` or later.
    """
    starts, ends = np.isfinite(heads.min(axis=0)), np.isfinite(stages.min(axis=0))
    for s in np.flatnonzero(starts.any(axis=0)[:-1] & ends.any(axis=1)[1:]).tolist():
        # Only the block of spans that both parts may have.
        from_, to = int(starts[:, s].argmax()), ends.shape[1] - int(ends[s + 1, ::-1].argmax())
        after = max(s + 1 - offset, 0)
        block = (slice(from_, min(s + 1, len(starts))), slice(after + offset, to + offset))
        slowest = np.maximum(heads[:, block[0], s, np.newaxis], stages[:, np.newaxis, s + 1, after:to])
        least = slowest.min(axis=0)
        better = least < best.seconds[block]
        if better.any():
            best.seconds[block][better] = least[better]
            best.cuts[block][better] = s
            best.last_parts[block][better] = slowest[:, better].argmin(axis=0) + 1
