"""Parameters and updates that travel in 16 bits between workers and servers.

What a trainer's code reads, and what it pushes, is rounded; all else keeps the type of its
parameter: servers' states, optimizers, backups and checkpoints. Rounding depends on nothing but the
number, so that a contribution has the same bits on every node, and when it is sent again.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from agileml.errors import NotFinite
from agileml.params import BF16, FP16, FULL
from agileml.params.deltas import Delta, RowDelta
from agileml.params.layout import Array, Layout, PartitionState

_BF16_NAN = 0x7FC0


@dataclass(frozen=True, slots=True)
class Half:
    """A float of 16 bits, which travels as `dtype`: a type of numpy, or for bfloat16, which numpy
    does not have, its bits.
    """

    dtype: np.dtype
    largest: float

    def narrow(self, values: Array) -> Array:
        """The values in 16 bits, whatever becomes of NaN and the sign of 0."""
        if self.dtype.kind == "f":
            return values.astype(self.dtype)

        # The upper halves of 32-bit floats, rounded to nearest, ties to even.
        bits: Array = values.astype("<f4", copy=False).view("<u4")
        odd = (bits >> 16) & 1
        upper: Array = ((bits + (0x7FFF + odd)) >> 16).astype(self.dtype)
        return upper

    def widen(self, half: Array) -> Array:
        """The values in 32 bits."""
        if self.dtype.kind == "f":
            return half.astype("<f4")
        values: Array = (half.astype("<u4") << 16).view("<f4")
        return values


@dataclass(frozen=True, slots=True)
class HalfWire:
    """Rounds the parameters of a trainer to 16 bits and back; integers and short floats stay what
    they are.
    """

    name: str
    half: Half
    layout: Layout
    types: Mapping[str, np.dtype]
    app: str

    def state(self, partition: int, state: PartitionState, clock: int) -> PartitionState:
        """The model of a partition as it is sent to workers."""
        return [self._narrowed(partition, index, array, clock) for index, array in enumerate(state)]

    def delta(self, partition: int, delta: Delta, clock: int) -> Delta:
        """Updates to a partition as they are sent to its server."""
        return [
            None
            if part is None
            else RowDelta(part.rows, self._narrowed(partition, index, part.values, clock))
            for index, part in enumerate(delta)
        ]

    def received(self, partition: int, delta: Delta) -> Delta:
        """Rows of a partition that were sent, in the types of its parameters."""
        received: Delta = []
        for segment, part in zip(self.layout.partitions[partition], delta, strict=False):
            if part is None:
                received.append(None)
                continue

            values = part.values
            target = self.types[segment.name]
            # Others travelled unchanged: the final model, for its loss, and integers.
            if _is_long(target) and values.dtype == self.half.dtype:
                values = self.half.widen(values).astype(target, copy=False)
            received.append(RowDelta(part.rows, values))

        return received

    def _narrowed(self, partition: int, index: int, values: Array, clock: int) -> Array:
        if not _is_long(values.dtype):
            return values

        with np.errstate(over="ignore", under="ignore"):
            half = self.half.narrow(values)
        # A row of -0.0 is one without an update (`Aggregation.identity`): only what was 0 may be
        # -0.0.
        minus = half.view(np.uint16) == 0x8000
        if minus.any():
            half[minus & (values != 0)] = 0

        if not (np.isfinite(values).all() and np.isfinite(self.half.widen(half)).all()):
            # What was NaN or infinite before stays so; what rounding made so is refused.
            lost = np.isfinite(values) & ~np.isfinite(self.half.widen(half))
            if lost.any():
                where = (
                    f"{self.app}, clock {clock}, parameter "
                    f"{self.layout.partitions[partition][index].name!r}"
                )
                raise NotFinite(
                    f"{where}: {values[lost][0]:g} does not fit into {self.name}, whose largest "
                    "number is"
                    f" {self.half.largest:g}; use {BF16} or {FULL} on the wire, or scale the loss "
                    "or the model down"
                )
            if half.dtype == np.uint16:
                half[np.isnan(values)] = _BF16_NAN

        return half


def _is_long(dtype: np.dtype) -> bool:
    return dtype.kind == "f" and dtype.itemsize > 2


_HALVES = {
    BF16: Half(np.dtype("<u2"), 3.38953e38),
    FP16: Half(np.dtype("<f2"), 65504),
}


def wire_of(name: str, layout: Layout, app: str) -> HalfWire | None:
    """The rounding of a layout's parameters; None if nothing is rounded."""
    half = _HALVES.get(name)
    types = {spec.name: np.dtype(spec.dtype) for spec in layout.specs}
    if half:
        return HalfWire(name, half, layout, types, app)
    return None
