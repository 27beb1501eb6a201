"""Deltas: updates to a partition's state by rows, and the arithmetic on them.

A delta has one entry per segment of its partition: nothing, some rows, or all rows. Both forms give
the same bits, because untouched rows of the dense form hold the aggregation's identity.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agileml.errors import BadTrainer
from agileml.params.layout import Array, PartitionState

Rows = NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class RowDelta:
    """Values for rows of one segment: `rows` are sorted, unique and relative to its first row;
    None: all rows.
    """

    rows: Rows | None
    values: Array


Delta = list[RowDelta | None]


@dataclass(frozen=True, slots=True)
class Aggregation:
    """A commutative and associative operation that combines updates with each other and with the
    state.
    """

    name: str
    ufunc: np.ufunc

    def identity(self, dtype: np.dtype) -> float | int:
        """The value that changes nothing, not even a bit."""
        if self.ufunc is np.add:
            # Not +0.0, which turns a -0.0 of the state into +0.0.
            if dtype.kind == "f":
                return -0.0
            return 0
        if dtype.kind == "f":
            if self.ufunc is np.maximum:
                return -np.inf
            return np.inf
        limits = np.iinfo(dtype)
        if self.ufunc is np.maximum:
            return limits.min
        return limits.max

    def combined(self, left: Array, right: Array, out: Array | None = None) -> Array:
        """The operation on two arrays. BadTrainer if a sum of integers leaves their range."""
        if self.ufunc is not np.add or left.dtype.kind == "f":
            combined: Array = self.ufunc(left, right, out=out)
            return combined

        total: Array = np.add(left, right)
        unsigned = total.dtype.kind == "u"
        wrapped = total < left if unsigned else ((left ^ total) & (right ^ total)) < 0
        if wrapped.any():
            raise out_of_range(total.dtype)
        if out is None:
            return total

        np.copyto(out, total)
        return out


ADD = Aggregation("add", np.add)
MAX = Aggregation("max", np.maximum)
MIN = Aggregation("min", np.minimum)
AGGREGATIONS = {aggregation.name: aggregation for aggregation in (ADD, MAX, MIN)}


def out_of_range(dtype: np.dtype) -> BadTrainer:
    """The error of sums that do not fit into integers."""
    limits = np.iinfo(dtype)
    return BadTrainer(
        f"a sum of updates is beyond the range of {dtype}, {limits.min} to {limits.max}; give it a "
        "wider type"
    )


def added_at(kept: Array, places: NDArray[np.intp], values: Array) -> Array:
    """Integers plus values at places, some of them several times. BadTrainer if a sum leaves their
    range.
    """
    wide = np.dtype(np.uint64 if kept.dtype.kind == "u" else np.int64)
    lows, highs = _halves(kept.astype(wide))
    for halves, more in zip((lows, highs), _halves(values.astype(wide)), strict=True):
        np.add.at(halves, places, more)
    highs += lows >> _HALF_BITS
    lows &= _LOW_HALF
    total = ((highs << _HALF_BITS) | lows).astype(kept.dtype)
    if not all(map(np.array_equal, _halves(total.astype(wide)), (lows, highs))):
        raise out_of_range(kept.dtype)

    return total


_HALF_BITS, _LOW_HALF = 32, 0xFFFFFFFF


def _halves(numbers: Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The lower and the upper 32 bits of 64-bit integers, as numbers whose sums do not leave the
    range.
    """
    low = numbers & numbers.dtype.type(_LOW_HALF)
    high = numbers >> _HALF_BITS
    return low.astype(np.int64), high.astype(np.int64)


def assign_into(state: PartitionState, delta: Delta) -> None:
    """Overwrites rows of a state with a delta's values, in place."""
    for array, part in zip(state, delta, strict=True):
        if part is not None and part.rows is None:
            np.copyto(array, part.values)
        elif part is not None:
            array[part.rows] = part.values


def assigned(state: PartitionState, values: Delta) -> PartitionState:
    """A new state with some rows replaced; it shares unchanged arrays with the old one. With an
    empty state, `values` has every row.
    """
    if not state:
        return [part.values for part in values if part is not None]

    after = list(state)
    for index, part in enumerate(values):
        if part is not None and part.rows is None:
            after[index] = part.values
        elif part is not None:
            after[index] = state[index].copy()
            after[index][part.rows] = part.values

    return after


def accumulate(total: Delta | None, delta: Delta, by: Aggregation = ADD) -> Delta:
    """The aggregate of a running total and one more delta.

    The total must not be used afterwards: its arrays may become part of the result. The delta is
    only read.
    """
    if total is None:
        return [None if part is None else RowDelta(part.rows, part.values.copy()) for part in delta]
    return [_accumulate(so_far, part, by) for so_far, part in zip(total, delta, strict=True)]


def combined_anew(total: Delta, delta: Delta, by: Aggregation = ADD) -> Delta:
    """The aggregate of two deltas in new memory; neither is changed."""
    combined: Delta = []
    for so_far, part in zip(total, delta, strict=True):
        if so_far is not None and part is not None and so_far.rows is None and part.rows is None:
            row_delta = RowDelta(None, by.combined(so_far.values, part.values))
            combined.append(row_delta)
        else:
            copied = None if so_far is None else RowDelta(so_far.rows, so_far.values.copy())
            combined.append(_accumulate(copied, part, by))
    return combined


def aggregate(deltas: Sequence[Delta], by: Aggregation = ADD) -> Delta | None:
    """The total of deltas, with the bits of accumulating one after the other, but without copying a
    growing total.
    """
    if not deltas:
        return None
    return [
        _aggregate([part for part in parts if part is not None], by)
        for parts in zip(*deltas, strict=True)
    ]


def dense(state: PartitionState, delta: Delta | None, by: Aggregation = ADD) -> PartitionState:
    """A delta for every row of a state; rows it does not touch hold the identity."""
    parts: Sequence[RowDelta | None] = delta or [None] * len(state)
    whole: PartitionState = []
    for array, part in zip(state, parts, strict=True):
        if part is not None and part.rows is None:
            whole.append(part.values)
            continue
        values = _identity(array, len(array), by)
        if part is not None:
            values[part.rows] = part.values
        whole.append(values)

    return whole


def scaled(delta: Delta | None, by: float) -> Delta | None:
    """A delta times a factor, in the type of its numbers; the same delta for the factor 1."""
    if delta is None or by == 1:
        return delta
    return [
        None if part is None else RowDelta(part.rows, part.values * part.values.dtype.type(by))
        for part in delta
    ]


def square(delta: Delta | None) -> float:
    """The squared norm of all numbers."""
    flat = (part.values.ravel() for part in delta or () if part is not None)
    with np.errstate(over="ignore"):
        return sum(float(np.dot(numbers, numbers)) for numbers in flat)


def inner(left: Delta | None, right: Delta | None) -> float:
    """The inner product of all numbers of two deltas of the same partition."""
    products = []
    for a, b in zip(left or (), right or (), strict=False):
        if a is None or b is None:
            continue

        mine, theirs = a.values, b.values
        if a.rows is not None and b.rows is not None:
            _, of_a, of_b = np.intersect1d(a.rows, b.rows, assume_unique=True, return_indices=True)
            mine, theirs = mine[of_a], theirs[of_b]
        elif b.rows is not None:
            mine = mine[b.rows]
        elif a.rows is not None:
            theirs = theirs[a.rows]
        with np.errstate(over="ignore", invalid="ignore"):
            products.append(float(np.dot(mine.ravel(), theirs.ravel())))

    return sum(products)


def nbytes(delta: Delta | None) -> int:
    """Bytes of a delta's numbers."""
    total = 0
    for part in delta or ():
        if part is not None:
            total += part.values.nbytes + (0 if part.rows is None else part.rows.nbytes)
    return total


def _accumulate(total: RowDelta | None, part: RowDelta | None, by: Aggregation) -> RowDelta | None:
    if part is None:
        return total
    if total is None:
        return RowDelta(part.rows, part.values.copy())

    if total.rows is None:
        if part.rows is None:
            by.combined(total.values, part.values, out=total.values)
        else:
            total.values[part.rows] = by.combined(total.values[part.rows], part.values)
        return total
    if part.rows is None:
        # The total stays the left operand, as in every other form.
        values = part.values.copy()
        values[total.rows] = by.combined(total.values, values[total.rows])
        return RowDelta(None, values)
    if np.array_equal(total.rows, part.rows):
        by.combined(total.values, part.values, out=total.values)
        return total

    rows = np.union1d(total.rows, part.rows)
    values = _identity(total.values, len(rows), by)
    values[np.searchsorted(rows, total.rows)] = total.values
    places = np.searchsorted(rows, part.rows)
    values[places] = by.combined(values[places], part.values)

    return RowDelta(rows, values)


def _aggregate(parts: Sequence[RowDelta], by: Aggregation) -> RowDelta | None:
    if len(parts) < 2 or parts[0].rows is None:
        total: RowDelta | None = None
        for part in parts:
            total = _accumulate(total, part, by)
        return total

    rows: Rows | None = None
    places: Rows | None = None
    whole = next((part.values for part in parts if part.rows is None), None)
    if whole is not None:
        values = _identity(whole, len(whole), by)
    else:
        # An identity value for each touched row, and the index of each row among them.
        numbers = [part.rows for part in parts if part.rows is not None]
        count = max((int(some[-1]) + 1 for some in numbers if some.size), default=0)
        touched = np.zeros(count, np.bool_)
        for some in numbers:
            touched[some] = True
        rows = np.flatnonzero(touched).astype(np.int32)
        places = np.cumsum(touched, dtype=np.int32) - 1
        values = _identity(parts[0].values, len(rows), by)

    for part in parts:
        if part.rows is None:
            by.combined(values, part.values, out=values)
        else:
            at = part.rows if places is None else places[part.rows]
            values[at] = by.combined(values[at], part.values)

    return RowDelta(rows, values)


def _identity(like: Array, count: int, by: Aggregation) -> Array:
    return np.full((count, *like.shape[1:]), by.identity(like.dtype), like.dtype)
