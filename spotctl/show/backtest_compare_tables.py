"""Paired differences between strategies as a table and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from math import isfinite
from typing import TYPE_CHECKING, Any

from rich.table import Table

from spotctl.show.layout import plain_table

if TYPE_CHECKING:
    from bidbrain.backtest.robustness import Interval, PairedDifference


def table(differences: Sequence[PairedDifference]) -> Table:
    """One row per variant, strategy and job length."""
    rows = plain_table("variant", "strategy", "hours", "jobs", "cost, points", "95%", "run time", "95%", names=2)
    for one in differences:
        jobs = f"{one.jobs} (+{one.unpaired} unpaired)" if one.unpaired else f"{one.jobs}"
        rows.add_row(
            one.variant, one.scheme, f"{one.hours:g}", jobs, *_cells(one.cost, ".2f"), *_cells(one.runtime, ".3f")
        )
    return rows


def answer(differences: Sequence[PairedDifference], wall_seconds: float) -> dict[str, Any]:
    """The JSON of `--json`; unknown values are null."""
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
        for one in differences
    ]
    return {"differences": rows, "wall_seconds": wall_seconds}


def _cells(interval: Interval, spec: str) -> tuple[str, str]:
    if not isfinite(interval.mean):
        return "-", "-"
    ends = "-" if interval.low is None else f"[{interval.low:+{spec}}, {interval.high:+{spec}}]"
    return f"{interval.mean:+{spec}}", ends


def _number(value: float) -> float | None:
    return value if isfinite(value) else None
