"""The model that a pipeline trains: layers with a forward and a backward pass, a loss, and
microbatches by number.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from numpy.typing import NDArray

from agileml.errors import AgileMLError, TrainerFailed
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


class MicrobatchLoss(Protocol):
    """The mean loss of a microbatch."""

    def __call__(self, outputs: Passed, targets: Passed) -> tuple[float, Passed]:
        """The loss and its gradient."""


class Microbatches(Protocol):
    """The data, by the number of a microbatch; the same number always gives the same samples."""

    def __call__(self, number: int) -> tuple[Passed, Passed]:
        """Inputs and targets: arrays or tensors, or tuples of them."""


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
