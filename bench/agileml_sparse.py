"""Workers that are sent the rows they read, beside the same job whose workers are sent whole partitions."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import numpy as np

from agileml.apps.mf import MatrixFactorization, RatingShard
from agileml.apps.registry import TrainerSource
from agileml.core.events import Iteration
from agileml.engines.local import LocalEngine
from agileml.job import Job
from agileml.node import JobSettings
from agileml.script import Quiet
from agileml.stopping import Stopping
from agileml.trainer import ParamView
from bench.harness import Row, shown, table

USERS, ITEMS, RANK, RATINGS, SHARDS = 60_000, 1_000, 64, 60_000, 16
PARTITIONS = 8
NODES = ((1, 3), (1, 7))
CLOCKS, STEADY = 10, 5
"""The first pass is made to learn what is read; clocks from `STEADY` on are counted."""

REPETITIONS = 5


@dataclass(frozen=True, slots=True)
class Wholesale(MatrixFactorization):
    """The same factorisation that looks at every row, and so has to be sent every row."""

    def step(
        self, shard: RatingShard, lo: int, hi: int, params: ParamView, clock: int, rng: np.random.Generator
    ) -> None:
        """One gradient step."""
        for name in ("users", "items"):
            params.read(name)
        MatrixFactorization.step(self, shard, lo, hi, params, clock, rng)


@dataclass(frozen=True)
class Measured:
    """A steady iteration."""

    seconds: float
    pulled: float


def _measured(target: str, nodes: tuple[int, int]) -> Measured:
    arguments = {"users": USERS, "items": ITEMS, "rank": RANK, "ratings": RATINGS, "parts": SHARDS}
    settings = JobSettings(partitions=PARTITIONS, loss_sample=0)
    log: list[Iteration] = []
    job = Job(TrainerSource(target, arguments), *nodes, Stopping(clocks=CLOCKS), settings, heartbeat_timeout=20.0)
    LocalEngine().play(job, Quiet(), log.append)
    steady = log[STEADY - 1 :]
    return Measured(
        statistics.median(one.seconds for one in steady), statistics.median(one.sums.pulled for one in steady)
    )


def _rows(nodes: tuple[int, int]) -> list[Row]:
    runs = [(_measured("mf", nodes), _measured("bench.agileml_sparse:Wholesale", nodes)) for _ in range(REPETITIONS)]
    rows, whole = (min(each.pulled for each in them) for them in zip(*runs, strict=True))
    ours, other = (statistics.median(each.seconds for each in them) for them in zip(*runs, strict=True))
    faster = statistics.median(one.seconds / beside.seconds for one, beside in runs)
    footprint = f"{nodes[0]} + {nodes[1]} nodes"
    return [
        Row(f"bytes pulled in an iteration, {footprint}", _megabytes(rows), _megabytes(whole), f"{rows / whole:.2f}"),
        Row(f"time of an iteration, {footprint}", shown(ours), shown(other), f"{faster:.2f}"),
    ]


def _megabytes(count: float) -> str:
    return f"{count / 1e6:.2f} MB"


def run() -> str:
    """Measures and returns the section."""
    return table(
        "AgileML in processes: rows that are read instead of whole partitions",
        f"Matrix factorisation of {USERS:,} users and {ITEMS:,} items, rank {RANK}, {RATINGS:,} ratings, every shard"
        f" with the ratings of its own users, in {PARTITIONS} partitions; beside it the same trainer that looks at"
        f" every row, which is sent whole partitions. Iterations from the {STEADY}th on; medians of {REPETITIONS}"
        " repetitions, in turns; the ratio of times is taken within a repetition.",
        [row for nodes in NODES for row in _rows(nodes)],
    )


if __name__ == "__main__":
    print(run())
