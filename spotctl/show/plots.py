"""Pictures: their figures and axes, how all of them look, and how they are written.

Their background is transparent, and every color is readable on white and on black pages. Only
drawing imports matplotlib, which is an extra: commands call `require_plots` before work whose
result could not be drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from spotctl.home.errors import BadRequest, require_plots

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch
    from numpy.typing import NDArray

INK, PALE = "#6e7681", "#8c959f"
BLUE, GREEN, ORANGE, RED, PURPLE, GOLD = (
    "#1f6feb",
    "#2da44e",
    "#bc4c00",
    "#cf222e",
    "#8250df",
    "#bf8700",
)
PICTURES = (".png", ".svg")
_DEFAULT_INK = ("black", "k", "#000000", ".15")
_DPI = 150


def panels(
    width: float,
    height: float,
    rows: int = 1,
    across: int = 1,
    **grid: Any,  # noqa: ANN401
) -> tuple[Figure, list[Axes]]:  # as matplotlib takes them
    """A figure of this size in inches, and its axes line by line."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, list(figure.subplots(rows, across, squeeze=False, **grid).flat)


def draw_bars(
    axes: Axes, heights: Mapping[str, Sequence[float]], width: float, colors: Mapping[str, str]
) -> list[Any]:
    """Groups of bars, as wide together as `width`: a bar of each name in each group."""
    drawn, bar = list[Any](), width / len(heights)
    middle = (len(heights) - 1) / 2
    for i, (name, values) in enumerate(heights.items()):
        places = np.arange(len(values)) + (i - middle) * bar
        bars = axes.bar(places, values, bar, label=name, color=colors[name])
        drawn.append(bars)
    return drawn


def draw_stretches(
    axes: Axes, row: int, on: NDArray[np.bool_], hours: float, height: float, color: str
) -> None:
    """A horizontal bar for each run of consecutive steps that are on; a step lasts `hours`."""
    padded = np.concatenate(([False], on, [False])).astype(np.int8)
    edges = np.flatnonzero(np.diff(padded))
    stretches = list[tuple[float, float]]()
    for begin, end in zip(edges[::2], edges[1::2], strict=True):
        start, length = begin * hours, (end - begin) * hours
        stretches.append((start, length))
    axes.broken_barh(stretches, (row - height / 2, height), facecolors=color)


def legend_of(colors: Mapping[str, str]) -> list[Patch]:
    """A patch of each color with its label."""
    from matplotlib.patches import Patch

    return [Patch(color=color, label=label) for label, color in colors.items()]


# A file or a buffer.
def save_plot(figure: Figure, target: Path | Any, kind: str | None = None) -> None:  # noqa: ANN401
    """Gives the figure the common look and writes it; `kind` None: as the file's suffix says."""
    from matplotlib.text import Text

    for axes in figure.axes:
        axes.patch.set_visible(False)
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[:].set_color(INK)
        axes.tick_params(which="both", color=INK, labelcolor=INK)

    for text in figure.findobj(Text):
        if isinstance(text, Text) and text.get_color() in _DEFAULT_INK:
            text.set_color(INK)

    figure.savefig(target, dpi=_DPI, format=kind, transparent=True)


@contextmanager
def output_folder(folder: Path) -> Iterator[None]:
    """Creates the folder if needed; whatever cannot be written into it is a bad request."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise BadRequest(f"--out {folder}: {error.strerror or error}") from error


def check_picture(path: Path, suffixes: Sequence[str] = PICTURES) -> None:
    """Refuses a name without the suffix of a known format, and a picture that nothing here draws,
    before any work.
    """
    if path.suffix.lower() not in suffixes:
        *others, last = suffixes
        raise BadRequest(f"plot to {path}: the name must end with {', '.join(others)} or {last}")
    require_plots(path)
