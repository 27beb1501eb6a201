"""Plots of eviction estimates: probability by bid, and predicted against observed frequencies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from bidbrain.eviction.bids import BidAbove
from bidbrain.eviction.calibration import Calibration
from pricing_data.units import NANOS_PER_DOLLAR, age, format_time
from spotctl.home.errors import BadRequest
from spotctl.lab.beta.estimates import Answer
from spotctl.show.plot_style import BLUE, INK, save_plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUFFIXES = (".png", ".svg")
_ESTIMATE, _HISTORY, _GRID = BLUE, INK, 0.25


def check(path: Path) -> None:
    """Rejects a file name with an unknown suffix before any work is done."""
    if path.suffix.lower() not in SUFFIXES:
        raise BadRequest(f"plot to {path}: the name must end with {' or '.join(SUFFIXES)}")


def draw_curve(curve: Sequence[Answer], path: Path) -> None:
    """Probability with its interval and the historical share, above the median time to eviction."""
    figure = Figure(figsize=(8, 6.5), layout="constrained")
    chances, times = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    deltas = [one.bid.delta / NANOS_PER_DOLLAR for one in curve if isinstance(one.bid, BidAbove)]
    estimates = [one.estimate for one in curve]
    lows, highs = [one.low for one in estimates], [one.high for one in estimates]
    chances.fill_between(deltas, lows, highs, color=_ESTIMATE, alpha=0.18, linewidth=0, label="95% interval")
    chances.plot(deltas, [one.probability for one in estimates], color=_ESTIMATE, marker="o", ms=3, label="estimate")
    shares = [one.historical_share for one in curve]
    chances.plot(deltas, shares, color=_HISTORY, linestyle="--", label="historical share")
    chances.set_ylim(0, min(1.0, max([*highs, *shares, 0.01]) * 1.05))
    chances.set_ylabel(f"evicted within {age(curve[0].window / 1e6)}")
    chances.yaxis.set_major_formatter(lambda share, _: f"{share:.3g}")
    chances.legend(frameon=False, fontsize=9)
    chances.set_title(_title(curve[0]), loc="left", fontsize=10)
    medians = [one.median_seconds_to_eviction for one in estimates]
    times.plot(deltas, [float("nan") if m is None else m / 60 for m in medians], color=_ESTIMATE, marker="o", ms=3)
    times.set_ylim(bottom=0)
    times.set_ylabel("median minutes\nto eviction")
    times.set_xlabel("bid above the price ($ per hour)")
    times.set_xscale("log")
    times.xaxis.set_major_formatter("{x:g}")
    _finish(figure, (chances, times), path)


def draw_reliability(scored: Mapping[str, Calibration], path: Path) -> None:
    """Predicted against observed frequency for each bid; a perfect prediction lies on the diagonal."""
    figure = Figure(figsize=(4.2 * len(scored), 4.4), layout="constrained")
    panels = figure.subplots(1, len(scored), squeeze=False)[0]
    for axes, (bid, one) in zip(panels, scored.items(), strict=True):
        top = max(max(band.predicted, band.observed) for band in one.reliability) * 1.08 + 1e-3
        axes.plot([0, top], [0, top], color=_HISTORY, linestyle="--", linewidth=1)
        largest = max(band.starts for band in one.reliability)
        axes.plot(*_points(one), color=_ESTIMATE, linewidth=1)
        axes.scatter(*_points(one), s=[20 + 120 * band.starts / largest for band in one.reliability], color=_ESTIMATE)
        axes.set_xlabel("predicted")
        axes.set_ylabel("observed share of crossings")
        title = bid if bid == "on-demand" else f"price + \\${bid}"
        axes.set_title(f"bid {title}: Brier {one.against_own.skill:.1%} better than own share", loc="left", fontsize=9)
    _finish(figure, tuple(panels), path)


def _points(one: Calibration) -> tuple[list[float], list[float]]:
    return [band.predicted for band in one.reliability], [band.observed for band in one.reliability]


def _title(one: Answer) -> str:
    label = " (synthetic)" if one.market.is_synthetic else ""
    return f"{one.market}{label}, {format_time(one.at)}"


def _finish(figure: Figure, panels: Sequence[Axes], path: Path) -> None:
    for axes in panels:
        axes.grid(visible=True, alpha=_GRID)
    try:
        save_plot(figure, path)
    except OSError as error:
        raise BadRequest(f"plot to {path}: {error.strerror or error}") from error
