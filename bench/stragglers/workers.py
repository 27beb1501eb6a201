"""FlexRR in small: the time of a clock of BSP, SSP, BSP with reassignment, and both together,
against the ideal.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from agileml.engines.local.fleet import LocalEngine
from agileml.policies.stragglers import Stragglers
from agileml.trainer import ParamView
from spotctl.lab.papers.stragglers import (
    CHUNK_SECONDS,
    CHUNKS,
    MODES,
    Light,
    Measured,
    ideal,
    measured,
)

REAL_CHUNK_SECONDS = 0.1
"""On processes: far longer than it takes a busy computer to wake one up."""

DELAYS = (0, 50, 100, 200, 300, 400)

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


class Sleeping(Light):
    """Work that takes real time, and no processor's."""

    name = "sleeping"

    def step(
        self,
        shard: range,
        lo: int,
        hi: int,
        params: ParamView,
        clock: int,
        rng: np.random.Generator,
    ) -> None:
        """Sleeps, then updates as `Light` does."""
        time.sleep(REAL_CHUNK_SECONDS)
        super().step(shard, lo, hi, params, clock, rng)


ENGINES = ("sim", "local")


def _measured(mode: str, chaos: str, workers: int, clocks: int, engine: str) -> Measured:
    """One job, in virtual time or on processes that sleep."""
    if engine == "local":
        return measured(TRACED[mode], chaos, Sleeping(workers), clocks, engine=LocalEngine())
    return measured(TRACED[mode], chaos, Light(workers), clocks)


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
    excess = REAL_CHUNK_SECONDS / CHUNK_SECONDS if engine == "local" else 1.0
    lines = [
        f"## {title}",
        "",
        remark,
        "",
        f"| pattern | {' | '.join(modes)} | ideal | {last} / ideal | lent |",
    ]
    lines.append("| --- |" + " ---: |" * (len(modes) + 3))
    results: Results = {}
    for name, chaos in rows:
        times = {mode: _measured(mode, chaos, workers, clocks, engine) for mode in modes}
        best = excess * ideal(chaos, workers, clocks)
        results[name] = {**{mode: clock.seconds for mode, clock in times.items()}, "ideal": best}
        cells = " | ".join(f"{times[mode].seconds:.3f} s" for mode in modes)
        ours = times[last]
        lines.append(
            f"| {name} | {cells} | {best:.3f} s | {ours.seconds / best:.2f} | {ours.lent:.0%} |"
        )
    return "\n".join(lines) + "\n", results


Results = dict[str, dict[str, float]]


def run(workers: int, clocks: int, modes: Sequence[str], plots: Path | None, engine: str) -> str:
    """The table of all patterns, or on processes of the slow worker; draws that one."""
    rows, seconds = list(PATTERNS.items()), CHUNK_SECONDS
    if engine == "local":
        rows, seconds = rows[: len(DELAYS)], REAL_CHUNK_SECONDS
    text, results = _table(
        "Slow workers: the time of a clock",
        f"{workers} workers, {CHUNKS} chunks of {seconds * 1000:g} ms for each in a clock, "
        f"{clocks} clocks.",
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
        f"{workers} workers, {clocks} clocks; each clock of a worker takes as much longer than "
        "usual as was recorded.",
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
        axes.plot(
            DELAYS,
            [results[f"slow worker {delay}%"][mode] for delay in DELAYS],
            marker="o",
            label=mode,
        )
    axes.set(xlabel="delay of slow workers (%)", ylabel="seconds of a clock", ylim=(0, None))
    axes.legend()
    figure.savefig(path)
