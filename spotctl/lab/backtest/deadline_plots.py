"""Plots of the deadline replay: cost by slack and strategy, and the machines of one job over time."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from bidbrain.backtest.deadline import DeadlineJobs, DeadlineOutcome, DeadlineSummary, cost_ratios, replay
from bidbrain.backtest.deadline_decided import decided
from bidbrain.backtest.deadline_strategies import Greedy, UniformProgress
from bidbrain.strategies.deadline_job import ON_DEMAND, SPOT
from pricing_data.units import HOUR
from spotctl.lab.backtest.deadline import ReplayRequest
from spotctl.show.outputs import output_folder
from spotctl.show.plot_style import BLUE, GREEN, INK, ORANGE, PALE, RED, draw_stretches, save_plot

_SPOT, _ON_DEMAND, _UP = BLUE, ORANGE, GREEN
_COLORS = {"greedy": PALE, "uniform-progress": INK, "deadline": _SPOT, "optimal": _UP}


def write(
    folder: Path,
    question: ReplayRequest,
    jobs: DeadlineJobs,
    outcomes: Mapping[str, DeadlineOutcome],
    summaries: Sequence[DeadlineSummary],
) -> None:
    """Writes `cost_by_slack.png` and `one_replay.png`; creates the folder if needed."""
    with output_folder(folder):
        save_plot(_costs(summaries), folder / "cost_by_slack.png")
        save_plot(_timeline(question, jobs, _example(jobs, outcomes)), folder / "one_replay.png")


def _costs(summaries: Sequence[DeadlineSummary]) -> Figure:
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    strategies = list(dict.fromkeys(summary.scheme for summary in summaries))
    slacks = list(dict.fromkeys(summary.slack for summary in summaries))
    width = 0.8 / len(strategies)
    for i, strategy in enumerate(strategies):
        costs = [summary.cost_ratio for summary in summaries if summary.scheme == strategy]
        places = np.arange(len(slacks)) + (i - (len(strategies) - 1) / 2) * width
        bars = axes.bar(places, costs, width, label=strategy, color=_COLORS[strategy])
        axes.bar_label(bars, fmt="%.2f", fontsize=7, padding=1)
    axes.set_xticks(np.arange(len(slacks)), [f"{slack:g}" for slack in slacks])
    axes.set_xlabel("slack: time until the deadline / work")
    axes.set_ylabel("cost / on-demand cost")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), frameon=False, ncols=len(strategies))
    return figure


def _example(jobs: DeadlineJobs, outcomes: Mapping[str, DeadlineOutcome]) -> int:
    """The job with the median saving over uniform-progress, among those with the least slack."""
    least = np.flatnonzero(jobs.slack == jobs.slack.min())
    saved = (cost_ratios(jobs, outcomes["uniform-progress"]) - cost_ratios(jobs, outcomes["deadline"]))[least]
    return int(least[np.argsort(saved, kind="stable")[saved.size // 2]])


def _timeline(question: ReplayRequest, jobs: DeadlineJobs, job: int) -> Figure:
    shown = jobs.only(job)
    figure = Figure(figsize=(10, 3.2), layout="constrained")
    axes = figure.subplots()
    hours = float(shown.tick[0]) / HOUR
    draw_stretches(axes, 0, shown.window(0), hours, 0.7, _UP)
    names = ["spot available"]
    outcomes = {
        **{scheme.name: replay(shown, scheme, keep_course=True) for scheme in (Greedy(), UniformProgress())},
        "deadline": decided(shown, question.histories, keep_course=True),
    }
    for row, (name, outcome) in enumerate(outcomes.items(), start=1):
        assert outcome.course is not None
        draw_stretches(axes, row, outcome.course[0] == SPOT, hours, 0.7, _SPOT)
        draw_stretches(axes, row, outcome.course[0] == ON_DEMAND, hours, 0.7, _ON_DEMAND)
        names.append(name)
    axes.axvline(float(shown.ticks[0]) * hours, color=RED, linewidth=1.5)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel("hours since the start (red line: deadline)")
    axes.set_title(
        f"{question.histories[int(shown.history[0])].name}, slack {shown.slack[0]:g}", loc="left", fontsize=9
    )
    patches = [Patch(color=_SPOT, label="spot"), Patch(color=_ON_DEMAND, label="on-demand")]
    axes.legend(handles=patches, loc="lower right", bbox_to_anchor=(1, 1), frameon=False, ncols=2, fontsize=8)
    return figure
