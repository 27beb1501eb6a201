"""Values between layers as tuples of arrays, bfloat16 numbers in arrays, and gradients that are absent."""

import numpy as np

from agileml.pipeline.model.base import Array, Values

BFLOAT16 = np.dtype("V2")
"""Arrays of this type hold bfloat16 numbers: pairs of bytes, on which only PyTorch can compute."""

ABSENT = np.zeros(0, dtype=np.float32)
"""The gradient of a parameter that took no part, and of integers: optimizers leave such a parameter alone."""


def is_absent(gradient: Array) -> bool:
    """Whether there is no gradient: a real one has the shape of its weight, which has elements."""
    return gradient.shape == ABSENT.shape


def packed(values: Values) -> tuple[Array, ...]:
    """One or several values as a message carries them."""
    return values if isinstance(values, tuple) else (values,)


def unpacked(arrays: tuple[Array, ...]) -> Values:
    """The values of a message."""
    return arrays[0] if len(arrays) == 1 else arrays


def nbytes(values: Values) -> int:
    """The size of one or several values."""
    return sum(array.nbytes for array in packed(values))
