"""The layers that a worker holds: weight versions, optimizer state, stashes and gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agileml.pipeline.model import Array, PipelineModel, Stash, Weights
from agileml.pipeline.optimizers import Optimizer


@dataclass(frozen=True)
class LayerState:
    """A layer after `updates` updates: the versions that may still be used, and the optimizer's state."""

    updates: int
    versions: Mapping[int, Weights]
    optimizer: Weights

    @property
    def nbytes(self) -> int:
        arrays = [array for weights in self.versions.values() for array in weights]
        return sum(array.nbytes for array in [*arrays, *self.optimizer])

    def newest(self) -> Weights:
        return self.versions[self.updates]


def initial_state(model: PipelineModel, optimizer: Optimizer, layer: int) -> LayerState:
    """A layer before its first update."""
    weights = model.initial(layer)
    return LayerState(0, {0: weights}, optimizer.initial(weights))


@dataclass
class StageState:
    """Runs passes and updates of its layers. `kept` is how many versions older than the newest stay."""

    model: PipelineModel
    optimizer: Optimizer
    layers: dict[int, LayerState]
    recompute: bool = False
    _stashes: dict[tuple[int, int], tuple[int, Array, list[Stash]]] = field(default_factory=dict)
    _gradients: dict[int, list[tuple[int, Weights]]] = field(default_factory=dict)

    def forward(self, span: Sequence[int], microbatch: int, version: int, inputs: Array) -> Array:
        """The output of layers `span` with one weight version, which the backward pass will use too."""
        outputs, stashes = self._pass(span, microbatch, version, inputs)
        # Recomputing keeps the inputs only.
        self._stashes[span[0], microbatch] = (version, inputs, [] if self.recompute else stashes)
        return outputs

    def backward(self, span: Sequence[int], microbatch: int, gradient: Array) -> Array:
        """The gradient of the inputs; gradients of the weights are kept until `update`."""
        version, inputs, stashes = self._stashes.pop((span[0], microbatch))
        if self.recompute:
            _, stashes = self._pass(span, microbatch, version, inputs)
        for layer, stash in zip(reversed(span), reversed(stashes), strict=True):
            weights = self.weights(layer, version)
            gradient, found = self.model.layers[layer].backward(weights, stash, gradient)
            self._gradients.setdefault(layer, []).append((microbatch, found))
        return gradient

    def weights(self, layer: int, version: int) -> Weights:
        """The stashed version of a layer's weights."""
        return self.layers[layer].versions[version]

    def parts(self, layer: int) -> list[tuple[int, Weights]]:
        """Gradients of a layer since its last update, by microbatch."""
        return self._gradients.pop(layer, [])

    def update(self, layer: int, gradient: Weights, oldest: int) -> None:
        """Adds a version, and drops those before `oldest` that no later pass needs."""
        state = self.layers[layer]
        weights, moments = self.optimizer.step(state.newest(), state.optimizer, gradient, state.updates + 1)
        kept = {version: one for version, one in state.versions.items() if version >= oldest}
        self.layers[layer] = LayerState(state.updates + 1, {**kept, state.updates + 1: weights}, moments)

    def _pass(self, span: Sequence[int], microbatch: int, version: int, inputs: Array) -> tuple[Array, list[Stash]]:
        stashes = []
        for layer in span:
            key = (self.model.seed, microbatch, layer)
            inputs, stash = self.model.layers[layer].forward(self.weights(layer, version), inputs, key)
            stashes.append(stash)
        return inputs, stashes
