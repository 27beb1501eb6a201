"""The frontier of cost and run time as a table and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import isfinite
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rich.table import Table

from bidbrain.strategies.default import default_for
from spotctl.show.layout import plain_table

if TYPE_CHECKING:
    from bidbrain.backtest.frontier import BoundPoint, FrontierPoint

NO_WINDOWS: Mapping[str, Sequence[FrontierPoint]] = MappingProxyType({})


def table(points: Sequence[FrontierPoint]) -> Table:
    """One row per strategy and job length, the fastest first."""
    rows = plain_table(
        "strategy", "hours", "jobs", "run time", "cost %", "95%", "gross %", "bound %", "beaten by", names=1
    )
    for one in sorted(points, key=lambda one: (one.hours, one.runtime_ratio)):
        cost = one.cost_pct
        interval = "-" if cost.low is None else f"[{cost.low:.1f}, {cost.high:.1f}]"
        jobs = f"{one.jobs} ({one.unfinished} unfinished)" if one.unfinished else f"{one.jobs}"
        values = (f"{value:{spec}}" for value, spec in _columns(one))
        time, mean, gross, bound = values
        rows.add_row(one.scheme, f"{one.hours:g}", jobs, time, mean, interval, gross, bound, one.beaten_by or "")
    return rows


def _columns(one: FrontierPoint) -> tuple[tuple[float, str], ...]:
    return (one.runtime_ratio, ".3f"), (one.cost_pct.mean, ".2f"), (one.gross_pct, ".1f"), (one.bound_pct, ".1f")


def verdict(points: Sequence[FrontierPoint], billing: str) -> str:
    """Whether the default of a billing rule is on the frontier."""
    default = default_for(billing).name
    mine = [one for one in points if one.scheme == default]
    if not mine:
        return f"the default for {billing}, {default}, is not among these strategies"
    beaten = [f"{one.beaten_by} for {one.hours:g} hours" for one in mine if one.beaten_by]
    if not beaten:
        return f"the default for {billing}, {default}, is on the frontier"
    return f"the default for {billing}, {default}, is not on the frontier; cheaper and as fast: {', '.join(beaten)}"


def answer(
    points: Sequence[FrontierPoint],
    bound: Sequence[BoundPoint],
    billing: str,
    wall_seconds: float,
    windows: Mapping[str, Sequence[FrontierPoint]] = NO_WINDOWS,
) -> dict[str, Any]:
    """The JSON of `--json`; unknown values are null. `windows` are the points of other windows of the history."""
    others = [{"window": name, **_judged(found, billing)} for name, found in windows.items()]
    return {
        **_judged(points, billing),
        "bound": [asdict(one) for one in bound],
        **({"windows": others} if others else {}),
        "wall_seconds": wall_seconds,
    }


def _judged(points: Sequence[FrontierPoint], billing: str) -> dict[str, Any]:
    """The points of a window, and where the default of the billing rule stands among them."""
    default = default_for(billing).name
    beaten = [one.beaten_by for one in points if one.scheme == default]
    return {
        "points": [_row(one) for one in points],
        "default": {"scheme": default, "on_frontier": all(name is None for name in beaten)},
    }


def _row(one: FrontierPoint) -> dict[str, Any]:
    return {
        "scheme": one.scheme,
        "hours": one.hours,
        "jobs": one.jobs,
        "unfinished": one.unfinished,
        "cost_pct": _number(one.cost_pct.mean),
        "cost_low": one.cost_pct.low,
        "cost_high": one.cost_pct.high,
        "gross_pct": _number(one.gross_pct),
        "runtime_ratio": _number(one.runtime_ratio),
        "bound_pct": _number(one.bound_pct),
        "on_frontier": one.beaten_by is None and not one.unfinished,
        "beaten_by": one.beaten_by,
    }


def _number(value: float) -> float | None:
    return value if isfinite(value) else None
