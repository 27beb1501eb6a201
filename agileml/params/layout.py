"""`Layout`: the named parameter arrays, divided into partitions at row boundaries and balanced by
bytes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agileml.errors import BadArgument, BadTrainer

Array = NDArray[Any]
Params = dict[str, Array]
PartitionState = list[Array]
"""The arrays of one partition, one per segment."""

MAX_BYTES_PER_NUMBER = 8
"""Longer floats differ from machine to machine."""

USUAL_PARTITIONS = 8
"""Partitions of a model, unless it is small or a job says how many."""

MIN_USUAL_BYTES = 256 << 10
"""Each partition has its own messages and checkpoints; below this size their overhead outweighs the
content."""

MAX_ROWS = 2**31 - 1
"""Updates number rows with 32 bits."""


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """Shape and type of a named array; `dtype` is numpy's text with byte order, such as `<f4`."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def rows(self) -> int:
        """Length of the first axis."""
        return self.shape[0]

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return prod(self.shape[1:]) * np.dtype(self.dtype).itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of the whole array."""
        return self.rows * self.row_bytes


@dataclass(frozen=True, slots=True)
class Segment:
    """Rows lo..hi (exclusive) of a named array."""

    name: str
    lo: int
    hi: int

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.hi - self.lo


@dataclass(frozen=True, slots=True)
class Layout:
    """The rows of each partition. The same specifications and count give the same layout on every
    node.
    """

    specs: tuple[ArraySpec, ...]
    partitions: tuple[tuple[Segment, ...], ...]

    @classmethod
    def cut(
        cls, params: Mapping[str, Array] | Iterable[ArraySpec], count: int | None = None
    ) -> "Layout":
        """Divides parameters into `count` partitions of nearly equal bytes; with fewer rows, some
        are empty.

        None: as many as suit the size of the model.
        """
        if count is not None and count < 1:
            raise BadArgument(f"{count} partitions; there must be at least 1")

        given = specs_of(params) if isinstance(params, Mapping) else tuple(params)
        if count is None:
            count = min(
                USUAL_PARTITIONS, max(1, sum(spec.nbytes for spec in given) // MIN_USUAL_BYTES)
            )

        # Not the trainer's order: a dict built from a set differs from process to process.
        specs = tuple(sorted(given, key=lambda spec: spec.name))
        bounds = [_row_at(specs, number, count) for number in range(count + 1)]
        partitions = []
        for lo, hi in pairwise(bounds):
            segments: list[Segment] = []
            before = 0
            for spec in specs:
                start = max(lo - before, 0)
                end = min(hi - before, spec.rows)
                if start < end:
                    segments.append(Segment(spec.name, start, end))
                before += spec.rows
            partitions.append(tuple(segments))

        return cls(specs, tuple(partitions))

    def __len__(self) -> int:
        return len(self.partitions)

    def spec(self, name: str) -> ArraySpec:
        """The specification of a named array."""
        return next(spec for spec in self.specs if spec.name == name)

    def homes(self, name: str) -> tuple[tuple[int, int, Segment], ...]:
        """A named array's segments in the order of its rows, each after its partition and its index
        in the state.
        """
        return tuple(
            (number, index, segment)
            for number, partition in enumerate(self.partitions)
            for index, segment in enumerate(partition)
            if segment.name == name
        )

    def partition_bytes(self) -> tuple[int, ...]:
        """Bytes of each partition's state: its weight when partitions are placed on nodes."""
        return tuple(
            sum(segment.rows * self.spec(segment.name).row_bytes for segment in partition)
            for partition in self.partitions
        )

    def allocate(self) -> Params:
        """Arrays of zeros with the layout's names and shapes."""
        return {spec.name: np.zeros(spec.shape, spec.dtype) for spec in self.specs}

    def views(self, partition: int, params: Mapping[str, Array]) -> PartitionState:
        """The partition's rows as views of the named arrays."""
        return [
            params[segment.name][segment.lo : segment.hi] for segment in self.partitions[partition]
        ]

    def state_of(self, partition: int, params: Mapping[str, Array]) -> PartitionState:
        """A copy of the partition's rows of named arrays."""
        return [view.copy() for view in self.views(partition, params)]

    def place(self, partition: int, state: PartitionState, params: Mapping[str, Array]) -> None:
        """Writes a partition's state into the named arrays."""
        for view, values in zip(self.views(partition, params), state, strict=True):
            np.copyto(view, values)


def state_bytes(state: PartitionState) -> int:
    """Bytes of a state's numbers."""
    return sum(array.nbytes for array in state)


def specs_of(params: Mapping[str, Array]) -> tuple[ArraySpec, ...]:
    """Specifications of a trainer's named arrays; BadTrainer unless each has rows of floats or
    integers.
    """
    specs = []
    for name, array in params.items():
        if not isinstance(array, np.ndarray):
            raise BadTrainer(
                f"parameter {name!r} is a {type(array).__name__}; init must return numpy arrays"
            )
        if array.ndim == 0:
            raise BadTrainer(f"parameter {name!r} has no rows; give a single number the shape (1,)")

        if array.dtype.kind not in "fiu" or array.dtype.itemsize > MAX_BYTES_PER_NUMBER:
            raise BadTrainer(
                f"parameter {name!r} holds {array.dtype}; only floats and integers of up to 64 "
                "bits can be summed"
            )
        if array.shape[0] > MAX_ROWS:
            raise BadTrainer(
                f"parameter {name!r} has {array.shape[0]:,} rows; the most is {MAX_ROWS:,}"
            )
        specs.append(ArraySpec(name, array.shape, array.dtype.str))

    return tuple(specs)


def _row_at(specs: tuple[ArraySpec, ...], number: int, count: int) -> int:
    """The first row of a partition, numbered across all arrays: the boundary nearest to its share
    of the bytes.
    """
    total = sum(spec.nbytes for spec in specs)
    before_rows = before_bytes = 0
    if number in {0, count}:
        return sum(spec.rows for spec in specs) * number // count

    for spec in specs:
        if (before_bytes + spec.nbytes) * count >= total * number and spec.row_bytes > 0:
            share = total * number - before_bytes * count
            return before_rows + (2 * share + spec.row_bytes * count) // (
                2 * spec.row_bytes * count
            )
        before_rows += spec.rows
        before_bytes += spec.nbytes

    return before_rows
