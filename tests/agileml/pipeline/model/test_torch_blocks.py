"""Layers of a transformer, whole and in parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from agileml.pipeline.builtin import squared_error
from agileml.pipeline.model.base import Array, DrawKey, PipelineLayer, PipelineModel, Stash, Weights
from agileml.pipeline.optimizers import Optimizer
from agileml.pipeline.run.local import train_simulated
from agileml.pipeline.run.training import PipelinePlan
from agileml.pipeline.tensor_parts import split_layer
from tests.agileml.pipeline.oracle import trained
from tests.agileml.pipeline.test_tensor_parts import Noise


@dataclass(frozen=True)
class LayerWithWeights:
    """A layer that begins with these weights."""

    layer: PipelineLayer
    weights: Weights

    def initial(self, key: DrawKey) -> Weights:
        del key
        return self.weights

    def forward(self, weights: Weights, inputs: Array, key: DrawKey) -> tuple[Array, Stash]:
        outputs, stash = self.layer.forward(weights, inputs, key)
        return inputs + outputs, stash

    def backward(self, weights: Weights, stash: Stash, gradient: Array) -> tuple[Array, Weights]:
        inner, gradients = self.layer.backward(weights, stash, gradient)
        return inner + gradient, gradients


def attention(parts: Sequence[Weights]) -> Weights:
    """The unsplit layer: query, key and value of all heads, and their outputs next to each
    other."""
    mixed = [
        np.concatenate([part[i].reshape(3, 2, 2, -1) for part in parts], axis=1) for i in (0, 1)
    ]
    joined = np.concatenate([part[2] for part in parts], axis=1)
    return mixed[0].reshape(24, 8), mixed[1].reshape(24), joined, parts[0][3]


def feed_forward(parts: Sequence[Weights]) -> Weights:
    wide, bias = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    return wide, bias, np.concatenate([part[2] for part in parts], axis=1), parts[0][3]


@pytest.mark.parametrize(("kind", "error"), [("float64", 1e-12), ("float32", 1e-6)])
def test_split_attention_and_feed_forward_layers_equal_unsplit_ones(
    kind: str, error: float
) -> None:
    """Trained on two nodes for a few updates, by all of whose gradients the weights would
    differ."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from agileml.pipeline.model.torch_blocks import AttentionPart, FeedForwardPart
    from agileml.pipeline.torch_layers import TorchLayer

    def layer(build: Callable[[int, int], Any], part: int, parts: int) -> TorchLayer:
        return TorchLayer(lambda: build(part, parts).to(getattr(torch, kind)))

    builds: list[Callable[[int, int], Any]] = [
        partial(AttentionPart, 8, 4),
        partial(FeedForwardPart, 8, 12),
    ]
    split = [
        part
        for build in builds
        for part in split_layer([layer(build, i, 2) for i in (0, 1)], residual=True)
    ]
    model, rule = PipelineModel(split, squared_error, Noise(kind)), Optimizer("sgd", 0.5)
    begin = [model.initial(i) for i in range(4)]
    joins = [attention, feed_forward]
    firsts = [join(begin[2 * i : 2 * i + 2]) for i, join in enumerate(joins)]
    whole = [
        LayerWithWeights(layer(build, 0, 1), first)
        for build, first in zip(builds, firsts, strict=True)
    ]
    expected, losses = trained(replace(model, layers=whole), rule, 3, 2, lambda _, t: t)
    result = train_simulated(model, rule, PipelinePlan(3, 2, tensor=2), 2)
    for i, join in enumerate(joins):
        joined = join([result.weights[2 * i], result.weights[2 * i + 1]])
        for weight, other, first in zip(joined, expected[i], firsts[i], strict=True):
            np.testing.assert_allclose(weight, other, rtol=0, atol=error)
            assert np.abs(weight - first).max() > 1e-4
    assert list(result.losses.values()) == pytest.approx(list(losses.values()), abs=error)
