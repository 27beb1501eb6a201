"""Gradient-boosted decision trees for a probability, over binned features; deterministic for a
given generator.

Newton boosting on the logistic loss, each tree grown on a random half of the rows and of the
features (Friedman, Stochastic gradient boosting, 2002). All nodes of a level split at once, each on
its own feature and bin, found from one histogram of gradients and curvatures per feature; a node
where no split helps sends all its rows left. docs/decisions/0013-boosted-trees.md compares it with
scikit-learn.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bidbrain.arrays import Floats

Codes = NDArray[np.intp] | NDArray[np.int16]

_MIN_CURVATURE = 1e-6


@dataclass(frozen=True, slots=True)
class TreeSettings:
    """Size and regularization of the trees.

    `ridge`, above 0, shrinks leaves to 0; each leaf has at least the curvature `leaf_curvature`;
    `rows` and `features` are the fractions of them that each tree sees.
    """

    trees: int = 40
    depth: int = 4
    rate: float = 0.1
    ridge: float = 20.0
    leaf_curvature: float = 20.0
    bins: int = 32
    rows: float = 0.5
    features: float = 0.5


@dataclass(frozen=True, slots=True)
class _Tree:
    """A full tree: `features[l][k]` and `cuts[l][k]` define the split of node k of level l; right
    is above the cut.
    """

    features: tuple[Codes, ...]
    cuts: tuple[Codes, ...]
    leaves: Floats

    def values(self, codes: Codes) -> Floats:
        """The leaf of each row; `codes` has one row per feature, so that a data column is
        contiguous.
        """
        node = np.zeros(codes.shape[1], dtype=np.intp)
        rows = np.arange(codes.shape[1])
        for feature, cut in zip(self.features, self.cuts, strict=True):
            above = codes[feature[node], rows] > cut[node]
            node = 2 * node + above
        return self.leaves[node]


@dataclass(frozen=True, slots=True)
class Forest:
    """Trees, each over its own features, that add up to corrections of common log-odds."""

    base: float
    edges: tuple[Floats, ...]
    trees: tuple[tuple[Codes, _Tree], ...]

    def probabilities(self, data: Floats) -> Floats:
        """The probability of each row of data."""
        codes = _binned(data, self.edges)
        odds = np.full(len(data), self.base)
        for features, tree in self.trees:
            odds += tree.values(codes[features])
        return logistic(odds)


def logistic(odds: Floats) -> Floats:
    """Converts log-odds to a probability."""
    probability: Floats = 1 / (1 + np.exp(-odds))
    return probability


def log_odds(probability: Floats) -> Floats:
    """Converts a probability to log-odds, finite at 0 and 1."""
    inside = np.clip(probability, _MIN_CURVATURE, 1 - _MIN_CURVATURE)
    odds: Floats = np.log(inside / (1 - inside))
    return odds


def fit(
    data: Floats, outcomes: Floats, weights: Floats, shape: TreeSettings, rng: np.random.Generator
) -> Forest:
    """Fits trees to outcomes of 0 and 1; both must occur."""
    shares = np.linspace(0, 1, shape.bins + 1)
    cuts = np.quantile(data, shares[1:-1], axis=0)
    edges = tuple(np.unique(column) for column in cuts.T)
    codes = _binned(data, edges)
    mean = np.average(outcomes, weights=weights)
    base = float(np.log(mean / (1 - mean)))
    odds = np.full(len(data), base)
    trees = []

    for _ in range(shape.trees):
        probability = logistic(odds)
        gradient = (probability - outcomes) * weights
        curvature = np.maximum(probability * (1 - probability), _MIN_CURVATURE) * weights
        draws = rng.random(len(data))
        rows = np.flatnonzero(draws < shape.rows)
        order = rng.permutation(len(codes))
        count = round(shape.features * len(codes))
        features = np.sort(order[: max(1, count)])
        codes_of_tree = codes[np.ix_(features, rows)]
        gradient = gradient[rows]
        curvature = curvature[rows]

        # Each level of the tree splits every node of the one before.
        node = np.zeros(rows.size, dtype=np.intp)
        chosen = []
        thresholds = []
        for level in range(shape.depth):
            feature, cut = _splits(codes_of_tree, node, 1 << level, gradient, curvature, shape)
            above = codes_of_tree[feature[node], np.arange(rows.size)] > cut[node]
            node = 2 * node + above
            chosen.append(feature)
            thresholds.append(cut)

        leaves = 1 << shape.depth
        down = np.bincount(node, gradient, leaves)
        bend = np.bincount(node, curvature, leaves)
        values = -shape.rate * down / (bend + shape.ridge)
        tree = _Tree(tuple(chosen), tuple(thresholds), values)
        odds += tree.values(codes[features])
        trees.append((features, tree))

    return Forest(base, edges, tuple(trees))


def _binned(data: Floats, edges: tuple[Floats, ...]) -> Codes:
    codes = np.empty(data.T.shape, dtype=np.int16)
    for row, cuts, column in zip(codes, edges, data.T, strict=True):
        row[:] = np.searchsorted(cuts, column, side="left")
    return codes


def _splits(
    codes: Codes, node: Codes, nodes: int, gradient: Floats, curvature: Floats, shape: TreeSettings
) -> tuple[Codes, Codes]:
    """For each node the feature, and the bin after which a split lowers the loss most."""
    size = nodes * shape.bins
    places = codes + node * shape.bins
    # Sums over bins of gradients and of curvatures, as (feature, node, bin).
    sums = [
        [np.bincount(place, weights, size).reshape(nodes, shape.bins) for place in places]
        for weights in (gradient, curvature)
    ]
    left = np.cumsum(sums[0], axis=2)
    left_bend = np.cumsum(sums[1], axis=2)
    total = left[:, :, -1:]
    bend = left_bend[:, :, -1:]
    right = total - left
    right_bend = bend - left_bend

    # What a split lowers the loss by: the squared gradient over the curvature of both sides, less
    # that of the whole.
    below = left**2 / (left_bend + shape.ridge)
    above = right**2 / (right_bend + shape.ridge)
    whole = total**2 / (bend + shape.ridge)
    gain = below + above - whole
    gain[np.minimum(left_bend, right_bend) < shape.leaf_curvature] = 0
    by_node_first = gain.transpose(1, 0, 2)
    by_node = by_node_first.reshape(gain.shape[1], -1)
    best = by_node.argmax(axis=1)
    helps = by_node[np.arange(best.size), best] > 0

    place = np.where(helps, best % shape.bins, shape.bins)
    return best // shape.bins, place
