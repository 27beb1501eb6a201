"""Shared by all benchmarks: timing on noisy computers, rows of a table, and a plot."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Row:
    """One measurement, the peer or limit it is compared with, and their ratio."""

    what: str
    ours: str
    peer: str
    ratio: str = ""


def seconds(
    action: Callable[[], object], runs: int = 5, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Median time of several runs; the first one warms caches and is not counted unless it is the
    only one.

    On a busy computer, the time that a single process computes (`time.process_time`) hardly
    changes.
    """
    times = []
    for _ in range(runs + (runs > 1)):
        start = clock()
        action()
        times.append(clock() - start)
    return statistics.median(times[1:] or times)


def shown(duration: float) -> str:
    """A duration with three significant digits."""
    return f"{duration:.3g} s" if duration >= 1 else f"{duration * 1000:.3g} ms"


def times_faster(ours: float, peer: float) -> str:
    """How many times longer the peer takes."""
    return f"{peer / ours:.3g}x"


def table(title: str, remark: str, rows: list[Row]) -> str:
    """A section of build/benchmarks.md."""
    lines = [
        f"## {title}",
        "",
        remark,
        "",
        "| | here | peer or limit | ratio |",
        "| --- | --- | --- | --- |",
    ]
    lines += [f"| {row.what} | {row.ours} | {row.peer} | {row.ratio} |" for row in rows]
    return "\n".join(lines) + "\n"


def plot_iterations(times: Sequence[float], events: str, unit: str, path: Path) -> None:
    """Draws the time of each iteration; `events` says what happens in some of them."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 3.5))
    axes.plot(range(1, len(times) + 1), times, marker="o", markersize=3)
    axes.set_xlabel(f"iteration; {events}")
    axes.set_ylabel(unit)
    axes.set_ylim(bottom=0)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)
