"""Measures the layers of a model, one by one, for several microbatch sizes."""

from __future__ import annotations

import importlib.util
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from agileml.checks import check_whole
from agileml.extras import torch_module
from agileml.pipeline.model import Array, PipelineLayer, PipelineModel, Weights
from agileml.pipeline.profile import FORMAT, LayerCost, ModelProfile
from agileml.pipeline.torch_layers import TorchLayer
from agileml.pipeline.user_model import ModelFactory


def profiled(name: str, make: ModelFactory, sizes: Sequence[int], repeats: int) -> tuple[ModelProfile, ...]:
    """A profile for each microbatch size; times are medians of `repeats` passes, after one to warm up."""
    check_whole("repeats", repeats, 1)
    for size in sizes:
        check_whole("microbatch", size, 1)
    with _one_thread():
        return tuple(_profile(name, make(size), size, repeats) for size in sizes)


@contextmanager
def _one_thread() -> Iterator[None]:
    """PyTorch uses one thread, as the workers do; without PyTorch there is nothing to set."""
    if importlib.util.find_spec("torch") is None:
        yield
        return
    torch = torch_module()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


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
    inputs, forward = [], []
    for i, layer in enumerate(model.layers):
        inputs.append(values)
        forward.append(_median(_forward(layer, weights[i], values, i), repeats))
        values, _ = layer.forward(weights[i], values, (0, 0, i))
    costs: list[LayerCost] = []
    _, gradient = model.loss(values, targets)
    for i in reversed(range(len(model.layers))):
        layer = model.layers[i]
        both = _median(_both(layer, weights[i], inputs[i], gradient, i), repeats)
        output, stash = layer.forward(weights[i], inputs[i], (0, 0, i))
        held = _stash_bytes(layer, weights[i], inputs[i], stash)
        gradient, _ = layer.backward(weights[i], stash, gradient)
        size_of = float(sum(one.nbytes for one in weights[i]))
        label = f"{i}:{type(layer).__name__}"
        costs.append(LayerCost(label, forward[i], max(both - forward[i], 0.0), float(output.nbytes), held, size_of))
    return ModelProfile(name, size, tuple(reversed(costs)), float(input_bytes))


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
