"""Clipping of updates by their norm, as `torch.nn.utils.clip_grad_norm_` does."""

from math import sqrt

import numpy as np

from agileml.params.layout import Array

_SMALL = 1e-6
"""Added to a norm, as PyTorch does, before it divides."""


def square_of(values: Array) -> float:
    """The squared norm of an array; the order in which it is summed depends on nothing but its shape."""
    with np.errstate(over="ignore"):
        return float(np.square(values, dtype=np.float64).sum())


def clip_factor(square: float, most: float) -> float:
    """The factor of updates with this squared norm; `most` is the largest norm, or 0."""
    return min(1.0, most / (sqrt(square) + _SMALL)) if most else 1.0


def shrunk(values: Array, factor: float) -> Array:
    """The values times a factor. No number becomes -0.0 that was none, because -0.0 stands for no update."""
    after: Array = values * values.dtype.type(factor)
    after[(after == 0) & (values != 0)] = 0.0
    return after
