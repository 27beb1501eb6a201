"""How often each shard counts if one of four workers always takes three times as long, and what the
model becomes.

Two trainers: logistic regression, and the mean of numbers from 0 to 15, each in a shard of its own.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from agileml import train
from agileml.apps.mlr import LogisticRegression
from agileml.core.events import Iteration
from agileml.engines.chaos import Chaos
from agileml.engines.sim import SimulatedEngine
from agileml.engines.sim.job import Machines
from agileml.job import Trained
from agileml.params.layout import Params
from agileml.policies.stragglers import Stragglers
from agileml.slowdowns import Replay
from agileml.trainer import ParamReader, ParamView, Sample, Trainer

CLOCKS = 150
SHARDS = 16
MEASURES = {
    "none": Stragglers(),
    "1 worker": Stragglers(backup_workers=1),
    "DBW": Stragglers(backup_workers=True),
    "auto": Stragglers(backup_workers="auto"),
}
"""Backup workers by name."""
ONE_SLOW = Chaos(slowdowns=(Replay(((1.0,), (1.0,), (1.0,), (3.0,))),))


class Mean:
    """The mean of the numbers 0 to 15; each shard has one of them."""

    name = "mean"
    chunk = 1

    def init(self, rng: np.random.Generator) -> Params:
        """Zero."""
        del rng
        return {"mean": np.zeros((1, 1))}

    def shards(self) -> list[range]:
        """Ten items each, which all have the number with which they begin."""
        return [range(number, number + 10) for number in range(SHARDS)]

    def step(
        self,
        shard: range,
        lo: int,
        hi: int,
        params: ParamView,
        clock: int,
        rng: np.random.Generator,
    ) -> None:
        """Goes some of the way to the number."""
        del clock, rng
        params.update(
            "mean", None, 0.05 * (hi - lo) / (10 * SHARDS) * (shard.start - params.read("mean"))
        )

    def loss(self, params: ParamReader, sample: Sample) -> float:
        """How far it is from the mean of all numbers."""
        del sample
        return float(abs(params.read("mean")[0, 0] - (SHARDS - 1) / 2))


def played(trainer: Trainer, measure: Stragglers) -> tuple[Trained, list[Iteration]]:
    """A job of four workers; the last one is slow."""
    log: list[Iteration] = []
    done = train(
        trainer, "1+3", SimulatedEngine(Machines(seconds_per_item=0.001)), clocks=CLOCKS, chaos=ONE_SLOW,
        listener=log.append, stage=1, stragglers=measure, partitions=1,
    )  # fmt: skip
    return done, log


def run() -> str:
    """The table."""
    lines = [
        f"## One worker of four is three times slower: chunks that count in {CLOCKS} clocks", "",
        "| measure | seconds | loss | chunks of each shard, least to most | mean of 0 to 15 |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]  # fmt: skip
    for name, measure in MEASURES.items():
        (done, log), (mean, _) = (
            played(trainer, measure) for trainer in (LogisticRegression(), Mean())
        )
        chunks = Counter[int]()
        for clock in log:
            chunks.update({shard: last - first for shard, first, last in clock.accepted})
        counts = [chunks[shard] for shard in range(SHARDS)]
        lines.append(
            f"| {name} | {sum(clock.seconds for clock in log):.0f} | {done.loss:.4f} |"
            f" {min(counts)} to {max(counts)} | {mean.model['mean'][0, 0]:.3f} |"
        )
    return "\n".join(lines) + "\n"
