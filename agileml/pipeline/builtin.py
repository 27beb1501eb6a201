"""Layers of numpy, for models of your own, the built-in models, by the function that makes each, and
models of users by their name: `FILE.py:FUNCTION`.
"""

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import cloudpickle
import numpy as np

from agileml.errors import BadArgument, TrainerFailed, torch_module
from agileml.pipeline.model.base import Array, DrawKey, PipelineLayer, PipelineModel, Stash, Weights
from agileml.pipeline.tensor_parts import split_layer
from agileml.pipeline.torch_layers import TorchLayer, torch_layers


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


ModelFactory = Callable[[int], PipelineModel]
"""Makes the model for a number of samples per microbatch."""


def model_factory(target: str) -> ModelFactory:
    if target in BUILT_IN:
        return BUILT_IN[target]

    name, colon, function = target.rpartition(":")
    path = Path(name)
    if not colon or path.suffix != ".py" or not path.is_file():
        raise BadArgument(
            f"model {target!r}: name {', '.join(BUILT_IN)}, or a function in a file: "
            "FILE.py:FUNCTION"
        )

    spec = importlib.util.spec_from_file_location(f"pipeline_model_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module

    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise TrainerFailed(f"{path}: {type(error).__name__}: {error}") from error

    # Workers do not have this module: its code travels with the model.
    cloudpickle.register_pickle_by_value(module)

    build = getattr(module, function, None)
    if not callable(build):
        raise BadArgument(f"model {target!r}: {path} has no function {function!r}")

    def make(microbatch: int) -> PipelineModel:
        try:
            model = build(microbatch)
        except Exception as error:
            raise TrainerFailed(f"model {target}: {type(error).__name__}: {error}") from error

        if not isinstance(model, PipelineModel) or not model.layers:
            raise BadArgument(
                f"model {target}: returned {type(model).__name__}; it must return a PipelineModel "
                "with layers"
            )
        return model

    return make


CLASSES, FEATURES, WIDTH = 10, 64, 128
TOKENS, SEQUENCE, HIDDEN, HEADS, BLOCKS, PARTS = 32, 16, 64, 4, 4, 2


def _clusters(samples: int, number: int) -> tuple[Array, Array]:
    """Points around the centers of classes."""
    centers = np.random.default_rng(0).standard_normal((CLASSES, FEATURES))
    draw = np.random.default_rng((1, number))
    targets = draw.integers(CLASSES, size=samples)
    return centers[targets] + draw.standard_normal((samples, FEATURES)), targets


def mlp(microbatch: int) -> PipelineModel:
    """A classifier of eight layers."""
    layers: list[PipelineLayer] = [Dense(FEATURES, WIDTH), *(Dense(WIDTH, WIDTH) for _ in range(5))]
    layers += [Dropout(0.1), Dense(WIDTH, CLASSES, squash=False)]
    return PipelineModel(layers, cross_entropy, partial(_clusters, microbatch))


def _sentences(samples: int, number: int) -> tuple[Array, Array]:
    """Each token follows from the two before it, most of the time."""
    draw = np.random.default_rng((2, number))
    tokens = draw.integers(TOKENS, size=(samples, SEQUENCE + 1))
    for i in range(2, SEQUENCE + 1):
        follows = draw.random(samples) < 0.9
        tokens[:, i] = np.where(
            follows, (tokens[:, i - 1] + 3 * tokens[:, i - 2]) % TOKENS, tokens[:, i]
        )
    return tokens[:, :-1], tokens[:, 1:]


def transformer(microbatch: int) -> PipelineModel:
    """A small language model: embedding, four blocks, and a projection to tokens."""
    torch_module()
    return PipelineModel(
        torch_layers(_small_transformer), cross_entropy, partial(_sentences, microbatch)
    )


def _small_transformer():  # type: ignore[no-untyped-def]  # noqa: ANN202  # PyTorch may be missing
    from torch.nn import Linear, Sequential

    from agileml.pipeline.model.torch_blocks import CausalBlock, TokenEmbedding

    blocks = [CausalBlock(HIDDEN, HEADS) for _ in range(BLOCKS)]
    return Sequential(TokenEmbedding(TOKENS, SEQUENCE, HIDDEN), *blocks, Linear(HIDDEN, TOKENS))


def split_transformer(microbatch: int) -> PipelineModel:
    """A small language model whose attention and feed-forward layers come in two parts."""
    torch_module()
    from torch.nn import Linear

    from agileml.pipeline.model.torch_blocks import AttentionPart, FeedForwardPart, TokenEmbedding

    layers: list[PipelineLayer] = [TorchLayer(partial(TokenEmbedding, TOKENS, SEQUENCE, HIDDEN))]
    for _ in range(BLOCKS):
        for kind in (
            partial(AttentionPart, HIDDEN, HEADS),
            partial(FeedForwardPart, HIDDEN, 4 * HIDDEN),
        ):
            layers += split_layer(
                [TorchLayer(partial(kind, part, PARTS)) for part in range(PARTS)], residual=True
            )

    return PipelineModel(
        [*layers, TorchLayer(partial(Linear, HIDDEN, TOKENS))],
        cross_entropy,
        partial(_sentences, microbatch),
    )


BUILT_IN = {"mlp": mlp, "transformer": transformer, "split-transformer": split_transformer}
