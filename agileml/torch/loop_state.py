"""The beginning of an iteration of a user's loop: the state that the loop declares, and the rates
of its optimizer.
"""

from __future__ import annotations

import copy
import io
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from agileml.errors import BadTrainer


def content_of(where: str, declared: Sequence[object]) -> bytes:
    """The content of objects, from which `restore` brings it back on any node. BadTrainer names
    what cannot travel.
    """
    if not declared:
        return b""

    buffer = io.BytesIO()
    contents = [_content(thing) for thing in declared]
    for thing, content in zip(declared, contents, strict=True):
        if content is None:
            raise BadTrainer(
                f"{where}: state holds {type(thing).__name__}, which cannot be restored in place; "
                "pass a dict, list,"
                " tensor or generator, or an object with state_dict() and load_state_dict()"
            )

    torch.save(contents, buffer)
    return buffer.getvalue()


def objects_of(state: object) -> list[Any]:
    """The objects that a loop declares: one, a tuple of them, or a list, if it is not an object of
    plain values.
    """
    holding = (dict, list, np.random.Generator, random.Random)
    if isinstance(state, list) and not any(
        hasattr(each, "state_dict") or isinstance(each, holding) for each in state
    ):
        return [state]
    if isinstance(state, list | tuple):
        return list(state)
    return [state]


def restore(where: str, declared: Sequence[Any], state: bytes) -> None:
    """Puts a saved state back into the declared objects. Raises BadTrainer if the state holds types
    that another node may not load."""
    if not declared:
        return

    try:
        contents = torch.load(io.BytesIO(state), weights_only=True)
    except Exception as error:
        said = " ".join(str(error).split())
        raise BadTrainer(
            f"{where}: state holds more than tensors, numbers, texts, lists and dicts: {said}"
        ) from error

    for thing, content in zip(declared, contents, strict=True):
        if hasattr(thing, "load_state_dict"):
            thing.load_state_dict(content)
        elif isinstance(thing, torch.Tensor):
            thing.detach().copy_(content)
        elif isinstance(thing, dict):
            thing.clear()
            thing.update(content)
        elif isinstance(thing, list):
            thing[:] = content
        elif isinstance(thing, np.random.Generator):
            thing.bit_generator.state = content
        elif isinstance(thing, random.Random):
            thing.setstate(content)
        else:
            thing.set_state(content)


def _content(thing: Any) -> object:  # noqa: ANN401 - what the user declares
    if hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict"):
        return _own(thing.state_dict())
    if isinstance(thing, torch.Tensor | dict | list):
        return _own(thing)
    if isinstance(thing, np.random.Generator):
        return thing.bit_generator.state
    if isinstance(thing, random.Random):
        return thing.getstate()

    if isinstance(thing, torch.Generator):
        return thing.get_state()
    return None


def _own(content: Any) -> Any:  # noqa: ANN401
    """Copies the tensors, because PyTorch saves all that a view is taken of."""
    if isinstance(content, torch.Tensor):
        return content.detach().clone()
    if isinstance(content, dict):
        return {key: _own(value) for key, value in content.items()}
    if isinstance(content, list | tuple) and type(content) in (list, tuple):
        return type(content)(map(_own, content))
    return content


# -- the optimizer and its rates -------------------------------------------------------------------

StepRates = tuple[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]]]
"""The options of each group of the optimizer, and the state of each scheduler."""


_KEPT_CLOCKS = 100
"""Clocks whose rates are kept: a job goes back by fewer, or repeats all."""


class OptimizerCopies:
    """Copies of an optimizer and its schedulers, as they are when the loop begins, for the same
    parameters.
    """

    def __init__(self, optimizer: Optimizer, schedulers: Sequence[LRScheduler]) -> None:
        self._memo = {
            id(each): each for group in optimizer.param_groups for each in group["params"]
        }
        self._optimizer = self(None, optimizer)
        memo = {**self._memo, id(optimizer): self._optimizer}
        self._schedulers = copy.deepcopy(list(schedulers), memo)
        self._by_clock: dict[int, StepRates] = {}
        self._replay()

    def __call__(
        self, module: torch.nn.Module | None, optimizer: Optimizer | None = None
    ) -> Optimizer:
        """A new copy, without the `step` that schedulers give an optimizer."""
        del module
        original = optimizer or self._optimizer
        copied = copy.deepcopy(original, {**self._memo})
        others = {"defaults", "param_groups", "state", "step"}
        vars(copied).update(
            {name: value for name, value in vars(original).items() if name not in others}
        )
        return copied

    def schedule(self, optimizer: Optimizer) -> Schedulers:
        """New schedulers for a copy."""
        memo = {**self._memo, id(self._optimizer): optimizer}
        return Schedulers(copy.deepcopy(self._schedulers, memo))

    def resting_schedule(self, optimizer: Optimizer) -> Schedulers:
        """New schedulers, for a copy that never takes a step on the parameters, which are those of
        the running loop.
        """

        def rest() -> None:
            return

        # Schedulers ask whether steps were taken.
        vars(rest)["_wrapped_by_lr_sched"] = True
        vars(optimizer).update(step=rest, _opt_called=True)
        return self.schedule(optimizer)

    def rates(self, clock: int) -> StepRates:
        """The rates at the beginning of a clock, if schedulers take a step at the end of each."""
        clock = clock if self._schedulers else 1
        if clock not in self._by_clock:
            if clock <= self._clock:
                # The job has gone back to where the rates are forgotten.
                self._replay()
            self._by_clock = {
                each: rates for each, rates in self._by_clock.items() if each > clock - _KEPT_CLOCKS
            }

        while self._clock < clock:
            if self._clock:
                self._resting_schedulers.step()
            self._clock += 1
            if self._clock > clock - _KEPT_CLOCKS:
                groups = [copy.deepcopy(_options(group)) for group in self._resting.param_groups]
                states = [
                    copy.deepcopy(each.state_dict()) for each in self._resting_schedulers.schedulers
                ]
                self._by_clock[self._clock] = groups, states

        return self._by_clock[clock]

    def _replay(self) -> None:
        """Begins with the rates of the first clock."""
        self._resting = self(None)
        self._resting_schedulers = self.resting_schedule(self._resting)
        self._clock = 0
        self._by_clock.clear()


class Schedulers:
    """Several schedulers of one optimizer, which step together."""

    def __init__(self, schedulers: Sequence[LRScheduler]) -> None:
        self.schedulers = schedulers

    def step(self) -> None:
        for scheduler in self.schedulers:
            scheduler.step()


def set_rates(optimizer: Optimizer, schedulers: Sequence[LRScheduler], rates: StepRates) -> None:
    """Gives an optimizer and its schedulers the rates of a clock."""
    for group, options in zip(optimizer.param_groups, rates[0], strict=True):
        # Schedulers change rates that are tensors in place.
        group.update({name: _own(value) for name, value in options.items()})
    for scheduler, state in zip(schedulers, rates[1], strict=True):
        scheduler.load_state_dict(copy.deepcopy(dict(state)))


def check_rates(
    where: str, optimizer: Optimizer, schedulers: Sequence[LRScheduler], rates: StepRates
) -> None:
    """BadTrainer unless the optimizer has these rates, with which servers go on."""
    for scheduler, state in zip(schedulers, rates[1], strict=True):
        if getattr(scheduler, "last_epoch", None) != state.get("last_epoch"):
            raise BadTrainer(
                f"{where}: the loop must call step() of {type(scheduler).__name__} once in each "
                "iteration, as the servers that run the optimizer do; give it a schedule in steps"
            )
    for number, (group, options) in enumerate(zip(optimizer.param_groups, rates[0], strict=False)):
        for name, value in _options(group).items():
            if name not in options or value != options[name]:
                raise BadTrainer(
                    f"{where}: after the iteration, {name!r} of the optimizer's group {number} is "
                    f"{value}, but servers,"
                    f" which run the optimizer, go on with {options.get(name)}: pass a scheduler, "
                    "such as LambdaLR, in state=..., and call its step() once in each iteration"
                )


def _options(group: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in group.items() if name not in {"params", "param_names"}}
