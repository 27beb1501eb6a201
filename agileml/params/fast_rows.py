"""Reading and adding rows of an array, several times as fast as numpy's own indexing."""

from functools import cache, lru_cache
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from agileml.params.layout import Array

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

    The same bits as `np.add.at(array, rows, values)`, but several times as fast: scipy's loop for the product of a
    sparse matrix and a dense one does just this, for a matrix with a single 1 in every column.
    """
    count, width = rows.size, array[0].size
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

    Loaded without `scipy.sparse` itself: every process of a job would pay for that import and needs only this module.
    """
    scipy = find_spec("scipy")
    folders = scipy.submodule_search_locations if scipy else None
    spec = PathFinder.find_spec("scipy.sparse._sparsetools", [f"{folder}/sparse" for folder in folders or ()])
    if spec is None or spec.loader is None:
        raise ImportError("scipy's module sparse/_sparsetools is missing; install scipy again")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@lru_cache(maxsize=32)
def _columns(count: int, dtype: np.dtype) -> tuple[NDArray[np.int64], Array]:
    """Where the columns of the sparse matrix end, and its numbers."""
    return np.arange(count + 1), np.ones(count, dtype)
