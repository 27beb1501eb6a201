"""The rows that the chunks of a shard read, learned in the first pass over it, so that workers are
sent no others.

These are a prediction for later clocks, not a guarantee. A cache knows which rows it holds; a chunk
that reads another row is discarded and computed again once the whole partition has arrived.
"""

from collections.abc import Iterable, Sequence, Set

import numpy as np
from numpy.typing import NDArray

from agileml.params.deltas import Delta, RowDelta, Rows
from agileml.params.layout import ArraySpec, Layout, PartitionState
from agileml.params.rows import RowNumbers

WantedRows = list[Rows | None]
"""The wanted rows of each segment of a partition, relative to its first row; None: all rows."""

Mask = NDArray[np.bool_]
Bits = NDArray[np.uint8]
LearnedRows = Rows | Bits | None
"""The rows of an array that a shard reads: their numbers or a bit for each row, whichever is
smaller; None: every row.

A job may have more shards than rows, so that a flag for each row of each shard would fill the
memory.
"""

_ARRAY_BYTES = 128
"""Memory that an array takes besides its numbers."""

MAX_PICKED = 0.5
"""Single rows are sent if they and their numbers are at most this fraction of a segment's bytes:
selecting costs."""


class MissingRows(BaseException):
    """A chunk reads rows that the node does not have. Not an `Exception`, so that user code does
    not handle it.
    """


class ShardReads:
    """The rows that the chunks of one shard have read, during the first pass over its items."""

    def __init__(self, specs: Sequence[ArraySpec], items: int) -> None:
        self._counts = {spec.name: spec.rows for spec in specs}
        self._few: dict[str, list[RowNumbers]] = {}
        """By array, as long as they take less memory than a flag for each row."""
        self._few_bytes: dict[str, int] = {}
        self._masks: dict[str, Mask | None] = {}
        """By array; None: every row."""
        self._lows: set[int] = set()
        self._left = items

    def note(self, name: str, selected: slice | RowNumbers) -> None:
        """Records that these rows of an array are read."""
        count = self._counts[name]
        if isinstance(selected, slice) and selected == slice(0, count):
            self._masks[name] = None
            return

        if name not in self._masks:
            size = selected.stop - selected.start if isinstance(selected, slice) else selected.size
            taken = self._few_bytes.get(name, _ARRAY_BYTES) + _ARRAY_BYTES + 8 * size
            self._few_bytes[name] = taken
            if taken <= count:
                # Copied, as the caller may reuse its array.
                rows = (
                    np.arange(selected.start, selected.stop)
                    if isinstance(selected, slice)
                    else np.array(selected)
                )
                self._few.setdefault(name, []).append(rows)
                return

            self._masks[name] = _flags(self._few.pop(name, ()), count)

        mask = self._masks[name]
        if mask is not None:
            mask[selected] = True

    def passed(self, low: int, high: int) -> bool:
        """Records that a chunk is done; returns whether the pass over the shard is complete."""
        if low not in self._lows:
            self._lows.add(low)
            self._left -= high - low
        return self._left <= 0

    def rows(self) -> dict[str, LearnedRows]:
        """The rows that were read of each array."""
        masks = {
            **{name: _flags(few, self._counts[name]) for name, few in self._few.items()},
            **self._masks,
        }
        learned: dict[str, LearnedRows] = {}

        for name, mask in masks.items():
            if mask is None:
                learned[name] = None
                continue
            # As numbers or as bits, whichever takes less memory.
            rows = np.flatnonzero(mask).astype(np.int32)
            if rows.nbytes * 8 < len(mask):
                learned[name] = rows
            else:
                learned[name] = np.packbits(mask)

        return learned


def _flags(numbers: Sequence[RowNumbers], count: int) -> Mask:
    mask = np.zeros(count, np.bool_)
    for rows in numbers:
        mask[rows] = True
    return mask


class RowsRead:
    """The rows that the shards of a node read: its worker must be sent these and no others."""

    def __init__(self, layout: Layout, lengths: Sequence[int]) -> None:
        self._layout = layout
        self._lengths = lengths
        self._learning: dict[int, ShardReads] = {}
        self._learned: dict[int, dict[str, LearnedRows]] = {}
        self._whole: list[WantedRows | None] = [None] * len(layout)
        self._shards: frozenset[int] = frozenset()
        self._wanted = self._whole

    def learning(self, shard: int) -> ShardReads | None:
        """The recorder for the reads of a shard's chunks; None once they are known."""
        if shard in self._learned:
            return None
        if shard not in self._learning:
            self._learning[shard] = ShardReads(self._layout.specs, self._lengths[shard])
        return self._learning[shard]

    def passed(self, shard: int, low: int, high: int) -> None:
        """Records that a chunk of a shard is done."""
        if shard in self._learning and self._learning[shard].passed(low, high):
            self._learned[shard] = self._learning.pop(shard).rows()

    def wanted(self, shards: Set[int]) -> list[WantedRows | None]:
        """By partition, the rows that these shards read; None for a whole one. The same objects
        until they change.
        """
        if not shards <= self._learned.keys():
            return self._whole

        if shards != self._shards:
            self._shards = frozenset(shards)
            masks = {spec.name: np.zeros(spec.rows, np.bool_) for spec in self._layout.specs}
            for shard in shards:
                for name, rows in self._learned[shard].items():
                    mask = masks[name]
                    if rows is None:
                        mask[:] = True
                    elif rows.dtype == np.int32:
                        mask[rows] = True
                    else:
                        mask |= np.unpackbits(rows.view(np.uint8), count=len(mask)).view(np.bool_)
            self._wanted = []
            for partition in self._layout.partitions:
                wanted: WantedRows = []
                for segment in partition:
                    mask = masks[segment.name][segment.lo : segment.hi]
                    rows = np.flatnonzero(mask).astype(np.int32)
                    row_bytes = self._layout.spec(segment.name).row_bytes
                    picked_bytes = rows.size * (row_bytes + rows.itemsize)
                    few = picked_bytes <= MAX_PICKED * segment.rows * row_bytes
                    wanted.append(rows if few else None)
                whole = all(each is None for each in wanted)
                self._wanted.append(None if whole else wanted)

        return self._wanted

    def distrust(self, partitions: Iterable[int]) -> None:
        """Requests these partitions whole from now on, because rows were missing, until the shards
        change.
        """
        self._wanted = list(self._wanted)
        for partition in partitions:
            self._wanted[partition] = None


def picked(state: PartitionState, wanted: WantedRows | None) -> Delta:
    """The values of the wanted rows; whole segments are not copied."""
    rows = wanted or [None] * len(state)
    return [
        RowDelta(None, array) if each is None else RowDelta(each, array[each])
        for array, each in zip(state, rows, strict=True)
    ]
