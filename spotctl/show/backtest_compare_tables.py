"""Paired differences between schemes as a table and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from math import isfinite
from typing import Any

from rich.table import Table

from bidbrain.backtest.robustness import Difference, Interval


def table(found: Sequence[Difference]) -> Table:
    """One row for each variant, scheme and length of job."""
    shown = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("variant", "scheme", "hours", "jobs", "cost, points", "95%", "run time", "95%"):
        shown.add_column(name, justify="left" if name in ("variant", "scheme") else "right", no_wrap=True)
    for one in found:
        jobs = f"{one.jobs} (+{one.unpaired} unpaired)" if one.unpaired else f"{one.jobs}"
        shown.add_row(
            one.variant, one.scheme, f"{one.hours:g}", jobs, *_told(one.cost, ".2f"), *_told(one.runtime, ".3f")
        )
    return shown


def answer(found: Sequence[Difference], wall_seconds: float) -> dict[str, Any]:
    """What `--json` prints; what is not known is null."""
    rows = [
        {
            **{name: value for name, value in asdict(one).items() if name not in ("cost", "runtime")},
            "cost_points": _number(one.cost.mean),
            "cost_low": one.cost.low,
            "cost_high": one.cost.high,
            "runtime_ratio": _number(one.runtime.mean),
            "runtime_low": one.runtime.low,
            "runtime_high": one.runtime.high,
        }
        for one in found
    ]
    return {"differences": rows, "wall_seconds": wall_seconds}


def _told(interval: Interval, spec: str) -> tuple[str, str]:
    if not isfinite(interval.mean):
        return "-", "-"
    ends = "-" if interval.low is None else f"[{interval.low:+{spec}}, {interval.high:+{spec}}]"
    return f"{interval.mean:+{spec}}", ends


def _number(value: float) -> float | None:
    return value if isfinite(value) else None
