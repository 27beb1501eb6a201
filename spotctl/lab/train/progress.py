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
    nodes = f"nodes {iteration.reliable}+{iteration.transient}"
    loss = shown_loss(iteration.loss) or UNKNOWN
    took = seconds(iteration.seconds)
    return f"clock {iteration.clock}  stage {iteration.stage}  {nodes}  loss {loss}  {took}"


def events(iteration: Iteration) -> list[str]:
    """The events of a clock, a line each."""
    return [f"clock {iteration.clock}: {event}" for event in iteration.events]


def summary(history: Sequence[Iteration], ending: Mapping[str, Any], *, virtual: bool) -> Table:
    """The summary of a run, from its clocks and the last line of its log. `virtual`: its time was
    simulated.
    """
    began, end = history[0], history[-1]
    every_seconds = [iteration.seconds for iteration in history]
    sums = [iteration.sums for iteration in history]
    total, middle, most = sum(every_seconds), median(every_seconds), max(every_seconds)
    slowest = history[every_seconds.index(most)]
    stages = sorted({iteration.stage for iteration in history})
    at_start, at_end = f"{began.reliable}+{began.transient}", f"{end.reliable}+{end.transient}"
    redone = sum(iteration.redone for iteration in history)

    clocks = f"{ending['clocks']:,} in {seconds(total)}"
    if virtual:
        clocks += " of virtual time"
    rows = [("clocks", clocks)]
    typical = f"{seconds(middle)} (median), at most {seconds(most)} (clock {slowest.clock})"
    rows.append(("time per clock", typical))
    rows.append(("stages", ", ".join(map(str, stages))))
    rows.append(("nodes", f"{at_start} at the start, {at_end} at the end"))
    rows.append(("evictions survived", f"{ending['evictions']:,}"))
    rows.append(("failures survived", f"{ending['failures']:,}"))
    rows.append(("chunks redone", f"{redone:,}"))
    again = ending.get("redone_clocks")
    if again:
        rows.append(("clocks redone", spans_text(again)))

    updates = f"{ending['updates_sent']:,} sent, {ending['updates_applied']:,} applied"
    for what in ("lost", "doubled"):
        count = ending[f"updates_{what}"]
        updates += f", {count:,} {what}"
    rows.append(("updates", updates))
    moved = list[str]()
    for name, field in (("push", "pushed"), ("pull", "pulled"), ("backup", "backup")):
        moved_bytes = sum(getattr(of_clock, field) for of_clock in sums)
        moved.append(f"{name} {size(moved_bytes)}")
    rows.append(("data moved", ", ".join(moved)))
    rows.append(("model", f"sha256 {ending['model_sha256']}"))

    if any(of_clock.waited_for for of_clock in sums):
        least, highest = sums[-1].least_counted, sums[-1].most_counted
        left_out = sum(of_clock.dropped_chunks for of_clock in sums)
        shares = f"each shard counted {least:.2f} to {highest:.2f} times as often as the mean"
        rows.append(("left out", f"{left_out:,} chunks of slow workers; {shares}"))

    if any(iteration.loss is not None for iteration in history):
        rows.insert(2, ("loss", _loss_text(history, ending)))
    if curves := ending.get("curves"):
        rows.insert(3, ("plain PyTorch", _plain_text(curves)))
    return pairs_table(rows)


def _plain_text(curves: Sequence[Mapping[str, float]]) -> str:
    """The last loss of plain PyTorch, and how far the run was from it at most."""
    end, distances = curves[-1], list[float]()
    for point in curves:
        if point["plain_loss"]:
            distances.append(abs(point["loss"] / point["plain_loss"] - 1))

    # A loss that is no number from the first clock on is no distance of 0.
    apart = max(distances, default=0.0)
    loss = shown_loss(end["plain_loss"])
    return f"{loss} after clock {end['clocks']}; at most {apart:.1e} apart after any"


def _loss_text(history: Sequence[Iteration], ending: Mapping[str, Any]) -> str:
    """The first and the last loss that a run reported, and when."""
    losses = [iteration for iteration in history if iteration.loss is not None]
    first, last = losses[0], losses[-1]
    before, after = shown_loss(first.loss), shown_loss(last.loss)
    until = f"{after} before clock {last.clock}"
    if ending["loss"] is not None:
        until = f"{shown_loss(ending['loss'])} after clock {ending['clocks']}"
    return f"{before} before clock {first.clock}, {until}"


def seconds(span: float) -> str:
    """A duration with three digits: `35 ms`, `1.2 s`, `4 min 12 s`."""
    if span < 1:
        return f"{span * 1000:.3g} ms"
    if span < 100:
        return f"{span:.3g} s"
    return f"{int(span) // 60} min {int(span) % 60} s"


def size(count: float) -> str:
    """Bytes with a binary unit: `1.5 KiB`."""
    unit = 0
    while count >= 1024 and unit < len(_UNITS) - 1:
        count /= 1024
        unit += 1
    name = _UNITS[unit]
    if not unit:
        return f"{count:.0f} {name}"
    return f"{count:.1f} {name}"


def draw(
    history: Sequence[Iteration], path: Path, curves: Sequence[Mapping[str, float]] = ()
) -> None:
    """Draws a run, over the losses of plain PyTorch if there are `curves`; the format follows from
    the suffix.
    """
    from matplotlib.ticker import MaxNLocator

    figure, (times, losses, nodes) = panels(10, 6.5, 3, sharex=True, height_ratios=(3, 2, 1.3))
    clocks, reliable, transient = list[int](), list[int](), list[int]()
    every_seconds = list[float]()
    for iteration in history:
        clocks.append(iteration.clock)
        every_seconds.append(iteration.seconds)
        reliable.append(iteration.reliable)
        transient.append(iteration.transient)

    times.plot(clocks, every_seconds, color=_TIME, linewidth=1.2, drawstyle="steps-mid")
    times.set_ylim(0, 1.4 * max(every_seconds) or 1)
    times.set_ylabel("seconds per clock")
    times.grid(visible=True, axis="y", alpha=0.25)

    marks, at_top = marked_clocks(history), times.get_xaxis_transform()
    for level, (word, (label, color, marker)) in enumerate(_MARKS.items()):
        marked = marks.get(word, [])
        for clock in marked:
            times.axvline(clock, color=color, linewidth=0.8, alpha=0.3)
        if marked:
            heights = [0.95 - 0.055 * level] * len(marked)
            times.scatter(
                marked, heights, s=32, color=color, marker=marker, label=label, transform=at_top
            )

    if marks:
        columns = len(_MARKS)
        times.legend(
            loc="lower center", bbox_to_anchor=(0.5, 1), ncols=columns, frameon=False, fontsize=9
        )

    _draw_losses(losses, history, curves)

    parts, colors = ("reliable", "transient"), (_RELIABLE, _TRANSIENT)
    nodes.stackplot(clocks, reliable, transient, colors=colors, alpha=0.6, step="mid", labels=parts)

    nodes.set_ylabel("nodes")
    nodes.legend(loc="lower right", bbox_to_anchor=(1, 0.98), ncols=2, frameon=False, fontsize=8)
    nodes.yaxis.set_major_locator(MaxNLocator(integer=True))
    nodes.set_xlabel("clock")
    beyond = 1.1 if curves else 0.5
    nodes.set_xlim(clocks[0] - 0.5, clocks[-1] + beyond)
    nodes.xaxis.set_major_locator(MaxNLocator(integer=True))
    with atomic_write(path) as out:
        save_plot(figure, out, path.suffix.lower()[1:])


def _draw_losses(
    axes: Axes, history: Sequence[Iteration], curves: Sequence[Mapping[str, float]]
) -> None:
    """The losses of a run by clock, over those of plain PyTorch if there are `curves`."""
    known = [(each.clock, each.loss) for each in history if each.loss is not None]
    plain = [point["plain_loss"] for point in curves]
    if curves:
        # Wider, so that it is seen where both are the same.
        places, label = [point["clocks"] + 1 for point in curves], "plain PyTorch in one process"
        axes.plot(places, plain, color=_PLAIN, linewidth=4.5, alpha=0.4, label=label)
        known = [(int(point["clocks"]) + 1, point["loss"]) for point in curves]

    clocks, values = [clock for clock, _ in known], [loss for _, loss in known]
    axes.plot(clocks, values, color=_LOSS, linewidth=1.5, label="this run")
    if curves:
        axes.legend(frameon=False, fontsize=8)

    # Within one power of ten, a logarithmic axis would have no round number to label.
    shown = values + plain
    if known and 0 < _DECADE * min(shown) < max(shown):
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")

    axes.set_ylabel("loss")
    axes.grid(visible=True, axis="y", alpha=0.25)


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
