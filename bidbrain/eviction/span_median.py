"""The exact median of many time spans, without sorting them all."""

import numpy as np
from numpy.typing import NDArray

from pricing_data.series import Ints

_CLASSES_BITS = 11


def median_of_spans(low: Ints, high: Ints) -> float:
    """The median of a mixture of uniform distributions over (low, high], each weighted by its length.

    Classes of equal width tell where the median is; only the spans that begin or end in its class are sorted. All sums
    are exact: `bincount` adds whole numbers, and stays below 2**53.
    """
    shift = max(int(high.max()).bit_length() - _CLASSES_BITS, 0)
    begins, ends = low >> shift, high >> shift
    classes = int(ends.max()) + 1
    begun, ended = (
        np.concatenate(([0], np.cumsum(np.bincount(numbers, minlength=classes)))) for numbers in (begins, ends)
    )
    edges = np.arange(classes + 1, dtype=np.int64) << shift
    mass = _below(low, begins, edges, begun) - _below(high, ends, edges, ended)
    half = mass[-1] / 2
    here = int(np.searchsorted(mass, half, side="left")) - 1
    inside_low, inside_high = low[begins == here], high[ends == here]
    at = np.concatenate((inside_low, inside_high, edges[here + 1 : here + 2]))
    slope = np.repeat((1, -1, 0), (inside_low.size, inside_high.size, 1))
    order = np.argsort(at, kind="stable")
    at, density = at[order], np.cumsum(slope[order]) + begun[here] - ended[here]
    before = np.concatenate(([begun[here] - ended[here]], density[:-1]))
    reached = mass[here] + np.cumsum(before * np.diff(at, prepend=edges[here]))
    i = int(np.searchsorted(reached, half, side="left"))
    return float(at[i] - (reached[i] - half) / before[i])


def _below(points: Ints, classes: NDArray[np.int64], edges: Ints, counts: Ints) -> Ints:
    """For each edge, by how much it is above the points that are below it, in total."""
    width = int(edges[1])
    rest = np.bincount(classes, points & (width - 1), minlength=edges.size - 1).astype(np.int64)
    total = np.cumsum(rest + np.diff(counts) * edges[:-1])
    below: Ints = edges * counts - np.concatenate(([0], total))
    return below
