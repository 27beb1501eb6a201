"""How all plots look. Their background is transparent, and every color is readable on white and on black pages."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from numpy.typing import NDArray

INK, PALE = "#6e7681", "#8c959f"
BLUE, GREEN, ORANGE, RED, PURPLE, GOLD = "#1f6feb", "#2da44e", "#bc4c00", "#cf222e", "#8250df", "#bf8700"
_DEFAULT_INK = ("black", "k", "#000000", ".15")
_DPI = 150


def save_plot(figure: Figure, target: Path | Any, kind: str | None = None) -> None:  # noqa: ANN401  # a file or a buffer
    """Gives the figure the common look and writes it; `kind` None: as the file's suffix says."""
    for axes in figure.axes:
        axes.patch.set_visible(False)
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[:].set_color(INK)
        axes.tick_params(which="both", color=INK, labelcolor=INK)
    for text in figure.findobj(Text):
        if isinstance(text, Text) and text.get_color() in _DEFAULT_INK:
            text.set_color(INK)
    figure.savefig(target, dpi=_DPI, format=kind, transparent=True)


def draw_stretches(axes: Axes, row: int, on: NDArray[np.bool_], hours: float, height: float, color: str) -> None:
    """A horizontal bar for each run of consecutive steps that are on; a step lasts `hours`."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], on, [False])).astype(np.int8)))
    stretches = [(begin * hours, (end - begin) * hours) for begin, end in zip(edges[::2], edges[1::2], strict=True)]
    axes.broken_barh(stretches, (row - height / 2, height), facecolors=color)
