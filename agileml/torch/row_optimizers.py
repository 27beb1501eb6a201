"""Runs PyTorch's optimizers on servers, each of which holds some rows of the parameters and of the
optimizers' state.

State lives in the slots that follow a partition wherever it goes: a copy of the optimizer's state
in full size, and one number for each row where the state is a number, such as the count of steps.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from agileml.errors import BadTrainer, torch_module
from agileml.params.layout import Array

if TYPE_CHECKING:
    import torch
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

Hyperparameters = dict[str, Any]
OptimizerGroup = tuple[int, int]
"""The number of an optimizer and of one of its groups, whose options and therefore state may differ
from others."""

_PROBE = (4, 3)
"""Shape of the parameter on which an optimizer is tried: more than one row and more than one
column."""


@dataclass(frozen=True, slots=True)
class StateNames:
    """The entries of an optimizer's state: those of the parameter's shape, and numbers."""

    arrays: tuple[str, ...]
    numbers: tuple[str, ...]


_NO_STATE = StateNames((), ())


@dataclass(frozen=True, slots=True)
class ParameterPart:
    """Rows of a parameter on their server: values, the summed gradient, and the state of the
    optimizer.
    """

    name: str
    values: Array
    gradient: Array
    slots: Sequence[Array]


@dataclass(slots=True)
class _RowStep:
    """A step of an optimizer on rows of a parameter: its `state` before, and then after it."""

    parameter: torch.Tensor
    hyperparameters: Hyperparameters
    names: StateNames
    arrays: Sequence[Array]
    numbers: Sequence[Array]
    state: dict[str, Any]


class RowOptimizers:
    """The optimizers of a module, by parameter."""

    def __init__(
        self,
        module: torch.nn.Module,
        optimizers: Sequence[Optimizer],
        schedule: Callable[[Optimizer], LRScheduler] | None,
        sparse: frozenset[str],
    ) -> None:
        self._sparse = sparse
        self._groups = dict(_grouped(module, optimizers))
        self.trained = frozenset(self._groups)

        # Before schedulers replace the originals' `step` by one that counts calls.
        self._optimizers = [copy.copy(optimizer) for optimizer in optimizers]
        for copied, optimizer in zip(self._optimizers, optimizers, strict=True):
            # Of a copy, PyTorch itself keeps only groups and state.
            vars(copied).update(vars(optimizer))

        self._schedule = _Schedule(optimizers, schedule)
        self._names = {group: self._probe(group) for group in sorted(set(self._groups.values()))}
        has_state = any(names.arrays or names.numbers for names in self._names.values())
        self.slots = max((len(names.arrays) for names in self._names.values()), default=0)
        """State arrays that a parameter needs."""
        if has_state:
            self.row_slots = 1 + max(len(names.numbers) for names in self._names.values())
        else:
            self.row_slots = 0
        """State numbers that a parameter needs; the first counts the steps."""
        self._joint = [self._is_joint(number) for number in range(len(self._optimizers))]
        self._reading = {group for group in self._names if self._only_reads(group)}
        """The groups whose optimizers leave gradients as they are, so that these need not be
        copied."""

    def step(self, parts: Sequence[ParameterPart], clock: int) -> None:
        """Updates rows of parameters and their state in place. Those without a gradient stay as
        they are.

        One step of an optimizer for all of its parameters: each takes longer than the arithmetic of
        a small network.
        """
        for number, optimizer in enumerate(self._optimizers):
            mine = [part for part in parts if self._groups[part.name][0] == number]
            running = [
                self._begin(part, clock)
                for part in mine
                if part.name in self._sparse or not _is_untouched(part.gradient).all()
            ]
            for together in [running] if self._joint[number] else [[each] for each in running]:
                if together:
                    _run_step(optimizer, together)
                    for step in together:
                        self._end(step, type(optimizer).__name__)

    def hyperparameters(self, clock: int) -> list[list[Hyperparameters]]:
        """The options of a clock, by optimizer and group."""
        return self._schedule.at(clock)

    def _begin(self, part: ParameterPart, clock: int) -> _RowStep:
        torch = torch_module()
        number, group = self._groups[part.name]
        read_only = (number, group) in self._reading
        parameter = torch.from_numpy(part.values)
        if part.name in self._sparse:
            parameter.grad = _sparse(part.gradient, ~_is_untouched(part.gradient))
        else:
            gradient = part.gradient.view() if read_only else part.gradient.copy()
            try:
                # PyTorch has no read-only tensors.
                gradient.flags.writeable = True
            except ValueError:
                gradient = gradient.copy()
            parameter.grad = torch.from_numpy(gradient)

        names = self._names[number, group]
        arrays = part.slots[: len(names.arrays)]
        numbers = part.slots[self.slots :]
        state: dict[str, Any] = {}
        if numbers and numbers[0][0]:
            for key, slot in zip(names.arrays, arrays, strict=True):
                state[key] = torch.from_numpy(slot)
            for key, slot in zip(names.numbers, numbers[1:], strict=False):
                state[key] = torch.tensor(slot[0], dtype=torch.get_default_dtype())
        return _RowStep(
            parameter, self._schedule.at(clock)[number][group], names, arrays, numbers, state
        )

    def _end(self, step: _RowStep, kind: str) -> None:
        """Keeps the state that a step has left."""
        after = step.state
        names = step.names
        new = after.keys() - {*names.arrays, *names.numbers}
        if new:
            raise BadTrainer(
                f"optimizer {kind}: its state {min(new)!r} appeared after its first steps; use "
                "another optimizer"
            )

        if step.numbers:
            step.numbers[0][:] += 1
        for slot, key in zip(step.arrays, names.arrays, strict=True):
            # Most optimizers change their state in place, which is the slot.
            if key in after and after[key].data_ptr() != slot.ctypes.data:
                slot[:] = after[key].numpy()

        for slot, key in zip(step.numbers[1:], names.numbers, strict=False):
            slot[:] = float(after[key])

    def _probe(self, group: OptimizerGroup) -> StateNames:
        """Tries an optimizer on small parameters like those of a group; BadTrainer if a server
        cannot run it.
        """
        optimizer = self._optimizers[group[0]]
        hyperparameters = self._hyperparameters_of_probe(group)
        kinds = {
            name in self._sparse
            for name, number_and_group in self._groups.items()
            if number_and_group == group
        }

        tried = [_probe(optimizer, hyperparameters, sparse) for sparse in sorted(kinds)]
        return max(tried, key=lambda names: len(names.arrays + names.numbers))

    def _hyperparameters_of_probe(self, group: OptimizerGroup) -> Hyperparameters:
        hyperparameters = self._schedule.at(1)[group[0]][group[1]]
        # A schedule may begin at 0. Nothing would change, whatever a row depends on.
        if hyperparameters.get("lr", 1):
            return hyperparameters
        return {**hyperparameters, "lr": 0.1}

    def _is_joint(self, number: int) -> bool:
        """Whether a step on several parameters at once is that on each by itself, as it is with
        those of PyTorch.
        """
        optimizer = self._optimizers[number]
        hyperparameters = self._hyperparameters_of_probe((number, 0))
        sparse = {
            name in self._sparse for name, (owner, _) in self._groups.items() if owner == number
        }
        halves = [slice(0, 1), slice(1, None)]

        equal = torch_module().equal
        for kind in sparse:
            together = _tried(optimizer, hyperparameters, kind, halves)
            for (reached, _), half in zip(together, halves, strict=True):
                ((alone, _),) = _tried(optimizer, hyperparameters, kind, [half])
                if not all(map(equal, reached, alone)):
                    return False
        return True

    def _only_reads(self, group: OptimizerGroup) -> bool:
        """Whether two steps on a small parameter leave its gradients as they are."""
        if all(
            name in self._sparse
            for name, number_and_group in self._groups.items()
            if number_and_group == group
        ):
            return False

        from_numpy = torch_module().from_numpy
        hyperparameters = self._hyperparameters_of_probe(group)
        step = _RowStep(from_numpy(_waves(0)), hyperparameters, _NO_STATE, (), (), {})

        for phase in (1, 2):
            step.parameter.grad = given = from_numpy(_waves(phase))
            _run_step(self._optimizers[group[0]], [step])
            if not np.array_equal(given.numpy(), _waves(phase)):
                return False

        return True


def _grouped(
    module: torch.nn.Module, optimizers: Sequence[Optimizer]
) -> Iterator[tuple[str, OptimizerGroup]]:
    """The trained parameters with their groups. BadTrainer if an optimizer concerns itself with
    anything else.
    """
    names = {parameter: name for name, parameter in module.named_parameters()}
    for number, optimizer in enumerate(optimizers):
        kind = type(optimizer).__name__
        if any(
            getattr(optimizer, f"_optimizer_step_{when}_hooks", None) for when in ("pre", "post")
        ):
            raise BadTrainer(
                f"optimizer {kind} has a hook for its steps, which would not see the gradients: "
                "each server has those"
                " of some rows; remove it (to clip by the norm: TorchModule's clip_norm)"
            )
        for group, content in enumerate(optimizer.param_groups):
            for parameter in content["params"]:
                if parameter.requires_grad and parameter not in names:
                    raise BadTrainer(
                        f"optimizer {kind}: a parameter of shape {tuple(parameter.shape)} in its "
                        f"group {group} does not belong to the module; make it one of the module's"
                    )
                if parameter.requires_grad:
                    yield names[parameter], (number, group)


def _probe(optimizer: Optimizer, hyperparameters: Hyperparameters, sparse: bool) -> StateNames:
    """Tries an optimizer on a small parameter, whole and in two parts, which must give the same.

    The second gradient is large, so that an optimizer that cuts off what is above a limit does so.
    """
    torch = torch_module()
    kind = type(optimizer).__name__
    attributes = {**vars(optimizer)}
    try:
        tried = [
            _tried(optimizer, hyperparameters, sparse, [rows])
            for rows in (slice(None), slice(0, 1), slice(1, None))
        ]
    except Exception as error:
        raise BadTrainer(
            f"optimizer {kind} cannot be run by a server: {type(error).__name__}: {error}"
        ) from error

    after = {
        name: value
        for name, value in vars(optimizer).items()
        if name not in ("param_groups", "state")
    }

    counted = [name for name, value in after.items() if attributes.get(name) is not value]
    if counted:
        raise BadTrainer(
            f"optimizer {kind}: its attribute {counted[0]!r} changes with each step, but each "
            "server takes steps of its"
            " own; keep what counts in self.state[parameter], or let a schedule change the "
            "learning rate"
        )

    whole, upper, lower = (torch.cat(reached, dim=1) for ((reached, _),) in tried)
    if not torch.equal(whole, torch.cat([upper, lower])):
        raise BadTrainer(
            f"optimizer {kind}: its update of a row depends on other rows, but a server holds only "
            "some rows of a parameter; use one such as SGD, Adam or AdamW"
        )
    if not torch.equal(tried[0][0][0][1], _second_step(optimizer, hyperparameters, sparse)):
        raise BadTrainer(
            f"optimizer {kind}: its second step depends on what the first one left in its "
            "parameter groups, but each"
            " server takes steps of its own; keep it in self.state[parameter], or let a schedule "
            "change it"
        )

    state = tried[0][0][1]
    irregular = [key for key, value in state.items() if getattr(value, "is_sparse", False)]
    if irregular:
        raise BadTrainer(
            f"optimizer {kind}: its state {irregular[0]!r} becomes sparse for an embedding with "
            "sparse=True; use SparseAdam, Adagrad, or SGD without momentum"
        )

    arrays = tuple(key for key, value in state.items() if getattr(value, "shape", None) == _PROBE)
    numbers = tuple(
        key
        for key, value in state.items()
        if key not in arrays
        and (isinstance(value, int | float) or getattr(value, "shape", None) == ())
    )

    other = [key for key in state if key not in arrays + numbers]
    if other:
        raise BadTrainer(
            f"optimizer {kind}: its state {other[0]!r} lacks the parameter's shape; use another"
        )

    return StateNames(arrays, numbers)


def _tried(
    optimizer: Optimizer, hyperparameters: Hyperparameters, sparse: bool, parts: Sequence[slice]
) -> list[tuple[list[torch.Tensor], dict[str, Any]]]:
    """For each part of a small parameter, its values after each of two steps on all of them, and
    its state.
    """
    from_numpy = torch_module().from_numpy
    values, *gradients = (_waves(phase) for phase in range(3))
    gradients[1] *= 1e6
    steps = [
        _RowStep(from_numpy(values[rows].copy()), hyperparameters, _NO_STATE, (), (), {})
        for rows in parts
    ]
    reached: list[list[torch.Tensor]] = [[] for _ in parts]

    for gradient in gradients:
        for step, rows in zip(steps, parts, strict=True):
            dense = from_numpy(gradient[rows].copy())
            step.parameter.grad = dense.to_sparse(1) if sparse else dense
        _run_step(optimizer, steps)
        for step, values_reached in zip(steps, reached, strict=True):
            values_reached.append(step.parameter.clone())

    return [
        (values_reached, step.state) for step, values_reached in zip(steps, reached, strict=True)
    ]


def _second_step(
    optimizer: Optimizer, hyperparameters: Hyperparameters, sparse: bool
) -> torch.Tensor:
    """The values of the parameter of `_tried` after both steps, if groups stay as the first step
    leaves them.
    """
    values, *gradients = (torch_module().from_numpy(_waves(phase)) for phase in range(3))
    gradients[1] *= 1e6
    step = _RowStep(values, hyperparameters, _NO_STATE, (), (), {})
    first, second = (gradient.to_sparse(1) if sparse else gradient for gradient in gradients)
    step.parameter.grad = first
    _run_step(optimizer, [step])
    step.parameter.grad = second
    optimizer.step()

    return step.parameter


class StepEvery:
    """A schedule that takes a step once in a number of `clocks`, such as those of an epoch."""

    def __init__(self, scheduler: LRScheduler, clocks: int) -> None:
        self.scheduler = scheduler
        self._clocks = clocks
        self._count = 0

    def step(self) -> None:
        self._count += 1
        if self._count % self._clocks == 0:
            self.scheduler.step()


class _Schedule:
    """The hyperparameters of all optimizers by clock. A schedule is replayed, so that it has no
    state to lose.
    """

    def __init__(
        self, optimizers: Sequence[Optimizer], schedule: Callable[[Optimizer], LRScheduler] | None
    ) -> None:
        self._optimizers = optimizers
        if schedule is None:
            self._schedulers = []
        else:
            self._schedulers = [schedule(optimizer) for optimizer in optimizers]

        for scheduler in self._schedulers:
            kind = type(getattr(scheduler, "scheduler", scheduler)).__name__
            if not callable(getattr(scheduler, "step", None)):
                raise BadTrainer(
                    f"schedule made {kind}; it must make one of torch.optim.lr_scheduler from an "
                    "optimizer"
                )
            if kind == "ReduceLROnPlateau":
                raise BadTrainer(
                    "schedule ReduceLROnPlateau depends on losses, which servers do not know;"
                    " use one that depends on the number of steps alone"
                )

        self._by_clock = [self._now()]

    def at(self, clock: int) -> list[list[Hyperparameters]]:
        """By optimizer and group."""
        if not self._schedulers:
            return self._by_clock[0]

        while len(self._by_clock) < clock:
            for optimizer, scheduler in zip(self._optimizers, self._schedulers, strict=True):
                # No parameter has a gradient: this changes nothing, but schedulers insist on it.
                optimizer.step()
                try:
                    scheduler.step()
                except Exception as error:
                    raise BadTrainer(
                        f"schedule {type(scheduler).__name__} has no rate for clock "
                        f"{len(self._by_clock) + 1}: {error}"
                    ) from error
            now = self._now()
            last = self._by_clock[-1]
            self._by_clock.append(last if now == last else now)

        return self._by_clock[clock - 1]

    def _now(self) -> list[list[Hyperparameters]]:
        own = {"params", "param_names"}
        return [
            [
                copy.deepcopy({key: value for key, value in group.items() if key not in own})
                for group in optimizer.param_groups
            ]
            for optimizer in self._optimizers
        ]


def _run_step(optimizer: Optimizer, steps: Sequence[_RowStep]) -> None:
    """One step on parameters with their options and state."""
    groups: dict[int, Hyperparameters] = {}
    for step in steps:
        group = groups.setdefault(id(step.hyperparameters), {**step.hyperparameters, "params": []})
        group["params"].append(step.parameter)

    optimizer.param_groups = list(groups.values())
    optimizer.state = defaultdict(
        dict, {step.parameter: step.state for step in steps if step.state}
    )
    optimizer.step()
    for step in steps:
        after = optimizer.state.get(step.parameter, {})
        step.state = {key: value for key, value in after.items() if value is not None}


def _is_untouched(gradient: Array) -> Array:
    """Rows to which no worker added a gradient: -0.0, which `TorchNetwork.gradients` never
    yields."""
    first = gradient.reshape(len(gradient), -1)[:, 0]
    untouched: Array = np.signbit(first) & (first == 0)
    return untouched


def _sparse(gradient: Array, touched: Array) -> Any:  # noqa: ANN401
    torch = torch_module()
    rows = np.flatnonzero(touched)
    values = torch.from_numpy(gradient[rows])
    return torch.sparse_coo_tensor(
        torch.from_numpy(rows[None, :]),
        values,
        gradient.shape,
        is_coalesced=True,
        check_invariants=False,
    )


def _waves(phase: int) -> Array:
    """Numbers of both signs, none of which is 0."""
    numbers: Array = np.sin(np.arange(1, prod(_PROBE) + 1) * 1.7 + phase).astype(np.float32)
    return numbers.reshape(_PROBE)
