"""The values that a framework's training logs, as an array that servers sum like gradients: nothing
is lost or doubled.

A row belongs to a step, an epoch, or a validation, and has a sum and a weight for each name. Nodes
add their shares.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from agileml.errors import BadArgument
from agileml.params.layout import Array
from agileml.torch.course import Course

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
