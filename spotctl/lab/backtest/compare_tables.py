"""Paired differences between strategies as a table and as JSON."""

from collections.abc import Sequence
from dataclasses import asdict
from math import isfinite
from typing import Any

from rich.table import Table

from bidbrain.backtest.robustness import ConfidenceInterval, PairedDifference
from spotctl.show.layout import RankedColumn, ranked_table
from spotctl.show.outputs import finite


def table(differences: Sequence[PairedDifference], width: int) -> Table:
    """One row per variant, strategy and job length. A narrow terminal gets fewer columns."""
    costs = [_cells(difference.cost, ".2f") for difference in differences]
    times = [_cells(difference.runtime, ".3f") for difference in differences]
    jobs = [
        f"{difference.jobs} (+{difference.unpaired} unpaired)" if difference.unpaired else f"{difference.jobs}"
        for difference in differences
    ]
    columns = (
        RankedColumn("variant", [difference.variant for difference in differences]),
        RankedColumn("strategy", [difference.scheme for difference in differences]),
        RankedColumn("hours", [f"{difference.hours:g}" for difference in differences]),
        RankedColumn("jobs", jobs, 3),
        RankedColumn("cost, points", [mean for mean, _ in costs]),
        RankedColumn("95%", [ends for _, ends in costs], 1),
        RankedColumn("run time", [mean for mean, _ in times]),
        RankedColumn("95%", [ends for _, ends in times], 2),
    )
    return ranked_table(width, columns, names=2)


def answer(differences: Sequence[PairedDifference], wall_seconds: float) -> dict[str, Any]:
    """The JSON of `--json`; unknown values are null.

    Fields:
        differences: paired differences between strategies over the jobs that both finished
        differences[].variant: variant of the scenario
        differences[].scheme: name of the strategy
        differences[].against: strategy that it is compared with
        differences[].hours: length of the jobs on the baseline's machines
        differences[].jobs: number of jobs compared
        differences[].unpaired: number of jobs that either did not finish
        differences[].cost_points: mean difference in cost, in percentage points of on-demand
        differences[].cost_low: lower end of its 95% interval
        differences[].cost_high: upper end of its 95% interval
        differences[].runtime_ratio: mean difference in run time, as a share of the baseline's
        differences[].runtime_low: lower end of its 95% interval
        differences[].runtime_high: upper end of its 95% interval
        wall_seconds: time that the command took
    """
    rows = [
        {
            **{name: value for name, value in asdict(difference).items() if name not in ("cost", "runtime")},
            "cost_points": finite(difference.cost.mean),
            "cost_low": difference.cost.low,
            "cost_high": difference.cost.high,
            "runtime_ratio": finite(difference.runtime.mean),
            "runtime_low": difference.runtime.low,
            "runtime_high": difference.runtime.high,
        }
        for difference in differences
    ]
    return {"differences": rows, "wall_seconds": wall_seconds}


def _cells(interval: ConfidenceInterval, spec: str) -> tuple[str, str]:
    if not isfinite(interval.mean):
        return "-", "-"
    ends = "-" if interval.low is None else f"[{interval.low:+{spec}}, {interval.high:+{spec}}]"
    return f"{interval.mean:+{spec}}", ends
