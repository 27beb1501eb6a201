"""Where straight pipelines are cut: into stages of nearly equal compute, as far as memory allows."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from agileml.pipeline.plan.closed_form import bytes_in_use
from agileml.pipeline.profile.costs import CostRules, Matrix, SpanTables
from agileml.pipeline.profile.model_profile import ModelProfile
from agileml.pipeline.schedule import schemes

LayerSpans = tuple[tuple[int, int], ...]


def balanced_spans(tables: SpanTables, most: int) -> dict[int, LayerSpans]:
    """For each number of stages up to `most`, the spans of layers whose slowest stage is fastest."""
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
    """The spans of layers whose slowest stage is fastest, among those of which each stage fits into memory."""

    def __init__(self, profile: ModelProfile, rules: CostRules) -> None:
        self._tables, self._rules = SpanTables.of(profile), rules
        before = [profile.input_bytes, *(layer.output_bytes for layer in profile.layers[:-1])]
        self._inputs = np.array(before)[:, np.newaxis]
        self._by_copies: dict[tuple[object, ...], LayerSpans | None] = {}
        self._seconds: dict[tuple[object, ...], Matrix] = {}

    def of(self, scheme: str, stages: int, microbatches: int, *, recompute: bool) -> LayerSpans | None:
        """Stages without chunks; None if no cut fits."""
        held = [
            (schemes.versions(scheme, stages, s), schemes.in_flight(scheme, stages, s, microbatches))
            for s in range(1, stages + 1)
        ]
        key = (tuple(held), recompute)
        if key not in self._by_copies:
            self._by_copies[key] = self._best([self._fitting(*copies, recompute) for copies in held])
        return self._by_copies[key]

    def _fitting(self, versions: int, in_flight: float, recompute: bool) -> Matrix:
        """Seconds of all spans, infinite where a stage with these copies does not fit."""
        key = versions, in_flight, recompute
        if key not in self._seconds:
            tables, rules = self._tables, self._rules
            sizes = (tables.weights, tables.stash, self._inputs)
            needed = bytes_in_use(sizes, versions, in_flight, rules.optimizer, recompute=recompute)
            self._seconds[key] = np.where(needed <= rules.memory_bytes, tables.seconds, np.inf)
        return self._seconds[key]

    @staticmethod
    def _best(stages: Sequence[Matrix]) -> LayerSpans | None:
        best, count = stages[0][0], len(stages[0])
        cuts: list[NDArray[np.int64]] = []
        for seconds in stages[1:]:
            # As in `balanced_spans`; no stage follows the last layer.
            total = np.maximum(best[:-1, np.newaxis], seconds[1:])
            cuts.append(total.argmin(axis=0))
            best = total[cuts[-1], np.arange(count)]
        return _spans(cuts, count) if np.isfinite(best[-1]) else None


def _spans(cuts: Sequence[NDArray[np.int64]], count: int) -> LayerSpans:
    spans, last = [], count - 1
    for cut in reversed(cuts):
        spans.append((int(cut[last]) + 1, last))
        last = int(cut[last])
    return ((0, last), *reversed(spans))
