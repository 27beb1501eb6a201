"""Results of a backtest as a table, JSON and CSV."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table

from bidbrain.backtest.results import BacktestSummary, JobResult, cheapest
from bidbrain.strategies.default import default_for
from pricing_data.units import format_time
from spotctl.show.layout import RankedColumn, ranked_table
from spotctl.show.outputs import finite, save_rows


def table(summaries: Sequence[BacktestSummary], width: int) -> Table:
    """One row per strategy and job length."""
    columns = (
        RankedColumn("strategy", [summary.scheme for summary in summaries]),
        RankedColumn("hours", [f"{summary.hours:g}" for summary in summaries]),
        RankedColumn("cost %", [f"{summary.cost_pct:.1f}" for summary in summaries]),
        RankedColumn("p50", [f"{summary.cost_p50:.1f}" for summary in summaries], 1),
        RankedColumn("p95", [f"{summary.cost_p95:.1f}" for summary in summaries], 2),
        RankedColumn("run time", [f"{summary.runtime_ratio:.2f}" for summary in summaries]),
        RankedColumn("evictions", [f"{summary.evictions_per_job:.1f}" for summary in summaries]),
        RankedColumn("free %", [f"{summary.free_pct:.1f}" for summary in summaries], 3),
        RankedColumn("unfinished", [str(summary.unfinished) for summary in summaries]),
    )
    return ranked_table(width, columns)


def choice(summaries: Sequence[BacktestSummary], billing: str) -> tuple[str, str]:
    """The cheapest strategy in these results, and the default under this billing rule."""
    best, default = cheapest(summaries), default_for(billing)
    first = f"cheapest strategy as fast as the baseline: {best}" if best else "no strategy is as fast as the baseline"
    return first, f"default for {billing} billing: {default.name}, because {default.reason}"


def answer(
    summaries: Sequence[BacktestSummary], billing: str, wall_seconds: float, remarks: Sequence[str] = ()
) -> dict[str, Any]:
    """The JSON of `--json`; figures are null where no job finished.

    Fields:
        default.scheme: its name
        default.reason: why
    """
    rows = [
        {name: finite(value) if isinstance(value, float) else value for name, value in asdict(summary).items()}
        for summary in summaries
    ]
    chosen = default_for(billing)
    default = {"scheme": chosen.name, "reason": chosen.reason}
    return {
        "results": rows,  #: results by strategy and job length, each -> BacktestSummary
        "cheapest": cheapest(summaries),  #: cheapest strategy that is as fast as the baseline; null if none is
        "default": default,  #: strategy that plans use under this billing rule
        "notes": list(remarks),  #: notes on strategies
        "wall_seconds": wall_seconds,  #: time that the command took
    }


def write_jobs(path: Path, results: Sequence[JobResult]) -> None:
    """A CSV with a row per job."""
    rows = []
    for result in results:
        end = "" if result.end is None else format_time(result.end)
        rows.append(asdict(result) | {"start": format_time(result.start), "end": end})
    save_rows(path, rows)
