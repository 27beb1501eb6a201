"""FlexRR in small: the time of a clock of BSP, SSP, BSP with reassignment, and both together, against the ideal."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from agileml import train
from agileml.core.events import Iteration
from agileml.engines.chaos import Chaos
from agileml.engines.local.fleet import LocalEngine
from agileml.engines.sim import SimulatedEngine
from agileml.engines.sim.job import Machines
from agileml.params.layout import Params
from agileml.policies.stragglers import Stragglers
from agileml.slowdowns import Slowness, uneven_share
from agileml.trainer import ParamReader, ParamView, Sample

CHUNKS = 100
"""Chunks of a worker in a clock, as the paper checks for messages 100 times."""

CHUNK_SECONDS = 0.01
"""In virtual time."""

REAL_CHUNK_SECONDS = 0.1
"""On processes: far longer than it takes a busy computer to wake one up."""

SKIPPED = 2
"""Clocks before the times count: workers have no usual time yet."""

DELAYS = (0, 50, 100, 200, 300, 400)

MODES = {"BSP": (0, ""), "SSP": (1, ""), "BSP+RR": (0, "reassign"), "FlexRR": (1, "reassign")}
"""By name, the slack and the measures against stragglers."""

TRACED: dict[str, tuple[int, str | Stragglers]] = {
    **MODES,
    "balance": (0, "balance"),
    "backup workers": (0, Stragglers(backup_workers=True)),
    "all three": (0, Stragglers(True, True, True)),
}
"""Backup workers need a slack of 0."""

PATTERNS = {
    **{f"slow worker {delay}%": f"slow worker 1% by {delay}%" for delay in DELAYS},
    "disrupt by 2x": "disrupt 20% every 4s by 2x",
    **{f"power law {alpha}": f"power law {alpha}" for alpha in (11, 7, 4)},
    "uneven 75/25": "uneven 75/25",
}


class Light:
    """Work that takes virtual time only; one shard for each worker."""

    name = "light"
    chunk = 1

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def init(self, rng: np.random.Generator) -> Params:
        """One number for each shard."""
        del rng
        return {"w": np.zeros((4 * self.workers, 1), np.float32)}

    def shards(self) -> Sequence[range]:
        """Four for each worker, so that uneven work can be dealt out."""
        return [range(CHUNKS // 4) for _ in range(4 * self.workers)]

    def step(self, shard: range, lo: int, hi: int, params: ParamView, clock: int, rng: np.random.Generator) -> None:
        """Adds one."""
        del shard, rng, clock
        params.update("w", [lo % (4 * self.workers)], np.full((1, 1), hi - lo, np.float32))

    def loss(self, params: ParamReader, sample: Sample) -> float:
        """None of interest."""
        del params, sample
        return 1.0


class Sleeping(Light):
    """Work that takes real time, and no processor's."""

    name = "sleeping"

    def step(self, shard: range, lo: int, hi: int, params: ParamView, clock: int, rng: np.random.Generator) -> None:
        """Sleeps, then updates as `Light` does."""
        time.sleep(REAL_CHUNK_SECONDS)
        super().step(shard, lo, hi, params, clock, rng)


ENGINES = ("sim", "local")


@dataclass(frozen=True)
class Measured:
    """Mean seconds of a clock, the fraction of the items that others than their owners did, and a worker's work."""

    seconds: float
    lent: float
    work: float
    """Mean seconds for which a worker computes in a clock."""


def measured(mode: str, chaos: str, workers: int, clocks: int, engine: str = "sim") -> Measured:
    """One job, with one reliable node among its workers; in virtual time, or on processes that sleep."""
    slack, stragglers = TRACED[mode]
    log: list[Iteration] = []
    local = engine == "local"
    train(
        Sleeping(workers) if local else Light(workers),
        f"1+{workers - 1}",
        LocalEngine() if local else SimulatedEngine(Machines(seconds_per_item=CHUNK_SECONDS)),
        clocks=clocks + SKIPPED,
        chaos=chaos,
        listener=log.append,
        slack=slack,
        stage=1,
        stragglers=stragglers,
        partitions=1,
        loss_sample=0,
        checkpoint_every=0,
    )
    counted = log[SKIPPED:]
    lent = sum(iteration.sums.helped_items for iteration in counted) / (len(counted) * workers * CHUNKS)
    work = sum(iteration.sums.seconds for iteration in counted) / (len(counted) * workers)
    return Measured(sum(iteration.seconds for iteration in counted) / len(counted), lent, work)


def ideal(chaos: str, workers: int, clocks: int) -> float:
    """Seconds of a clock if all work were at all times perfectly balanced: work over the sum of the workers' speeds.

    Each worker is followed for itself, clock after clock, as fast as its slowness lets it; what all have done by a time
    is the work that a perfect balance would have done by then. It is an estimate: patterns that draw by clock hit other
    clocks of a worker that lends work than of one that does not.
    """
    slowdowns = Chaos.parse(chaos).slowdowns
    if uneven_share(slowdowns):
        return CHUNKS * CHUNK_SECONDS
    ends: list[float] = []
    for number in range(workers):
        slowness = Slowness(slowdowns, 0, f"{'t' if number else 'r'}{number}")
        now = 0.0
        for clock in range(1, 3 * (clocks + SKIPPED)):
            for _ in range(CHUNKS):
                now += CHUNK_SECONDS * slowness.factor(clock, CHUNK_SECONDS, now)
                ends.append(now)
    done = np.sort(np.array(ends))
    first, last = SKIPPED * workers * CHUNKS, (SKIPPED + clocks) * workers * CHUNKS
    return float(done[last - 1] - done[first - 1]) / clocks


def _table(
    title: str,
    remark: str,
    rows: Sequence[tuple[str, str]],
    workers: int,
    clocks: int,
    modes: Sequence[str],
    engine: str = "sim",
) -> tuple[str, Results]:
    last = modes[-1]
    # A chunk takes a little longer than it sleeps.
    if engine == "local":
        # Chunks that sleep take what they take, whatever else the computer does.
        usual = REAL_CHUNK_SECONDS / CHUNK_SECONDS
    else:
        usual = measured("BSP", "", workers, clocks).work / (CHUNKS * CHUNK_SECONDS)
    lines = [f"## {title}", "", remark, "", f"| pattern | {' | '.join(modes)} | ideal | {last} / ideal | lent |"]
    lines.append("| --- |" + " ---: |" * (len(modes) + 3))
    results: Results = {}
    for name, chaos in rows:
        times = {mode: measured(mode, chaos, workers, clocks, engine) for mode in modes}
        best = usual * ideal(chaos, workers, clocks)
        results[name] = {**{mode: clock.seconds for mode, clock in times.items()}, "ideal": best}
        cells = " | ".join(f"{times[mode].seconds:.3f} s" for mode in modes)
        ours = times[last]
        lines.append(f"| {name} | {cells} | {best:.3f} s | {ours.seconds / best:.2f} | {ours.lent:.0%} |")
    return "\n".join(lines) + "\n", results


Results = dict[str, dict[str, float]]


def run(workers: int, clocks: int, modes: Sequence[str], plots: Path | None, engine: str) -> str:
    """The table of all patterns, or on processes of the slow worker; draws that one."""
    rows, seconds = list(PATTERNS.items()), CHUNK_SECONDS
    if engine == "local":
        rows, seconds = rows[: len(DELAYS)], REAL_CHUNK_SECONDS
    text, results = _table(
        "Slow workers: the time of a clock",
        f"{workers} workers, {CHUNKS} chunks of {seconds * 1000:g} ms for each in a clock, {clocks} clocks.",
        rows,
        workers,
        clocks,
        modes,
        engine,
    )
    if plots is not None:
        _draw(results, plots / "workers.svg")
    return text


def run_traces(paths: Sequence[Path], workers: int, clocks: int) -> str:
    """The table of recorded times."""
    if not paths:
        return "traces: name files with recorded times after --traces\n"
    rows = [(path.name, f"replay {path}") for path in paths]
    return _table(
        "Recorded times of production jobs: the time of a clock",
        f"{workers} workers, {clocks} clocks; each clock of a worker takes as much longer than usual as was recorded.",
        rows,
        workers,
        clocks,
        tuple(TRACED),
    )[0]


def _draw(results: Results, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    for mode in results["slow worker 0%"]:
        axes.plot(DELAYS, [results[f"slow worker {delay}%"][mode] for delay in DELAYS], marker="o", label=mode)
    axes.set(xlabel="delay of slow workers (%)", ylabel="seconds of a clock", ylim=(0, None))
    axes.legend()
    figure.savefig(path)
