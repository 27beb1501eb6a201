"""AgileML's stages and elasticity in virtual time, with the network of the dissertation's
Cluster-A.

The job is the matrix factorization of Netflix. Its arrays are numbers, and its messages weigh what
the real ones would. One number is fitted: the computing of a worker, so that stage 2 at 15:1 takes
1.18 times as long as the traditional server.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from agileml.core.events import ControllerSettings
from agileml.engines.sim.fleet import Simulation
from agileml.engines.sim.job import Machines
from agileml.engines.sim.network import HEADER_BYTES, Network
from agileml.params.layout import Params
from agileml.policies.stage import StageByRatio, Thresholds
from agileml.protocol.messages import (
    Collected,
    Handover,
    Patch,
    PendingPush,
    Push,
    Restore,
    Snapshot,
)
from agileml.roles.node import JobSettings
from agileml.trainer import ParamReader, ParamView, Sample
from spotctl.lab.papers.results import Experiment, FigureValues, PaperData

GIGABIT = 125e6
"""Bytes a second of a network card, in each direction."""

USERS, MOVIES, RANK = 480_189, 17_770, 1000
"""The Netflix ratings, factored as in section 2.3 of the dissertation."""

MOVIE_BYTES = MOVIES * RANK * 4
USER_BYTES = USERS * RANK * 4
SHARDS = 4032
"""So that 64, 63, 16 and 8 workers all get equal shares."""

SHARE = 1 / 64
"""The share of the users' rows that a worker among 64 reads and writes."""

COMPUTE_SECONDS = 19.0
"""Computing of one of 64 workers in an iteration: the one number that is fitted, to 1.18 in stage 2
at 15:1."""

CLOCKS = 8
STEADY = 4
"""Clocks at the end that are counted."""


# -- the job


@dataclass(frozen=True)
class Flat:
    """Every step reads and updates every row; what is simulated is who sends what to whom."""

    shard_count: int
    rows: int
    name: str = "flat"
    chunk: int = 1

    def init(self, rng: np.random.Generator) -> Params:
        """One number a partition."""
        del rng
        return {"w": np.zeros((self.rows, 1), np.float32)}

    def shards(self) -> Sequence[range]:
        """All alike, of one item."""
        return [range(1)] * self.shard_count

    def step(
        self,
        shard: range,
        lo: int,
        hi: int,
        params: ParamView,
        clock: int,
        rng: np.random.Generator,
    ) -> None:
        """Adds the same to every row."""
        del shard, lo, hi, clock, rng
        change = np.full_like(params.read("w"), 1e-3)
        params.update("w", None, change)

    def loss(self, params: ParamReader, sample: Sample) -> float:
        """None."""
        del params, sample
        return 0.0


@dataclass(frozen=True)
class Netflix:
    """Bytes of messages of a matrix factorization whose factors are cut into partitions.

    A worker reads and updates every movie's row and those of its own users; a backup is sent every
    row that changed, which is all of them. `whole`: readers are sent whole partitions, not the rows
    that they use.
    """

    partitions: int
    shards: int
    whole: bool = False

    def __call__(self, message: object) -> int:
        """Bytes of a message."""
        rows = 0.0
        match message:
            case Push():
                rows = len(message.parts) * self._updates(message)
            case Snapshot():
                rows = MOVIE_BYTES + USER_BYTES * (1 if self.whole else SHARE)
            case Patch() | Restore() | Collected():
                rows = MOVIE_BYTES + USER_BYTES
            case Handover():
                versions = len(message.versions) * (MOVIE_BYTES + USER_BYTES)
                rows = versions + sum(map(self._updates, message.pending))

        return HEADER_BYTES + round(rows / self.partitions)

    def _updates(self, message: Push | PendingPush) -> float:
        covered = sum(last - first for _, first, last in message.covers)
        return MOVIE_BYTES + USER_BYTES * covered / self.shards


# -- stages

_STAGES: dict[str, tuple[int, int, int]] = {
    "stage 1, 32 + 32 machines": (32, 32, 1),
    "stage 1, 4 + 60 machines": (4, 60, 1),
    "stage 2, 8 + 56 machines": (8, 56, 2),
    "stage 2, 4 + 60 machines": (4, 60, 2),
    "stage 2, 1 + 63 machines": (1, 63, 2),
    "stage 3, 1 + 63 machines": (1, 63, 3),
}
"""Reliable and transient machines, and the stage."""
ALWAYS = {1: Thresholds(math.inf, math.inf), 2: Thresholds(0, math.inf), 3: Thresholds(0, 0)}
"""Thresholds that keep a job in a stage."""


def iteration_seconds(reliable: int, transient: int, stage: int, *, whole: bool = False) -> float:
    """The time of an iteration once things run evenly, with a partition for each server."""
    policy = StageByRatio(ALWAYS[stage])
    partitions = reliable if stage == 1 else math.ceil(transient / 2)
    settings = ControllerSettings(reliable, transient, CLOCKS, policy)
    simulation = netflix(settings, Netflix(partitions, SHARDS, whole))
    simulation.run()
    steady = simulation.log[-STEADY:]
    return statistics.median(iteration.seconds for iteration in steady)


def netflix(
    settings: ControllerSettings, job: Netflix, observe: Callable[[Simulation], None] | None = None
) -> Simulation:
    seconds, network = COMPUTE_SECONDS * 64 / job.shards, Network(GIGABIT, weigh=job)
    machines, trainer = Machines(seconds, network=network), Flat(job.shards, job.partitions)
    return simulated(trainer, settings, machines, observe)


def simulated(
    trainer: Flat,
    settings: ControllerSettings,
    machines: Machines,
    observe: Callable[[Simulation], None] | None = None,
) -> Simulation:
    """A simulation whose machines have all joined."""
    job = JobSettings(partitions=trainer.rows, loss_sample=0)
    simulation = Simulation(trainer, settings, job, machines, observe=observe)
    for number in range(settings.reliable + settings.transient):
        simulation.join(reliable=number < settings.reliable)
    return simulation


def _stages(_: int, __: PaperData, *, whole: bool = False) -> FigureValues:
    traditional = iteration_seconds(64, 0, 1, whole=whole)
    values = dict[str, float]()
    for name, setting in _STAGES.items():
        seconds = iteration_seconds(*setting, whole=whole)
        values[f"{name}: time over traditional"] = seconds / traditional

    third, second = (iteration_seconds(8, 8, stage, whole=whole) for stage in (3, 2))
    values["8 + 8 machines: time of stage 3 over stage 2"] = third / second
    return values


# -- elasticity

JOIN_AFTER, LEAVE_AFTER, ITERATIONS = 10, 34, 45
WARNING_SECONDS = 120.0
FEWER_SHARDS = 960
"""Still even over 4 and over 64 workers."""


@dataclass
class _Comings:
    """4 reliable machines, 60 more in iteration 11, which are warned at the start of iteration 35
    (Figure 4.15).
    """

    warning: float
    came: bool = False
    warned: bool = False

    def __call__(self, simulation: Simulation) -> None:
        """Looks how far the job is."""
        clock = len(simulation.log)
        if clock == JOIN_AFTER and not self.came:
            self.came = True
            for _ in range(60):
                simulation.join(reliable=False, loading=COMPUTE_SECONDS)

        if clock == LEAVE_AFTER and not self.warned:
            self.warned = True
            for name in list(simulation.nodes):
                if name.startswith("t"):
                    simulation.warn(name, self.warning)


def _elasticity(_: int, __: PaperData, *, warning: float = WARNING_SECONDS) -> FigureValues:
    """The iterations in which machines come and go, against those on the 4 machines that stay."""
    settings = ControllerSettings(4, 0, ITERATIONS)
    simulation = netflix(settings, Netflix(32, FEWER_SHARDS), _Comings(warning))
    simulation.run()
    seconds = [iteration.seconds for iteration in simulation.log]
    before = statistics.median(seconds[: JOIN_AFTER - 1])
    after = statistics.median(seconds[LEAVE_AFTER + 1 :])
    values = {f"seconds @ {number}": time for number, time in enumerate(seconds, 1)}
    values["iteration in which 60 machines join, over those on 4"] = seconds[JOIN_AFTER] / before
    values["iteration in which 60 machines leave, over those on 4"] = seconds[LEAVE_AFTER] / after

    return values


RESULTS = (
    Experiment(
        "agileml-stages",
        _stages,
        80.0,
        "Simulated: servers send the rows that a worker uses, and cards of 1 Gbit/s are the only "
        "limit of the network.",
        seeds=1,
        cause="servers that send whole partitions",
        switched=partial(_stages, whole=True),
    ),
    Experiment(
        "agileml-elasticity",
        _elasticity,
        12.0,
        "Simulated: within the two minutes of AWS's warning, machines finish their share of the "
        "iteration before they go, so it takes less time than on the four that stay.",
        seeds=1,
        cause="machines that go 5 seconds after the warning, as often as the text looks for one "
        "(H1525)",
        switched=partial(_elasticity, warning=5.0),
        axes=("iteration", "seconds"),
    ),
)
