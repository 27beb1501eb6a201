"""Results of the replay of many zones, as a table and as JSON."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from bidbrain.backtest.regions.policies import PlayedWindow
from pricing_data.units import HOUR
from spotctl.lab.backtest.regions import PolicySummary
from spotctl.show.layout import plain_table


def table(summaries: Sequence[PolicySummary]) -> Table:
    """A row for each policy, with means per window."""
    shown = plain_table("policy", "windows", "cost $", "over optimal", "moves", "probes", "spot", "misses")
    for summary in summaries:
        excess = "-" if summary.excess is None else f"{summary.excess:+.1%}"
        figures = (
            f"{summary.cost_usd:,.2f}",
            excess,
            f"{summary.moves:.1f}",
            f"{summary.probes:.1f}",
            f"{summary.spot_share:.0%}",
        )
        shown.add_row(summary.policy, str(summary.windows), *figures, str(summary.missed))
    return shown


def answer(results: Sequence[PlayedWindow], summaries: Sequence[PolicySummary], seconds: float) -> dict[str, Any]:
    """The JSON of `--json`."""
    return {
        "results": [_row(result) for result in results],  #: results by policy and window, each -> _row
        #: means over all windows by policy, each -> spotctl.lab.backtest.regions:PolicySummary
        "policies": [asdict(summary) for summary in summaries],
        "wall_seconds": seconds,  #: time that the command took
    }


def _row(played: PlayedWindow) -> dict[str, Any]:
    """A policy in one window."""
    window, outcome = played.window, played.outcome
    record, job, bill = window.record, window.job, outcome.bill
    start = window.start * record.gap / HOUR
    return {
        "policy": played.policy,  #: name of the policy
        #: zones, start and length of the window in words
        "window": f"{','.join(record.zones)} from {start:.2f} h, {job.work / HOUR:.2f} of {job.deadline / HOUR:.2f} h",
        "start_hours": start,  #: its start in the record
        "work_hours": job.work / HOUR,  #: work of the job
        "deadline_hours": job.deadline / HOUR,  #: time until the deadline
        "checkpoint_gb": job.checkpoint_gb,  #: size of the checkpoint
        "zones": list(record.zones),  #: zones that the policy may use
        "cost_usd": bill.total,  #: cost of the job
        "machines_usd": bill.machines,  #: part for machines
        "moving_usd": bill.moving,  #: part for moving checkpoints
        "probing_usd": bill.probing,  #: part for probing whether spot is available
        "moves": bill.moves,  #: number of moves
        "probes": bill.probes,  #: number of probes
        "spot_hours": outcome.spot_steps * record.gap / HOUR,  #: hours on spot
        "on_demand_hours": outcome.on_demand_steps * record.gap / HOUR,  #: hours on demand
        "missed": outcome.missed,  #: whether the deadline was missed
    }
