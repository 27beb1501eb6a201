"""Slow workers and slow servers in virtual time: FlexRR (chapter 3 of the dissertation of A.
Harlap), DBW and PSLD.

What the papers ran on clusters runs here in the simulated engine, with work that takes virtual time
only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

import numpy as np

from agileml import train
from agileml.core.events import Iteration
from agileml.engines.base import Engine
from agileml.engines.chaos import Chaos
from agileml.engines.sim import SimulatedEngine
from agileml.engines.sim.job import Machines
from agileml.engines.sim.network import Network
from agileml.params.layout import Params
from agileml.policies.flexrr import Reassignment
from agileml.policies.stragglers import Stragglers
from agileml.slowdowns import Slowness, uneven_share
from agileml.trainer import ParamReader, ParamView, Sample
from spotctl.lab.papers.results import Experiment, FigureValues, PaperData

CHUNKS = 100
"""Chunks of a worker in a clock, as the paper checks for messages 100 times."""

CHUNK_SECONDS = 0.01
"""In virtual time."""

SKIPPED = 2
"""Clocks before the times count: workers have no usual time yet."""

MODES: dict[str, tuple[int, str | Stragglers]] = {
    "BSP": (0, ""),
    "SSP": (1, ""),
    "BSP+RR": (0, "reassign"),
    "FlexRR": (1, "reassign"),
}
"""By name, the slack and the measures against stragglers."""

WORKERS, CLOCKS = 8, 20
"""Size of a job of FlexRR's; the paper runs 20 iterations, too."""


class Light:
    """Work that takes virtual time only; four shards for each worker, so that uneven work can be
    dealt out.
    """

    name = "light"
    chunk = 1

    def __init__(self, workers: int, chunks: int = CHUNKS) -> None:
        self.workers, self.chunks = workers, chunks

    def init(self, rng: np.random.Generator) -> Params:
        """One number for each shard."""
        del rng
        return {"w": np.zeros((4 * self.workers, 1), np.float32)}

    def shards(self) -> Sequence[range]:
        """Four for each worker."""
        return [range(self.chunks // 4) for _ in range(4 * self.workers)]

    def step(
        self,
        shard: range,
        lo: int,
        hi: int,
        params: ParamView,
        clock: int,
        rng: np.random.Generator,
    ) -> None:
        """Adds the number of processed items to one row of the table; what it learns does not
        matter."""
        del shard, rng, clock
        row, items = lo % (4 * self.workers), np.full((1, 1), hi - lo, np.float32)
        params.update("w", [row], items)

    def loss(self, params: ParamReader, sample: Sample) -> float:
        """None of interest."""
        del params, sample
        return 1.0


@dataclass(frozen=True)
class Measured:
    """Mean seconds of a clock, the fraction of the items that others than their owners did, and a
    worker's work.
    """

    seconds: float
    lent: float
    work: float
    """Mean seconds for which a worker computes in a clock."""


def measured(
    mode: tuple[int, str | Stragglers],
    chaos: str,
    trainer: Light,
    clocks: int,
    seed: int = 0,
    engine: Engine | None = None,
) -> Measured:
    """One job, with one reliable node among its workers; in virtual time unless another engine is
    given.
    """
    slack, stragglers = mode
    workers, log = trainer.workers, list[Iteration]()
    if engine is None:
        seconds_per_item = CHUNK_SECONDS * CHUNKS / trainer.chunks
        engine = SimulatedEngine(Machines(seconds_per_item=seconds_per_item))
    train(
        trainer,
        f"1+{workers - 1}",
        engine,
        clocks=clocks + SKIPPED,
        chaos=chaos,
        listener=log.append,
        seed=seed,
        slack=slack,
        stage=1,
        stragglers=stragglers,
        partitions=1,
        loss_sample=0,
        checkpoint_every=0,
    )

    counted = log[SKIPPED:]
    count, of_workers = len(counted), len(counted) * workers
    seconds = sum(iteration.seconds for iteration in counted)
    helped = sum(iteration.sums.helped_items for iteration in counted)
    worked = sum(iteration.sums.seconds for iteration in counted)
    lent = helped / (of_workers * trainer.chunks)
    return Measured(seconds / count, lent, worked / of_workers)


def ideal(chaos: str, workers: int, clocks: int, seed: int = 0) -> float:
    """Seconds of a clock if all work were at all times perfectly balanced: work over the sum of the
    workers' speeds.

    Each worker is followed for itself, clock after clock, as fast as its slowness lets it; what all
    have done by a time is the work that a perfect balance would have done by then. It is an
    estimate: patterns that draw by clock hit other clocks of a worker that lends work than of one
    that does not.
    """
    slowdowns = Chaos.parse(chaos).slowdowns
    if uneven_share(slowdowns):
        return CHUNKS * CHUNK_SECONDS

    ends: list[float] = []
    for number in range(workers):
        slowness = Slowness(slowdowns, seed, f"{'t' if number else 'r'}{number}")
        now = 0.0
        for clock in range(1, 3 * (clocks + SKIPPED)):
            for _ in range(CHUNKS):
                now += CHUNK_SECONDS * slowness.factor(clock, CHUNK_SECONDS, now)
                ends.append(now)

    done = np.sort(np.array(ends))
    first, last = SKIPPED * workers * CHUNKS, (SKIPPED + clocks) * workers * CHUNKS
    return float(done[last - 1] - done[first - 1]) / clocks


def _modes(chaos: str, seed: int) -> dict[str, float]:
    """Seconds of a clock in each mode, and if all work were perfectly balanced."""
    times = dict[str, float]()
    for mode, how in MODES.items():
        times[mode] = measured(how, chaos, Light(WORKERS), CLOCKS, seed).seconds
    times["ideal"] = ideal(chaos, WORKERS, CLOCKS, seed)
    return times


def _by_delay(seed: int, data: PaperData, *, pattern: str, delays: Sequence[int]) -> FigureValues:
    """All modes by delay; the pattern says where its percentage stands, or how many times as long
    work takes.
    """
    del data
    values: dict[str, float] = {}
    shorter: dict[str, list[float]] = {}
    for delay in delays:
        chaos = pattern.format(percent=delay, times=1 + delay / 100)
        times = _modes(chaos, seed)
        values |= {f"{mode} @ {delay}": seconds for mode, seconds in times.items()}
        bsp, ideal_time = times["BSP"], times["ideal"]
        values["FlexRR over ideal at the longest delay"] = times["FlexRR"] / ideal_time
        share = (bsp - times["FlexRR"]) / bsp
        shorter.setdefault("FlexRR shorter than BSP, at most", []).append(share)
        if bsp > ideal_time:
            for mode in ("SSP", "BSP+RR"):
                avoided = (bsp - times[mode]) / (bsp - ideal_time)
                shorter.setdefault(f"{mode}: delay of BSP avoided, at most", []).append(avoided)

    return values | {name: max(shares) for name, shares in shorter.items()}


def _power_law(seed: int, data: PaperData) -> FigureValues:
    """Times of a clock drawn with the exponent that was measured on real clusters."""
    del data
    times, values = _modes("power law 11", seed), dict[str, float]()
    for mode in ("SSP", "BSP+RR", "FlexRR"):
        ratio = times[mode] / times["BSP"]
        values[f"{mode} shorter than BSP"] = 1 - ratio
    return values


def _uneven(seed: int, data: PaperData) -> FigureValues:
    """Half of the machines have 75% of the work."""
    del data
    times = _modes("uneven 75/25", seed)
    return {f"{mode} over even work": times[mode] / times["ideal"] for mode in ("SSP", "FlexRR")}


def _settings(
    seed: int, data: PaperData, *, name: str, values: Sequence[float], least: float
) -> FigureValues:
    """One setting of reassignment varied, at delays of 100% and 400%; `least`: where the paper
    finds it near ideal.
    """
    del data
    points, worst = dict[str, float](), dict.fromkeys((100, 400), 0.0)
    for delay in worst:
        chaos = f"slow worker 1% by {delay}%"
        best = ideal(chaos, WORKERS, CLOCKS, seed)
        for value in values:
            chunks = int(value) if name == "checks" else CHUNKS
            varied = {name: int(value)}
            is_first = name == "follow-up"
            settings = Reassignment(first=value / 2) if is_first else Reassignment(**varied)
            stragglers, trainer = Stragglers(reassign=settings), Light(WORKERS, chunks)
            seconds = measured((1, stragglers), chaos, trainer, CLOCKS, seed).seconds
            ratio = seconds / best
            points[f"{delay}% delay @ {value:g}"] = ratio
            if value >= least:
                worst[delay] = max(worst[delay], ratio)

    for delay, ratio in worst.items():
        points[f"FlexRR over ideal, worst at a delay of {delay}%"] = ratio
    points["FlexRR over ideal, worst"] = max(worst.values())
    return points


# -- PSLD ------------------------------------------------------------------------------------------

PARTITIONS, ROWS = 40, 400
RATE = 2e6
"""Bytes per second of each card."""

SETTLED = 10
"""Clocks after which the assignment counts as settled."""


class Heavy(Light):
    """Work that takes no time, and updates the whole model, so that communication bounds a
    clock.
    """

    name = "heavy"
    chunk = 4

    def init(self, rng: np.random.Generator) -> Params:
        """Zeros."""
        del rng
        return {"w": np.zeros((ROWS, 64), np.float32)}

    def shards(self) -> Sequence[range]:
        """One for each node."""
        return [range(4) for _ in range(self.workers)]

    def step(
        self,
        shard: range,
        lo: int,
        hi: int,
        params: ParamView,
        clock: int,
        rng: np.random.Generator,
    ) -> None:
        """Adds something to every number."""
        del shard, clock, rng
        change = np.full((ROWS, 64), hi - lo, np.float32)
        params.update("w", None, change)


def served(
    stragglers: str, chaos: str, clocks: int, nodes: str, network: Network, compute: float = 0.0
) -> list[Iteration]:
    """A job whose reliable nodes serve; `compute`: seconds of a worker in a clock, in addition to
    the network's.
    """
    log: list[Iteration] = []
    machines = Machines(network=network)
    if compute:
        machines = Machines(compute / 4, network=network)
    count = sum(map(int, nodes.split("+")))
    train(
        Heavy(count),
        nodes,
        SimulatedEngine(machines),
        clocks=clocks,
        chaos=chaos,
        listener=log.append,
        stage=1,
        stragglers=stragglers,
        partitions=PARTITIONS,
        loss_sample=0,
        checkpoint_every=0,
    )

    return log


def settled(log: Sequence[Iteration]) -> float:
    """Seconds of a clock once partitions have moved."""
    return median(iteration.seconds for iteration in log[SETTLED:])


def _servers(seed: int, data: PaperData, *, compute: float = 0.0) -> FigureValues:
    """Eight servers among sixteen workers; a worker computes for `compute` seconds of a clock."""
    del seed, data
    network, values = Network(bytes_per_second=RATE), dict[str, float]()
    even = settled(served("", "", SETTLED + 5, "8+8", network, compute))
    for slow in (1, 2, 4):
        chaos, seconds = f"slow server {slow} to 10%", list[float]()
        for how in ("", "balance"):
            log = served(how, chaos, SETTLED + 10, "8+8", network, compute)
            seconds.append(settled(log))
        stays, balanced = seconds
        faster = stays / balanced
        values[f"faster than partitions that stay, {slow} slow"] = faster - 1
        values[f"times as fast as partitions that stay, {slow} slow"] = faster
        values[f"slower by {slow} slow"] = 1 - even / stays
        values[f"PSLD @ {slow}"] = even / balanced
        values[f"partitions that stay @ {slow}"] = even / stays

    return values


_DELAY = ("delay of slow workers, %", "seconds of a clock")
_SHORT = "The work of a clock takes a second of virtual time, and a message next to none."
RESULTS = (
    Experiment(
        "flexrr-slow",
        partial(_by_delay, pattern="slow worker 1% by {percent}%", delays=(0, 100, 400)),
        35.0,
        f"{_SHORT} The paper has the same ratio in its times to convergence.",
        3,
        axes=_DELAY,
    ),
    Experiment(
        "flexrr-disrupt",
        partial(_by_delay, pattern="disrupt 20% every 4s by {times:g}x", delays=(100, 200)),
        25.0,
        f"{_SHORT} The paper's figures are the largest in its Figure 3.9, whose delays the text "
        "does not name.",
        3,
        axes=_DELAY,
    ),
    Experiment(
        "flexrr-power-law", _power_law, 12.0, f"{_SHORT} They are drawn as in the paper.", 3
    ),
    Experiment("flexrr-uneven", _uneven, 12.0, f"{_SHORT} Nothing is drawn.", 1),
    Experiment(
        "flexrr-helpers",
        partial(_settings, name="helpers", values=(1, 2, 3, 4, 7), least=3),
        30.0,
        f"{_SHORT} Three helpers and more are near the ideal, as in the paper.",
        3,
        axes=("helpers of a worker", "seconds of a clock over ideal"),
    ),
    Experiment(
        "flexrr-assignments",
        partial(_settings, name="follow-up", values=(0.025, 0.05, 0.3), least=0),
        20.0,
        f"{_SHORT} A first assignment is half of one that follows.",
        3,
        axes=("follow-up assignment, share of a clock's work", "seconds of a clock over ideal"),
    ),
    Experiment(
        "flexrr-replication",
        None,
        0.0,
        "Our workers read the data of those that they help from where it is stored, and never copy "
        "a part of it.",
    ),
    Experiment(
        "psld-slow",
        _servers,
        8.0,
        "Communication takes all of a clock here. The paper's models compute, too, most of all "
        "ResNet-50.",
        1,
        cause="a fifth of a second of computing in a clock",
        switched=partial(_servers, compute=0.2),
        axes=("servers at a tenth of their bandwidth", "speed over that without slow servers"),
    ),
    Experiment(
        "psld-processors",
        None,
        0.0,
        "The simulated engine slows the network of a server, and not its processors.",
    ),
)
