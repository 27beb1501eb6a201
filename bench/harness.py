"""What every benchmark is made of: timing that survives a noisy machine, and rows of a table."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One measured thing beside what it is held against."""

    what: str
    ours: str
    beside: str
    ratio: str = ""


def seconds(action: Callable[[], object], runs: int = 5) -> float:
    """The median of several runs; the first, which warms caches, is not counted unless it is the only one."""
    times = []
    for _ in range(runs + (runs > 1)):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:] or times)


def shown(duration: float) -> str:
    """A duration with three digits."""
    return f"{duration:.3g} s" if duration >= 1 else f"{duration * 1000:.3g} ms"


def times_faster(ours: float, peer: float) -> str:
    """How many times as long the peer takes."""
    return f"{peer / ours:.3g}x"


def table(title: str, remark: str, rows: list[Row]) -> str:
    """A section of docs/benchmarks.md."""
    lines = [f"## {title}", "", remark, "", "| | here | beside | ratio |", "| --- | --- | --- | --- |"]
    lines += [f"| {row.what} | {row.ours} | {row.beside} | {row.ratio} |" for row in rows]
    return "\n".join(lines) + "\n"
