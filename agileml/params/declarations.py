"""A trainer's declarations about its work and updates, and `calling`, under which all user code
runs.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf

import numpy as np

from agileml.errors import BadInput, BadTrainer, TrainerFailed
from agileml.params import FULL, WIRES
from agileml.params.deltas import ADD, AGGREGATIONS, Aggregation
from agileml.params.layout import Array, Layout
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
