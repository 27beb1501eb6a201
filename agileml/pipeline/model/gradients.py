"""Arithmetic on gradients: numpy's, and PyTorch's for bfloat16, which numpy does not have."""

import numpy as np

from agileml.pipeline.model.arrays import BFLOAT16, is_absent
from agileml.pipeline.model.base import Array
from agileml.pipeline.model.torch_arrays import array_of, tensor_of


def added(a: Array, b: Array) -> Array:
    """The sum of two gradients; a gradient that is absent adds nothing."""
    if is_absent(a) or is_absent(b):
        return (b if is_absent(a) else a).copy()
    if a.dtype == BFLOAT16:
        return array_of(tensor_of(a) + tensor_of(b))
    return np.asarray(a + b)


def scaled(gradient: Array, factor: float) -> Array:
    """A gradient times a number."""
    if gradient.dtype == BFLOAT16:
        return array_of(tensor_of(gradient) * factor)
    return np.asarray(gradient * gradient.dtype.type(factor))


def mean_of(total: Array, count: int, *, in_place: bool = False) -> Array:
    """The mean of `count` gradients from their sum, perhaps in its memory."""
    if total.dtype == BFLOAT16:
        return array_of(tensor_of(total) / count)
    if in_place and total.dtype.kind == "f":
        return np.divide(total, count, out=total)
    return np.asarray(total / count)


def squared_norm(gradient: Array) -> float:
    """The sum of the squares, in double precision."""
    if gradient.dtype == BFLOAT16:
        return float(tensor_of(gradient).double().square().sum())
    return float(np.square(gradient, dtype=np.float64).sum())
