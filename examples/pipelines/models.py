"""A transformer of 20 million parameters and a ResNet-18, from PyTorch's own layers, to be split
over machines.

    pip install 'spotctl[torch]'
    cd examples/pipelines
    spotctl lab parallel profile models.py:transformer --microbatch 4 --out transformer.json
    spotctl launch transformer.yaml

`small_transformer` and `small_resnet` take seconds. docs/parallel.md goes through the steps.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from agileml.pipeline.model import PipelineModel
from agileml.pipeline.optimizers import TorchOptimizer
from agileml.pipeline.torch_layers import TorchLoss, torch_layers

Samples = tuple[torch.Tensor, torch.Tensor]
CLASSES = 10


class Embedding(nn.Module):
    """Tokens and their places as vectors."""

    def __init__(self, vocabulary: int, length: int, width: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        vectors: torch.Tensor = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        return vectors


class Block(nn.TransformerEncoderLayer):
    """A layer that sees earlier tokens only."""

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        mask = nn.Transformer.generate_square_subsequent_mask(vectors.shape[1])
        return super().forward(vectors, src_mask=mask, is_causal=True)


def language_model(vocabulary: int, length: int, width: int, blocks: int) -> nn.Sequential:
    return nn.Sequential(
        Embedding(vocabulary, length, width),
        *(
            Block(width, width // 32, 4 * width, dropout=0.1, batch_first=True)
            for _ in range(blocks)
        ),
        nn.Sequential(nn.LayerNorm(width), nn.Linear(width, vocabulary)),
    )


def counting(number: int, microbatch: int, vocabulary: int, length: int) -> Samples:
    """Sequences that count in steps of their own; the same ones for the same number, on any
    machine.
    """
    draw = torch.Generator().manual_seed(number)
    first = torch.randint(vocabulary, (microbatch, 1), generator=draw)
    step = torch.randint(1, 8, (microbatch, 1), generator=draw)
    tokens = (first + step * torch.arange(length + 1)) % vocabulary
    return tokens[:, :-1], tokens[:, 1:]


def next_token_loss(scores: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(scores.flatten(0, 1), tokens.flatten())


class Residual(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        shortcut = nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
        )
        self.shortcut = nn.Identity() if stride == 1 and inputs == outputs else shortcut

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return nn.functional.relu(self.body(images) + self.shortcut(images))


def residual_network(width: int) -> nn.Sequential:
    """ResNet-18 for images of 32 x 32 pixels, if `width` is 64."""
    stem = nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)
    )
    blocks, inputs = [], width
    for outputs in (width, 2 * width, 4 * width, 8 * width):
        blocks += [
            Residual(inputs, outputs, 1 if outputs == width else 2),
            Residual(outputs, outputs, 1),
        ]
        inputs = outputs
    return nn.Sequential(
        stem,
        *blocks,
        nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, CLASSES)),
    )


def stripes(number: int, microbatch: int, size: int) -> Samples:
    """Noisy images whose stripes tell the class."""
    draw = torch.Generator().manual_seed(number)
    kinds = torch.randint(CLASSES, (microbatch,), generator=draw)
    waves = torch.sin(torch.arange(size) * (kinds[:, None] + 1) * 0.3)
    images = waves[:, None, None, :] + 0.5 * torch.randn(microbatch, 3, size, size, generator=draw)
    return images, kinds


def _language_model(
    microbatch: int, vocabulary: int, length: int, width: int, blocks: int
) -> PipelineModel:
    network = partial(language_model, vocabulary, length, width, blocks)
    data = partial(counting, microbatch=microbatch, vocabulary=vocabulary, length=length)
    optimizer = TorchOptimizer(partial(torch.optim.AdamW, lr=3e-4), clip_norm=1.0)
    return PipelineModel(
        torch_layers(network), TorchLoss(next_token_loss), data, optimizer=optimizer
    )


def _residual_network(microbatch: int, width: int, size: int) -> PipelineModel:
    optimizer = TorchOptimizer(partial(torch.optim.SGD, lr=0.05, momentum=0.9, weight_decay=5e-4))
    data = partial(stripes, microbatch=microbatch, size=size)
    layers = torch_layers(partial(residual_network, width))
    return PipelineModel(layers, TorchLoss(nn.CrossEntropyLoss()), data, optimizer=optimizer)


def transformer(microbatch: int) -> PipelineModel:
    return _language_model(microbatch, vocabulary=8192, length=64, width=384, blocks=8)


def small_transformer(microbatch: int) -> PipelineModel:
    return _language_model(microbatch, vocabulary=64, length=16, width=32, blocks=4)


def resnet18(microbatch: int) -> PipelineModel:
    return _residual_network(microbatch, width=64, size=32)


def small_resnet(microbatch: int) -> PipelineModel:
    return _residual_network(microbatch, width=4, size=8)


MODELS: dict[str, Callable[[int], PipelineModel]] = {
    "transformer": transformer,
    "small_transformer": small_transformer,
    "resnet18": resnet18,
    "small_resnet": small_resnet,
}
