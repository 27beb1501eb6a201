"""Costs of jobs with a deadline, by strategy and slack, as a table and as JSON."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from bidbrain.backtest.deadline import DeadlineSummary
from spotctl.show.layout import plain_table


def table(summaries: Sequence[DeadlineSummary]) -> Table:
    """A row for each strategy with its cost by slack, then the share of the gap that is closed."""
    slacks = list(dict.fromkeys(summary.slack for summary in summaries))
    shown = plain_table("strategy", *(f"slack {slack:g}" for slack in slacks), "spot h", "on-demand h", "misses")
    for scheme in dict.fromkeys(summary.scheme for summary in summaries):
        rows = [summary for summary in summaries if summary.scheme == scheme]
        jobs = sum(row.jobs for row in rows)
        shown.add_row(
            scheme,
            *(f"{row.cost_ratio:.3f}" for row in rows),
            f"{sum(row.spot_hours * row.jobs for row in rows) / jobs:.1f}",
            f"{sum(row.on_demand_hours * row.jobs for row in rows) / jobs:.1f}",
            str(sum(row.misses for row in rows)),
        )
    closed = ("-" if share is None else f"{share:.0%}" for share in _gap_closed(summaries).values())
    shown.add_row("gap closed", *closed, "", "", "", style="dim")
    return shown


def answer(summaries: Sequence[DeadlineSummary], wall_seconds: float) -> dict[str, Any]:
    """The JSON of `--json`.

    Fields:
        results: results by strategy and slack
        results[] -> bidbrain.backtest.deadline:DeadlineSummary
        gap_closed: share of the gap from uniform-progress to the optimum that the deadline strategy closes
        gap_closed[].slack: the slack
        gap_closed[].share: that share; null if there is no gap
        wall_seconds: time that the command took
    """
    closed = [{"slack": slack, "share": share} for slack, share in _gap_closed(summaries).items()]
    return {"results": [asdict(summary) for summary in summaries], "gap_closed": closed, "wall_seconds": wall_seconds}


def _gap_closed(summaries: Sequence[DeadlineSummary]) -> dict[float, float | None]:
    """By slack, the share of the gap from uniform-progress to the optimum that the deadline strategy closes."""
    cost = {(summary.scheme, summary.slack): summary.cost_ratio for summary in summaries}
    shares = dict[float, float | None]()
    for slack in dict.fromkeys(summary.slack for summary in summaries):
        plain, own, best = (cost[scheme, slack] for scheme in ("uniform-progress", "deadline", "optimal"))
        shares[slack] = (plain - own) / (plain - best) if plain > best else None
    return shares
