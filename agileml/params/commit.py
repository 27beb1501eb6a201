"""`CommitRule`: computes the next version of a partition's state from the summed updates of a
clock.

A state has one array per segment, followed by the optimizer's slots of each segment: they move, are
backed up and are rolled back together.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt

import numpy as np

from agileml.errors import NotFinite
from agileml.params.declarations import Declarations, calling
from agileml.params.deltas import Delta, RowDelta, dense
from agileml.params.layout import Array, Layout, PartitionState, Segment

_SMALL = 1e-6
"""Added to a norm, as PyTorch does, before it divides."""


def square_of(values: Array) -> float:
    """The squared norm of an array; the order in which it is summed depends on nothing but its
    shape.
    """
    with np.errstate(over="ignore"):
        return float(np.square(values, dtype=np.float64).sum())


def clip_factor(square: float, most: float) -> float:
    """The factor of updates with this squared norm; `most` is the largest norm, or 0."""
    if most:
        return min(1.0, most / (sqrt(square) + _SMALL))
    return 1.0


def shrunk(values: Array, factor: float) -> Array:
    """The values times a factor. No number becomes -0.0 that was none, because -0.0 stands for no
    update.
    """
    after: Array = values * values.dtype.type(factor)
    after[(after == 0) & (values != 0)] = 0.0
    return after


@dataclass(frozen=True, slots=True)
class CommitRule:
    """A trainer's declarations about updates, applied to the partitions of a layout."""

    layout: Layout
    declared: Declarations

    def initial(self, partition: int, params: Mapping[str, Array]) -> PartitionState:
        """The state of clock 0."""
        model = self.layout.state_of(partition, params)
        slots: PartitionState = []
        for array in model:
            slots += [np.zeros_like(array) for _ in range(self.declared.slots)]
            slots += [np.zeros(len(array)) for _ in range(self.declared.row_slots)]
        return model + slots

    def model(self, partition: int, state: PartitionState) -> PartitionState:
        """The part of a state that workers see."""
        return state[: len(self.layout.partitions[partition])]

    def advance(
        self,
        partition: int,
        state: PartitionState,
        summed: Delta | None,
        clock: int,
        square: float | None = None,
    ) -> tuple[PartitionState, Delta]:
        """The state after a clock, and the values of the rows that changed, slots included.

        The previous state is not modified; arrays that did not change are shared with it. `square`
        is the sum of the squares of all partitions, if `clips_together`.
        """
        if self.declared.apply is not None:
            whole = 0.0
            if self.declared.clip_norm:
                whole = self.square(partition, state, summed) if square is None else square
                factor = clip_factor(whole, self.declared.clip_norm)
                if summed is not None and factor != 1.0:
                    segments = self.layout.partitions[partition]
                    summed = [
                        RowDelta(part.rows, shrunk(part.values, factor))
                        if part and self._clips(segment)
                        else part
                        for segment, part in zip(segments, summed, strict=True)
                    ]
            after = self._applied(partition, state, summed, clock, sqrt(whole))
            return after, [RowDelta(None, array) for array in after]

        after = list(state)
        changed = list[RowDelta | None]([None] * len(state))
        combined = self.declared.aggregation.combined
        for index, part in enumerate(summed or ()):
            if part is None:
                continue
            if part.rows is None:
                after[index] = combined(state[index], part.values)
                changed[index] = RowDelta(None, after[index])
            else:
                values = combined(state[index][part.rows], part.values)
                after[index] = state[index].copy()
                after[index][part.rows] = values
                changed[index] = RowDelta(part.rows, values)

        return after, changed

    @property
    def clips_together(self) -> bool:
        """Whether updates are clipped by a norm that no partition knows by itself."""
        return bool(self.declared.clip_norm) and len(self.layout) > 1

    def square(self, partition: int, state: PartitionState, summed: Delta | None) -> float:
        """The squared norm of the updates that are clipped, in the order of the partition's
        segments.
        """
        segments = self.layout.partitions[partition]
        # Of all rows, so that the order of summing does not depend on how the updates travelled.
        update = dense(state[: len(segments)], summed)
        return sum(
            square_of(values)
            for segment, values in zip(segments, update, strict=True)
            if self._clips(segment)
        )

    def _clips(self, segment: Segment) -> bool:
        return np.dtype(
            self.layout.spec(segment.name).dtype
        ).kind == "f" and self.declared.is_clipped(segment.name)

    def _applied(
        self, partition: int, state: PartitionState, summed: Delta | None, clock: int, norm: float
    ) -> PartitionState:
        declared = self.declared
        assert declared.apply is not None
        after = [array.copy() for array in state]
        segments = self.layout.partitions[partition]
        update = dense(after[: len(segments)], summed)
        count = self.declared.slots + self.declared.row_slots
        parts = []

        for index, segment in enumerate(segments):
            first = len(segments) + index * count
            given = update[index][:]
            given.flags.writeable = False
            parts.append((segment.name, after[index], given, after[first : first + count]))

        where = f"{declared.name}, clock {clock}"
        if declared.apply_all is not None:
            moment = (clock, norm) if declared.sees_norm else (clock,)
            with calling(f"{where}: apply_all"):
                declared.apply_all(parts, *moment)
        else:
            for part in parts:
                with calling(f"{where}, parameter {part[0]!r}: apply"):
                    declared.apply(*part, clock)

        for name, values, *_ in parts:
            if values.dtype.kind == "f" and not np.isfinite(values).all():
                raise NotFinite(
                    f"{where}, parameter {name!r}: apply produced NaN or infinity; lower the step "
                    "size, or look for a division by 0"
                )

        return after
