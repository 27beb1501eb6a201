"""Small trainers for tests."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agileml.params.layout import Array, Params
from agileml.trainer import ParamReader, ParamView, Sample


class Decades:
    """16 shards whose float32 updates lie over six decades, so that their sum depends on its order.

    It reads what it updates, its own updates included: a chunk that is done on another model gives
    other updates.
    """

    name = "decades"
    rows = 40

    def __init__(self, lengths: Sequence[int] = (20,) * 16, chunk: int = 6, batch: int = 0) -> None:
        self.lengths = lengths
        self.chunk = chunk
        self.batch = batch

    def init(self, rng: np.random.Generator) -> Params:
        return {
            "dense": rng.standard_normal((30, 3)).astype(np.float32),
            "sparse": np.zeros((self.rows, 2), np.float32),
        }

    def shards(self) -> Sequence[range]:
        return [
            range(100 * number, 100 * number + length) for number, length in enumerate(self.lengths)
        ]

    def step(
        self,
        shard: range,
        lo: int,
        hi: int,
        params: ParamView,
        clock: int,
        rng: np.random.Generator,
    ) -> None:
        for item in shard[lo:hi]:
            rows = rng.integers(0, self.rows, 4)
            scale = np.float32(10.0 ** rng.uniform(-3, 3))
            params.update(
                "sparse",
                rows,
                scale * np.sin(params.read("sparse", rows) + np.float32(item + clock)),
            )
        params.update(
            "dense",
            None,
            1e-3 * np.cos(params.read("dense") + params.read("sparse", [lo % self.rows])[0, 0]),
        )

    def loss(self, params: ParamReader, sample: Sample) -> float:
        return float(np.abs(params.read("dense")).mean()) + 0 * len(sample)


class Paced(Decades):
    """A toy model that is slow enough for a fault to strike before the next clocks are done, however
    fast the computer.
    """

    ITEM_SECONDS = 0.0006

    def step(
        self,
        shard: range,
        lo: int,
        hi: int,
        params: ParamView,
        clock: int,
        rng: np.random.Generator,
    ) -> None:
        time.sleep(self.ITEM_SECONDS * (hi - lo))
        super().step(shard, lo, hi, params, clock, rng)


class Gated(Paced):
    """The same, at most `AHEAD` clocks ahead of the script that injects the faults, however busy
    the computer.

    The size of a file is the last clock that the script has seen: `truncate` changes it in one
    step.
    """

    AHEAD = 2

    def __init__(self, gate: str, lengths: Sequence[int]) -> None:
        super().__init__(lengths)
        self.gate = Path(gate)

    def step(
        self,
        shard: range,
        lo: int,
        hi: int,
        params: ParamView,
        clock: int,
        rng: np.random.Generator,
    ) -> None:
        while clock > self.gate.stat().st_size + self.AHEAD:
            time.sleep(0.005)
        super().step(shard, lo, hi, params, clock, rng)


class Slow(Paced):
    """A toy model whose clocks take a second: machines that take seconds to join do so before the
    job is done.
    """

    ITEM_SECONDS = 0.012


class Settled(Decades):
    """Reads and updates the same rows in every clock, a few of many for each item."""

    def step(
        self,
        shard: range,
        lo: int,
        hi: int,
        params: ParamView,
        clock: int,
        rng: np.random.Generator,
    ) -> None:
        for item in shard[lo:hi]:
            rows = self.rows_of(item)
            scale = np.float32(10.0 ** rng.uniform(-3, 3))
            params.update(
                "sparse",
                rows,
                scale * np.sin(params.read("sparse", rows) + np.float32(item + clock)),
            )
        dense = params.read("dense", slice(0, 7))
        params.update("dense", slice(3, 10), np.float32(1e-3) * np.cos(dense))

    def rows_of(self, item: int) -> Array:
        """The rows of an item; two of its four rows belong to it alone."""
        return np.array([item % self.rows, 7 * item % self.rows, 0, item % 3])


class Momentum(Decades):
    """The same with an optimizer that is not additive."""

    slots = 2

    def apply(
        self, name: str, values: Array, update: Array, slots: Sequence[Array], clock: int
    ) -> None:
        velocity, seen = slots
        velocity *= np.float32(0.9)
        velocity += update
        seen += clock
        if name == "dense":
            values += velocity / seen
        else:
            values += np.float32(0.5) * velocity


class Largest(Decades):
    """Keeps the largest value that any item proposes."""

    aggregation = "max"


class Steady(Decades):
    """Reduces rounding errors instead of magnifying them, for sums in any order."""

    def step(
        self,
        shard: range,
        lo: int,
        hi: int,
        params: ParamView,
        clock: int,
        rng: np.random.Generator,
    ) -> None:
        for item in shard[lo:hi]:
            rows = rng.integers(0, self.rows, 4)
            scale = np.float32(10.0 ** rng.uniform(-3, 3))
            pull = np.float32(-1e-3) * params.read("sparse", rows)
            params.update("sparse", rows, pull + scale * np.float32(np.sin(item + clock)))
        params.update("dense", None, np.float32(-1e-3) * params.read("dense") + np.float32(1e-3))


class Scripted:
    """A trainer made of functions; methods without one do nothing."""

    name = "scripted"

    def __init__(self, **functions: Any) -> None:  # noqa: ANN401
        self.functions = functions

    def init(self, rng: np.random.Generator) -> Params:
        made: Params = self.functions.get("init", lambda _: {"w": np.zeros(4)})(rng)
        return made

    def shards(self) -> Sequence[range]:
        shards: Sequence[range] = self.functions.get("shards", lambda: [range(10)])()
        return shards

    def step(
        self,
        shard: range,
        lo: int,
        hi: int,
        params: ParamView,
        clock: int,
        rng: np.random.Generator,
    ) -> None:
        self.functions.get("step", lambda *_: None)(shard, lo, hi, params, clock, rng)

    def loss(self, params: ParamReader, sample: Sample) -> float:
        loss: float = self.functions.get("loss", lambda *_: 1.0)(params, sample)
        return loss
