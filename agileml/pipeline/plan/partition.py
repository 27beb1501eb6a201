"""Where to cut a model into stages, and how often to replicate each: two searches, and the better
of both.

`levels` splits within a server first and then over whole servers (Narayanan, section 2.4.1, with
the bare term T^k(i, j, m) that data parallelism needs). `flat` looks at all devices at once: a
stage may span servers, and then pays its slowest link. Both minimize the seconds per input of the
slowest stage or link.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, inf

import numpy as np
from numpy.typing import NDArray

from agileml.pipeline.plan.parallel_plan import (
    Block,
    ModelSplit,
    PipelineStage,
    StageTables,
    Topology,
    in_flight,
)
from agileml.pipeline.profile.model_profile import (
    BadProfile,
    CostRules,
    Matrix,
    ModelProfile,
    SpanTables,
    stage_seconds,
    versioned_bytes,
)

FEWER_WORKERS = 1.01
"""A split may be this much slower than the best one if it needs fewer workers."""


def partition(profile: ModelProfile, topology: Topology, rules: CostRules) -> ModelSplit:
    """The fastest split that fits into memory; the one with the fewest workers among those within
    1% of it.

    It says what limits it, and names the best of each kind that was not chosen.
    """
    tables = SpanTables.of(profile)
    limit = rules.memory_bytes
    check_layers_fit(profile, rules)
    candidates = flat_splits(tables, topology, rules)
    refused: list[ModelSplit] = []

    if len(topology.counts) > 1:
        for split in level_splits(tables, topology, replace(rules, memory_bytes=inf)):
            fits = max(split_bytes(split, tables, rules)) <= limit
            (candidates if fits else refused).append(split)

    most = min((split.seconds for split in candidates), default=inf) * FEWER_WORKERS
    # Memory is the same wherever stages are, so if no flat split fits, none does.
    if candidates and any(split.seconds <= most for split in refused):
        candidates += level_splits(tables, topology, rules, most)
    if not candidates:
        raise BadProfile(
            f"no split of {profile.model} over {topology.devices} devices fits into memory of"
            f" {limit:,.0f} bytes: use more devices, smaller microbatches or recomputation"
        )

    best = min(split.seconds for split in candidates)
    near = [split for split in candidates if split.seconds <= best * FEWER_WORKERS]
    chosen = min(near, key=lambda split: (split.workers, split.seconds))
    limits = {id(split): limit_of(split, tables, topology) for split in candidates}
    large = [
        (
            f"levels {split}",
            f"a stage needs {max(split_bytes(split, tables, rules)):,.0f} bytes of {limit:,.0f}",
        )
        for split in refused
    ]

    spare = topology.devices - chosen.workers
    slower = (
        ""
        if chosen.seconds <= best
        else f" ({chosen.seconds / best - 1:.1%} slower than the fastest)"
    )

    fewer = f"; {spare} devices are not used: they would gain less than 1%" if spare else ""
    bottleneck = f"{limits[id(chosen)]}{slower}{fewer}"
    return replace(
        chosen, bottleneck=bottleneck, rejected=(*large, *_losers(candidates, chosen, limits))
    )


def check_layers_fit(profile: ModelProfile, rules: CostRules) -> None:
    """Raises BadProfile for a layer that no device can hold."""
    tables = SpanTables.of(profile)
    for i, layer in enumerate(profile.layers):
        need = float(stage_bytes(tables, i, i, 1, rules))
        if need > rules.memory_bytes:
            raise BadProfile(
                f"layer {layer.name!r} needs {need:,.0f} bytes, and a device has"
                f" {rules.memory_bytes:,.0f}: use smaller microbatches, larger devices or cut the "
                "layer"
            )


def stage_bytes(tables: SpanTables, first: int, last: int, flying: int, rules: CostRules) -> float:
    """Bytes of one worker of a stage under weight stashing."""
    span = (slice(first, first + 1), slice(last, last + 1))
    return float(
        versioned_bytes(tables.weights[span], tables.stash[span], flying, rules.optimizer)[0, 0]
    )


def split_bytes(split: ModelSplit, tables: SpanTables, rules: CostRules) -> list[float]:
    """Bytes of one worker of every stage."""
    flying = in_flight([stage.replicas for stage in split.stages])
    return [
        stage_bytes(tables, stage.first, stage.last, count, rules)
        for stage, count in zip(split.stages, flying, strict=True)
    ]


def limit_of(split: ModelSplit, tables: SpanTables, topology: Topology) -> str:
    """The bottleneck of a split: compute, a link or synchronization."""
    nearly = split.seconds * (1 - 1e-9)
    for s, stage in enumerate(split.stages, 1):
        if tables.seconds[stage.first, stage.last] / stage.replicas >= nearly:
            return f"compute of pipeline stage {s}"

    for s, stage in enumerate(split.stages[:-1], 1):
        if any(
            2 * tables.outputs[stage.last] / bandwidth >= nearly
            for bandwidth in topology.bandwidths
        ):
            return f"the link after pipeline stage {s}"

    replicated = [
        (tables.weights[stage.first, stage.last] / stage.replicas, s)
        for s, stage in enumerate(split.stages, 1)
    ]
    return f"weight synchronization of pipeline stage {max(replicated)[1]}"


def _losers(
    candidates: list[ModelSplit], chosen: ModelSplit, limits: dict[int, str]
) -> list[tuple[str, str]]:
    """The best of each other kind."""
    rest = [split for split in candidates if split.stages != chosen.stages]
    several = [split for split in rest if split.workers > 1]
    kinds = {
        "levels": [split for split in rest if split.search == "levels"],
        "flat": [split for split in rest if split.search == "flat"],
        "data parallelism": [split for split in several if len(split.stages) == 1],
        "straight": [split for split in several if len(split.stages) == split.workers],
    }

    losers: dict[str, str] = {}
    for name, members in kinds.items():
        best = min(members, key=lambda split: (split.seconds, split.workers), default=None)
        if best:
            gap = best.seconds / chosen.seconds
            losers[f"{name} {best}"] = (
                f"{gap:.3g}x the time per input on {best.workers} devices; limited by "
                + limits[id(best)]
            )

    return list(losers.items())


@dataclass(frozen=True)
class _Pipelines:
    """The best pipelines for many spans of layers, and how they split in two.

    The flat search has those of layers i.. on exactly m workers with r replicas of the first stage,
    for every i; the search by levels those of all spans over a number of components.
    """

    seconds: NDArray[np.float64]
    cuts: NDArray[np.int64]
    """The last layer of the first stage (flat), or before the last stage; -1 where one stage takes
    all."""
    parts: NDArray[np.int64]
    """Replicas of the second stage, 0 if there is none (flat); or components of the last stage."""


def flat_splits(tables: SpanTables, topology: Topology, rules: CostRules) -> list[ModelSplit]:
    """The best split for every number of workers that has one."""
    search = _FlatSearch(tables, topology, rules)
    splits = [search.best(workers) for workers in range(1, topology.devices + 1)]
    return [split for split in splits if split is not None]


class _FlatSearch:
    """Fills the table from one worker to all."""

    def __init__(self, tables: SpanTables, topology: Topology, rules: CostRules) -> None:
        self._tables = tables
        self._topology = topology
        self._stages_of = StageTables(tables, rules)
        self._count = len(tables.outputs)
        self._table: dict[tuple[int, int], _Pipelines] = {}
        self._after: dict[int, Matrix] = {}
        """By a number of workers: for each cut, the seconds of what follows on them, the most
        replicas first."""
        devices = range(topology.devices)
        self._slowest = np.array(
            [[topology.slowest(*sorted((a, b))) for b in devices] for a in devices]
        )

        for workers in range(1, topology.devices + 1):
            for replicas in range(1, workers + 1):
                self._table[workers, replicas] = self._solve(workers, replicas)
            self._after[workers] = np.full((workers, self._count), np.inf)
            for row, r in enumerate(range(workers, 0, -1)):
                self._after[workers][row, :-1] = self._table[workers, r].seconds[1:]

    def best(self, workers: int) -> ModelSplit | None:
        seconds, replicas = min(
            (self._table[workers, r].seconds[0], -r) for r in range(1, workers + 1)
        )
        if not np.isfinite(seconds):
            return None

        stages = []
        first = 0
        replicas = -replicas
        while replicas:
            suffix = self._table[workers, replicas]
            last = int(suffix.cuts[first])
            following = int(suffix.parts[first])
            stages.append(PipelineStage(first, last, replicas))
            workers -= replicas
            replicas = following
            first = last + 1

        return ModelSplit(tuple(stages), float(seconds), "flat")

    def _solve(self, workers: int, replicas: int) -> _Pipelines:
        bandwidth = float(self._slowest[workers - replicas, workers - 1])
        times = self._stages_of.fitting(
            self._stages_of.seconds(replicas, bandwidth), ceil(workers / replicas)
        )
        rest = workers - replicas
        if not rest:
            last = np.full(self._count, self._count - 1)
            return _Pipelines(times[:, -1], last, np.zeros(self._count, dtype=np.int64))

        # For a cut after each layer: seconds of the cut and all that follows, and the replicas of
        # the next stage. The most replicas first: among equals they make the fewest stages.
        next_replicas = np.arange(rest, 0, -1)
        bandwidths = self._slowest[rest - next_replicas, workers - 1]
        sending = 2 * self._tables.outputs / bandwidths[:, np.newaxis]
        seconds = np.maximum(sending, self._after[rest])
        best = seconds.argmin(axis=0)
        following = seconds[best, np.arange(self._count)]
        chosen = next_replicas[best]

        total = np.maximum(times, following[np.newaxis, :])
        cut = total.argmin(axis=1)
        return _Pipelines(total[np.arange(self._count), cut], cut, chosen[cut])


Cube = NDArray[np.float64]


@dataclass(frozen=True)
class _Place:
    """Where pipelines are in the whole: at a level, on `parts` of its components, in a number of
    equal copies.
    """

    level: int
    parts: int
    copies: int
    following: int
    """Workers behind each copy."""


def level_splits(
    tables: SpanTables, topology: Topology, rules: CostRules, most: float = inf
) -> list[ModelSplit]:
    """The best split for every number of the largest components, if it takes at most `most`
    seconds.
    """
    search = _LevelSearch(tables, topology, rules, most)
    top = len(topology.counts) - 1
    splits = []
    for parts in range(1, topology.counts[top] + 1):
        place = _Place(top, parts, 1, 0)
        seconds = float(search.pipelines(place).seconds[0, -1])
        if np.isfinite(seconds):
            model_split = ModelSplit(
                tuple(search.stages(place, 0, len(tables.outputs) - 1)), seconds, "levels"
            )
            splits.append(model_split)

    return splits


class _LevelSearch:
    """Solves each place once. Without a limit on memory it does not matter what follows."""

    def __init__(
        self, tables: SpanTables, topology: Topology, rules: CostRules, most: float
    ) -> None:
        self._tables = tables
        self._topology = topology
        self._most = most
        self._stages_of = StageTables(tables, rules)
        self._sizes = (1, *topology.sizes())
        self._top = len(topology.counts) - 1
        self._limited = rules.memory_bytes < inf
        self._solved: dict[_Place, _Pipelines] = {}

    def pipelines(self, place: _Place) -> _Pipelines:
        """The best pipelines of all spans at a place; spans that take too long or do not fit are
        infinite.
        """
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
                np.maximum(
                    self.pipelines(self._before(place, last)).seconds[starts], links, out=heads[k]
                )
                stages[k] = self._stage(replace(place, parts=last))[:, ends]
            _improve(best, heads, stages, ends.start)

        if self._most < inf:
            block = (starts, ends)
            seconds[block][self._tables.seconds[block] > self._most * self._workers(place)] = inf

        return best

    def _workers(self, place: _Place) -> int:
        return place.parts * self._sizes[place.level] * place.copies

    def _window(self, place: _Place) -> Block:
        """Spans that leave no more compute to the workers before and behind the place than they can
        do.
        """
        compute = self._tables.seconds
        own = self._workers(place)
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
        within = self._within(place)
        bandwidth = self._topology.bandwidths[place.level]
        block = self._window(place)
        spans = self._stages_of.spans
        if place.level:
            compute = self.pipelines(within).seconds[block]
            weights = spans.weights[block]
            seconds = stage_seconds(compute, weights, place.parts, bandwidth, self._stages_of.rules)
        else:
            seconds = self._stages_of.seconds(place.parts, bandwidth)[block]
            seconds = self._stages_of.fitting(seconds, 1 + within.following, block)

        if self._most == inf:
            return seconds

        may_win = (seconds <= self._most * place.copies) & (
            spans.seconds[block] <= self._most * self._workers(place)
        )
        whole = np.full(spans.seconds.shape, inf)
        whole[block] = np.where(may_win, seconds, inf)

        return whole

    def stages(self, place: _Place, first: int, last: int) -> Iterator[PipelineStage]:
        """The stages of the best pipeline for layers `first` to `last`, each with the replicas of
        all levels.
        """
        if place.level < 0:
            yield PipelineStage(first, last, place.copies)
            return
        best = self.pipelines(place)
        cut = int(best.cuts[first, last])
        parts = int(best.parts[first, last])
        if cut >= 0:
            yield from self.stages(self._before(place, parts), first, cut)
        yield from self.stages(self._within(replace(place, parts=parts)), max(first, cut + 1), last)


def _improve(best: _Pipelines, heads: Cube, stages: Cube, offset: int) -> None:
    """Tries a last stage after every layer s; row k of `heads` and `stages` is for a last stage on
    k + 1 components.

    `stages` has the spans that end at layer `offset` or later.
    """
    starts = np.isfinite(heads.min(axis=0))
    ends = np.isfinite(stages.min(axis=0))
    for s in np.flatnonzero(starts.any(axis=0)[:-1] & ends.any(axis=1)[1:]).tolist():
        # Only the block of spans that both parts may have.
        from_ = int(starts[:, s].argmax())
        to = ends.shape[1] - int(ends[s + 1, ::-1].argmax())
        after = max(s + 1 - offset, 0)
        block = (slice(from_, min(s + 1, len(starts))), slice(after + offset, to + offset))
        slowest = np.maximum(
            heads[:, block[0], s, np.newaxis], stages[:, np.newaxis, s + 1, after:to]
        )
        least = slowest.min(axis=0)
        better = least < best.seconds[block]
        if better.any():
            best.seconds[block][better] = least[better]
            best.cuts[block][better] = s
            best.parts[block][better] = slowest[:, better].argmin(axis=0) + 1
