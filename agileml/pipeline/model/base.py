"""The model that a pipeline trains: layers with a forward and a backward pass, a loss, and microbatches by number."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from agileml.errors import AgileMLError, TrainerFailed
from agileml.user_code import described

Array = NDArray[Any]
Weights = tuple[Array, ...]
"""Never changed in place: a version may be in use by several microbatches."""
Stash = Any
"""Values of a layer's forward pass that its backward pass needs."""
DrawKey = tuple[int, int, int]
"""Seed, microbatch and layer: random numbers depend on nothing else, so a repeated pass draws the same."""


class PipelineLayer(Protocol):
    """A layer with one input and one output array."""

    def initial(self, key: DrawKey) -> Weights:
        """The weights at the start."""

    def forward(self, weights: Weights, inputs: Array, key: DrawKey) -> tuple[Array, Stash]:
        """The output, and what `backward` needs."""

    def backward(self, weights: Weights, stash: Stash, gradient: Array) -> tuple[Array, Weights]:
        """Gradients of the inputs and of the weights."""


class MicrobatchLoss(Protocol):
    """The mean loss of a microbatch."""

    def __call__(self, outputs: Array, targets: Array) -> tuple[float, Array]:
        """The loss and its gradient."""


class Microbatches(Protocol):
    """The data, by the number of a microbatch; the same number always gives the same samples."""

    def __call__(self, number: int) -> tuple[Array, Array]:
        """Inputs and targets."""


@dataclass(frozen=True)
class PipelineModel:
    """Layers, loss and data of a training. Must be picklable: every node gets a copy."""

    layers: Sequence[PipelineLayer]
    loss: MicrobatchLoss
    data: Microbatches
    seed: int = 0

    def initial(self, layer: int) -> Weights:
        with users_code(f"layer {layer}"):
            return self.layers[layer].initial((self.seed, 0, layer))


@contextmanager
def users_code(what: str) -> Iterator[None]:
    """Runs the user's code. If that fails, raises TrainerFailed with the place and the line."""
    try:
        yield
    except AgileMLError:
        raise
    except Exception as error:
        raise TrainerFailed(f"{what}: {described(error)}") from error
