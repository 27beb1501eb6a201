"""The simulated engine: how large a job it takes, and the dissertation's stage figures with its 1 Gbit/s network."""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from agileml.core.events import ControllerSettings, Iteration
from agileml.engines.sim.job import Machines
from agileml.engines.sim.network import HEADER_BYTES, Network
from agileml.engines.sim.simulation import Simulation
from agileml.params.layout import Params
from agileml.policies.stage import StageByRatio, Thresholds
from agileml.protocol.messages import Collected, Handover, Patch, PendingPush, Push, Restore, Snapshot
from agileml.roles.node import JobSettings
from agileml.trainer import ParamReader, ParamView, Sample
from bench.harness import Row, plot_iterations, shown, table

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
"""Computing of one of 64 workers in an iteration: the one number that is fitted, to 1.18 in stage 2 at 15:1."""

CLOCKS = 8
STEADY = 4
"""Clocks at the end that are counted."""


# -- a job whose arrays are numbers and whose messages weigh what the real ones would ----------------------------------


@dataclass(frozen=True)
class Block:
    """A shard of one item."""

    def __len__(self) -> int:
        return 1


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

    def shards(self) -> Sequence[Block]:
        """All alike."""
        return [Block()] * self.shard_count

    def step(self, shard: Block, lo: int, hi: int, params: ParamView, clock: int, rng: np.random.Generator) -> None:
        """Adds the same to every row."""
        del shard, lo, hi, clock, rng
        params.update("w", None, np.full_like(params.read("w"), 1e-3))

    def loss(self, params: ParamReader, sample: Sample) -> float:
        """None."""
        del params, sample
        return 0.0


@dataclass(frozen=True)
class Netflix:
    """Bytes of messages of a matrix factorization whose factors are cut into partitions.

    A worker reads and updates every movie's row and those of its own users; a backup is sent every row that changed,
    which is all of them. `whole`: readers are sent whole partitions, not the rows that they use.
    """

    partitions: int
    shards: int
    whole: bool = False

    def __call__(self, message: object) -> int:
        """Bytes of a message."""
        return HEADER_BYTES + round(self._rows_of(message) / self.partitions)

    def _rows_of(self, message: object) -> float:
        match message:
            case Push():
                return len(message.parts) * self._updates(message)
            case Snapshot():
                return MOVIE_BYTES + USER_BYTES * (1 if self.whole else SHARE)
            case Patch() | Restore() | Collected():
                return MOVIE_BYTES + USER_BYTES
            case Handover():
                versions = len(message.versions) * (MOVIE_BYTES + USER_BYTES)
                return versions + sum(map(self._updates, message.pending))
        return 0.0

    def _updates(self, message: Push | PendingPush) -> float:
        return MOVIE_BYTES + USER_BYTES * sum(last - first for _, first, last in message.covers) / self.shards


# -- stages ------------------------------------------------------------------------------------------------------------

ALWAYS = {1: Thresholds(math.inf, math.inf), 2: Thresholds(0, math.inf), 3: Thresholds(0, 0)}
"""Thresholds that keep a job in a stage."""


@dataclass(frozen=True)
class Setting:
    """A job of a figure. `paper` is its time per iteration relative to the traditional server, if the text gives it."""

    label: str
    reliable: int
    transient: int
    stage: int
    paper: str
    whole: bool = False

    @property
    def partitions(self) -> int:
        """One for each server."""
        return self.reliable if self.stage == 1 else -(-self.transient // 2)


TRADITIONAL = Setting("64 machines, all reliable, all serve and work (traditional)", 64, 0, 1, "1")
STAGES = [
    Setting("stage 1, 32 + 32 (1:1)", 32, 32, 1, "negligible"),
    Setting("stage 1, 16 + 48 (3:1)", 16, 48, 1, "slower"),
    Setting("stage 1, 8 + 56 (7:1)", 8, 56, 1, "slower"),
    Setting("stage 1, 4 + 60 (15:1)", 4, 60, 1, "1.85"),
    Setting("stage 2, 8 + 56 (7:1)", 8, 56, 2, "1"),
    Setting("stage 2, 4 + 60 (15:1)", 4, 60, 2, "1.18 (fitted)"),
    Setting("stage 2, 1 + 63 (63:1)", 1, 63, 2, "about 2"),
    Setting("stage 3, 1 + 63 (63:1)", 1, 63, 3, "1"),
]
EVEN = [Setting(f"stage {stage}, 8 + 8 (1:1)", 8, 8, stage, "") for stage in (2, 3)]


def iteration_seconds(setting: Setting) -> float:
    """The time of an iteration once things run evenly."""
    policy = StageByRatio(ALWAYS[setting.stage])
    settings = ControllerSettings(setting.reliable, setting.transient, CLOCKS, policy)
    simulation = _netflix(settings, Netflix(setting.partitions, SHARDS, setting.whole))
    simulation.run()
    return statistics.median(iteration.seconds for iteration in simulation.log[-STEADY:])


def _netflix(
    settings: ControllerSettings, netflix: Netflix, observe: Callable[[Simulation], None] | None = None
) -> Simulation:
    machines = Machines(COMPUTE_SECONDS * 64 / netflix.shards, network=Network(GIGABIT, weigh=netflix))
    return _simulation(Flat(netflix.shards, netflix.partitions), settings, machines, observe)


def _simulation(
    trainer: Flat,
    settings: ControllerSettings,
    machines: Machines,
    observe: Callable[[Simulation], None] | None = None,
) -> Simulation:
    job = JobSettings(partitions=trainer.rows, loss_sample=0)
    simulation = Simulation(trainer, settings, job, machines, observe=observe)
    for number in range(settings.reliable + settings.transient):
        simulation.join(reliable=number < settings.reliable)
    return simulation


# -- elasticity --------------------------------------------------------------------------------------------------------

JOIN_AFTER, LEAVE_AFTER, ITERATIONS = 10, 34, 45
WARNING_SECONDS = 120.0
FEWER_SHARDS = 960
"""Still even over 4 and over 64 workers."""


@dataclass
class Comings:
    """4 reliable machines, 60 more in iteration 11, which are warned at the start of iteration 35 (figure 4.15)."""

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
                    simulation.warn(name, WARNING_SECONDS)


def elasticity() -> list[Iteration]:
    """Figure 4.15: a log of iterations with machines that come and go."""
    simulation = _netflix(ControllerSettings(4, 0, ITERATIONS), Netflix(32, FEWER_SHARDS), Comings())
    simulation.run()
    return simulation.log


def blips(seconds: Sequence[float]) -> tuple[float, float]:
    """How much longer the iterations take in which machines come and leave than those on the 4 machines that stay."""
    alone = statistics.median(seconds[: JOIN_AFTER - 1])
    after = statistics.median(seconds[LEAVE_AFTER + 1 :])
    return seconds[JOIN_AFTER] / alone - 1, seconds[LEAVE_AFTER] / after - 1


# -- scale -------------------------------------------------------------------------------------------------------------

LIMIT_SECONDS = 120.0


def _scale(nodes: int, clocks: int, partitions: int) -> Row:
    machines = Machines(seconds_per_item=1.0, network=Network(GIGABIT))
    settings = ControllerSettings(1, nodes - 1, clocks)
    began, computed = time.perf_counter(), time.process_time()
    simulation = _simulation(Flat(nodes, partitions), settings, machines)
    simulation.run()
    took, computing = time.perf_counter() - began, time.process_time() - computed
    return Row(
        f"{nodes} nodes, {clocks} iterations, {partitions} partitions: {simulation.messages.delivered} messages,"
        f" {computing / simulation.messages.delivered * 1e6:.0f} us of a core each",
        f"{shown(took)}, {shown(computing)} of them on a core",
        f"{LIMIT_SECONDS:.0f} s allowed",
        f"{took / LIMIT_SECONDS:.2f}",
    )


# -- the section -------------------------------------------------------------------------------------------------------

_EXCHANGED = (MOVIE_BYTES + USER_BYTES * SHARE) / 1e6
_BACKED_UP = (MOVIE_BYTES + USER_BYTES) / 1e6
_REMARK = f"""Virtual time, 1 Gbit/s a card and direction (FIFO, 0.1 ms latency). The job: matrix factorization of
Netflix ({USERS} users, {MOVIES} movies, rank {RANK}, float32), bulk synchronous. A worker reads and updates all movies'
rows and its own users' rows: it exchanges {_EXCHANGED:.0f} MB each way in an iteration. A backup is sent every row:
{_BACKED_UP:.0f} MB over all reliable nodes. There are as many partitions as servers. One number is fitted:
{COMPUTE_SECONDS:g} s of computing for each of 64 workers, so that stage 2 at 15:1 takes 1.18 times as long as the
traditional server. Servers send readers only the rows they use; what whole partitions would cost, the two last rows of
stages show. A worker computes nothing while it waits for the values of an iteration."""


def run() -> str:
    """Simulates everything and returns the section."""
    section, _, _ = _measured()
    return section


def _measured() -> tuple[str, dict[str, float], list[float]]:
    settings = [TRADITIONAL, *STAGES, *EVEN, *(replace(setting, whole=True) for setting in (TRADITIONAL, STAGES[5]))]
    seconds = {setting: iteration_seconds(setting) for setting in settings}
    log = [iteration.seconds for iteration in elasticity()]
    joining, leaving = blips(log)
    rows = [_stage_row(setting, seconds) for setting in settings]
    rows.append(Row("4 + 0, 60 join in iteration 11: that iteration against the ones before", f"{joining:+.1%}", "0%"))
    rows.append(Row("60 warned in iteration 35: that iteration against the ones after", f"{leaving:+.1%}", "+13%"))
    scales = [_scale(64, 100, 32), _scale(1000, 100, 16)]
    section = table("AgileML in virtual time: the stages", " ".join(_REMARK.split()), rows)
    section += "\n" + table("AgileML in virtual time: scale", "On the clock, against the time allowed.", scales)
    return section, {setting.label: time for setting, time in seconds.items() if not setting.whole}, log


def _stage_row(setting: Setting, seconds: dict[Setting, float]) -> Row:
    # 8 + 8 machines have no traditional bar next to them in figure 4.13: stage 3 is held against stage 2.
    against = EVEN[0] if setting in EVEN else replace(TRADITIONAL, whole=setting.whole)
    what = f"{setting.label}{', whole partitions sent' if setting.whole else ''}"
    paper = f"paper: {setting.paper}" if setting.paper and not setting.whole else ""
    return Row(what, f"{seconds[setting]:.1f} s", paper, f"{seconds[setting] / seconds[against]:.2f}")


def main() -> None:
    """`python -m bench.agileml_sim --out FOLDER`: the section, and plots of stages and elasticity."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--out", type=Path, default=Path())
    folder: Path = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    section, stages, seconds = _measured()
    print(section)
    _plot_stages(stages, folder / "agileml_stages.png")
    events = "60 machines join in 11 and are warned in 35"
    plot_iterations(seconds, events, "virtual seconds", folder / "agileml_elasticity_sim.png")


def _plot_stages(stages: dict[str, float], path: Path) -> None:
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4))
    labels = ["traditional" if label == TRADITIONAL.label else label for label in stages]
    axes.barh(labels[::-1], list(stages.values())[::-1])
    axes.set_xlabel("virtual seconds per iteration, MF on Netflix, 1 Gbit/s")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    main()
