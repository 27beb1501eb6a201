"""Values between layers as tuples of arrays, bfloat16 numbers in arrays, absent gradients, names of arrays in files."""

from collections.abc import Mapping

import numpy as np

from agileml.pipeline.model.base import Array, Values, Weights

BFLOAT16 = np.dtype("V2")
"""Arrays of this type hold bfloat16 numbers: pairs of bytes, on which only PyTorch can compute."""

ABSENT = np.zeros(0, dtype=np.float32)
"""The gradient of a parameter that took no part, and of integers: optimizers leave such a parameter alone."""

_BUFFER = "buffer"


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


def named_arrays(weights: Mapping[int, Weights], buffers: Mapping[int, Weights]) -> dict[str, Array]:
    """The arrays of a model file: weights of layers as `LAYER/NUMBER`, and buffers as `LAYER/bufferNUMBER`."""
    held = [("", weights), (_BUFFER, buffers)]
    return {
        f"{layer}/{kind}{i}": array
        for kind, by_layer in held
        for layer, arrays in by_layer.items()
        for i, array in enumerate(arrays)
    }


def arrays_of_layer(saved: Mapping[str, Array], layer: int) -> tuple[Weights, Weights]:
    """Weights and buffers of a layer in a model file."""
    named = [name for name in saved if name.startswith(f"{layer}/")]
    buffers = sum(name.startswith(f"{layer}/{_BUFFER}") for name in named)
    weights = tuple(saved[f"{layer}/{i}"] for i in range(len(named) - buffers))
    return weights, tuple(saved[f"{layer}/{_BUFFER}{i}"] for i in range(buffers))
