"""Items per processor second: matrix factorization on nodes, next to plain numpy in one process.

Processor time, unlike time on the clock, can be compared on a busy computer: that of all processes
of the job, user and system, over the clocks of its steady state.
"""

from __future__ import annotations

import os
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from agileml.apps.mf import MatrixFactorization
from agileml.apps.registry import TrainerSource
from agileml.core.events import Iteration
from agileml.engines.chaos import QUIET
from agileml.engines.local import LocalEngine
from agileml.job import Stopping, TrainingJob
from agileml.roles.node import JobSettings
from agileml.trainer import init_rng, plan_of
from bench.harness import Row, table

ARGUMENTS = {"users": 6000, "items": 4000, "ratings": 1_000_000, "rank": 16, "parts": 16}
WARM_CLOCKS, CLOCKS = 3, 13
REPETITIONS = 3
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def plain(clocks: int) -> float:
    """Items per processor second of a loop that someone writes who needs no second machine."""
    app = MatrixFactorization(**ARGUMENTS)  # type: ignore[arg-type]
    shards = app.shards()
    model, chunk = app.init(init_rng(0)), plan_of(app, shards).chunk_items
    users, items, shrink = model["users"], model["items"], np.float32(app.regularization)
    rates = app._rate(app.users), app._rate(app.items)
    for shard in shards:
        shard.load()
    began = 0.0
    for clock in range(clocks):
        if clock == WARM_CLOCKS:
            began = time.process_time()
        for shard in shards:
            seen = shard.ratings
            for lo in range(0, len(shard), chunk):
                rows, columns = seen.users[lo : lo + chunk], seen.items[lo : lo + chunk]
                left, right = users[rows], items[columns]
                error = (seen.values[lo : lo + chunk] - (left * right).sum(axis=1))[:, None]
                _add(users, rows, rates[0] * (error * right - shrink * left))
                _add(items, columns, rates[1] * (error * left - shrink * right))
    return (clocks - WARM_CLOCKS) * app.ratings / (time.process_time() - began)


def _add(factor: np.ndarray, rows: np.ndarray, values: np.ndarray) -> None:
    """Adds to rows; some occur twice. `np.add.at` is several times as fast for numbers as for
    rows."""
    width = factor.shape[1]
    np.add.at(
        factor.reshape(-1),
        (rows[:, None] * width + np.arange(width)).reshape(-1),
        values.reshape(-1),
    )


@dataclass
class Processors:
    """Notes the processor time of all processes of this one's job, at the end of each clock."""

    seconds: dict[int, float] = field(default_factory=dict)

    def __call__(self, iteration: Iteration) -> None:
        """A clock is done."""
        if iteration.clock in (WARM_CLOCKS, CLOCKS):
            own = time.process_time()
            self.seconds[iteration.clock] = own + sum(
                used_seconds(process) for process in descendants(os.getpid())
            )

    @property
    def items_per_second(self) -> float:
        """Over the clocks of the steady state."""
        items = (CLOCKS - WARM_CLOCKS) * ARGUMENTS["ratings"]
        return items / (self.seconds[CLOCKS] - self.seconds[WARM_CLOCKS])


def descendants(process: int) -> list[int]:
    """The processes that a process has started, and those that they have started."""
    try:
        children = [
            int(child)
            for task in Path(f"/proc/{process}/task").iterdir()
            for child in _children(task)
        ]
    except FileNotFoundError:
        return []
    return [*children, *(grandchild for child in children for grandchild in descendants(child))]


def _children(task: Path) -> list[str]:
    return (task / "children").read_text().split()


def used_seconds(process: int) -> float:
    """User and system seconds."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


def on_nodes(transient: int) -> float:
    """Items per processor second of a job."""
    settings = JobSettings(loss_sample=0)
    # One clock more than is measured: at the end the model is collected.
    job = TrainingJob(
        TrainerSource("mf", ARGUMENTS), 1, transient, Stopping(clocks=CLOCKS + 1), settings
    )
    used = Processors()
    LocalEngine().run(job, QUIET, used)
    return used.items_per_second


def run() -> str:
    """Measures everything and returns the section."""
    peers: list[float] = []
    ours: dict[int, list[float]] = {0: [], 3: []}
    for _ in range(REPETITIONS):
        peers.append(plain(CLOCKS))
        for transient, rates in ours.items():
            rates.append(on_nodes(transient))
    rows = []
    for transient, rates in ours.items():
        # A higher rate is better, so the ratio is written as times.
        ratios = [rate / peer for rate, peer in zip(rates, peers, strict=True)]
        shown = f"{statistics.median(rates) / 1e6:.2f} million items per processor second"
        peer = f"{statistics.median(peers) / 1e6:.2f} million"
        rows.append(Row(f"1 + {transient} nodes", shown, peer, f"{statistics.median(ratios):.2f}x"))
    size = ", ".join(f"{value:,} {name}" for name, value in ARGUMENTS.items())
    return table(
        "AgileML in processes: throughput",
        f"Matrix factorization ({size}), bulk synchronous, next to the same steps in plain numpy "
        "in one process. Items"
        f" per second of processor time, user and system, of all processes of the job, in clocks "
        f"{WARM_CLOCKS + 1} to"
        f" {CLOCKS}; medians of {REPETITIONS} repetitions, in turns, ratios within a repetition.",
        rows,
    )
