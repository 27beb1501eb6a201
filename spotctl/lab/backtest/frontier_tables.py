"""The frontier of cost and run time as a table and as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

from rich.table import Table

from bidbrain.backtest.frontier import BoundPoint, FrontierPoint
from bidbrain.strategies.default import default_for
from spotctl.show.layout import RankedColumn, ranked_table
from spotctl.show.outputs import finite

NO_WINDOWS: Mapping[str, Sequence[FrontierPoint]] = MappingProxyType({})


def table(points: Sequence[FrontierPoint], width: int) -> Table:
    """One row per strategy and job length, the fastest first."""
    rows = sorted(points, key=lambda point: (point.hours, point.runtime_ratio))
    columns = (
        RankedColumn("strategy", [point.scheme for point in rows]),
        RankedColumn("hours", [f"{point.hours:g}" for point in rows]),
        RankedColumn("jobs", [_jobs(point) for point in rows], 4),
        RankedColumn("run time", [f"{point.runtime_ratio:.3f}" for point in rows]),
        RankedColumn("cost %", [f"{point.cost_pct.mean:.2f}" for point in rows]),
        RankedColumn("95%", [_interval(point) for point in rows], 1),
        RankedColumn("gross %", [f"{point.gross_pct:.1f}" for point in rows], 3),
        RankedColumn("bound %", [f"{point.bound_pct:.1f}" for point in rows], 2),
        RankedColumn("beaten by", [point.beaten_by or "" for point in rows]),
    )
    return ranked_table(width, columns)


def _jobs(point: FrontierPoint) -> str:
    return f"{point.jobs} ({point.unfinished} unfinished)" if point.unfinished else f"{point.jobs}"


def _interval(point: FrontierPoint) -> str:
    return "-" if point.cost_pct.low is None else f"[{point.cost_pct.low:.1f}, {point.cost_pct.high:.1f}]"


def verdict(points: Sequence[FrontierPoint], billing: str) -> str:
    """Whether the default of a billing rule is on the frontier."""
    default = default_for(billing).name
    mine = [point for point in points if point.scheme == default]
    if not mine:
        return f"the default for {billing}, {default}, is not among these strategies"
    beaten = [f"{point.beaten_by} for {point.hours:g} hours" for point in mine if point.beaten_by]
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
    others = [{"window": name, **_judged(window_points, billing)} for name, window_points in windows.items()]
    return {
        **_judged(points, billing),
        "bound": [asdict(bound_point) for bound_point in bound],
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
    beaten = [point.beaten_by for point in points if point.scheme == default]
    return {
        "points": [_row(point) for point in points],
        "default": {"scheme": default, "on_frontier": all(name is None for name in beaten)},
    }


def _row(point: FrontierPoint) -> dict[str, Any]:
    """A strategy over all jobs of one length."""
    return {
        "scheme": point.scheme,  #: name of the strategy
        "hours": point.hours,  #: length of the jobs on the baseline's machines
        "jobs": point.jobs,  #: number of jobs
        "unfinished": point.unfinished,  #: number of these that did not finish
        "cost_pct": finite(point.cost_pct.mean),  #: mean cost in percent of on-demand
        "cost_low": point.cost_pct.low,  #: lower end of its 95% interval
        "cost_high": point.cost_pct.high,  #: upper end of its 95% interval
        "gross_pct": finite(point.gross_pct),  #: cost without refunds and unbilled time, to compare with `bound_pct`
        "runtime_ratio": finite(point.runtime_ratio),  #: mean run time as a share of the baseline's
        #: least cost without refunds that any strategy can reach in that run time
        "bound_pct": finite(point.bound_pct),
        #: whether no other strategy is clearly cheaper and as fast
        "on_frontier": point.beaten_by is None and not point.unfinished,
        "beaten_by": point.beaten_by,  #: cheapest strategy that is clearly cheaper and as fast; null on the frontier
    }
