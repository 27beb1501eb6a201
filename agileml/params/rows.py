"""Rows of one array: read and added several times as fast as by numpy's indexing, and summed in
reusable memory.
"""

from functools import cache, lru_cache
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from agileml.params.deltas import ADD, Aggregation, RowDelta, added_at
from agileml.params.layout import Array, ArraySpec

RowNumbers = NDArray[np.intp]

FAST_DTYPES = frozenset({np.dtype(np.float32), np.dtype(np.float64)})
"""The types of arrays that `add_rows` takes."""


def rows_of(array: Array, rows: slice | RowNumbers) -> Array:
    """A copy of these rows, which exist; a view if they are a slice."""
    if isinstance(rows, slice):
        view: Array = array[rows]
        return view
    # Without `clip` numpy checks every number again, in a slower loop.
    return array.take(rows, axis=0, mode="clip")


def add_rows(array: Array, rows: RowNumbers, values: Array) -> None:
    """Adds to rows in place, one after the other: a row that occurs twice is added to twice.

    The same bits as `np.add.at(array, rows, values)`, but several times as fast: scipy's loop for
    the product of a sparse matrix and a dense one does just this, for a matrix with a single 1 in
    every column.
    """
    count = rows.size
    width = array[0].size
    ends, weights = _columns(count, array.dtype)
    _sparsetools().csc_matvecs(
        len(array),
        count,
        width,
        ends,
        rows.astype(np.int64, copy=False),
        weights,
        np.ascontiguousarray(values, array.dtype).reshape(-1),
        array.reshape(-1),
    )


@cache
def _sparsetools() -> ModuleType:
    """scipy's compiled module of that loop; there is no public way to it that adds in place.

    Loaded without `scipy.sparse` itself: every process of a job would pay for that import and needs
    only this module.
    """
    scipy = find_spec("scipy")
    folders = scipy.submodule_search_locations if scipy else None
    spec = PathFinder.find_spec(
        "scipy.sparse._sparsetools", [f"{folder}/sparse" for folder in folders or ()]
    )
    if spec is None or spec.loader is None:
        raise ImportError("scipy's module sparse/_sparsetools is missing; install scipy again")

    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@lru_cache(maxsize=32)
def _columns(count: int, dtype: np.dtype) -> tuple[NDArray[np.int64], Array]:
    """Where the columns of the sparse matrix end, and its numbers."""
    return np.arange(count + 1), np.ones(count, dtype)


DENSE_SHARE = 0.5
"""Above this fraction of touched rows, all rows of a segment are sent: that saves row numbers and
scattered access."""

_MANY = 16
"""Once more than one row in this many is touched, scanning a flag per row, and filling all values,
takes less time than a list of the touched rows."""


class RowBuffer:
    """Aggregated updates to an array. Untouched rows hold the identity, so that `pending` needs no
    special case.
    """

    __slots__ = (
        "_by",
        "_fresh",
        "_many",
        "_order",
        "_spec",
        "_stale",
        "_touched",
        "_values",
        "_whole",
    )

    def __init__(self, spec: ArraySpec, by: Aggregation = ADD) -> None:
        self._spec = spec
        self._by = by
        self._values: Array | None = None
        self._stale = True
        self._whole = False
        self._touched = np.zeros(spec.rows, np.bool_)
        self._order = np.empty(spec.rows, np.int32)
        self._fresh: list[RowNumbers] = []
        """The touched rows, unless they are many."""
        self._many = False

    @property
    def empty(self) -> bool:
        """Whether nothing has been added since the buffer was last emptied."""
        return not (self._whole or self._many or self._fresh)

    def add_all(self, values: Array, *, owned: bool = False) -> None:
        """Aggregates an update of every row; an array that is `owned` becomes the buffer's."""
        if self.empty and owned and values.flags.c_contiguous and values.flags.writeable:
            self._values = values
        elif self.empty:
            # A copy, as the caller may reuse its array; it overwrites all rows, so that the
            # identity is not needed.
            np.copyto(self._allocated(), values)
        else:
            buffer = self._initialized()
            self._by.combined(buffer, values, out=buffer)
        self._stale = self._whole = True

    def add(self, rows: RowNumbers, values: Array) -> None:
        """Aggregates an update of some rows; a row that occurs twice is updated twice, in the given
        order.
        """
        if rows.size == 0:
            return

        buffer = self._initialized()
        is_fast = self._by is ADD and buffer.dtype in FAST_DTYPES
        is_distinct = False
        if not is_fast:
            # Whether no row occurs twice; faster than sorting.
            numbers = np.arange(rows.size, dtype=np.int32)
            self._order[rows] = numbers
            is_distinct = bool((self._order[rows] == numbers).all())

        if is_fast:
            add_rows(buffer, rows, values)
        elif is_distinct:
            buffer[rows] = self._by.combined(buffer[rows], values)
        elif self._by is ADD and buffer.dtype.kind != "f":
            touched, places = np.unique(rows, return_inverse=True)
            buffer[touched] = added_at(buffer[touched], places, values)
        else:
            # numpy has a fast loop for `ufunc.at` over single numbers, but not over whole rows.
            width = buffer[0].size
            flat = (rows[:, None] * width + np.arange(width)).reshape(-1)
            numbers = np.ascontiguousarray(values).reshape(-1)
            self._by.ufunc.at(buffer.reshape(-1), flat, numbers)

        # Which rows have been touched.
        if self._whole:
            return
        if self._many or rows.size * _MANY > self._touched.size:
            self._touched[rows] = self._many = True
            return

        fresh = rows[~self._touched[rows]]
        if fresh.size:
            self._touched[fresh] = True
            self._fresh.append(fresh)

    def pending(self, rows: slice | RowNumbers) -> Array:
        """The aggregated updates to these rows."""
        return rows_of(self._initialized(), rows)

    def absorb(self, other: "RowBuffer") -> None:
        """Aggregates the updates of another buffer of the same array and empties that buffer."""
        if other._whole:
            self.add_all(other._initialized())
        elif not other.empty:
            rows = other._rows()
            self.add(rows, rows_of(other._initialized(), rows))
        other.clear()

    def clear(self) -> None:
        """Discards all updates, in time proportional to the touched rows."""
        if self._values is not None and not self._whole:
            identity = self._by.identity(self._values.dtype)
            if self._many:
                self._values.fill(identity)
            for rows in () if self._many else self._fresh:
                self._values[rows] = identity
        self._reset()

    def take(self, bounds: list[tuple[int, int]]) -> list[RowDelta | None]:
        """Empties the buffer into one delta per range of rows; the ranges are sorted and cover
        every row.
        """
        if self._whole:
            values = self._initialized()
            parts: list[RowDelta | None] = [RowDelta(None, values[lo:hi]) for lo, hi in bounds]
            # Handed over instead of copied: allocating new memory is cheaper than copying.
            self._values = None
            self._stale = True
            self._reset()
            return parts
        if self.empty:
            return [None] * len(bounds)

        rows = self._rows()
        edges = np.searchsorted(rows, [bounds[0][0], *(hi for _, hi in bounds)])
        buffer = self._initialized()
        parts = []

        for (lo, hi), start, end in zip(bounds, edges[:-1], edges[1:], strict=True):
            touched = rows[start:end]
            if touched.size == 0:
                parts.append(None)
            elif touched.size > DENSE_SHARE * (hi - lo):
                delta = RowDelta(None, buffer[lo:hi].copy())
                parts.append(delta)
            else:
                row_delta = RowDelta((touched - lo).astype(np.int32), rows_of(buffer, touched))
                parts.append(row_delta)

        self.clear()
        return parts

    def _rows(self) -> RowNumbers:
        """The touched rows, sorted and unique."""
        if self._many or sum([rows.size for rows in self._fresh]) * _MANY > self._touched.size:
            return np.flatnonzero(self._touched)
        return np.unique(np.concatenate(self._fresh))

    def _reset(self) -> None:
        if self._many:
            self._touched.fill(False)
        for rows in () if self._many else self._fresh:
            self._touched[rows] = False
        self._fresh.clear()
        self._whole = self._many = False

    def _allocated(self) -> Array:
        if self._values is None:
            self._values = np.empty(self._spec.shape, self._spec.dtype)
        return self._values

    def _initialized(self) -> Array:
        """The values, with the identity in untouched rows."""
        values = self._allocated()
        if self._stale and not self._whole:
            values.fill(self._by.identity(values.dtype))
        if not self._whole:
            self._stale = False
        return values
