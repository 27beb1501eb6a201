"""The model that a pipeline trains: layers with a forward and a backward pass, a loss, and
microbatches by number.

Values between layers are tuples of arrays; below the model is what is done with them: bfloat16,
absent gradients, arithmetic, tensors, names in files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from agileml.errors import AgileMLError, TrainerFailed, torch_module
from agileml.user_code import described

Array = NDArray[Any]
Values = Array | tuple[Array, ...]
"""An array, or several, from one layer to the next."""
Passed = Any
"""Values, of which most layers, losses and data know that they are a single array."""
Weights = tuple[Array, ...]
"""Never changed in place: a version may be in use by several microbatches."""
Stash = Any
"""Values of a layer's forward pass that its backward pass needs."""
DrawKey = tuple[int, int, int]
"""Seed, microbatch and layer: random numbers depend on nothing else, so a repeated pass draws the
same."""


class PipelineLayer(Protocol):
    """A layer whose inputs and outputs are an array, or a tuple of arrays."""

    def initial(self, key: DrawKey) -> Weights:
        """The weights at the start."""

    def forward(self, weights: Weights, inputs: Passed, key: DrawKey) -> tuple[Passed, Stash]:
        """The output, and what `backward` needs."""

    def backward(self, weights: Weights, stash: Stash, gradient: Passed) -> tuple[Passed, Weights]:
        """Gradients of the inputs and of the weights."""


@runtime_checkable
class BufferedLayer(Protocol):
    """A layer whose forward pass also changes buffers, such as running statistics."""

    def initial_buffers(self, key: DrawKey) -> Weights:
        """The buffers at the start."""

    def forward_buffered(
        self, weights: Weights, buffers: Weights, inputs: Passed, key: DrawKey
    ) -> tuple[Passed, Stash, Weights]:
        """As `forward`, and the buffers after it. Works on new arrays only."""

    def moving_buffers(self, key: DrawKey) -> list[str]:
        """The names of buffers that are known to change."""


MicrobatchLoss = Callable[[Passed, Passed], tuple[float, Passed]]
"""The mean loss of a microbatch, from outputs and targets, and its gradient."""
Microbatches = Callable[[int], tuple[Passed, Passed]]
"""Inputs and targets by the number of a microbatch: arrays or tensors, or tuples of them. The same
number always gives the same samples."""


@runtime_checkable
class AddingLayer(Protocol):
    """A layer that adds the gradients of its weights to earlier ones by itself, which saves a pass
    over memory.
    """

    def backward_into(
        self, totals: Weights, stash: Stash, gradient: Values
    ) -> tuple[Values, Weights]:
        """As `backward`, with sums: in the memory of `totals`, or in memory that nothing else uses
        where these are absent."""


class UpdateRule(Protocol):
    """How a layer's weights change in an update."""

    @property
    def clip_norm(self) -> float | None:
        """The largest norm of the gradients of all layers together; None does not limit it."""

    def initial(self, weights: Weights) -> Weights:
        """The state before the first update."""

    def step(
        self, weights: Weights, state: Weights, gradients: Weights, number: int
    ) -> tuple[Weights, Weights]:
        """Applies update `number`, counted from 1. Works on new arrays only."""


@dataclass(frozen=True)
class PipelineModel:
    """Layers, loss and data of a training. Must be picklable: every node gets a copy."""

    layers: Sequence[PipelineLayer]
    loss: MicrobatchLoss
    data: Microbatches
    seed: int = 0
    optimizer: UpdateRule | None = None
    """For `spotctl lab parallel train`, in place of the one that its options name."""

    def initial(self, layer: int) -> Weights:
        with users_code(f"layer {layer}"):
            return self.layers[layer].initial((self.seed, 0, layer))

    def initial_buffers(self, layer: int) -> Weights:
        held = self.layers[layer]
        with users_code(f"layer {layer}"):
            if isinstance(held, BufferedLayer):
                return held.initial_buffers((self.seed, 0, layer))
            return ()


@contextmanager
def users_code(what: str) -> Iterator[None]:
    """Runs the user's code. If that fails, raises TrainerFailed with the place and the line."""
    try:
        yield
    except AgileMLError:
        raise
    except Exception as error:
        raise TrainerFailed(f"{what}: {described(error)}") from error


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
