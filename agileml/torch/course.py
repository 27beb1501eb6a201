"""The course of a framework's training: each clock is a step of the optimizer, or a part of a
validation; and what it logs on its way.

A framework validates between two steps, on the weights of the first. Here these are clocks of their
own, in which no parameter moves: a part of the training then takes about as long as another, and a
node that takes long is one that hangs. The values of a validation are summed as gradients are.

What is logged is an array that servers sum like gradients, so that nothing is lost or doubled. A
row belongs to a step, an epoch, or a validation, and has a sum and a weight for each name. Nodes
add their shares.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from agileml.errors import BadArgument
from agileml.params.layout import Array


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


LOGGED = "(logged)"
"""The array of a model that holds what was logged."""

MAX_LOG_BYTES = 4 << 20
"""Every clock copies the array."""

TRAINING = -1
"""The place of what is logged during training; others are the numbers of the validation's
DataLoaders."""


class LogKey(NamedTuple):
    """A name that is logged in training or for one of the validation's loaders: for each step, for
    an epoch, or both.

    Values of an epoch are the mean over its samples, or the sum of its batches.
    """

    place: int
    name: str
    on_step: bool
    on_epoch: bool
    is_sum: bool = False
    suffix: str = ""

    def named(self, *, step: bool) -> str:
        """The name that the framework's logger gives it."""
        fork = ("_step" if step else "_epoch") if self.on_step and self.on_epoch else ""
        return f"{self.name}{fork}{self.suffix}"


@dataclass(frozen=True, slots=True)
class Note:
    """A value that was logged for a share of a batch; `size` is the number of samples named with
    it, if any.
    """

    key: LogKey
    value: float
    size: int | None = None


@dataclass(frozen=True, slots=True)
class LoggedValues:
    """Values that the framework would log at once: the step that it names, the epoch, and values by
    name.
    """

    step: int
    epoch: float
    values: Mapping[str, float]


class LoggedRow(NamedTuple):
    """The place of a row's values: a step, the epoch that it ends, the validation after it, or a
    batch there.
    """

    step: int
    kind: str
    loader: int = 0
    batch: int = 0

    @property
    def of_step(self) -> bool:
        """Whether its values are those of one batch."""
        return self.kind in {"step", "batch"}

    def holds(self, key: LogKey) -> bool:
        """Whether values of a key are in such a row."""
        of_place = key.place >= 0 if self.kind == "validation" else key.place == self.loader
        if self.kind in {"step", "epoch"}:
            of_place = key.place == TRAINING
        return of_place and (key.on_step if self.of_step else key.on_epoch)


@dataclass(frozen=True)
class LogTable:
    """The rows of a training's log: of the steps `logged`, all epochs and all validations.

    `loaders` are the numbers of batches of the validation's DataLoaders.
    """

    name: str
    course: Course
    keys: Sequence[LogKey]
    logged: Sequence[int]
    loaders: Sequence[int] = ()

    def empty(self) -> Array:
        """The log before the first clock. BadArgument if it takes too much memory."""
        array = np.zeros((max(1, len(self.rows)), max(1, 2 * len(self.keys))))
        if array.nbytes > MAX_LOG_BYTES:
            raise BadArgument(
                f"{self.name}: {len(self.rows):,} rows of {len(self.keys)} logged values take"
                f" {array.nbytes / 2**20:,.1f} MiB, and there is room for {MAX_LOG_BYTES >> 20}; "
                "log less often"
            )
        return array

    @cached_property
    def rows(self) -> dict[LoggedRow, int]:
        """The numbers of the rows, in the order in which they are logged."""
        steps = self.course.steps
        whole = self.course.steps_of_epoch
        logged = set(self.logged)
        validated = set(self.course.validated)
        ends = {*range(whole, steps + 1, whole), steps}
        batches = [
            (loader, batch) for loader, count in enumerate(self.loaders) for batch in range(count)
        ]
        rows: list[LoggedRow] = []

        for step in sorted(logged | ends | validated):
            rows += [LoggedRow(step, "step")] if step in logged else []
            if step in validated:
                rows += [LoggedRow(step, "batch", *batch) for batch in batches]
                rows.append(LoggedRow(step, "validation"))
            rows += [LoggedRow(step, "epoch")] if step in ends else []

        used = [row for row in rows if any(row.holds(key) for key in self.keys)]
        return {row: number for number, row in enumerate(used)}

    @cached_property
    def columns(self) -> dict[tuple[int, str], int]:
        """By place and name, the column of the sum; that of the weight follows."""
        return {(key.place, key.name): 2 * number for number, key in enumerate(self.keys)}

    def read(self, logged: Array) -> Iterator[tuple[LoggedRow, dict[str, float]]]:
        """The rows that have values, in the order in which they are logged."""
        for row, number in self.rows.items():
            values = {}
            for key in filter(row.holds, self.keys):
                total, weight = logged[number, self.columns[key.place, key.name] :][:2].tolist()
                if weight:
                    if key.is_sum and not row.of_step:
                        values[key.named(step=row.of_step)] = total
                    else:
                        values[key.named(step=row.of_step)] = total / weight
            if values:
                yield row, values
