"""What a trainer declares about its updates, and the one way to call the user's code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from agileml.errors import BadTrainer, TrainerFailed
from agileml.params.deltas import ADD, AGGREGATIONS, Aggregation
from agileml.params.layout import Array

T = TypeVar("T")

Apply = Callable[[str, Array, Array, Sequence[Array], int], None]
"""`apply(name, values, update, slots, clock)`: changes values and slots in place. All have the same rows."""


@dataclass(frozen=True, slots=True)
class Declarations:
    """What a trainer may declare besides its methods, as attributes of these names.

    `name`: what errors and logs call it. `batch`: items of a shard in a clock; 0 for all. `chunk`: items of
    one call of `step`. `aggregation`: `add`, `max` or `min`. `apply`: what to do once per clock with the summed updates
    instead of adding them. It is called for some rows of an array at a time, so that it must treat rows alike.
    `slots`: how many arrays like the parameter `apply` keeps between clocks; they begin as zeros.
    """

    name: str
    batch: int
    chunk: int | None
    aggregation: Aggregation
    apply: Apply | None
    slots: int

    @classmethod
    def of(cls, trainer: object) -> Declarations:
        """Reads and checks a trainer's declarations."""
        name = name_of(trainer)
        aggregation = getattr(trainer, "aggregation", ADD.name)
        if aggregation not in AGGREGATIONS:
            known = ", ".join(AGGREGATIONS)
            raise BadTrainer(f"{name}: aggregation {aggregation!r} is not known; it is one of {known}")
        apply = getattr(trainer, "apply", None)
        if apply is not None and (not callable(apply) or aggregation != ADD.name):
            raise BadTrainer(f"{name}: apply must be a method, and works on sums: leave aggregation at 'add'")
        batch, chunk, slots = (getattr(trainer, item, None) for item in ("batch", "chunk", "slots"))
        for item, value, least in (("batch", batch, 0), ("chunk", chunk, 1), ("slots", slots, 0)):
            if value is not None and (not isinstance(value, int) or value < least):
                raise BadTrainer(f"{name}: {item} is {value!r}; it must be a whole number of at least {least}")
        return cls(name, batch or 0, chunk, AGGREGATIONS[aggregation], apply, slots or 0)


def name_of(trainer: object) -> str:
    """What errors and logs call a trainer."""
    return getattr(trainer, "name", None) or type(trainer).__name__


def call(where: str, function: Callable[[], T]) -> T:
    """Calls the user's code; whatever it raises becomes one error that says where."""
    try:
        return function()
    except (BadTrainer, TrainerFailed):
        raise
    except Exception as error:
        raise TrainerFailed(f"{where}: {type(error).__name__}: {error}") from error
