"""The cost of checkpoints of every clock in stage 1, and their savings when the only reliable node
is killed.

`python -m bench agileml_checkpoints` prints the section. Work is emulated by sleeping; everything
else is real.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from agileml.apps.registry import TrainerSource
from agileml.core.events import Iteration
from agileml.engines.chaos import Chaos, FaultSchedule
from agileml.engines.local import LocalEngine
from agileml.job import Stopping, TrainingJob
from agileml.params.layout import Params
from agileml.policies.stage import FixedStage
from agileml.roles.node import JobSettings
from agileml.trainer import ParamReader, ParamView, Sample
from bench.harness import Row, shown, table

SHARDS = 4
CHUNK_SECONDS = 0.25
"""So that an iteration of four chunks on two nodes takes half a second and what its messages
take."""

COLUMNS = 1024
MODELS_MIB = (4, 64)
CLOCKS, WARM_CLOCKS = 12, 2
REPETITIONS = 3
LOST_AFTER = 8

Floats = NDArray[np.float32]


@dataclass
class Sleeper:
    """Each of four chunks sleeps, and changes the same quarter of the rows; the next clock changes
    the next quarter.
    """

    mib: int = 4
    name: str = "sleeper"
    chunk: int = 1
    _delta: Floats = field(default_factory=lambda: np.zeros(0, np.float32), repr=False)

    @property
    def rows(self) -> int:
        """Rows of the model."""
        return (self.mib << 20) // (4 * COLUMNS)

    def init(self, rng: np.random.Generator) -> Params:
        """Zeros."""
        del rng
        return {"w": np.zeros((self.rows, COLUMNS), np.float32)}

    def shards(self) -> Sequence[range]:
        """Each shard is one item."""
        return [range(1)] * SHARDS

    def step(
        self,
        shard: range,
        lo: int,
        hi: int,
        params: ParamView,
        clock: int,
        rng: np.random.Generator,
    ) -> None:
        """Sleeps, and adds a number to the rows of this clock."""
        del shard, lo, hi, rng
        time.sleep(CHUNK_SECONDS)
        quarter = self.rows // SHARDS
        if not len(self._delta):
            self._delta = np.full((quarter, COLUMNS), 1e-3, np.float32)
        first = clock % SHARDS * quarter
        params.update("w", np.arange(first, first + quarter), self._delta)

    def loss(self, params: ParamReader, sample: Sample) -> float:
        """None."""
        del params, sample
        return 0.0


def _job(mib: int, every: int) -> TrainingJob:
    source = TrainerSource(f"bench.agileml_checkpoints:{Sleeper.__name__}", {"mib": mib})
    settings = JobSettings(loss_sample=0)
    job = TrainingJob(source, 1, 1, Stopping(clocks=CLOCKS), settings, stage=FixedStage(1))
    return replace(job, checkpoint_every=every, heartbeat_timeout=20.0)


def _iterations(mib: int, every: int, chaos: str = "") -> list[Iteration]:
    log: list[Iteration] = []
    LocalEngine().run(
        _job(mib, every), FaultSchedule(Chaos.parse(chaos)), log.append, lambda _: None
    )
    return log


def _cost(mib: int) -> Row:
    """Median iterations with and without checkpoints, in turns."""
    runs: dict[int, list[float]] = {1: [], 0: []}
    for _ in range(REPETITIONS):
        for every, medians in runs.items():
            medians.append(
                statistics.median(
                    iteration.seconds for iteration in _iterations(mib, every)[WARM_CLOCKS:]
                )
            )
    ratios = [saved / plain - 1 for saved, plain in zip(runs[1], runs[0], strict=True)]
    ours, plain = (statistics.median(runs[every]) for every in (1, 0))
    what = (
        f"iteration, {mib} MiB model, a quarter changes per clock: a checkpoint of every clock "
        "against none"
    )
    return Row(
        what,
        shown(ours),
        shown(plain),
        f"{statistics.median(ratios):+.1%} (worst {max(ratios):+.1%})",
    )


def _loss(mib: int) -> Row:
    """Clocks that are repeated once the reliable node is lost."""
    chaos = f"at clock {LOST_AFTER} kill 1 reliable"
    redone = [
        sum(iteration.redone for iteration in _iterations(mib, every, chaos)) / SHARDS
        for every in (1, 0)
    ]
    what = (
        f"iterations redone when the reliable node is killed after clock {LOST_AFTER}, model of "
        f"{mib} MiB"
    )
    return Row(what, f"{redone[0]:.2g}", f"{redone[1]:.2g}")


def run() -> str:
    """The section of build/benchmarks.md."""
    rows = [row for mib in MODELS_MIB for row in (_cost(mib), _loss(mib))]
    remark = (
        f"1 + 1 nodes in stage 1, on this computer's disk; work is {CHUNK_SECONDS:g} s of sleep "
        f"for each of {SHARDS} chunks. Medians of {REPETITIONS} runs in turns."
    )
    return table("AgileML: checkpoints of every clock", remark, rows)
