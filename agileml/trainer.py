"""The `Trainer` protocol that users implement, and how its work, random generators and loss are
called.

Clocks are numbered from 1; clock 0 is the model that `init` returned.
"""

from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass
from math import isfinite
from typing import Any, Protocol, runtime_checkable

import numpy as np

from agileml.errors import BadTrainer, NotFinite
from agileml.params.commit import Declarations, calling, name_of
from agileml.params.layout import Array, Params, specs_of
from agileml.params.view import ChunkView, RowSelection
from agileml.work import WorkPlan, sampled_items

CHUNKS_PER_CLOCK = 10
"""Chunks of the longest shard in a clock, unless the trainer declares the size of a chunk."""

SAMPLE_ITEMS = 2000
"""Default number of items in the loss sample."""


Shard = Sized
"""A fixed part of the input, the same on every node. An optional method `load()` fetches its items
in advance."""


class ParamReader(Protocol):
    """Read access to the parameters."""

    def read(self, name: str, rows: RowSelection = None) -> Array:
        """Values of rows (numbers, a slice, or None for all); read-only."""
        ...


class ParamView(ParamReader, Protocol):
    """The parameters as one chunk sees them."""

    def update(self, name: str, rows: RowSelection, delta: Array, *, owned: bool = False) -> None:
        """Adds to rows. The same chunk reads the sum at once, others later.

        With `owned`, the caller does not use the array afterwards, so that a large one need not be
        copied.
        """
        ...


@dataclass(frozen=True, slots=True)
class Piece:
    """Items lo..hi (exclusive) of a shard, whose type depends on the trainer."""

    shard: Any
    lo: int
    hi: int

    def __len__(self) -> int:
        return self.hi - self.lo


Sample = Sequence[Piece]


@runtime_checkable
class Trainer(Protocol):
    """A model and how to train it.

    `step` must depend on nothing but its arguments: any node may run it, and run it again. A
    trainer may also have the attributes that `Declarations` describes.
    """

    def init(self, rng: np.random.Generator) -> Params:
        """The initial model: named arrays, whose first axis is rows."""
        ...

    def shards(self) -> Sequence[Shard]:
        """The input, as a list that does not depend on the number of nodes."""
        ...

    def step(
        self,
        shard: Any,  # noqa: ANN401 - every trainer has shards of its own type
        lo: int,
        hi: int,
        params: ParamView,
        clock: int,
        rng: np.random.Generator,
    ) -> None:
        """Processes items lo..hi of a shard, reading and updating parameters."""
        ...

    def loss(self, params: ParamReader, sample: Sample) -> float:
        """Mean loss per item of the sample."""
        ...


def plan_of(trainer: Trainer, shards: Sequence[Shard]) -> WorkPlan:
    """Divides the work of every clock into chunks, by the shards' lengths and the trainer's
    declarations.
    """
    declared = Declarations.of(trainer)
    lengths = []
    for number, shard in enumerate(shards):
        where = f"{declared.name}: shard {number}"
        if not hasattr(shard, "__len__"):
            raise BadTrainer(
                f"{where} is {type(shard).__name__}, which has no len(); it is the number of items"
            )
        with calling(f"{declared.name}: len() of shard {number}"):
            lengths.append(len(shard))

    batch = declared.batch
    longest = max(min(length, batch) if batch else length for length in lengths)
    return WorkPlan(
        tuple(lengths), batch, declared.chunk or max(1, -(-longest // CHUNKS_PER_CLOCK))
    )


def shards_of(trainer: Trainer) -> Sequence[Shard]:
    """The checked shards of a trainer."""
    name = name_of(trainer)
    with calling(f"{name}: shards"):
        shards = trainer.shards()
    if not isinstance(shards, Sequence) or isinstance(shards, str | bytes):
        raise BadTrainer(
            f"{name}: shards() returned {type(shards).__name__}; return a list of shards"
        )
    if not shards:
        raise BadTrainer(f"{name}: shards() returned no shards; a job needs at least one")

    return shards


def sample_of(shards: Sequence[Shard], items: int = SAMPLE_ITEMS) -> list[Piece]:
    """The loss sample: the first items of every shard, always the same, one piece per shard."""
    counts = sampled_items([len(shard) for shard in shards], items)
    return [Piece(shard, 0, count) for shard, count in zip(shards, counts, strict=True)]


def init_rng(seed: int) -> np.random.Generator:
    """The generator passed to `init`."""
    return random_generator(seed, (0,))


def chunk_rng(seed: int, clock: int, shard: int, lo: int) -> np.random.Generator:
    """The generator passed to `step`; it depends on nothing but the seed and the chunk."""
    return random_generator(seed, (1, clock, shard, lo))


def random_generator(seed: int, key: tuple[int, ...]) -> np.random.Generator:
    """The generator of a key, independent of those of other keys."""
    # PCG64 by name: numpy may change the generator behind `default_rng`, and with it every model.
    seed_sequence = np.random.SeedSequence(seed, spawn_key=key)
    return np.random.Generator(np.random.PCG64(seed_sequence))


def initial_model(trainer: Trainer, seed: int) -> Params:
    """The checked model of clock 0, in new arrays."""
    name = name_of(trainer)
    with calling(f"{name}: init"):
        params = trainer.init(init_rng(seed))
    if not isinstance(params, Mapping) or not params:
        raise BadTrainer(f"{name}: init returned no parameters; return a dict of numpy arrays")

    specs_of(params)
    for parameter, array in params.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise NotFinite(
                f"{name}, clock 0, parameter {parameter!r}: init returned NaN or infinity"
            )

    return {parameter: np.array(array, order="C") for parameter, array in params.items()}


def preload(trainer: Trainer, shard: Shard, number: int) -> None:
    """Calls a shard's `load()` if it has one."""
    load = getattr(shard, "load", None)
    if callable(load):
        with calling(f"{name_of(trainer)}, shard {number}: load"):
            load()


def run_chunk(
    trainer: Trainer, piece: Piece, number: int, view: ChunkView, clock: int, seed: int
) -> None:
    """Calls `step` on items of shard `number`, if there are any; the view collects the updates."""
    view.begin(clock)
    if not piece:
        return
    rng = chunk_rng(seed, clock, number, piece.lo)
    name = name_of(trainer)
    where = f"{name}, clock {clock}, shard {number}, items {piece.lo} to {piece.hi}"
    with calling(where):
        trainer.step(piece.shard, piece.lo, piece.hi, view, clock, rng)


def loss_of(trainer: Trainer, params: ParamReader, sample: Sample, clock: int) -> float:
    """The checked mean loss over a sample."""
    name = name_of(trainer)
    with calling(f"{name}, clock {clock}: loss"):
        value = trainer.loss(params, sample)
    try:
        loss = float(value)
    except (TypeError, ValueError):
        raise BadTrainer(
            f"{name}, clock {clock}: loss returned {value!r}; it must be a number"
        ) from None

    if not isfinite(loss):
        raise NotFinite(
            f"{name}, clock {clock}: the loss is {loss}; lower the step size, or look for a "
            "division by 0"
        )
    return loss
