"""Optimizers, for trainings from Python: numpy's and PyTorch's.

Update rules are pure functions: weights, state and gradient in, new weights and state out.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from agileml.errors import BadArgument, check_number, torch_module
from agileml.pipeline.model.base import (
    ABSENT,
    BFLOAT16,
    Array,
    Weights,
    array_of,
    is_absent,
    tensor_of,
)
from agileml.pipeline.profile.model_profile import OPTIMIZER_STATE

if TYPE_CHECKING:
    import torch
    from torch.optim.lr_scheduler import LRScheduler


@dataclass(frozen=True)
class Optimizer:
    """`sgd`, `momentum` or `adam`. State is one flat tuple, as long as the rule needs."""

    kind: str = "sgd"
    rate: float = 0.1
    momentum: float = 0.9
    second: float = 0.999
    epsilon: float = 1e-8
    clip_norm: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in OPTIMIZER_STATE:
            raise BadArgument(
                f"optimizer is {self.kind!r}; choose from {', '.join(OPTIMIZER_STATE)}"
            )
        check_number("rate", self.rate, 0, above=True)

    def initial(self, weights: Weights) -> Weights:
        """Zeros: one array per weight and moment."""
        if any(weight.dtype == BFLOAT16 for weight in weights):
            raise BadArgument(
                "weights are bfloat16, on which numpy cannot compute: use "
                "agileml.pipeline.optimizers.TorchOptimizer"
            )
        return tuple(np.zeros_like(weight) for weight in weights * OPTIMIZER_STATE[self.kind])

    def step(
        self, weights: Weights, state: Weights, gradients: Weights, number: int
    ) -> tuple[Weights, Weights]:
        """A gradient that is absent counts as 0."""
        count = len(weights)
        pairs = zip(weights, gradients, strict=True)
        gradients = tuple(np.zeros_like(w) if is_absent(g) else g for w, g in pairs)
        if self.kind in ("sgd", "momentum"):
            speed: Weights = ()
            if self.kind == "momentum":
                pairs = zip(state, gradients, strict=True)
                gradients = speed = tuple(self.momentum * v + g for v, g in pairs)

            stepped = []
            for weight, gradient in zip(weights, gradients, strict=True):
                step = self.rate * gradient
                # In the memory of the step: new memory takes as long as the subtraction.
                has_room = isinstance(step, np.ndarray) and step.dtype == weight.dtype
                room = step if has_room else None
                stepped.append(np.asarray(np.subtract(weight, step, out=room)))
            return tuple(stepped), speed

        pairs = zip(state[:count], gradients, strict=True)
        first = tuple(_decayed(m, g, self.momentum) for m, g in pairs)
        pairs = zip(state[count:], gradients, strict=True)
        squares = tuple(_decayed(v, g * g, self.second) for v, g in pairs)
        moved = []

        for weight, moment, square in zip(weights, first, squares, strict=True):
            mean = moment / (1 - self.momentum**number)
            spread = np.sqrt(square / (1 - self.second**number))
            moved.append(np.asarray(weight - self.rate * mean / (spread + self.epsilon)))

        return tuple(moved), first + squares


def _decayed(mean: Array, value: Array, keep: float) -> Array:
    return np.asarray(keep * mean + (1 - keep) * value)


_Shapes = tuple[tuple[tuple[int, ...], str], ...]
"""Shape and type of each weight."""


@dataclass
class TorchOptimizer:
    """Makes an optimizer for the parameters of a layer; every layer has its own.

    `TorchOptimizer(partial(torch.optim.AdamW, lr=1e-3), partial(torch.optim.lr_scheduler.StepLR,
    step_size=30))`

    Each group of parameters that `make` sets up keeps its settings. Parameters without a gradient
    stay as they are.
    """

    make: Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]
    schedule: Callable[[torch.optim.Optimizer], LRScheduler] | None = None
    clip_norm: float | None = None
    """The largest norm of the gradients of all layers together."""
    _schedules: dict[_Shapes, _Schedule] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _names: dict[_Shapes, list[dict[str, bool]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "_schedules": {}, "_names": {}}

    def initial(self, weights: Weights) -> Weights:
        """PyTorch makes the state in the first update."""
        del weights
        return ()

    def step(
        self, weights: Weights, state: Weights, gradients: Weights, number: int
    ) -> tuple[Weights, Weights]:
        torch = torch_module()
        if not weights:
            return (), ()

        parameters = [torch.nn.Parameter(tensor_of(weight).clone()) for weight in weights]
        optimizer = self.make(parameters)
        shapes = tuple((weight.shape, weight.dtype.str) for weight in weights)
        if self.schedule:
            self._schedule(shapes).apply(optimizer, number)
        names = self._state_names(shapes, parameters)
        arrays = iter(state)

        for parameter, named in zip(parameters, names, strict=True) if state else ():
            held = {name: _value(next(arrays), is_tensor) for name, is_tensor in named.items()}
            present = {name: value for name, value in held.items() if value is not None}
            if present:
                optimizer.state[parameter] = present

        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = None if is_absent(gradient) else tensor_of(gradient)
        optimizer.step()
        after: list[Array] = []
        for parameter, named in zip(parameters, names, strict=True):
            held = optimizer.state.get(parameter, {})
            after += [_array(held.get(name)) for name in named]

        return tuple(array_of(parameter) for parameter in parameters), tuple(after)

    def _schedule(self, shapes: _Shapes) -> _Schedule:
        """The settings by update, found with parameters that have no memory."""
        if shapes not in self._schedules:
            assert self.schedule is not None
            torch = torch_module()
            parameters = [
                torch.nn.Parameter(torch.empty(shape, device="meta")) for shape, _ in shapes
            ]
            optimizer = self.make(parameters)
            self._schedules[shapes] = _Schedule(optimizer, self.schedule(optimizer))
        return self._schedules[shapes]

    def _state_names(
        self, shapes: _Shapes, parameters: list[torch.nn.Parameter]
    ) -> list[dict[str, bool]]:
        """The state that an update makes for each parameter: names, and whether each is a
        tensor."""
        if shapes not in self._names:
            torch = torch_module()
            copies = [torch.nn.Parameter(parameter.detach().clone()) for parameter in parameters]
            optimizer = self.make(copies)
            for copy in copies:
                copy.grad = torch.zeros_like(copy)
            optimizer.step()
            self._names[shapes] = [
                {
                    name: isinstance(value, torch.Tensor)
                    for name, value in optimizer.state[copy].items()
                    if value is not None
                }
                for copy in copies
            ]
        return self._names[shapes]


class _Schedule:
    """The settings of each group of parameters, update by update."""

    def __init__(self, optimizer: torch.optim.Optimizer, schedule: LRScheduler) -> None:
        from torch.optim.lr_scheduler import ReduceLROnPlateau

        if isinstance(schedule, ReduceLROnPlateau):
            raise BadArgument(
                "ReduceLROnPlateau depends on a loss that layers do not know: use a schedule by "
                "the number of updates"
            )
        self._optimizer = optimizer
        self._schedule = schedule
        self._known: list[list[dict[str, Any]]] = []

    def apply(self, optimizer: torch.optim.Optimizer, number: int) -> None:
        while len(self._known) < number:
            # A schedule may end with the last update, so it goes on only if another one follows.
            if self._known:
                # Without gradients this changes nothing; schedules want to be called after it.
                self._optimizer.step()
                self._schedule.step()
            # Schedules change a rate that is a tensor in place, so each update has a copy.
            settings = [
                {name: deepcopy(value) for name, value in group.items() if name != "params"}
                for group in self._optimizer.param_groups
            ]
            self._known.append(settings)

        for group, known in zip(optimizer.param_groups, self._known[number - 1], strict=True):
            group.update(known)


def _value(array: Array, is_tensor: bool) -> Any:  # noqa: ANN401  # a tensor or a number
    """A value of the state. Optimizers change tensors in place, so each step gets its own."""
    if is_absent(array):
        return None
    if is_tensor:
        return tensor_of(array).clone()
    return array.item()


def _array(value: Any) -> Array:  # noqa: ANN401  # a tensor or a number
    if value is None:
        return ABSENT
    if isinstance(value, torch_module().Tensor):
        return array_of(value)
    return np.asarray(value)
