"""The course of a framework's training: each clock is a step of the optimizer, or a part of a
validation.

A framework validates between two steps, on the weights of the first. Here these are clocks of their
own, in which no parameter moves: a part of the training then takes about as long as another, and a
node that takes long is one that hangs. The values of a validation are summed as gradients are.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple


class OptimizerStep(NamedTuple):
    """Step `number` of the optimizer, from 1 on, over the batches `first` up to `last` (exclusive)
    of an epoch.

    `ends_epoch` is whether these are the last ones of the epoch.
    """

    number: int
    epoch: int
    first: int
    last: int
    ends_epoch: bool


class ValidationPart(NamedTuple):
    """A part of a validation: its number, from 0 on, the step after which it comes, and the number
    of the part.
    """

    number: int
    step: int
    part: int


@dataclass(frozen=True)
class Course:
    """The steps and validations of a training with epochs of `batches` batches; a step takes
    `accumulate` of them.

    Validations come after the steps `validated`, each with `validation_batches`; a clock takes
    `at_once` of them.
    """

    batches: int
    accumulate: int
    steps: int
    validated: Sequence[int] = ()
    validation_batches: int = 0
    at_once: int = 1

    @property
    def steps_of_epoch(self) -> int:
        return -(-self.batches // self.accumulate)

    @property
    def epochs(self) -> int:
        """The epochs that are begun."""
        return -(-self.steps // self.steps_of_epoch)

    @property
    def clocks(self) -> int:
        """The clocks of the whole training."""
        return self.steps + self._parts * len(self.validated)

    def at(self, clock: int) -> OptimizerStep | ValidationPart | None:
        """The work of a clock; None after the last."""
        before = bisect_left(self._begins, clock)
        if before and clock <= self._begins[before - 1] + self._parts:
            number = before - 1
            return ValidationPart(number, self.validated[number], clock - self._begins[number] - 1)
        number = clock - self._parts * before
        if number <= self.steps:
            return self.step(number)
        return None

    def step(self, number: int) -> OptimizerStep:
        epoch, within = divmod(number - 1, self.steps_of_epoch)
        first = within * self.accumulate
        last = min(first + self.accumulate, self.batches)
        return OptimizerStep(number, epoch, first, last, last == self.batches)

    def epoch_after(self, step: int) -> int:
        """The epoch in which a step was the last."""
        return max(0, step - 1) // self.steps_of_epoch

    @property
    def _parts(self) -> int:
        return -(-self.validation_batches // self.at_once)

    @cached_property
    def _begins(self) -> list[int]:
        """For each validation, the last clock before it."""
        return [step + self._parts * number for number, step in enumerate(self.validated)]


class SteppedSchedules:
    """The schedules of an optimizer that was made together with them, each by `step` or by
    `epoch`."""

    def __init__(
        self, optimizer: Any, schedules: Sequence[tuple[Any, str, int]], course: Course
    ) -> None:
        # A schedule has replaced the optimizer's `step` by one that notes its calls, also those of
        # copies.
        self._noting = vars(optimizer).pop("step", None)
        self._schedules = schedules
        self._course = course
        self._done = 0

    @classmethod
    def attach(
        cls, optimizer: Any, schedules: Sequence[tuple[Any, str, int]], course: Course
    ) -> None:
        """Keeps the schedules with their optimizer, whose `step` is its own until it is asked for
        them.

        A schedule comes with its interval, and how many of these lie between two of its steps.
        """
        optimizer._schedules = cls(optimizer, schedules, course)

    @classmethod
    def of(cls, optimizer: Any) -> Any:
        """The schedules of an optimizer."""
        schedules: SteppedSchedules = optimizer._schedules
        if schedules._noting is not None:
            optimizer.step = schedules._noting
        return schedules

    def step(self) -> None:
        """Does what the framework does after a step of the optimizer."""
        self._done += 1
        step = self._course.step(self._done)
        for scheduler, interval, frequency in self._schedules:
            if interval == "step" and step.last % frequency == 0:
                scheduler.step()
        for scheduler, interval, frequency in self._schedules:
            if interval == "epoch" and step.ends_epoch and (step.epoch + 1) % frequency == 0:
                scheduler.step()
