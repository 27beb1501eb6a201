"""Measures the layers of a model, one by one, for several microbatch sizes."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from multiprocessing import get_context
from typing import Any

import cloudpickle
import numpy as np

from agileml.checks import check_whole
from agileml.errors import JobFailed
from agileml.extras import torch_module
from agileml.pipeline.local import ONE_THREAD
from agileml.pipeline.model import Array, PipelineLayer, PipelineModel, Weights
from agileml.pipeline.profile import FORMAT, LayerCost, ModelProfile
from agileml.pipeline.tensor_parts import TensorPart, added, pieces
from agileml.pipeline.torch_layers import TorchLayer
from agileml.pipeline.user_model import ModelFactory


def profiled(name: str, make: ModelFactory, sizes: Sequence[int], repeats: int) -> tuple[ModelProfile, ...]:
    """A profile for each microbatch size; times are medians of `repeats` passes, after one to warm up.

    They are measured in a process of its own with one thread, as nodes have: how many threads numpy and PyTorch use
    is decided when they are imported.
    """
    check_whole("repeats", repeats, 1)
    for size in sizes:
        check_whole("microbatch", size, 1)
    work = cloudpickle.dumps((name, make, tuple(sizes), repeats))
    before = {key: os.environ.get(key) for key in ONE_THREAD}
    os.environ.update(ONE_THREAD)
    try:
        with ProcessPoolExecutor(1, get_context("spawn")) as process:
            return process.submit(_measured, work).result()
    except BrokenProcessPool as error:
        raise JobFailed(
            f"{name}: the process that measures the layers was killed: use smaller microbatches, or more memory"
        ) from error
    finally:
        for key, value in before.items():
            os.environ.pop(key) if value is None else os.environ.update({key: value})


def _measured(work: bytes) -> tuple[ModelProfile, ...]:
    name, make, sizes, repeats = cloudpickle.loads(work)
    return tuple(_profile(name, make(size), size, repeats) for size in sizes)


def profiles_to_json(model: str, profiles: Sequence[ModelProfile]) -> dict[str, Any]:
    """The file that `spotctl parallel plan` reads."""
    return {
        "format": FORMAT,
        "model": model,
        "profiles": [
            {
                "microbatch": one.microbatch,
                "input_bytes": one.input_bytes,
                "layers": [vars(layer) for layer in one.layers],
            }
            for one in profiles
        ],
    }


def _profile(name: str, model: PipelineModel, size: int, repeats: int) -> ModelProfile:
    weights = [model.initial(i) for i in range(len(model.layers))]
    values, targets = model.data(0)
    input_bytes = values.nbytes
    cuts, inputs = pieces(model.layers), []
    for piece in cuts:
        inputs.append(values)
        outputs = [model.layers[i].forward(weights[i], values, (0, 0, i))[0] for i in piece]
        values = _joined(model, piece, outputs, values)
    costs: list[LayerCost] = []
    _, gradient = model.loss(values, targets)
    for piece, given in zip(reversed(cuts), reversed(inputs), strict=True):
        found = [_cost(model.layers[i], i, weights[i], given, gradient, repeats) for i in piece]
        costs.append(_sum([cost for cost, _ in found]))
        gradient = _joined(model, piece, [inner for _, inner in found], gradient)
    return ModelProfile(name, size, tuple(reversed(costs)), float(input_bytes))


def _joined(model: PipelineModel, piece: range, parts: Sequence[Array], whole: Array) -> Array:
    first = model.layers[piece[0]]
    return added(parts, whole, residual=isinstance(first, TensorPart) and first.residual)


def _cost(
    layer: PipelineLayer, i: int, weights: Weights, inputs: Array, gradient: Array, repeats: int
) -> tuple[LayerCost, Array]:
    """The cost of a layer, and the gradient of its inputs."""
    inner = layer.layer if isinstance(layer, TensorPart) else layer
    forward = _median(_forward(inner, weights, inputs, i), repeats)
    both = _median(_both(inner, weights, inputs, gradient, i), repeats)
    output, stash = inner.forward(weights, inputs, (0, 0, i))
    held = _stash_bytes(inner, weights, inputs, stash)
    size_of = float(sum(one.nbytes for one in weights))
    label = f"{i}:{type(inner).__name__}"
    cost = LayerCost(label, forward, max(both - forward, 0.0), float(output.nbytes), held, size_of)
    return cost, inner.backward(weights, stash, gradient)[0]


def _sum(parts: Sequence[LayerCost]) -> LayerCost:
    """The cost of a layer from those of its parts; each has the whole layer's output."""
    return replace(
        parts[0],
        forward_seconds=sum(one.forward_seconds for one in parts),
        backward_seconds=sum(one.backward_seconds for one in parts),
        stash_bytes=sum(one.stash_bytes for one in parts),
        weight_bytes=sum(one.weight_bytes for one in parts),
        parts=len(parts),
    )


def _forward(layer: PipelineLayer, weights: Weights, inputs: Array, i: int) -> Callable[[], object]:
    return lambda: layer.forward(weights, inputs, (0, 0, i))


def _both(layer: PipelineLayer, weights: Weights, inputs: Array, gradient: Array, i: int) -> Callable[[], object]:
    """Forward and backward: a stash serves one backward pass only."""
    return lambda: layer.backward(weights, layer.forward(weights, inputs, (0, 0, i))[1], gradient)


def _median(work: Callable[[], object], repeats: int) -> float:
    work()
    seconds = []
    for _ in range(repeats):
        begun = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds)


def _stash_bytes(layer: PipelineLayer, weights: Weights, inputs: Array, stash: object) -> float:
    if not isinstance(layer, TorchLayer):
        return float(_array_bytes(stash))
    torch = torch_module()
    sizes: dict[int, int] = {}
    own = {one.ctypes.data for one in weights}

    def seen(tensor: Any) -> Any:  # noqa: ANN401  # a tensor
        if tensor.data_ptr() not in own:
            sizes[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(seen, lambda tensor: tensor):
        layer.forward(weights, inputs, (0, 0, 0))
    return float(sum(sizes.values()))


def _array_bytes(stash: object) -> int:
    if isinstance(stash, np.ndarray):
        return stash.nbytes
    return sum(map(_array_bytes, stash)) if isinstance(stash, tuple | list) else 0
