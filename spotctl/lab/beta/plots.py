"""Plots of eviction estimates: probability by bid, and predicted against observed frequencies."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bidbrain.eviction.bids import BidAbove
from bidbrain.eviction.calibration import Calibration
from pricing_data.units import NANOS_PER_DOLLAR, age, format_time
from spotctl.home.errors import BadRequest
from spotctl.lab.beta.estimates import BidEstimate
from spotctl.show.plot_style import BLUE, INK, save_plot

_ESTIMATE, _HISTORY, _GRID = BLUE, INK, 0.25


def draw_curve(curve: Sequence[BidEstimate], path: Path) -> None:
    """Probability with its interval and the historical share, above the median time to eviction."""
    figure = Figure(figsize=(8, 6.5), layout="constrained")
    chances, times = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    deltas = [
        bid_estimate.bid.delta / NANOS_PER_DOLLAR for bid_estimate in curve if isinstance(bid_estimate.bid, BidAbove)
    ]
    estimates = [bid_estimate.estimate for bid_estimate in curve]
    lows, highs = [estimate.low for estimate in estimates], [estimate.high for estimate in estimates]
    chances.fill_between(deltas, lows, highs, color=_ESTIMATE, alpha=0.18, linewidth=0, label="95% interval")
    chances.plot(
        deltas, [estimate.probability for estimate in estimates], color=_ESTIMATE, marker="o", ms=3, label="estimate"
    )
    shares = [bid_estimate.historical_share for bid_estimate in curve]
    chances.plot(deltas, shares, color=_HISTORY, linestyle="--", label="historical share")
    chances.set_ylim(0, min(1.0, max([*highs, *shares, 0.01]) * 1.05))
    chances.set_ylabel(f"evicted within {age(curve[0].window / 1e6)}")
    chances.yaxis.set_major_formatter(lambda share, _: f"{share:.3g}")
    chances.legend(frameon=False, fontsize=9)
    chances.set_title(_title(curve[0]), loc="left", fontsize=10)
    medians = [estimate.median_seconds_to_eviction for estimate in estimates]
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
    for axes, (bid, calibration) in zip(panels, scored.items(), strict=True):
        top = max(max(band.predicted, band.observed) for band in calibration.reliability) * 1.08 + 1e-3
        axes.plot([0, top], [0, top], color=_HISTORY, linestyle="--", linewidth=1)
        largest = max(band.starts for band in calibration.reliability)
        axes.plot(*_points(calibration), color=_ESTIMATE, linewidth=1)
        axes.scatter(
            *_points(calibration),
            s=[20 + 120 * band.starts / largest for band in calibration.reliability],
            color=_ESTIMATE,
        )
        axes.set_xlabel("predicted")
        axes.set_ylabel("observed share of crossings")
        title = bid if bid == "on-demand" else f"price + \\${bid}"
        axes.set_title(
            f"bid {title}: Brier {calibration.against_own.skill:.1%} better than own share", loc="left", fontsize=9
        )
    _finish(figure, tuple(panels), path)


def _points(calibration: Calibration) -> tuple[list[float], list[float]]:
    return [band.predicted for band in calibration.reliability], [band.observed for band in calibration.reliability]


def _title(bid_estimate: BidEstimate) -> str:
    label = " (synthetic)" if bid_estimate.market.is_synthetic else ""
    return f"{bid_estimate.market}{label}, {format_time(bid_estimate.at)}"


def _finish(figure: Figure, panels: Sequence[Axes], path: Path) -> None:
    for axes in panels:
        axes.grid(visible=True, alpha=_GRID)
    try:
        save_plot(figure, path)
    except OSError as error:
        raise BadRequest(f"plot to {path}: {error.strerror or error}") from error
