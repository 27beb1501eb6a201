"""Results of a simulation as a table, JSON and CSV."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table

from bidbrain.gavel.simulator.engine import SimulationOutcome
from bidbrain.gavel.simulator.results import SimulationSummary, job_results
from pricing_data.units import usd_text
from spotctl.show.outputs import output_folder, save_rows

_UNKNOWN = "-"


def answer(summary: SimulationSummary, wall_seconds: float) -> dict[str, Any]:
    """The JSON of `--json`. The cost is null without prices, violations are null without deadlines.

    Fields:
        groups: jobs by entity, or by priority
        groups[] -> bidbrain.gavel.simulator.results:JobGroup
    """
    return {
        "average_jct_seconds": summary.average_jct_seconds,  #: mean time from a job's arrival to its end
        #: time from the first arrival of a measured job to the last end of one
        "makespan_seconds": summary.makespan_seconds,
        "utilization": summary.utilization,  #: share of the cluster's time in use
        "cost_usd": summary.cost_usd,  #: cost; null without prices
        "slo_violations": summary.slo_violations,  #: number of deadlines missed; null without deadlines
        "jobs": summary.jobs,  #: number of jobs measured
        **({"groups": [asdict(group) for group in summary.groups]} if summary.groups else {}),
        "wall_seconds": wall_seconds,  #: time that the command took
    }


def table(summary: SimulationSummary) -> Table:
    """One row per figure."""
    rows = Table(box=None, show_header=False, pad_edge=False)
    rows.add_column(no_wrap=True)
    rows.add_column(justify="right", no_wrap=True)
    cost, violations = summary.cost_usd, summary.slo_violations
    for name, value in (
        ("jobs measured", f"{summary.jobs:,}"),
        ("average completion time", _hours(summary.average_jct_seconds)),
        ("makespan", _hours(summary.makespan_seconds)),
        ("utilization of the cluster", f"{summary.utilization:.1%}"),
        ("finish-time fairness, mean", f"{summary.finish_time_fairness:.2f}"),
        ("moves per job", f"{summary.moves_per_job:.1f}"),
        ("cost", _UNKNOWN if cost is None else usd_text(cost)),
        ("deadlines missed", _UNKNOWN if violations is None else f"{violations:,}"),
    ):
        rows.add_row(name, value)
    for group in summary.groups:
        rows.add_row(f"completion time, {group.jobs:,} jobs of {group.name}", _hours(group.average_jct_seconds))
    return rows


def write_csv(folder: Path, outcome: SimulationOutcome) -> None:
    """Writes `jobs.csv` with a row per measured job; cells without a value are empty."""
    with output_folder(folder):
        save_rows(folder / "jobs.csv", [_row(asdict(result)) for result in job_results(outcome)])


def _row(result: dict[str, Any]) -> dict[str, Any]:
    """Splits the seconds on each worker type into columns."""
    seconds_by_type = {f"{type_}_seconds": seconds for type_, seconds in result.pop("held_seconds").items()}
    return {**result, **seconds_by_type}


def _hours(seconds: float) -> str:
    return f"{seconds:,.1f} s ({seconds / 3600:,.1f} h)"
