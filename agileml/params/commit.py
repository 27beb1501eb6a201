"""A trainer's declarations about its work and updates, `calling`, under which all user code runs,
and `CommitRule`: it computes the next version of a partition's state from the summed updates of a
clock, as they declare.

A state has one array per segment, followed by the optimizer's slots of each segment: they move, are
backed up and are rolled back together.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf, sqrt

import numpy as np

from agileml.errors import BadInput, BadTrainer, NotFinite, TrainerFailed
from agileml.params import FULL, WIRES
from agileml.params.deltas import ADD, AGGREGATIONS, Aggregation, Delta, RowDelta, dense
from agileml.params.layout import Array, Layout, PartitionState, Segment
from agileml.user_code import described, raised_at

Apply = Callable[[str, Array, Array, Sequence[Array], int], None]
"""`apply(name, values, update, slots, clock)`: changes values and slots in place. All have the same
rows."""

ApplyAll = Callable[..., None]
"""`apply_all(parts, clock)`: `apply` for several parts at once, each a name, values, update and
slots."""


@dataclass(frozen=True, slots=True)
class Declarations:
    """Optional attributes of a trainer.

    `name`: its name in errors and logs. `batch`: items of a shard per clock; 0 for all. `chunk`:
    items per call of `step`. `aggregation`: `add`, `max` or `min`. `apply`: called once per clock
    with the summed updates, instead of adding them; receives some rows of an array at a time, and
    must treat all rows alike. `apply_all`: called instead of it with all rows that a server updates
    at a time, where that is faster. `slots`: number of arrays of the parameter's shape that `apply`
    keeps between clocks; they start as zeros. `row_slots`: further slots with one number (float64)
    for each row, such as a count of steps; `apply` receives them after the others. `wire`: `bf16`
    or `fp16` if parameters and updates may travel in 16 bits (see `JobSettings`). `clip_norm`:
    above 0, the largest norm of the summed updates of a clock to the parameters for which
    `is_clipped(name)`; they are scaled before `apply`. With `sees_norm`, `apply_all` has a third
    argument: the norm of those updates before they are scaled. `loss_every`: the loss is computed
    before clock 1 and then every `loss_every` clocks; 0: so often that it takes about a tenth of
    the training time.
    """

    name: str
    batch: int
    chunk: int | None
    aggregation: Aggregation
    apply: Apply | None
    apply_all: ApplyAll | None
    slots: int
    row_slots: int
    wire: str
    clip_norm: float = 0.0
    is_clipped: Callable[[str], bool] = lambda _: True
    loss_every: int = 1
    sees_norm: bool = False

    @classmethod
    def of(cls, trainer: object) -> "Declarations":
        """Reads and checks a trainer's declarations."""
        name = name_of(trainer)
        aggregation = getattr(trainer, "aggregation", ADD.name)
        if aggregation not in AGGREGATIONS:
            known = ", ".join(AGGREGATIONS)
            raise BadTrainer(f"{name}: unknown aggregation {aggregation!r}; choose one of {known}")

        apply = getattr(trainer, "apply", None)
        if apply is not None and (not callable(apply) or aggregation != ADD.name):
            raise BadTrainer(f"{name}: apply must be a method, and needs the aggregation 'add'")

        whole = ("batch", "chunk", "slots", "row_slots", "loss_every")
        numbers = {item: getattr(trainer, item, None) for item in whole}
        for item, value in numbers.items():
            least = 1 if item == "chunk" else 0
            if value is not None and (not isinstance(value, int) or value < least):
                raise BadTrainer(
                    f"{name}: {item} is {value!r}; it must be a whole number of at least {least}"
                )

        clip_norm = getattr(trainer, "clip_norm", None) or 0.0
        is_number = isinstance(clip_norm, int | float) and not isinstance(clip_norm, bool)
        if not is_number or not 0 <= clip_norm < inf:
            raise BadTrainer(f"{name}: clip_norm is {clip_norm!r}; it must be a number above 0")
        if clip_norm and apply is None:
            raise BadTrainer(f"{name}: clip_norm needs an apply, for which it scales the updates")

        wire = getattr(trainer, "wire", FULL)
        if wire not in WIRES:
            raise BadTrainer(f"{name}: wire is {wire!r}; choose one of {', '.join(WIRES)}")

        apply_all = getattr(trainer, "apply_all", None)
        is_clipped = getattr(trainer, "is_clipped", lambda _: True)
        loss_every = numbers["loss_every"]
        return cls(
            name,
            numbers["batch"] or 0,
            numbers["chunk"],
            AGGREGATIONS[aggregation],
            apply,
            apply_all,
            numbers["slots"] or 0,
            numbers["row_slots"] or 0,
            wire,
            clip_norm,
            is_clipped,
            1 if loss_every is None else loss_every,
            bool(getattr(trainer, "sees_norm", False)),
        )

    def check_updates(self, layout: Layout, *, awaits: bool) -> None:
        """BadTrainer if sums of updates would soon leave the range of a parameter's numbers.

        With `awaits`, also unless a part of the updates, multiplied, can stand for all: sums of
        numbers with fractions.
        """
        for spec in layout.specs:
            if (
                self.aggregation is ADD
                and np.dtype(spec.dtype).kind in "iu"
                and np.dtype(spec.dtype).itemsize == 1
            ):
                raise BadTrainer(
                    f"{self.name}, parameter {spec.name!r} holds {np.dtype(spec.dtype)}, which "
                    "sums of updates soon"
                    " overflow; make it int32 or int64, or declare the aggregation 'max' or 'min'"
                )

        if not awaits:
            return
        if self.aggregation is not ADD:
            raise BadTrainer(
                f"{self.name}: backup workers need updates that are added, not "
                f"'{self.aggregation.name}'"
            )
        for spec in layout.specs:
            if np.dtype(spec.dtype).kind != "f":
                raise BadTrainer(
                    f"{self.name}, parameter {spec.name!r}: backup workers need floating-point "
                    f"parameters, not {np.dtype(spec.dtype)}: the updates that are in time are "
                    "scaled up to stand for all"
                )


def name_of(trainer: object) -> str:
    """A trainer's name in errors and logs."""
    return getattr(trainer, "name", None) or type(trainer).__name__


@contextmanager
def calling(where: str) -> Iterator[None]:
    """User code runs here; any exception becomes a TrainerFailed that says where it was raised,
    with file and line.

    BadInput is for the user of the trainer: a file or an argument that is wrong.
    """
    try:
        yield
    except BadInput:
        raise
    except (BadTrainer, TrainerFailed) as error:
        place = raised_at(error)
        raise type(error)(f"{error} ({place})" if place else str(error)) from error
    except SystemExit as error:
        # To end its process is for the job to do.
        status = "" if error.code is None else repr(error.code)
        place = raised_at(error)
        ended = f"the code called sys.exit({status})" + (f" ({place})" if place else "")
        raise TrainerFailed(
            f"{where}: {ended}; raise an error to end the job, or return"
        ) from error
    except Exception as error:
        raise TrainerFailed(f"{where}: {described(error)}") from error


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
