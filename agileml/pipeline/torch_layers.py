"""PyTorch modules as layers, for models of your own: weights stay arrays, passed to the module for
each call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agileml.errors import BadArgument, torch_module
from agileml.pipeline.model.base import (
    ABSENT,
    Array,
    DrawKey,
    PipelineModel,
    Stash,
    Values,
    Weights,
    array_of,
    arrays_of_layer,
    is_absent,
    packed,
    seed_torch,
    tensor_of,
    tensors_of,
    unpacked,
)

__all__ = ["TorchLayer", "TorchLoss", "modules_from", "modules_with", "torch_layers"]

if TYPE_CHECKING:
    import torch

    Stages = torch.nn.Sequential | torch.nn.ModuleList | Sequence[torch.nn.Module] | torch.nn.Module


class TorchLayer:
    """A module; it may have several inputs and outputs. Every process makes its own with `build`.

    Parameters with `requires_grad=False` stay as `build` makes them. Random numbers are drawn for
    the seed, the microbatch and the layer.
    """

    def __init__(self, build: Callable[[], torch.nn.Module]) -> None:
        self._build = build
        self._made: tuple[DrawKey, _Module] | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "_made": None}

    def kind(self, key: DrawKey) -> str:
        """The name of the module's class."""
        return type(self._module(key).module).__name__

    def moving_buffers(self, key: DrawKey) -> list[str]:
        """Buffers that are known to change in a forward pass: the running statistics of norms."""
        return self._module(key).moving

    def initial(self, key: DrawKey) -> Weights:
        return tuple(array_of(parameter).copy() for parameter in self._module(key).trained.values())

    def initial_buffers(self, key: DrawKey) -> Weights:
        """Buffers at the start, of those that a state dict would hold."""
        return tuple(array_of(buffer).copy() for buffer in self._module(key).buffers.values())

    def forward(self, weights: Weights, inputs: Values, key: DrawKey) -> tuple[Values, Stash]:
        return self.forward_buffered(weights, self.initial_buffers(key), inputs, key)[:2]

    def forward_buffered(
        self, weights: Weights, buffers: Weights, inputs: Values, key: DrawKey
    ) -> tuple[Values, Stash, Weights]:
        """As `forward`, and the buffers after it."""
        torch = torch_module()
        module = self._module(key)
        given = tensors_of(inputs)
        tensors = [tensor_of(weight).detach().requires_grad_() for weight in weights]
        state = dict(zip(module.trained, tensors, strict=True))
        state |= {
            name: tensor_of(array).clone()
            for name, array in zip(module.buffers, buffers, strict=True)
        }
        with torch.random.fork_rng(devices=[]):
            seed_torch(key)
            outputs = module.call(state, given)

        changed = tuple(array_of(state[name]) for name in module.buffers)
        return (
            unpacked(tuple(array_of(output) for output in outputs)),
            (given, tensors, outputs),
            changed,
        )

    def backward(self, weights: Weights, stash: Stash, gradient: Values) -> tuple[Values, Weights]:
        return self.backward_into(tuple(ABSENT for _ in weights), stash, gradient)

    def backward_into(
        self, totals: Weights, stash: Stash, gradient: Values
    ) -> tuple[Values, Weights]:
        """As `backward`; PyTorch adds the gradients of the weights to `totals` while they are in
        the cache.
        """
        torch = torch_module()
        given, tensors, outputs = stash
        # Integers have no gradient, and outputs that nothing uses or that frozen layers made from
        # data.
        turned = [
            (output, tensor_of(part))
            for output, part in zip(outputs, packed(gradient), strict=True)
            if output.requires_grad and not is_absent(part)
        ]

        for tensor, total in zip(tensors, totals, strict=True):
            tensor.grad = None if is_absent(total) else tensor_of(total)
        wanted = [tensor for tensor in (*given, *tensors) if tensor.requires_grad]
        if turned and wanted:
            ends, gradients = zip(*turned, strict=True)
            torch.autograd.backward(ends, gradients, inputs=wanted)

        turned_back = [
            ABSENT if tensor.grad is None else array_of(tensor.grad)
            for tensor in (*given, *tensors)
        ]
        of_inputs = tuple(turned_back[: len(given)])
        return unpacked(of_inputs), tuple(turned_back[len(given) :])

    def _module(self, key: DrawKey) -> _Module:
        """The module of this process, built with the random numbers of the model's seed and the
        layer.
        """
        begin = self._seed_key(key)
        if self._made is None or self._made[0] != begin:
            with torch_module().random.fork_rng(devices=[]):
                seed_torch(begin)
                self._made = begin, _Module.of(self._build_for(begin))
        return self._made[1]

    def _seed_key(self, key: DrawKey) -> DrawKey:
        return key[0], 0, key[2]

    def _build_for(self, begin: DrawKey) -> torch.nn.Module:
        del begin
        return self._build()


@dataclass
class _Module:
    """A module, and its parameters and buffers by name. Parameters that are not trained remain in
    the module.
    """

    module: torch.nn.Module
    trained: dict[str, torch.nn.Parameter]
    buffers: dict[str, torch.Tensor]
    moving: list[str]
    keeps_inputs: bool | None = None
    """Whether a call left its inputs as they were; None before the first call."""

    @classmethod
    def of(cls, module: torch.nn.Module) -> _Module:
        from torch.nn.modules.batchnorm import _NormBase

        held = module.state_dict(keep_vars=True)
        buffers = {name: buffer for name, buffer in module.named_buffers() if name in held}
        norms = [
            (f"{name}.{part}" if name else part)
            for name, inner in module.named_modules()
            if isinstance(inner, _NormBase) and inner.training
            for part, _ in inner.named_buffers(recurse=False)
        ]

        trained = {
            name: weight for name, weight in module.named_parameters() if weight.requires_grad
        }
        return cls(module, trained, buffers, norms)

    def call(
        self, state: dict[str, torch.Tensor], given: Sequence[torch.Tensor]
    ) -> tuple[torch.Tensor, ...]:
        """The outputs. Puts changed buffers into `state`.

        The memory of inputs belongs to others: a module that works in place gets copies.
        """
        torch = torch_module()
        passed = list(given) if self.keeps_inputs else [tensor.clone() for tensor in given]
        versions = [tensor._version for tensor in passed]
        outputs = torch.func.functional_call(self.module, state, tuple(passed))
        if self.keeps_inputs is not False:
            self.keeps_inputs = versions == [tensor._version for tensor in passed]
        outputs = (outputs,) if isinstance(outputs, torch.Tensor) else outputs
        several = isinstance(outputs, tuple | list)
        others = [part for part in outputs if not isinstance(part, torch.Tensor)] if several else []

        if not several or others:
            inner = f" with a {type(others[0]).__name__}" if others else ""
            raise BadArgument(
                f"module {type(self.module).__name__} returned {type(outputs).__name__}{inner}: "
                "return a tensor, or a tuple of tensors"
            )

        return tuple(outputs)


def torch_layers(build: Callable[[], Stages]) -> list[TorchLayer]:
    """Layers from the children of a `Sequential` or a list of modules, or from a module's list
    named `stages`.

    Layers may share weights: each keeps a copy, and gets the sum of their gradients.
    """
    owners: dict[int, list[tuple[int, int]]] = {}
    children = _children(build())
    for i, child in enumerate(children):
        for position, weight in enumerate(_Module.of(child).trained.values()):
            owners.setdefault(id(weight), []).append((i, position))

    whole = _Whole(build)
    layers = [_Child(whole, i) for i in range(len(children))]
    for number, members in enumerate(owners.values()):
        for i, position in members if len(members) > 1 else ():
            layers[i].tied[position] = number

    return [*layers]


def modules_with(
    model: PipelineModel, weights: Mapping[int, Weights], buffers: Mapping[int, Weights]
) -> list[torch.nn.Module]:
    """The modules of a model's layers with the given weights and buffers, such as those of a
    finished training.
    """
    modules = []
    for i, layer in enumerate(model.layers):
        if isinstance(layer, TorchLayer):
            own = _Module.of(deepcopy(layer._module((model.seed, 0, i)).module))
            for tensors, arrays in ((own.trained, weights[i]), (own.buffers, buffers.get(i, ()))):
                for tensor, array in zip(tensors.values(), arrays, strict=True):
                    tensor.data.copy_(tensor_of(array))
            modules.append(own.module)

    return modules


def modules_from(model: PipelineModel, saved: Mapping[str, Array]) -> list[torch.nn.Module]:
    """The modules of a model's layers as they were saved, such as `numpy.load("model.npz")` after
    `spotctl launch`.
    """
    weights, buffers = zip(
        *(arrays_of_layer(saved, i) for i in range(len(model.layers))), strict=True
    )
    return modules_with(model, dict(enumerate(weights)), dict(enumerate(buffers)))


def _children(whole: Stages) -> list[torch.nn.Module]:
    torch = torch_module()
    stages = getattr(whole, "stages", None)
    if isinstance(whole, torch.nn.Module) and isinstance(
        stages, list | tuple | torch.nn.Sequential | torch.nn.ModuleList
    ):
        whole = stages

    if isinstance(whole, list | tuple | torch.nn.Sequential | torch.nn.ModuleList) and len(whole):
        return list(whole)
    raise BadArgument(
        f"{type(whole).__name__} is not a list of layers: build a torch.nn.Sequential, or a module "
        "with a list `stages`"
    )


class _Whole:
    """Makes all children of a model with the random numbers of one seed, and gives each of them
    away once.
    """

    def __init__(self, build: Callable[[], Stages]) -> None:
        self._build = build
        self._left: dict[tuple[DrawKey, int], torch.nn.Module] = {}

    def __getstate__(self) -> dict[str, object]:
        return {"_build": self._build, "_left": {}}

    def child(self, index: int, begin: DrawKey) -> torch.nn.Module:
        if (begin, index) not in self._left:
            self._left = {(begin, i): child for i, child in enumerate(_children(self._build()))}
        return self._left.pop((begin, index))

    def drop(self) -> None:
        """Frees the memory of layers that other nodes have."""
        self._left = {}


class _Child(TorchLayer):
    """A child of a model that is built as a whole."""

    def __init__(self, whole: _Whole, index: int) -> None:
        super().__init__(whole._build)  # type: ignore[arg-type]
        self._whole = whole
        self._index = index
        self.tied: dict[int, int] = {}

    @property
    def ties(self) -> dict[int, object]:
        """By position among the weights: what stands for a weight that other layers have, too."""
        return {position: (id(self._whole), number) for position, number in self.tied.items()}

    def forward_buffered(
        self, weights: Weights, buffers: Weights, inputs: Values, key: DrawKey
    ) -> tuple[Values, Stash, Weights]:
        result = super().forward_buffered(weights, buffers, inputs, key)
        self._whole.drop()
        return result

    def _seed_key(self, key: DrawKey) -> DrawKey:
        return key[0], 0, 0

    def _build_for(self, begin: DrawKey) -> torch.nn.Module:
        return self._whole.child(self._index, begin)


class TorchLoss:
    """A loss of PyTorch, such as `torch.nn.CrossEntropyLoss()`, or a function of outputs and
    targets.
    """

    def __init__(self, criterion: Callable[..., torch.Tensor]) -> None:
        self._criterion = criterion

    def __call__(self, outputs: Values, targets: Values) -> tuple[float, Values]:
        torch = torch_module()
        given = tensors_of(outputs)
        wanted = [tensor for tensor in given if tensor.requires_grad]
        true = tuple(tensor_of(array) for array in packed(targets))
        several = isinstance(outputs, tuple)
        loss = self._criterion(
            tuple(given) if several else given[0], true if isinstance(targets, tuple) else true[0]
        )
        gradients = iter(torch.autograd.grad(loss, wanted, allow_unused=True))
        parts = [next(gradients) if tensor.requires_grad else None for tensor in given]

        return loss.item(), unpacked(
            tuple(ABSENT if part is None else array_of(part) for part in parts)
        )
