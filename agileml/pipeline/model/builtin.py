"""Models to try pipelines with: `mlp` in numpy, two transformers in PyTorch. Their data is generated."""

from dataclasses import dataclass
from functools import partial

import numpy as np

from agileml.extras import torch_module
from agileml.pipeline.model.base import Array, PipelineLayer, PipelineModel
from agileml.pipeline.model.layers import Dense, Dropout, cross_entropy
from agileml.pipeline.model.tensor_parts import split_layer
from agileml.pipeline.model.torch_layers import TorchLayer, torch_layers

CLASSES, FEATURES, WIDTH = 10, 64, 128
TOKENS, SEQUENCE, HIDDEN, HEADS, BLOCKS, PARTS = 32, 16, 64, 4, 4, 2


@dataclass(frozen=True)
class _Clusters:
    """Points around the centers of classes."""

    samples: int

    def __call__(self, number: int) -> tuple[Array, Array]:
        centers = np.random.default_rng(0).standard_normal((CLASSES, FEATURES))
        draw = np.random.default_rng((1, number))
        targets = draw.integers(CLASSES, size=self.samples)
        return centers[targets] + draw.standard_normal((self.samples, FEATURES)), targets


def mlp(microbatch: int) -> PipelineModel:
    """A classifier of eight layers."""
    layers: list[PipelineLayer] = [Dense(FEATURES, WIDTH), *(Dense(WIDTH, WIDTH) for _ in range(5))]
    layers += [Dropout(0.1), Dense(WIDTH, CLASSES, squash=False)]
    return PipelineModel(layers, cross_entropy, _Clusters(microbatch))


@dataclass(frozen=True)
class _Sentences:
    """Each token follows from the two before it, most of the time."""

    samples: int

    def __call__(self, number: int) -> tuple[Array, Array]:
        draw = np.random.default_rng((2, number))
        tokens = draw.integers(TOKENS, size=(self.samples, SEQUENCE + 1))
        for i in range(2, SEQUENCE + 1):
            follows = draw.random(self.samples) < 0.9
            tokens[:, i] = np.where(follows, (tokens[:, i - 1] + 3 * tokens[:, i - 2]) % TOKENS, tokens[:, i])
        return tokens[:, :-1], tokens[:, 1:]


def transformer(microbatch: int) -> PipelineModel:
    """A small language model: embedding, four blocks, and a projection to tokens."""
    torch_module()
    return PipelineModel(torch_layers(_small_transformer), cross_entropy, _Sentences(microbatch))


def _small_transformer():  # type: ignore[no-untyped-def]  # noqa: ANN202  # PyTorch may be missing
    from agileml.pipeline.model.torch_blocks import small_transformer

    return small_transformer(TOKENS, SEQUENCE, HIDDEN, HEADS, BLOCKS)


def split_transformer(microbatch: int) -> PipelineModel:
    """A small language model whose attention and feed-forward layers come in two parts."""
    torch_module()
    from torch.nn import Linear

    from agileml.pipeline.model.torch_blocks import AttentionPart, FeedForwardPart, TokenEmbedding

    layers: list[PipelineLayer] = [TorchLayer(partial(TokenEmbedding, TOKENS, SEQUENCE, HIDDEN))]
    for _ in range(BLOCKS):
        for kind in (partial(AttentionPart, HIDDEN, HEADS), partial(FeedForwardPart, HIDDEN, 4 * HIDDEN)):
            layers += split_layer([TorchLayer(partial(kind, part, PARTS)) for part in range(PARTS)], residual=True)
    return PipelineModel([*layers, TorchLayer(partial(Linear, HIDDEN, TOKENS))], cross_entropy, _Sentences(microbatch))


BUILT_IN = {"mlp": mlp, "transformer": transformer, "split-transformer": split_transformer}
