"""PyTorch modules as pipeline layers. Weights stay immutable arrays and are passed to the module for each call."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from agileml.errors import BadArgument
from agileml.extras import torch_module
from agileml.pipeline.model.base import Array, DrawKey, Stash, Weights

if TYPE_CHECKING:
    import torch


class TorchLayer:
    """A module with one input and one output tensor. Every process makes its own with `build`."""

    def __init__(self, build: Callable[[], torch.nn.Module]) -> None:
        self._build = build

    def __getstate__(self) -> dict[str, object]:
        return {"_build": self._build}

    @cached_property
    def _module(self) -> torch.nn.Module:
        module = self._build()
        if any(True for _ in module.buffers()):
            names = ", ".join(name for name, _ in module.named_buffers())
            raise BadArgument(
                f"module {type(module).__name__} has buffers ({names}), which a repeated forward pass would change"
                " twice: use a layer without them, such as LayerNorm instead of BatchNorm"
            )
        return module

    def initial(self, key: DrawKey) -> Weights:
        torch = torch_module()
        with torch.random.fork_rng(devices=[]):
            _seed(key)
            return tuple(parameter.detach().numpy().copy() for parameter in self._build().parameters())

    def forward(self, weights: Weights, inputs: Array, key: DrawKey) -> tuple[Array, Stash]:
        torch = torch_module()
        given = torch.from_numpy(inputs)
        if given.is_floating_point():
            given = given.detach().requires_grad_()
        names = [name for name, _ in self._module.named_parameters()]
        tensors = [torch.from_numpy(weight).requires_grad_() for weight in weights]
        with torch.random.fork_rng(devices=[]):
            _seed(key)
            output = torch.func.functional_call(self._module, dict(zip(names, tensors, strict=True)), (given,))
        return output.detach().numpy(), (given, tensors, output)

    def backward(self, weights: Weights, stash: Stash, gradient: Array) -> tuple[Array, Weights]:
        del weights
        torch = torch_module()
        given, tensors, output = stash
        wanted = [given, *tensors] if given.requires_grad else tensors
        gradients = torch.autograd.grad(output, wanted, torch.from_numpy(np.ascontiguousarray(gradient)))
        arrays = [tensor.numpy() for tensor in gradients]
        # Tokens have no gradient.
        first = arrays.pop(0) if given.requires_grad else np.zeros(1)
        return first, tuple(arrays)


def torch_layers(build: Callable[[], torch.nn.Sequential]) -> list[TorchLayer]:
    """The children of a `Sequential` as layers. Raises BadArgument if two of them share a weight."""
    owners: dict[int, int] = {}
    whole = build()
    for i, child in enumerate(whole):
        for name, weight in child.named_parameters():
            other = owners.setdefault(id(weight), i)
            if other != i:
                raise BadArgument(
                    f"layer {i} shares weight {name!r} with layer {other}, so they cannot be in different stages:"
                    " put both in one layer, or give each its own weight"
                )
    return [TorchLayer(_Child(build, i)) for i in range(len(whole))]


class _Child:
    """Builds one child of a `Sequential`."""

    def __init__(self, build: Callable[[], torch.nn.Sequential], index: int) -> None:
        self._build, self._index = build, index

    def __call__(self) -> torch.nn.Module:
        return self._build()[self._index]


def _seed(key: DrawKey) -> None:
    # `torch.manual_seed` would format the stack and queue a call for a graphics card, even where there is none.
    seed = int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> np.uint64(1))
    torch_module().default_generator.manual_seed(seed)
