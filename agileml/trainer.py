"""What a user writes: a `Trainer`. And the contract around it: its work, its random generators, its declarations.

Clocks are numbered from 1; clock 0 is the model that `init` returned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Protocol, runtime_checkable

import numpy as np

from agileml.errors import BadTrainer, NotFinite
from agileml.params.declarations import Declarations, call, name_of
from agileml.params.layout import Array, Params, specs_of
from agileml.params.view import ChunkView, Rows
from agileml.work.plan import WorkPlan

CHUNKS_PER_CLOCK = 10
"""Into how many chunks the longest shard's items of a clock are cut, unless the trainer declares a chunk."""

SAMPLE_ITEMS = 2000
"""On how many items the loss is followed, unless the job says otherwise."""


class Shard(Protocol):
    """A fixed part of the input, the same on every node. It may have a `load()` that fetches its items ahead of use."""

    def __len__(self) -> int: ...


class ParamReader(Protocol):
    """Reading access to the parameters."""

    def read(self, name: str, rows: Rows = None) -> Array:
        """Values of rows (numbers, a slice, None for all); not to be written to."""
        ...


class ParamView(ParamReader, Protocol):
    """The parameters as one chunk sees them."""

    def update(self, name: str, rows: Rows, delta: Array) -> None:
        """Adds to rows; the same chunk reads the sum, others later."""
        ...


@dataclass(frozen=True, slots=True)
class Piece:
    """Items lo..hi (exclusive) of a shard; `Any`, as every trainer has shards of its own type."""

    shard: Any
    lo: int
    hi: int

    def __len__(self) -> int:
        return self.hi - self.lo


Sample = Sequence[Piece]


@runtime_checkable
class Trainer(Protocol):
    """A model and how it is trained.

    `step` must depend on nothing but its arguments: any node may be asked to do it, or to do it again. It may further
    have the attributes and methods that `Declarations` describes.
    """

    def init(self, rng: np.random.Generator) -> Params:
        """The initial model: named arrays, whose first axis is rows."""
        ...

    def shards(self) -> Sequence[Shard]:
        """The input, cut into the same list whatever the number of nodes."""
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
        """Works through items lo..hi of a shard, reading and updating parameters."""
        ...

    def loss(self, params: ParamReader, sample: Sample) -> float:
        """Mean loss per item of the sample."""
        ...


def plan_of(trainer: Trainer, shards: Sequence[Shard]) -> WorkPlan:
    """The chunks of every clock, from the shards' lengths and the trainer's declarations."""
    declared = Declarations.of(trainer)
    if not shards:
        raise BadTrainer(f"{declared.name}: shards() returned none; a job needs at least one")
    lengths = tuple(len(shard) for shard in shards)
    batch = declared.batch
    longest = max(min(length, batch) if batch else length for length in lengths)
    return WorkPlan(lengths, batch, declared.chunk or max(1, -(-longest // CHUNKS_PER_CLOCK)))


def sample_of(shards: Sequence[Shard], items: int = SAMPLE_ITEMS) -> list[Piece]:
    """The items on which the loss is followed: the first ones of every shard, one piece per shard, always the same."""
    each = -(-items // len(shards))
    return [Piece(shard, 0, min(each, len(shard))) for shard in shards]


def init_rng(seed: int) -> np.random.Generator:
    """The generator that `init` is given."""
    return _generator(seed, (0,))


def chunk_rng(seed: int, clock: int, shard: int, lo: int) -> np.random.Generator:
    """The generator of a chunk: of nothing but what the chunk is."""
    return _generator(seed, (1, clock, shard, lo))


def _generator(seed: int, key: tuple[int, ...]) -> np.random.Generator:
    # PCG64 by name: numpy may change what `default_rng` stands for, and with it every model.
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key)))


def initial_model(trainer: Trainer, seed: int) -> Params:
    """The model of clock 0, checked, in arrays of its own."""
    name = name_of(trainer)
    params = call(f"{name}: init", lambda: trainer.init(init_rng(seed)))
    if not isinstance(params, Mapping) or not params:
        raise BadTrainer(f"{name}: init returned no parameters; return a dict of named numpy arrays")
    specs_of(params)
    for parameter, array in params.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise NotFinite(f"{name}, clock 0, parameter {parameter!r}: init returned NaN or infinity")
    return {parameter: np.array(array, order="C") for parameter, array in params.items()}


def preload(shard: Shard) -> None:
    """Has a shard fetch its items ahead of use, where it can."""
    load = getattr(shard, "load", None)
    if callable(load):
        load()


def run_chunk(trainer: Trainer, piece: Piece, number: int, view: ChunkView, clock: int, seed: int) -> None:
    """One call of `step` on items of shard `number`, unless there are none; the view holds its updates afterwards."""
    view.begin(clock)
    if not piece:
        return
    rng = chunk_rng(seed, clock, number, piece.lo)
    name = name_of(trainer)
    where = f"{name}, clock {clock}, shard {number}, items {piece.lo} to {piece.hi}"
    call(where, lambda: trainer.step(piece.shard, piece.lo, piece.hi, view, clock, rng))


def loss_of(trainer: Trainer, params: ParamReader, sample: Sample, clock: int) -> float:
    """The trainer's mean loss over a sample, checked."""
    name = name_of(trainer)
    value = call(f"{name}, clock {clock}: loss", lambda: trainer.loss(params, sample))
    try:
        loss = float(value)
    except (TypeError, ValueError):
        raise BadTrainer(f"{name}, clock {clock}: loss returned {value!r}; it must be a number") from None
    if not isfinite(loss):
        raise NotFinite(f"{name}, clock {clock}: the loss is {loss}; lower the step size, or look for a division by 0")
    return loss
