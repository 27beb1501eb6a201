"""Shared by all benchmarks: timing on noisy computers, and rows of a table."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One measurement, the peer or limit it is compared with, and their ratio."""

    what: str
    ours: str
    peer: str
    ratio: str = ""


def seconds(action: Callable[[], object], runs: int = 5) -> float:
    """Median wall time of several runs; the first one warms caches and is not counted unless it is the only one."""
    times = []
    for _ in range(runs + (runs > 1)):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:] or times)


def shown(duration: float) -> str:
    """A duration with three significant digits."""
    return f"{duration:.3g} s" if duration >= 1 else f"{duration * 1000:.3g} ms"


def times_faster(ours: float, peer: float) -> str:
    """How many times longer the peer takes."""
    return f"{peer / ours:.3g}x"


def table(title: str, remark: str, rows: list[Row]) -> str:
    """A section of docs/benchmarks.md."""
    lines = [f"## {title}", "", remark, "", "| | here | peer or limit | ratio |", "| --- | --- | --- | --- |"]
    lines += [f"| {row.what} | {row.ours} | {row.peer} | {row.ratio} |" for row in rows]
    return "\n".join(lines) + "\n"
