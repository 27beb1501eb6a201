"""The deadline replay of `spotctl lab backtest deadline`: traces and options, the outcome of every
job, and plots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bidbrain.lab.backtest.deadline import (
    BASELINES,
    ON_DEMAND,
    SPOT,
    AvailabilityHistory,
    DeadlineJobs,
    DeadlineOutcome,
    DeadlineSummary,
    cost_ratios,
    decided,
    lay_out,
    published,
)
from bidbrain.strategies.deadline import DeadlineTerms
from pricing_data.availability import AvailabilityTrace
from pricing_data.sources.observations import read_availability
from pricing_data.units import DAY, HOUR, parse_duration
from spotctl.home.errors import BadRequest
from spotctl.lab.option_values import numbers
from spotctl.show import layout
from spotctl.show.columns import WALL_SECONDS, Column, as_json
from spotctl.show.plots import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PALE,
    RED,
    draw_bars,
    draw_stretches,
    legend_of,
    output_folder,
    panels,
    save_plot,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

_SPOT, _ON_DEMAND, _UP = BLUE, ORANGE, GREEN
_COLORS = {"greedy": PALE, "uniform-progress": INK, "deadline": _SPOT, "optimal": _UP}

DEADLINE: tuple[Column[Any], ...] = (
    Column("results", "results by strategy and slack", each=DeadlineSummary),
    Column(
        "gap_closed",
        "share of the gap from uniform-progress to the optimum that the deadline strategy closes",
        each=(Column("slack", "the slack"), Column("share", "that share; null if there is no gap")),
    ),
    WALL_SECONDS,
)


def jobs_of(
    traces: str, hours: float, slack: str, on_demand_ratio: float, delay: str, starts: int
) -> tuple[DeadlineJobs, list[str]]:
    """The jobs that the command's options ask for, and a remark for each slack for which some
    traces are too short.

    Raises BadRequest for an option that makes no sense, and if every trace is too short for a
    slack.
    """
    if not 0 < hours * HOUR < 100 * 365 * DAY:
        raise BadRequest(
            f"--hours {hours:g}: a job needs more than 0 hours of work, and fewer than a century"
        )
    if not 0 < on_demand_ratio < float("inf"):
        raise BadRequest(
            f"--on-demand-ratio {on_demand_ratio:g}: is not above 0 (3: on demand costs three "
            "times spot)"
        )

    terms = DeadlineTerms(round(hours * HOUR), parse_duration(delay, zero=True), on_demand_ratio)
    slacks = numbers("--slack", slack, "1.1,1.25,1.5,2")
    if wrong := [ratio for ratio in slacks if not 1 <= ratio < 1000]:
        raise BadRequest(
            f"--slack {wrong[0]:g}: the deadline must be at least 1 and less than 1000 times the "
            "work"
        )

    histories = tuple(map(AvailabilityHistory.of, recorded(traces)))
    jobs = lay_out(histories, terms, slacks, starts)
    for ratio in slacks:
        if ratio not in jobs.slack:
            longest = max(histories, key=lambda history: history.up.size * history.gap)
            raise BadRequest(
                f"slack {ratio:g}: a job of {terms.work / HOUR:g} hours has "
                f"{ratio * terms.work / HOUR:g} hours until"
                f" its deadline, and the longest trace, {longest.name}, has"
                f" {longest.up.size * longest.gap / HOUR:.1f}; use longer traces or shorter jobs"
            )

    return jobs, _left_out(jobs, slacks)


def recorded(traces: str) -> tuple[AvailabilityTrace, ...]:
    """The traces in the files that match a glob, by name."""
    names = glob(traces, recursive=True)  # noqa: PTH207  # Path.glob takes no absolute pattern
    paths = sorted(path for path in map(Path, names) if path.is_file())
    if not paths:
        raise BadRequest(
            f"--traces {traces!r}: no file matches (quote the glob, or the shell expands it)"
        )
    return tuple(map(read_availability, paths))


def _left_out(jobs: DeadlineJobs, slacks: Sequence[float]) -> list[str]:
    lines = []
    for slack in slacks:
        replayed = np.unique(jobs.history[jobs.slack == slack]).size
        if replayed < len(jobs.histories):
            span = slack * jobs.terms.work / HOUR
            short = len(jobs.histories) - replayed
            lines.append(
                f"slack {slack:g}: {short} of {len(jobs.histories)} traces are shorter than "
                f"{span:g} hours"
            )

    return lines


def deadline_json(summaries: Sequence[DeadlineSummary], wall_seconds: float) -> dict[str, Any]:
    """The JSON of `backtest deadline --json`."""
    closed = [{"slack": slack, "share": share} for slack, share in _gap_closed(summaries).items()]
    return as_json(
        DEADLINE, {"results": summaries, "gap_closed": closed, "wall_seconds": wall_seconds}
    )


def table(summaries: Sequence[DeadlineSummary]) -> Table:
    """A row for each strategy with its cost by slack, then the share of the gap that is closed."""
    slacks = list(dict.fromkeys(summary.slack for summary in summaries))
    shown = layout.plain_table(
        "strategy", *(f"slack {slack:g}" for slack in slacks), "spot h", "on-demand h", "misses"
    )

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


def _gap_closed(summaries: Sequence[DeadlineSummary]) -> dict[float, float | None]:
    """By slack, the share of the gap from uniform-progress to the optimum that the deadline
    strategy closes.
    """
    cost = {(summary.scheme, summary.slack): summary.cost_ratio for summary in summaries}
    shares = dict[float, float | None]()
    for slack in dict.fromkeys(summary.slack for summary in summaries):
        plain, own, best = (
            cost[scheme, slack] for scheme in ("uniform-progress", "deadline", "optimal")
        )
        shares[slack] = (plain - own) / (plain - best) if plain > best else None
    return shares


def write(
    folder: Path,
    jobs: DeadlineJobs,
    outcomes: Mapping[str, DeadlineOutcome],
    summaries: Sequence[DeadlineSummary],
) -> None:
    """Writes `cost_by_slack.png` and `one_replay.png`; creates the folder if needed.

    The replay is of the job with the median saving over uniform-progress, among those with the
    least slack.
    """
    least = np.flatnonzero(jobs.slack == jobs.slack.min())
    saved = (
        cost_ratios(jobs, outcomes["uniform-progress"]) - cost_ratios(jobs, outcomes["deadline"])
    )[least]
    job = int(least[np.argsort(saved, kind="stable")[saved.size // 2]])
    with output_folder(folder):
        save_plot(_cost_by_slack(summaries), folder / "cost_by_slack.png")
        save_plot(_one_replay(jobs.only(job)), folder / "one_replay.png")


def _cost_by_slack(summaries: Sequence[DeadlineSummary]) -> Figure:
    figure, (axes,) = panels(8, 4.5)
    slacks = list(dict.fromkeys(summary.slack for summary in summaries))
    costs: dict[str, list[float]] = {}
    for summary in summaries:
        costs.setdefault(summary.scheme, []).append(summary.cost_ratio)
    for bars in draw_bars(axes, costs, 0.8, _COLORS):
        axes.bar_label(bars, fmt="%.2f", fontsize=7, padding=1)
    axes.set_xticks(np.arange(len(slacks)), [f"{slack:g}" for slack in slacks])
    axes.set_xlabel("slack: time until the deadline / work")
    axes.set_ylabel("cost / on-demand cost")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), frameon=False, ncols=len(costs))

    return figure


def _one_replay(job: DeadlineJobs) -> Figure:
    """When spot was available, and on what the strategies ran one job."""
    figure, (axes,) = panels(10, 3.2)
    hours = float(job.tick[0]) / HOUR
    draw_stretches(axes, 0, job.window(0), hours, 0.7, _UP)
    outcomes = {
        **{name: published(job, name) for name in BASELINES},
        "deadline": decided(job),
    }

    for row, outcome in enumerate(outcomes.values(), start=1):
        assert outcome.course is not None
        draw_stretches(axes, row, outcome.course[0] == SPOT, hours, 0.7, _SPOT)
        draw_stretches(axes, row, outcome.course[0] == ON_DEMAND, hours, 0.7, _ON_DEMAND)

    names = ["spot available", *outcomes]
    axes.axvline(float(job.ticks[0]) * hours, color=RED, linewidth=1.5)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel("hours since the start (red line: deadline)")
    axes.set_title(
        f"{job.histories[int(job.history[0])].name}, slack {job.slack[0]:g}", loc="left", fontsize=9
    )
    patches = legend_of({"spot": _SPOT, "on-demand": _ON_DEMAND})
    axes.legend(
        handles=patches,
        loc="lower right",
        bbox_to_anchor=(1, 1),
        frameon=False,
        ncols=2,
        fontsize=8,
    )

    return figure
