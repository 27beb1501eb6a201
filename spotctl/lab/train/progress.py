"""A training run on the terminal: a line for each clock, a summary, and a plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from agileml.core.events import Iteration
from agileml.iteration_log import spans_text
from pricing_data.atomic_write import atomic_write
from spotctl.show.columns import UNKNOWN, Column
from spotctl.show.layout import pairs_table
from spotctl.show.plots import BLUE, GOLD, GREEN, INK, PURPLE, RED, panels, save_plot
from spotctl.show.runs.run_answers import COUNTED, TRAINED
from spotctl.show.runs.status import shown_loss

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.table import Table

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


_TIME, _LOSS, _PLAIN, _RELIABLE, _TRANSIENT = BLUE, GREEN, RED, INK, GOLD
_DECADE = 10.0

_MARKS = {
    "warned": ("warned", GOLD, "v"),
    "left": ("left after the warning", GREEN, "^"),
    "lost": ("lost", RED, "X"),
    "ready": ("joined", BLUE, "P"),
    "controller": ("controller restarted", PURPLE, "D"),
}
"""By a word in the event: its label in the legend, color and marker."""


ANSWER: tuple[Column[Mapping[str, Any]], ...] = (
    *TRAINED,
    Column("reassigned_items", "items done by other workers than their owners"),
    Column("helped_ms", "time that these took, in milliseconds"),
    Column("moved_bytes", "bytes of data that moved for it"),
    Column(
        "waited_for", "number of workers that each clock waited for, in jobs with backup workers"
    ),
    Column("dropped_chunks", "chunks that arrived too late and were dropped"),
    Column("suspended_seconds", "time for which workers were suspended"),
    *COUNTED,
    Column(
        "curves",
        "with --against plain, the losses after each number of clocks where the run has one; "
        "missing without",
        optional=True,
        each=(
            Column("clocks", "clocks done"),
            Column("loss", "loss of the run"),
            Column("plain_loss", "loss of plain PyTorch in one process"),
        ),
    ),
    Column(
        "compared",
        "with --replay, whether the log has the model of the run, with which this one was compared",
    ),
)
"""The JSON of `spotctl lab train`, which `agileml.iteration_log` knows; the rest only with
--stragglers."""


def line(iteration: Iteration) -> str:
    """`clock 3  stage 1  nodes 1+4  loss 0.5  20 ms`."""
    return (
        f"clock {iteration.clock}  stage {iteration.stage}  nodes "
        f"{iteration.reliable}+{iteration.transient}"
        f"  loss {shown_loss(iteration.loss) or UNKNOWN}  {seconds(iteration.seconds)}"
    )


def events(iteration: Iteration) -> list[str]:
    """The events of a clock, a line each."""
    return [f"clock {iteration.clock}: {event}" for event in iteration.events]


def summary(history: Sequence[Iteration], ending: Mapping[str, Any], *, virtual: bool) -> Table:
    """The summary of a run, from its clocks and the last line of its log. `virtual`: its time was
    simulated.
    """
    began, end = history[0], history[-1]
    slowest = max(history, key=lambda iteration: iteration.seconds)
    losses = [iteration for iteration in history if iteration.loss is not None]
    sums = [iteration.sums for iteration in history]
    push, pull, backup = (
        sum(getattr(clock_sums, name) for clock_sums in sums)
        for name in ("pushed", "pulled", "backup")
    )
    lost = "".join(f", {ending[f'updates_{what}']:,} {what}" for what in ("lost", "doubled"))
    total = seconds(sum(iteration.seconds for iteration in history))
    rows = [
        ("clocks", f"{ending['clocks']:,} in {total}{' of virtual time' if virtual else ''}"),
        (
            "time per clock",
            f"{seconds(median(iteration.seconds for iteration in history))} (median),"
            f" at most {seconds(slowest.seconds)} (clock {slowest.clock})",
        ),
        (
            "stages",
            ", ".join(str(stage) for stage in sorted({iteration.stage for iteration in history})),
        ),
        (
            "nodes",
            f"{began.reliable}+{began.transient} at the start, {end.reliable}+{end.transient} at "
            "the end",
        ),
        ("evictions survived", f"{ending['evictions']:,}"),
        ("failures survived", f"{ending['failures']:,}"),
        ("chunks redone", f"{sum(iteration.redone for iteration in history):,}"),
        *(
            (("clocks redone", spans_text(again)),)
            if (again := ending.get("redone_clocks"))
            else ()
        ),
        (
            "updates",
            f"{ending['updates_sent']:,} sent, {ending['updates_applied']:,} applied{lost}",
        ),
        ("data moved", f"push {size(push)}, pull {size(pull)}, backup {size(backup)}"),
        ("model", f"sha256 {ending['model_sha256']}"),
    ]

    if any(clock_sums.waited_for for clock_sums in sums):
        least, most = sums[-1].least_counted, sums[-1].most_counted
        left_out = sum(clock_sums.dropped_chunks for clock_sums in sums)
        shares = f"each shard counted {least:.2f} to {most:.2f} times as often as the mean"
        rows.append(("left out", f"{left_out:,} chunks of slow workers; {shares}"))

    if losses:
        first = f"{shown_loss(losses[0].loss)} before clock {losses[0].clock}"
        last = f"{shown_loss(losses[-1].loss)} before clock {losses[-1].clock}"
        if ending["loss"] is not None:
            last = f"{shown_loss(ending['loss'])} after clock {ending['clocks']}"
        rows.insert(2, ("loss", f"{first}, {last}"))

    if curves := ending.get("curves"):
        apart = max(
            abs(point["loss"] / point["plain_loss"] - 1) if point["plain_loss"] else 0
            for point in curves
        )
        plain = f"{shown_loss(curves[-1]['plain_loss'])} after clock {curves[-1]['clocks']}"
        rows.insert(3, ("plain PyTorch", f"{plain}; at most {apart:.1e} apart after any"))

    return pairs_table(rows)


def seconds(span: float) -> str:
    """A duration with three digits: `35 ms`, `1.2 s`, `4 min 12 s`."""
    if span < 1:
        return f"{span * 1000:.3g} ms"
    return f"{span:.3g} s" if span < 100 else f"{int(span) // 60} min {int(span) % 60} s"


def size(count: float) -> str:
    """Bytes with a binary unit: `1.5 KiB`."""
    unit = 0
    while count >= 1024 and unit < len(_UNITS) - 1:
        count, unit = count / 1024, unit + 1
    return f"{count:.0f} {_UNITS[unit]}" if not unit else f"{count:.1f} {_UNITS[unit]}"


def draw(
    history: Sequence[Iteration], path: Path, curves: Sequence[Mapping[str, float]] = ()
) -> None:
    """Draws a run, over the losses of plain PyTorch if there are `curves`; the format follows from
    the suffix.
    """
    from matplotlib.ticker import MaxNLocator

    figure, (times, losses, nodes) = panels(10, 6.5, 3, sharex=True, height_ratios=(3, 2, 1.3))
    clocks = [iteration.clock for iteration in history]
    times.plot(
        clocks,
        [iteration.seconds for iteration in history],
        color=_TIME,
        linewidth=1.2,
        drawstyle="steps-mid",
    )

    times.set_ylim(0, 1.4 * max(iteration.seconds for iteration in history) or 1)
    times.set_ylabel("seconds per clock")
    times.grid(visible=True, axis="y", alpha=0.25)
    _draw_events(times, marked_clocks(history))
    known = [
        (iteration.clock, iteration.loss) for iteration in history if iteration.loss is not None
    ]

    if curves:
        # Wider, so that it is seen where both are the same.
        places, plain = (
            [point["clocks"] + 1 for point in curves],
            [point["plain_loss"] for point in curves],
        )
        losses.plot(
            places,
            plain,
            color=_PLAIN,
            linewidth=4.5,
            alpha=0.4,
            label="plain PyTorch in one process",
        )
        known = [(int(point["clocks"]) + 1, point["loss"]) for point in curves]

    values = [loss for _, loss in known]
    losses.plot([clock for clock, _ in known], values, color=_LOSS, linewidth=1.5, label="this run")
    if curves:
        losses.legend(frameon=False, fontsize=8)
        values += plain

    # Within one power of ten, a logarithmic axis would have no round number to label.
    if known and 0 < _DECADE * min(values) < max(values):
        losses.set_yscale("log")
        losses.yaxis.set_major_formatter("{x:g}")

    losses.set_ylabel("loss")
    losses.grid(visible=True, axis="y", alpha=0.25)
    nodes.stackplot(
        clocks,
        [iteration.reliable for iteration in history],
        [iteration.transient for iteration in history],
        colors=(_RELIABLE, _TRANSIENT),
        alpha=0.6,
        step="mid",
        labels=("reliable", "transient"),
    )

    nodes.set_ylabel("nodes")
    nodes.legend(loc="lower right", bbox_to_anchor=(1, 0.98), ncols=2, frameon=False, fontsize=8)
    nodes.yaxis.set_major_locator(MaxNLocator(integer=True))
    nodes.set_xlabel("clock")
    nodes.set_xlim(history[0].clock - 0.5, history[-1].clock + (1.1 if curves else 0.5))
    nodes.xaxis.set_major_locator(MaxNLocator(integer=True))
    with atomic_write(path) as out:
        save_plot(figure, out, path.suffix.lower()[1:])


def marked_clocks(history: Sequence[Iteration]) -> dict[str, list[int]]:
    """The clocks in which an event of each kind happened. Nodes present from the start do not count
    as joining.
    """
    clocks: dict[str, list[int]] = {}
    for iteration in history:
        words = {word for event in iteration.events for word in event.replace(":", " ").split()}
        for word in words & _MARKS.keys():
            if word != "ready" or iteration is not history[0]:
                clocks.setdefault(word, []).append(iteration.clock)
    return clocks


def _draw_events(axes: Axes, clocks: dict[str, list[int]]) -> None:
    """A row of marks for each kind of event, above the line."""
    at_top = axes.get_xaxis_transform()
    for level, (word, (label, color, marker)) in enumerate(_MARKS.items()):
        for clock in clocks.get(word, ()):
            axes.axvline(clock, color=color, linewidth=0.8, alpha=0.3)
        if word in clocks:
            heights = [0.95 - 0.055 * level] * len(clocks[word])
            axes.scatter(
                clocks[word],
                heights,
                s=32,
                color=color,
                marker=marker,
                label=label,
                transform=at_top,
            )

    if clocks:
        axes.legend(
            loc="lower center",
            bbox_to_anchor=(0.5, 1),
            ncols=len(_MARKS),
            frameon=False,
            fontsize=9,
        )
