"""Stages of a straight pipeline with nearly equal compute."""

import numpy as np

from agileml.pipeline.profile.costs import SpanTables

LayerSpans = tuple[tuple[int, int], ...]


def balanced_spans(tables: SpanTables, most: int) -> dict[int, LayerSpans]:
    """For each number of stages up to `most`, the spans of layers whose slowest stage is fastest."""
    count = len(tables.outputs)
    best = tables.seconds[0].copy()
    cuts: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = []
    spans = {1: _spans(cuts, count)}
    for stages in range(2, min(most, count) + 1):
        # Rows: the last layer before the last stage; columns: the last layer of all.
        total = np.full((count, count), np.inf)
        total[:-1] = np.maximum(best[:-1, np.newaxis], tables.seconds[1:])
        cuts.append(total.argmin(axis=0))
        best = total.min(axis=0)
        spans[stages] = _spans(cuts, count)
    return spans


def _spans(cuts: list[np.ndarray[tuple[int], np.dtype[np.int64]]], count: int) -> LayerSpans:
    spans, last = [], count - 1
    for cut in reversed(cuts):
        spans.append((int(cut[last]) + 1, last))
        last = int(cut[last])
    return ((0, last), *reversed(spans))
