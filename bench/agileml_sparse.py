"""Workers that receive only the rows they read, against the same job whose workers are sent whole
partitions.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agileml.apps.mf import MatrixFactorization, RatingShard
from agileml.apps.registry import TrainerSource
from agileml.core.events import ControllerSettings, Iteration
from agileml.engines.chaos import QUIET
from agileml.engines.local import LocalEngine
from agileml.engines.sim.fleet import Simulation
from agileml.engines.sim.job import Machines
from agileml.engines.sim.network import Network
from agileml.job import Stopping, TrainingJob
from agileml.roles.node import JobSettings
from agileml.trainer import ParamView
from bench.harness import Row, shown, table

ARGUMENTS = {"users": 60_000, "items": 1_000, "rank": 64, "ratings": 60_000, "parts": 32}
PARTITIONS = 8
NODES = ((1, 3), (1, 7))
SIMULATED = (4, 28)
GIGABIT = 125e6
"""Bytes a second of a network card, in each direction."""

CLOCKS, STEADY = 14, 5
"""The first pass is made to learn what is read; clocks from `STEADY` on are counted."""

REPETITIONS = 5
SETTINGS = JobSettings(partitions=PARTITIONS, loss_sample=0)


@dataclass(frozen=True, slots=True)
class Wholesale(MatrixFactorization):
    """A matrix factorization that looks at every row, and so has to be sent every row."""

    def step(
        self,
        shard: RatingShard,
        lo: int,
        hi: int,
        params: ParamView,
        clock: int,
        rng: np.random.Generator,
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

    @classmethod
    def of(cls, log: Sequence[Iteration]) -> Measured:
        """The quickest of a job: others at work on the machine only ever slow it down."""
        steady = log[STEADY - 1 :]
        return cls(
            min(iteration.seconds for iteration in steady),
            max(iteration.sums.pulled for iteration in steady),
        )


TRAINERS = (
    TrainerSource("mf", ARGUMENTS),
    TrainerSource("bench.agileml_sparse:Wholesale", ARGUMENTS),
)


def _played(source: TrainerSource, nodes: tuple[int, int]) -> Measured:
    log: list[Iteration] = []
    job = TrainingJob(source, *nodes, Stopping(clocks=CLOCKS), SETTINGS, heartbeat_timeout=20.0)
    LocalEngine().run(job, QUIET, log.append)
    return Measured.of(log)


def _simulated(source: TrainerSource) -> Measured:
    reliable, transient = SIMULATED
    settings = ControllerSettings(reliable, transient, CLOCKS)
    simulation = Simulation(source.load(), settings, SETTINGS, Machines(network=Network(GIGABIT)))
    for number in range(reliable + transient):
        simulation.join(reliable=number < reliable)
    simulation.run()
    return Measured.of(simulation.log)


def _rows(where: str, runs: Sequence[tuple[Measured, Measured]]) -> list[Row]:
    rows, whole = (max(run.pulled for run in measured) for measured in zip(*runs, strict=True))
    ours, other = (min(run.seconds for run in measured) for measured in zip(*runs, strict=True))
    ratio = statistics.median(own.seconds / against.seconds for own, against in runs)
    return [
        Row(
            f"bytes pulled in an iteration, {where}",
            _megabytes(rows),
            _megabytes(whole),
            f"{rows / whole:.2f}",
        ),
        Row(f"time of an iteration, {where}", shown(ours), shown(other), f"{ratio:.2f}"),
    ]


def _megabytes(count: float) -> str:
    return f"{count / 1e6:.2f} MB"


def run() -> str:
    """Measures and returns the section."""
    rows = []
    for nodes in NODES:
        runs = [
            (_played(TRAINERS[0], nodes), _played(TRAINERS[1], nodes)) for _ in range(REPETITIONS)
        ]
        rows += _rows(f"{nodes[0]} + {nodes[1]} nodes", runs)
    simulated = _simulated(TRAINERS[0]), _simulated(TRAINERS[1])
    rows += _rows(
        f"{SIMULATED[0]} + {SIMULATED[1]} nodes in virtual time, with 1 Gbit/s", [simulated]
    )
    return table(
        "AgileML: rows that are read instead of whole partitions",
        "Matrix factorization of {users:,} users and {items:,} items, rank {rank}, {ratings:,} "
        "ratings, each of {parts}"
        " shards with the ratings of its own users".format(**ARGUMENTS)
        + f"; in {PARTITIONS} partitions. Next to it is the"
        f" same trainer that looks at every row, which is sent whole partitions. Iterations from "
        f"the {STEADY}th on, of"
        f" which the quickest counts; {REPETITIONS} repetitions, in turns; the ratio of times is "
        "the median of those within a repetition.",
        rows,
    )


if __name__ == "__main__":
    print(run())
