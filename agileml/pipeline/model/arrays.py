"""Values between layers as tuples of arrays: bfloat16, absent gradients, arithmetic, tensors, names
in files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from agileml.checks import torch_module
from agileml.pipeline.model.base import Array, DrawKey, Values, Weights

if TYPE_CHECKING:
    import torch


BFLOAT16 = np.dtype("V2")
"""Arrays of this type hold bfloat16 numbers: pairs of bytes, on which only PyTorch can compute."""

ABSENT = np.zeros(0, dtype=np.float32)
"""The gradient of a parameter that took no part, and of integers: optimizers leave such a parameter
alone."""

_BUFFER = "buffer"


def is_absent(gradient: Array) -> bool:
    """Whether there is no gradient: a real one has the shape of its weight, which has elements."""
    return gradient.shape == ABSENT.shape


def packed(values: Values) -> tuple[Array, ...]:
    """One or several values as a message carries them."""
    if isinstance(values, tuple):
        return values
    return (values,)


def unpacked(arrays: tuple[Array, ...]) -> Values:
    """The values of a message."""
    if len(arrays) == 1:
        return arrays[0]
    return arrays


def nbytes(values: Values) -> int:
    """The size of one or several values."""
    return sum(array.nbytes for array in packed(values))


def named_arrays(
    weights: Mapping[int, Weights], buffers: Mapping[int, Weights]
) -> dict[str, Array]:
    """The arrays of a model file: weights of layers as `LAYER/NUMBER`, and buffers as
    `LAYER/bufferNUMBER`.
    """
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


def tensor_of(array: Array | torch.Tensor) -> torch.Tensor:
    """A tensor on the array's memory; the data of a model may come as tensors."""
    if not isinstance(array, np.ndarray):
        return array
    if min(array.strides, default=0) < 0:
        array = array.copy()
    if array.dtype == BFLOAT16:
        return tensor_of(array.view(np.int16)).view(torch_module().bfloat16)
    tensor: torch.Tensor = torch_module().from_numpy(array)
    return tensor


def array_of(tensor: torch.Tensor) -> Array:
    """An array on the tensor's memory."""
    torch = torch_module()
    tensor = tensor.detach()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(BFLOAT16)
    array: Array = tensor.numpy()
    return array


def tensors_of(values: Values) -> list[torch.Tensor]:
    """One or several values as tensors that begin a graph of their own."""
    leaves = [tensor_of(array).detach() for array in packed(values)]
    for leaf in leaves:
        if leaf.is_floating_point() or leaf.is_complex():
            leaf.requires_grad_()
    return leaves


def seed_torch(key: DrawKey) -> None:
    """Lets PyTorch draw what belongs to a key."""
    # `torch.manual_seed` would format the stack and queue a call for a graphics card, even where
    # there is none.
    seed = int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> np.uint64(1))
    torch_module().default_generator.manual_seed(seed)


def added(a: Array, b: Array, *, in_place: bool = False) -> Array:
    """The sum of two gradients, perhaps in the memory of the first; a gradient that is absent adds
    nothing.
    """
    if in_place and a.dtype != BFLOAT16 and a.shape == b.shape:
        return np.add(a, b, out=a)
    if is_absent(a) or is_absent(b):
        return (b if is_absent(a) else a).copy()
    if a.dtype == BFLOAT16:
        return array_of(tensor_of(a) + tensor_of(b))
    return np.asarray(a + b)


def scaled(gradient: Array, factor: float) -> Array:
    """A gradient times a number; the gradient itself if nothing changes."""
    if factor == 1.0 or is_absent(gradient):
        return gradient
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
