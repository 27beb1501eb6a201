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
        allowed = "a job needs more than 0 hours of work, and fewer than a century"
        raise BadRequest(f"--hours {hours:g}: {allowed}")
    if not 0 < on_demand_ratio < float("inf"):
        raise BadRequest(
            f"--on-demand-ratio {on_demand_ratio:g}: is not above 0 (3: on demand costs three "
            "times spot)"
        )

    work, start = round(hours * HOUR), parse_duration(delay, zero=True)
    terms = DeadlineTerms(work, start, on_demand_ratio)
    slacks = numbers("--slack", slack, "1.1,1.25,1.5,2")
    wrong = [ratio for ratio in slacks if not 1 <= ratio < 1000]
    if wrong:
        raise BadRequest(
            f"--slack {wrong[0]:g}: the deadline must be at least 1 and less than 1000 times the "
            "work"
        )

    histories = [AvailabilityHistory.of(trace) for trace in recorded(traces)]
    jobs = lay_out(tuple(histories), terms, slacks, starts)
    lengths = [history.up.size * history.gap / HOUR for history in histories]
    for ratio in slacks:
        if ratio not in jobs.slack:
            length = max(lengths)
            longest = histories[lengths.index(length)]
            job_hours = terms.work / HOUR
            until_deadline = ratio * terms.work / HOUR
            raise BadRequest(
                f"slack {ratio:g}: a job of {job_hours:g} hours has {until_deadline:g} hours until "
                f"its deadline, and the longest trace, {longest.name}, has {length:.1f}; use "
                "longer traces or shorter jobs"
            )

    lines, traces_given = list[str](), len(jobs.histories)
    for each_slack in slacks:
        of_slack = jobs.history[jobs.slack == each_slack]
        replayed = np.unique(of_slack).size
        if replayed < traces_given:
            span, short = each_slack * jobs.terms.work / HOUR, traces_given - replayed
            left_out = f"{short} of {traces_given} traces"
            lines.append(f"slack {each_slack:g}: {left_out} are shorter than {span:g} hours")

    return jobs, lines


def recorded(traces: str) -> tuple[AvailabilityTrace, ...]:
    """The traces in the files that match a glob, by name."""
    names = glob(traces, recursive=True)  # noqa: PTH207  # Path.glob takes no absolute pattern
    paths = sorted(path for path in map(Path, names) if path.is_file())
    if not paths:
        raise BadRequest(
            f"--traces {traces!r}: no file matches (quote the glob, or the shell expands it)"
        )
    return tuple(map(read_availability, paths))


def deadline_json(summaries: Sequence[DeadlineSummary], wall_seconds: float) -> dict[str, Any]:
    """The JSON of `backtest deadline --json`."""
    closed = [{"slack": slack, "share": share} for slack, share in _gap_closed(summaries).items()]
    figures = {"results": summaries, "gap_closed": closed, "wall_seconds": wall_seconds}
    return as_json(DEADLINE, figures)


def table(summaries: Sequence[DeadlineSummary]) -> Table:
    """A row for each strategy with its cost by slack, then the share of the gap that is closed."""
    slacks = list(dict.fromkeys(summary.slack for summary in summaries))
    headings = [f"slack {slack:g}" for slack in slacks]
    shown = layout.plain_table("strategy", *headings, "spot h", "on-demand h", "misses")

    by_scheme = dict[str, list[DeadlineSummary]]()
    for summary in summaries:
        by_scheme.setdefault(summary.scheme, []).append(summary)
    for scheme, rows in by_scheme.items():
        costs = [f"{row.cost_ratio:.3f}" for row in rows]
        jobs = sum(row.jobs for row in rows)
        spot = sum(row.spot_hours * row.jobs for row in rows) / jobs
        on_demand = sum(row.on_demand_hours * row.jobs for row in rows) / jobs
        misses = sum(row.misses for row in rows)
        hours = f"{spot:.1f}", f"{on_demand:.1f}"
        shown.add_row(scheme, *costs, *hours, str(misses))

    closed = list[str]()
    for share in _gap_closed(summaries).values():
        cell = "-" if share is None else f"{share:.0%}"
        closed.append(cell)
    shown.add_row("gap closed", *closed, "", "", "", style="dim")
    return shown


def _gap_closed(summaries: Sequence[DeadlineSummary]) -> dict[float, float | None]:
    """By slack, the share of the gap from uniform-progress to the optimum that the deadline
    strategy closes.
    """
    cost = {(summary.scheme, summary.slack): summary.cost_ratio for summary in summaries}
    shares = dict[float, float | None]()
    for slack in dict.fromkeys(summary.slack for summary in summaries):
        plain = cost["uniform-progress", slack]
        own, best = cost["deadline", slack], cost["optimal", slack]
        shares[slack] = None
        if plain > best:
            shares[slack] = (plain - own) / (plain - best)
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
    ratios = [cost_ratios(jobs, outcomes[name]) for name in ("uniform-progress", "deadline")]
    plain, own = ratios
    is_tightest = jobs.slack == jobs.slack.min()
    least = np.flatnonzero(is_tightest)
    saved = (plain - own)[least]
    by_saving = np.argsort(saved, kind="stable")
    job = int(least[by_saving[saved.size // 2]])
    with output_folder(folder):
        figure, (axes,) = panels(8, 4.5)
        slacks, costs = dict[float, str](), dict[str, list[float]]()
        for summary in summaries:
            slacks[summary.slack] = f"{summary.slack:g}"
            costs.setdefault(summary.scheme, []).append(summary.cost_ratio)

        for bars in draw_bars(axes, costs, 0.8, _COLORS):
            axes.bar_label(bars, fmt="%.2f", fontsize=7, padding=1)
        places, labels = np.arange(len(slacks)), list(slacks.values())
        axes.set_xticks(places, labels)
        axes.set_xlabel("slack: time until the deadline / work")
        axes.set_ylabel("cost / on-demand cost")
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), frameon=False, ncols=len(costs))

        save_plot(figure, folder / "cost_by_slack.png")

        replay = _one_replay(jobs.only(job))
        save_plot(replay, folder / "one_replay.png")


def _one_replay(job: DeadlineJobs) -> Figure:
    """When spot was available, and on what the strategies ran one job."""
    figure, (axes,) = panels(10, 3.2)
    hours = float(job.tick[0]) / HOUR
    draw_stretches(axes, 0, job.window(0), hours, 0.7, _UP)
    outcomes = {name: published(job, name) for name in BASELINES}
    outcomes["deadline"] = decided(job)

    for row, outcome in enumerate(outcomes.values(), start=1):
        assert outcome.course is not None
        course = outcome.course[0]
        draw_stretches(axes, row, course == SPOT, hours, 0.7, _SPOT)
        draw_stretches(axes, row, course == ON_DEMAND, hours, 0.7, _ON_DEMAND)

    names = ["spot available", *outcomes]
    deadline = float(job.ticks[0]) * hours
    axes.axvline(deadline, color=RED, linewidth=1.5)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel("hours since the start (red line: deadline)")
    history, slack = job.histories[int(job.history[0])], job.slack[0]
    axes.set_title(f"{history.name}, slack {slack:g}", loc="left", fontsize=9)
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
