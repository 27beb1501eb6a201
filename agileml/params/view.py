"""A worker's access to the parameters: the cache of a node, the view of one chunk, and the sums of
each clock.

A chunk sees the cache plus its own updates and nothing else, so that its contribution is the same
on every node.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from agileml.errors import BadTrainer, NotFinite
from agileml.params.deltas import ADD, Aggregation, Delta, RowDelta, assign_into
from agileml.params.layout import Array, ArraySpec, Layout, Params, PartitionState
from agileml.params.reads import Mask, MissingRows, ShardReads, picked
from agileml.params.rows import RowBuffer, RowNumbers, rows_of
from agileml.params.wire import HalfWire

RowSelection = NDArray[np.integer] | Sequence[int] | slice | None
"""Rows of an array: their numbers, a slice, or None for all."""

_NO_ROWS = np.empty(0, np.int32)

NEVER = -1
"""The clock of a partition that has not been filled; 0 is the initial model."""


class ParamCache:
    """The named arrays of a node. Each partition has the clock of the version that it was filled
    with.

    `wire` says how values travel; None: in the types of their parameters.
    """

    def __init__(self, layout: Layout, wire: HalfWire | None = None) -> None:
        self.layout = layout
        self.wire = wire
        self.arrays: Params = layout.allocate()
        self.clocks: list[int] = [NEVER] * len(layout)
        self.missed: set[int] = set()
        """Partitions with rows that were read but are not cached."""
        self._held: dict[str, Mask] = {}
        """Cached rows, of the arrays that were ever partial."""
        self.partial: set[tuple[int, int]] = set()
        """Partially cached segments: partition, and index in its state."""

    def fill(self, partition: int, state: PartitionState, clock: int) -> None:
        """Stores a partition's whole state."""
        self.assign(partition, picked(state, None), clock)

    def assign(self, partition: int, values: Delta, clock: int) -> None:
        """Stores rows of a version of a partition; its other rows are no longer cached."""
        if self.wire is not None:
            values = self.wire.received(partition, values)
        assign_into(self.layout.views(partition, self.arrays), values)
        for index, part in enumerate(values):
            rows = _NO_ROWS if part is None else part.rows
            if rows is None:
                # Without partial segments there is no mask to update.
                if (partition, index) in self.partial:
                    self.partial.remove((partition, index))
                    segment = self.layout.partitions[partition][index]
                    self._held[segment.name][segment.lo : segment.hi] = True
            else:
                self._hold(partition, index, rows)

        self.clocks[partition] = clock

    def require(self, name: str, selected: slice | RowNumbers) -> None:
        """MissingRows if one of these rows is not cached; their partitions are added to
        `missed`."""
        held = self._held.get(name)
        if held is None or held[selected].all():
            return

        absent = np.zeros(held.shape, np.bool_)
        absent[selected] = True
        absent &= ~held
        homes = self.layout.homes(name)
        self.missed |= {
            partition for partition, _, segment in homes if absent[segment.lo : segment.hi].any()
        }
        raise MissingRows(
            f"parameter {name!r}: rows of partitions {sorted(self.missed)} are not cached"
        )

    def _hold(self, partition: int, index: int, rows: NDArray[np.int32]) -> None:
        segment = self.layout.partitions[partition][index]
        if segment.name not in self._held:
            self._held[segment.name] = np.ones(self.layout.spec(segment.name).rows, np.bool_)
        held = self._held[segment.name][segment.lo : segment.hi]
        held[:] = False
        held[rows] = True
        self.partial.add((partition, index))


class UpdateBuffer:
    """Aggregated updates to named arrays, to be divided by partition."""

    def __init__(self, layout: Layout, by: Aggregation = ADD) -> None:
        self._layout = layout
        self._buffers = {spec.name: RowBuffer(spec, by) for spec in layout.specs}
        self._homes = {spec.name: layout.homes(spec.name) for spec in layout.specs}

    def __getitem__(self, name: str) -> RowBuffer:
        return self._buffers[name]

    def absorb(self, other: "UpdateBuffer") -> None:
        """Aggregates another buffer's updates and empties that buffer."""
        for name, buffer in self._buffers.items():
            if buffer.empty:
                # Nothing to aggregate with: swap the memory instead of copying it.
                self._buffers[name], other._buffers[name] = other._buffers[name], buffer
            else:
                buffer.absorb(other._buffers[name])

    def take(self) -> dict[int, Delta]:
        """Empties the buffer into the deltas of the touched partitions; the caller owns their
        memory.
        """
        deltas: dict[int, Delta] = {}
        for name, buffer in self._buffers.items():
            homes = self._homes[name]
            if buffer.empty or not homes:
                continue
            parts = buffer.take([(segment.lo, segment.hi) for _, _, segment in homes])
            for (partition, index, _), part in zip(homes, parts, strict=True):
                if part is not None:
                    none: list[RowDelta | None] = [None] * len(self._layout.partitions[partition])
                    deltas.setdefault(partition, none)[index] = part

        return dict(sorted(deltas.items()))

    def clear(self) -> None:
        """Forgets every update."""
        for buffer in self._buffers.values():
            buffer.clear()


class CacheView:
    """Read access to a cache, with errors that name the trainer and the clock."""

    def __init__(self, cache: ParamCache, app: str) -> None:
        self._cache = cache
        self._app = app
        self._clock = 0
        self._specs = {spec.name: spec for spec in cache.layout.specs}
        self.learning: ShardReads | None = None
        """Recorder of the rows that are read, during the first pass over a shard."""

    def read(self, name: str, rows: RowSelection = None) -> Array:
        """Values of rows in the requested order: read-only, valid until `step` returns."""
        array = self._cache.arrays[self._spec(name).name]
        selected = self._selected(name, rows)
        if self._cache.partial:
            self._cache.require(name, selected)
        if self.learning is not None:
            self.learning.note(name, selected)
        values = rows_of(array, selected)
        values.flags.writeable = False

        return values

    def _spec(self, name: str) -> ArraySpec:
        try:
            return self._specs[name]
        except KeyError:
            known = ", ".join(sorted(self._specs))
            raise BadTrainer(
                f"{self._where(name)}: no such parameter; init returned {known}"
            ) from None

    def _selected(self, name: str, rows: RowSelection) -> slice | RowNumbers:
        count = self._specs[name].rows
        if rows is None:
            return slice(0, count)
        if isinstance(rows, slice):
            start, stop, step = rows.indices(count)
            if step == 1:
                return slice(start, max(start, stop))
            return np.arange(start, stop, step)

        numbers = np.asarray(rows)
        if numbers.ndim != 1 or (numbers.dtype.kind not in "iu" and numbers.size):
            raise BadTrainer(
                f"{self._where(name)}: rows must be a list of whole numbers, a slice or None,"
                f" not {numbers.dtype} of shape {numbers.shape}"
            )

        numbers = numbers.astype(np.intp, copy=False)
        # As unsigned numbers, negative ones are too large.
        if numbers.size and numbers.view(np.uintp).max() >= count:
            raise BadTrainer(
                f"{self._where(name)}: rows {numbers.min()} to {numbers.max()} requested; it has "
                f"rows 0 to {count - 1}"
            )

        return numbers

    def _where(self, name: str) -> str:
        return f"{self._app}, clock {self._clock}, parameter {name!r}"


class ChunkView(CacheView):
    """The `ParamView` passed to `Trainer.step`: the cache plus the chunk's own updates."""

    def __init__(self, cache: ParamCache, app: str, by: Aggregation = ADD) -> None:
        super().__init__(cache, app)
        self._by = by
        self.own = UpdateBuffer(cache.layout, by)
        """The chunk's own updates; taking them ends the chunk."""

    def begin(self, clock: int) -> None:
        """Starts a chunk; discards the updates of a chunk that failed or was abandoned."""
        self._clock = clock
        self.own.clear()

    def read(self, name: str, rows: RowSelection = None) -> Array:
        """Values of rows with this chunk's updates, in the requested order; read-only."""
        values = super().read(name, rows)
        own = self.own[name]
        if own.empty:
            return values
        updated = self._by.combined(values, own.pending(self._selected(name, rows)))
        updated.flags.writeable = False
        return updated

    def update(self, name: str, rows: RowSelection, delta: Array, *, owned: bool = False) -> None:
        """Adds to rows, or aggregates as the trainer declares; a row that occurs twice is updated
        twice.
        """
        spec = self._spec(name)
        selected = self._selected(name, rows)
        count = selected.stop - selected.start if isinstance(selected, slice) else selected.size
        values = np.asarray(delta)
        expected = (count, *spec.shape[1:])

        if values.shape != expected:
            raise BadTrainer(
                f"{self._where(spec.name)}: an update of shape {values.shape} for rows of shape "
                f"{expected}"
            )
        if not np.can_cast(values.dtype, spec.dtype, "same_kind"):
            raise BadTrainer(
                f"{self._where(spec.name)}: an update of {values.dtype} for an array of "
                f"{np.dtype(spec.dtype)}"
            )

        if values.dtype.str != spec.dtype:
            with np.errstate(
                over="ignore"
            ):  # too large values become infinity, which is checked below
                given = values
                values = values.astype(spec.dtype)
            if values.dtype.kind in "iu" and not np.array_equal(given, values):
                raise BadTrainer(
                    f"{self._where(spec.name)}: an update of {given.dtype} has numbers beyond the "
                    f"range of {values.dtype}; give the parameter a wider type"
                )

        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise NotFinite(
                f"{self._where(spec.name)}: the update holds NaN or infinity;"
                " lower the step size, or look for a division by 0"
            )

        if isinstance(selected, slice):
            if count == spec.rows:
                self.own[name].add_all(values, owned=owned)
                return
            selected = np.arange(selected.start, selected.stop)

        self.own[name].add(selected, values)


class WriteBack:
    """The aggregated updates of each clock, until they are sent."""

    def __init__(self, layout: Layout, by: Aggregation = ADD) -> None:
        self._layout = layout
        self._by = by
        self._clocks: dict[int, UpdateBuffer] = {}
        self._spare: list[UpdateBuffer] = []

    def collect(self, clock: int, chunk: ChunkView) -> None:
        """Ends a chunk and aggregates its updates with those of its clock."""
        if clock not in self._clocks:
            if self._spare:
                self._clocks[clock] = self._spare.pop()
            else:
                self._clocks[clock] = UpdateBuffer(self._layout, self._by)
        self._clocks[clock].absorb(chunk.own)

    def take(self, clock: int) -> dict[int, Delta]:
        """Removes a clock and returns the deltas of the touched partitions."""
        buffer = self._clocks.pop(clock, None)
        if buffer is None:
            return {}
        deltas = buffer.take()
        self._spare.append(buffer)
        return deltas
