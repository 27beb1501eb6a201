"""The frontier of cost and run time as a table and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import isfinite
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rich.table import Table

from bidbrain.strategies.default import default_for
from spotctl.show.layout import RankedColumn, ranked_table

if TYPE_CHECKING:
    from bidbrain.backtest.frontier import BoundPoint, FrontierPoint

NO_WINDOWS: Mapping[str, Sequence[FrontierPoint]] = MappingProxyType({})


def table(points: Sequence[FrontierPoint], width: int) -> Table:
    """One row per strategy and job length, the fastest first."""
    rows = sorted(points, key=lambda one: (one.hours, one.runtime_ratio))
    columns = (
        RankedColumn("strategy", [one.scheme for one in rows]),
        RankedColumn("hours", [f"{one.hours:g}" for one in rows]),
        RankedColumn("jobs", [_jobs(one) for one in rows], 4),
        RankedColumn("run time", [f"{one.runtime_ratio:.3f}" for one in rows]),
        RankedColumn("cost %", [f"{one.cost_pct.mean:.2f}" for one in rows]),
        RankedColumn("95%", [_interval(one) for one in rows], 1),
        RankedColumn("gross %", [f"{one.gross_pct:.1f}" for one in rows], 3),
        RankedColumn("bound %", [f"{one.bound_pct:.1f}" for one in rows], 2),
        RankedColumn("beaten by", [one.beaten_by or "" for one in rows]),
    )
    return ranked_table(width, columns)


def _jobs(one: FrontierPoint) -> str:
    return f"{one.jobs} ({one.unfinished} unfinished)" if one.unfinished else f"{one.jobs}"


def _interval(one: FrontierPoint) -> str:
    return "-" if one.cost_pct.low is None else f"[{one.cost_pct.low:.1f}, {one.cost_pct.high:.1f}]"


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
    """The JSON of `--json`; unknown values are null. `windows` are the points of other windows of the history.

    Fields:
        -> _judged
        bound: least cost of any strategy, by run time
        bound[] -> bidbrain.backtest.frontier:BoundPoint
        windows: the same for other windows of the history
        windows[].window: its name
        windows[] -> _judged
        wall_seconds: time that the command took
    """
    others = [{"window": name, **_judged(found, billing)} for name, found in windows.items()]
    return {
        **_judged(points, billing),
        "bound": [asdict(one) for one in bound],
        **({"windows": others} if others else {}),
        "wall_seconds": wall_seconds,
    }


def _judged(points: Sequence[FrontierPoint], billing: str) -> dict[str, Any]:
    """The points of a window, and where the default of the billing rule stands among them.

    Fields:
        points: strategies by job length
        points[] -> _row
        default: strategy that plans use under this billing rule
        default.scheme: its name
        default.on_frontier: whether no other strategy is clearly cheaper and as fast
    """
    default = default_for(billing).name
    beaten = [one.beaten_by for one in points if one.scheme == default]
    return {
        "points": [_row(one) for one in points],
        "default": {"scheme": default, "on_frontier": all(name is None for name in beaten)},
    }


def _row(one: FrontierPoint) -> dict[str, Any]:
    """A strategy over all jobs of one length.

    Fields:
        scheme: name of the strategy
        hours: length of the jobs on the baseline's machines
        jobs: number of jobs
        unfinished: number of these that did not finish
        cost_pct: mean cost in percent of on-demand
        cost_low: lower end of its 95% interval
        cost_high: upper end of its 95% interval
        gross_pct: cost without refunds and unbilled time, to compare with `bound_pct`
        runtime_ratio: mean run time as a share of the baseline's
        bound_pct: least cost without refunds that any strategy can reach in that run time
        on_frontier: whether no other strategy is clearly cheaper and as fast
        beaten_by: cheapest strategy that is clearly cheaper and as fast; null on the frontier
    """
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
