"""`python -m bench.pipeline_convergence [DIR] [--updates N]`: the loss of every scheme on one task,
and its timeline.

A classifier of eight layers, from the real nodes and the real controller in this process, on four
stages of two layers. All schemes see the same microbatches in the same order, eight to an update;
`pipedream` and `vertical-sync` update after each one, at an eighth of the learning rate. Time is
that of the simulator, in forward passes of a stage (a backward pass takes two), so the figures
depend on nothing but the seed. DIR gets convergence.svg and timelines.svg.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from agileml.pipeline.builtin import mlp
from agileml.pipeline.elastic.seats import PipelineLayout
from agileml.pipeline.optimizers import Optimizer
from agileml.pipeline.run.local import train_simulated
from agileml.pipeline.run.training import PipelinePlan
from agileml.pipeline.schedule.schedules import (
    SCHEMES,
    STASHING,
    Pass,
    ScheduleShape,
    StepOrder,
    orders,
    replicated_orders,
)
from agileml.pipeline.schedule.simulator import PipelineRun, StageTimes, play

STAGES, MICROBATCHES, SAMPLES, RATE = 4, 8, 16, 0.05
TARGET = 0.3
"""The loss to reach, from about 2.4 at the start."""

PLAYED = 6
"""Batches whose operations are played for the time of an update."""

COLORS = {Pass.FORWARD: "#4c78a8", Pass.BACKWARD: "#72b7b2", Pass.UPDATE: "#e45756"}


@dataclass(frozen=True)
class SchemeCourse:
    """The mean loss of every eight microbatches, the time that these take, and operations of the
    first batches.
    """

    losses: tuple[float, ...]
    period: float
    run: PipelineRun

    @property
    def steps(self) -> int | None:
        """Groups of eight microbatches until the loss is at its target."""
        return next((i for i, loss in enumerate(self.losses, 1) if loss <= TARGET), None)


def play_scheme(scheme: str) -> tuple[PipelineRun, float]:
    """Operations of some batches, and the time of eight microbatches once the pipeline is full."""
    chunks = 2 if scheme == "interleaved" else 1
    times = [StageTimes(1 / chunks, 2 / chunks, 0.0, 0.0)] * (STAGES * chunks)
    lines: Sequence[Sequence[StepOrder]]
    if scheme in STASHING:
        lines = replicated_orders([1] * STAGES, PLAYED * MICROBATCHES, 0)
    else:
        lines = [
            [order] for order in orders(ScheduleShape(scheme, STAGES, MICROBATCHES, PLAYED, chunks))
        ]
    run = play(lines, times)
    return run, run.period() * (MICROBATCHES if scheme in STASHING else 1)


def train_scheme(scheme: str, updates: int) -> tuple[float, ...]:
    """The mean losses of eight microbatches each."""
    chunks, alone = 2 if scheme == "interleaved" else 1, scheme in STASHING
    spans = (
        tuple((i, i) for i in range(8))
        if chunks == 2
        else tuple((2 * i, 2 * i + 1) for i in range(STAGES))
    )
    batch = 1 if alone else MICROBATCHES
    plan = PipelinePlan(
        updates * MICROBATCHES // batch,
        batch,
        scheme,
        chunks,
        every=updates * MICROBATCHES,
        layouts={STAGES: PipelineLayout((spans,), (batch,), chunks)},
    )
    optimizer = Optimizer("sgd", RATE / MICROBATCHES if alone else RATE)
    losses = train_simulated(mlp(SAMPLES), optimizer, plan, STAGES).losses
    return tuple(
        mean(losses[k] for k in range(i, i + MICROBATCHES))
        for i in range(0, len(losses), MICROBATCHES)
    )


def courses(updates: int) -> dict[str, SchemeCourse]:
    """All schemes."""
    by_scheme = {}
    for scheme in SCHEMES:
        run, period = play_scheme(scheme)
        by_scheme[scheme] = SchemeCourse(train_scheme(scheme, updates), period, run)
    return by_scheme


def table(by_scheme: dict[str, SchemeCourse]) -> str:
    """A row for each scheme."""
    lines = [
        f"| scheme | time of {MICROBATCHES} microbatches | last loss | microbatches to {TARGET} | "
        f"time to {TARGET} |"
    ]
    lines.append("| --- |" + " ---: |" * 4)
    for scheme, course in by_scheme.items():
        steps = course.steps
        reached = (
            "- | -" if steps is None else f"{steps * MICROBATCHES} | {steps * course.period:.0f}"
        )
        lines.append(f"| `{scheme}` | {course.period:.1f} | {course.losses[-1]:.4f} | {reached} |")
    return "\n".join(lines)


def draw_losses(by_scheme: dict[str, SchemeCourse], path: Path) -> None:
    """The loss against microbatches and against time."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 5), layout="constrained")
    steps, seconds = figure.subplots(1, 2, sharey=True)
    # Schemes without delay have the same losses: their lines get thinner, so that all can be seen.
    for i, (scheme, course) in enumerate(by_scheme.items()):
        groups, style = range(1, len(course.losses) + 1), {"linewidth": 4 - 0.6 * i, "alpha": 0.8}
        steps.plot([k * MICROBATCHES for k in groups], course.losses, label=scheme, **style)
        seconds.plot([k * course.period for k in groups], course.losses, label=scheme, **style)
    steps.set(xlabel="microbatches", ylabel="loss", yscale="log")
    seconds.set(xlabel="time (forward passes of a stage)")
    for axes in (steps, seconds):
        axes.axhline(TARGET, color="gray", linewidth=0.8)
        axes.legend()
    figure.savefig(path)


def draw_timelines(by_scheme: dict[str, SchemeCourse], path: Path) -> None:
    """The operations of every stage in the time of the first two batches of the slowest scheme."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    shown = 2 * max(course.period for course in by_scheme.values())
    figure = Figure(figsize=(14, 2 * len(by_scheme)), layout="constrained")
    for row, (scheme, course) in enumerate(by_scheme.items()):
        axes = figure.add_subplot(len(by_scheme), 1, row + 1)
        for span in course.run.spans:
            if span.start < shown and span.end > span.start:
                axes.barh(
                    STAGES - span.stage,
                    span.end - span.start,
                    left=span.start,
                    color=COLORS[span.step.kind],
                    edgecolor="white",
                    alpha=0.6 if span.step.chunk else 1.0,
                )
                middle = (span.start + span.end) / 2
                axes.text(
                    middle,
                    STAGES - span.stage,
                    str(span.step.microbatch),
                    fontsize=7,
                    ha="center",
                    va="center",
                    clip_on=True,
                )
        axes.set(xlim=(0, shown), title=scheme, yticks=range(1, STAGES + 1))
        axes.set_yticklabels([f"stage {STAGES + 1 - i}" for i in range(1, STAGES + 1)])
    kinds = [
        Patch(color=COLORS[kind], label=kind.name.lower()) for kind in (Pass.FORWARD, Pass.BACKWARD)
    ]
    figure.legend(handles=kinds, loc="outside upper right")
    figure.savefig(path)


def main() -> None:
    """Prints the table, and draws both pictures."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.pipeline_convergence", description=__doc__
    )
    parser.add_argument(
        "folder", nargs="?", type=Path, metavar="DIR", help="folder for the pictures"
    )
    parser.add_argument("--updates", type=int, default=60, help="updates of eight microbatches")
    chosen = parser.parse_args()
    by_scheme = courses(chosen.updates)
    print(table(by_scheme))
    if chosen.folder is not None:
        chosen.folder.mkdir(parents=True, exist_ok=True)
        draw_losses(by_scheme, chosen.folder / "convergence.svg")
        draw_timelines(by_scheme, chosen.folder / "timelines.svg")


if __name__ == "__main__":
    main()
