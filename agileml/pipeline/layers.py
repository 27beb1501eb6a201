"""Layers of numpy, for models of your own."""

from dataclasses import dataclass

import numpy as np

from agileml.pipeline.model.base import Array, DrawKey, Stash, Weights


@dataclass(frozen=True)
class Dense:
    """A linear layer with a bias, and tanh behind it if `squash`."""

    inputs: int
    outputs: int
    squash: bool = True

    def initial(self, key: DrawKey) -> Weights:
        draw = np.random.default_rng(key)
        return draw.standard_normal((self.inputs, self.outputs)) / np.sqrt(self.inputs), np.zeros(
            self.outputs
        )

    def forward(self, weights: Weights, inputs: Array, key: DrawKey) -> tuple[Array, Stash]:
        del key
        matrix, bias = weights
        outputs = inputs @ matrix + bias
        if self.squash:
            outputs = np.tanh(outputs)
        return outputs, (inputs, outputs)

    def backward(self, weights: Weights, stash: Stash, gradient: Array) -> tuple[Array, Weights]:
        inputs, outputs = stash
        if self.squash:
            gradient = gradient * (1 - outputs * outputs)
        return gradient @ weights[0].T, (inputs.T @ gradient, gradient.sum(axis=0))


@dataclass(frozen=True)
class Dropout:
    """Sets a share of its inputs to 0 and scales up the others."""

    share: float

    def initial(self, key: DrawKey) -> Weights:
        del key
        return ()

    def forward(self, weights: Weights, inputs: Array, key: DrawKey) -> tuple[Array, Stash]:
        del weights
        kept = (np.random.default_rng(key).random(inputs.shape) >= self.share) / (1 - self.share)
        return inputs * kept, kept

    def backward(self, weights: Weights, stash: Stash, gradient: Array) -> tuple[Array, Weights]:
        del weights
        return gradient * stash, ()


def squared_error(outputs: Array, targets: Array) -> tuple[float, Array]:
    difference = outputs - targets
    return float((difference * difference).mean()), 2 * difference / difference.size


def cross_entropy(outputs: Array, targets: Array) -> tuple[float, Array]:
    """The mean negative log-likelihood of the target classes under a softmax over the last axis."""
    flat = outputs.reshape(-1, outputs.shape[-1])
    wanted = targets.reshape(-1)
    exponents = np.exp(flat - flat.max(axis=-1, keepdims=True))
    shares = exponents / exponents.sum(axis=-1, keepdims=True)
    rows = np.arange(len(wanted))
    loss = float(-np.log(shares[rows, wanted]).mean())
    shares[rows, wanted] -= 1
    return loss, (shares / len(wanted)).reshape(outputs.shape)
