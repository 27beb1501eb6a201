"""Plot of a training run: time per clock with events marked, loss, and the number of nodes."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from agileml.core.events import Iteration
from pricing_data.atomic_write import atomic_write
from spotctl.show.plot_style import BLUE, GOLD, GREEN, INK, PURPLE, RED, save_plot

_TIME, _LOSS, _RELIABLE, _TRANSIENT = BLUE, GREEN, INK, GOLD
_DECADE = 10.0

_MARKS = {
    "warned": ("warned", GOLD, "v"),
    "left": ("left after the warning", GREEN, "^"),
    "lost": ("lost", RED, "X"),
    "ready": ("joined", BLUE, "P"),
    "controller": ("controller restarted", PURPLE, "D"),
}
"""By a word in the event: its label in the legend, color and marker."""


def draw(history: Sequence[Iteration], path: Path) -> None:
    """Draws a run; the format follows from the file's suffix."""
    figure = Figure(figsize=(10, 6.5), layout="constrained")
    times, losses, nodes = figure.subplots(3, 1, sharex=True, height_ratios=(3, 2, 1.3))
    _times(times, history)
    _losses(losses, history)
    _nodes(nodes, history)
    nodes.set_xlabel("clock")
    nodes.set_xlim(history[0].clock - 0.5, history[-1].clock + 0.5)
    nodes.xaxis.set_major_locator(MaxNLocator(integer=True))
    with atomic_write(path) as out:
        save_plot(figure, out, path.suffix.lower()[1:])


def marked_clocks(history: Sequence[Iteration]) -> dict[str, list[int]]:
    """The clocks in which an event of each kind happened. Nodes present from the start do not count as joining."""
    clocks: dict[str, list[int]] = {}
    for iteration in history:
        words = {word for event in iteration.events for word in event.replace(":", " ").split()}
        for word in words & _MARKS.keys():
            if word != "ready" or iteration is not history[0]:
                clocks.setdefault(word, []).append(iteration.clock)
    return clocks


def _times(axes: Axes, history: Sequence[Iteration]) -> None:
    clocks = [iteration.clock for iteration in history]
    axes.plot(clocks, [iteration.seconds for iteration in history], color=_TIME, linewidth=1.2, drawstyle="steps-mid")
    axes.set_ylim(0, 1.4 * max(iteration.seconds for iteration in history) or 1)
    axes.set_ylabel("seconds per clock")
    axes.grid(visible=True, axis="y", alpha=0.25)
    _events(axes, marked_clocks(history))


def _events(axes: Axes, clocks: dict[str, list[int]]) -> None:
    """A row of marks for each kind of event, above the line."""
    at_top = axes.get_xaxis_transform()
    for level, (word, (label, color, marker)) in enumerate(_MARKS.items()):
        for clock in clocks.get(word, ()):
            axes.axvline(clock, color=color, linewidth=0.8, alpha=0.3)
        if word in clocks:
            heights = [0.95 - 0.055 * level] * len(clocks[word])
            axes.scatter(clocks[word], heights, s=32, color=color, marker=marker, label=label, transform=at_top)
    if clocks:
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=len(_MARKS), frameon=False, fontsize=9)


def _losses(axes: Axes, history: Sequence[Iteration]) -> None:
    known = [(iteration.clock, iteration.loss) for iteration in history if iteration.loss is not None]
    losses = [loss for _, loss in known]
    axes.plot([clock for clock, _ in known], losses, color=_LOSS, linewidth=1.5)
    # Within one power of ten, a logarithmic axis would have no round number to label.
    if known and 0 < _DECADE * min(losses) < max(losses):
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
    axes.set_ylabel("loss")
    axes.grid(visible=True, axis="y", alpha=0.25)


def _nodes(axes: Axes, history: Sequence[Iteration]) -> None:
    clocks = [iteration.clock for iteration in history]
    axes.stackplot(
        clocks,
        [iteration.reliable for iteration in history],
        [iteration.transient for iteration in history],
        colors=(_RELIABLE, _TRANSIENT),
        alpha=0.6,
        step="mid",
        labels=("reliable", "transient"),
    )
    axes.set_ylabel("nodes")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(loc="lower right", bbox_to_anchor=(1, 0.98), ncols=2, frameon=False, fontsize=8)
