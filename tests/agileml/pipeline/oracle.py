"""One process that trains with a history of weight versions: what every pipeline must equal bit for
bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from agileml.pipeline.builtin import Dense, Dropout, squared_error
from agileml.pipeline.model.base import Array, PipelineModel, Weights
from agileml.pipeline.optimizers import Optimizer
from agileml.pipeline.tensor_parts import TensorPart, pieces, split_layer

WIDTH, SAMPLES = 5, 3


@dataclass(frozen=True)
class Waves:
    """Samples of a function, by number."""

    def __call__(self, number: int) -> tuple[Array, Array]:
        draw = np.random.default_rng((7, number))
        inputs = draw.standard_normal((SAMPLES, WIDTH))
        return inputs, np.sin(inputs.sum(axis=1, keepdims=True))


def small_model(layers: int = 6) -> PipelineModel:
    """Layers of tanh, one of dropout, and a linear end."""
    inner = [Dense(WIDTH, WIDTH) for _ in range(layers - 2)]
    return PipelineModel(
        (*inner, Dropout(0.2), Dense(WIDTH, 1, squash=False)), squared_error, Waves(), seed=3
    )


def split_model(parts: int = 2) -> PipelineModel:
    """Some of the layers have parts."""
    split = [
        split_layer([Dense(WIDTH, WIDTH)] * parts, residual=residual) for residual in (True, False)
    ]
    return PipelineModel(
        (Dense(WIDTH, WIDTH), *split[0], Dropout(0.2), *split[1], Dense(WIDTH, 1, squash=False)),
        squared_error,
        Waves(),
        seed=3,
    )


def trained(
    model: PipelineModel,
    optimizer: Optimizer,
    batches: int,
    batch: int,
    version: Callable[[int, int], int],
) -> tuple[dict[int, Weights], dict[int, float]]:
    """Weights of all layers and the loss of each microbatch; `version(layer, t)` is the version
    that update t uses.
    """
    count = len(model.layers)
    history = [[model.initial(layer)] for layer in range(count)]
    states = [optimizer.initial(history[layer][0]) for layer in range(count)]
    losses = {}
    for t in range(batches):
        sums: list[Weights | None] = [None] * count
        for k in range(t * batch, (t + 1) * batch):
            values, targets = model.data(k)
            stashes = {}
            for piece in pieces(model.layers):
                parts = []
                for i in piece:
                    part, stashes[i] = model.layers[i].forward(
                        history[i][version(i, t)], values, (model.seed, k, i)
                    )
                    parts.append(part)
                values = added_up(model, piece, parts, values)
            losses[k], gradient = model.loss(values, targets)
            for piece in reversed(pieces(model.layers)):
                parts = []
                for i in piece:
                    part, gradients = model.layers[i].backward(
                        history[i][version(i, t)], stashes[i], gradient
                    )
                    parts.append(part)
                    before = sums[i]
                    if before is not None:
                        gradients = tuple(a + b for a, b in zip(before, gradients, strict=True))
                    sums[i] = gradients
                gradient = added_up(model, piece, parts, gradient)
        for i in range(count):
            total = sums[i]
            assert total is not None
            mean = tuple(array / batch for array in total)
            weights, states[i] = optimizer.step(history[i][-1], states[i], mean, t + 1)
            history[i].append(weights)
    return {i: history[i][-1] for i in range(count)}, losses


def added_up(model: PipelineModel, piece: range, parts: list[Array], whole: Array) -> Array:
    """The sum of the outputs of a split layer's parts."""
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    first = model.layers[piece[0]]
    return total + whole if isinstance(first, TensorPart) and first.residual else total


def same(weights: dict[int, Weights], other: dict[int, Weights]) -> bool:
    """Whether all weights are equal, bit for bit."""
    return weights.keys() == other.keys() and all(
        all(np.array_equal(a, b) for a, b in zip(weights[layer], other[layer], strict=True))
        for layer in weights
    )
