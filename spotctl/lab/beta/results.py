"""Eviction estimates and their scores (`spotctl lab beta`) as tables, JSON and plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.text import Text

from bidbrain.eviction.crossing import BidAbove
from bidbrain.lab.backtest.results import ConfidenceInterval
from bidbrain.lab.calibration import Bin, Calibration
from pricing_data.units import NANOS_PER_DOLLAR, SECOND, age, format_time
from spotctl.home.errors import BadRequest
from spotctl.lab.beta.estimates import BidEstimate
from spotctl.show.columns import Column, table
from spotctl.show.layout import pairs_table
from spotctl.show.phrases import EVIDENCE, chance
from spotctl.show.plots import BLUE, INK, panels, save_plot
from spotctl.show.terminal import market_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_ESTIMATE, _HISTORY, _GRID = BLUE, INK, 0.25

ESTIMATE: tuple[Column[BidEstimate], ...] = (
    Column("market", "the market", "market", form=str),
    Column(
        "probability",
        "beta: probability of an eviction within the window, at this bid",
        "estimate.probability",
    ),
    Column("low", "lower end of its 95% interval", "estimate.low"),
    Column("high", "upper end of its 95% interval", "estimate.high"),
    Column("historical_share", "share of past windows in which the price rose above the bid"),
    Column(
        "median_seconds_to_eviction",
        "median time to the eviction of the machines that are evicted; null if none are",
        "estimate.median_seconds_to_eviction",
    ),
    Column(
        "observations",
        "number of observations behind the estimate",
        "estimate.observations",
    ),
    Column("basis", "how it was estimated, and from what", "estimate.basis"),
    Column(
        "bid",
        "the bid: relative to the price at the start, or absolute",
        "bid",
        form=str,
    ),
    Column("window_seconds", "length of the window", "window", per=SECOND),
    Column("at", "moment from which the window begins", "at", form=format_time),
    Column("evidence", "what the rate of evictions for other reasons than the price rests on"),
    Column(
        "price_probability",
        "probability that the price rises above the bid within the window",
        "crossing.probability",
    ),
    Column("price_low", "lower end of its 95% interval", "crossing.low"),
    Column("price_high", "upper end of its 95% interval", "crossing.high"),
)
CURVE: tuple[Column[Any], ...] = (
    Column("plot", "with --plot, the picture"),
    Column("curve", "with --plot, the estimate at each bid", each=ESTIMATE),
)
ESTIMATE_AND_CURVE: tuple[Column[Any], ...] = (*ESTIMATE, *CURVE)

SKILL: tuple[Column[ConfidenceInterval], ...] = (
    Column("skill", "1 minus the ratio of the Brier scores", "mean"),
    Column("low", "lower end of its 95% interval"),
    Column("high", "upper end of its 95% interval"),
)


def _skill(skill: ConfidenceInterval) -> str:
    return f"{skill.mean:.1%} [{skill.low:.1%}, {skill.high:.1%}]"


ScoredBid = tuple[str, Calibration]

SCORES: tuple[Column[ScoredBid], ...] = (
    Column("bid", "the bid", "0", heading="bid above price"),
    Column(
        "origins",
        "number of moments at which the model was fitted and then tested",
        "1.origins",
    ),
    Column(
        "starts",
        "number of windows predicted",
        "1.starts",
        heading="starts",
        show="{:,}",
        rank=3,
    ),
    Column(
        "crossed",
        "share of windows in which the price rose above the bid",
        "1.crossed",
        heading="crossed",
        show=chance,
    ),
    Column(
        "brier",
        "Brier score of the model (mean squared error of the probability; less is better)",
        "1.brier",
        heading="Brier",
        show="{:.5f}",
    ),
    Column(
        "brier_own_share",
        "Brier score of predicting the market's own past share",
        "1.brier_own",
        heading="own share",
        show="{:.5f}",
        rank=1,
    ),
    Column(
        "brier_pooled_share",
        "Brier score of predicting the past share of all markets",
        "1.brier_pooled",
        heading="pooled share",
        show="{:.5f}",
        rank=2,
    ),
    Column(
        "against_own_share",
        "how much better the model is than the market's own past share",
        "1.against_own",
        heading="vs own",
        show=_skill,
        of=SKILL,
    ),
    Column(
        "against_pooled_share",
        "how much better the model is than the past share of all markets",
        "1.against_pooled",
        heading="vs pooled",
        show=_skill,
        of=SKILL,
    ),
    Column("beats_both", "whether both intervals are above 0", "1.beats_both"),
    Column(
        "relied_on",
        "how often the model relied on each method",
        "1.methods",
        named="number of origins with this method",
    ),
    Column("reliability", "predictions by band", "1.reliability", each=Bin),
)
CALIBRATION: tuple[Column[Any], ...] = (Column("results", "scores for each bid", each=SCORES),)


def estimate_view(at_bid: BidEstimate) -> Group:
    """One estimate: its probability, interval, median time to eviction, and basis."""
    estimated, crossing, rows = at_bid.estimate, at_bid.crossing, list[tuple[str, str]]()
    span, at = age(at_bid.window / 1e6), format_time(at_bid.at)
    evicted = chance(estimated.probability)
    rows.append(("eviction", f"{evicted} within {span} of {at}"))
    low, high = chance(estimated.low), chance(estimated.high)
    rows.append(("95% interval", f"{low} to {high}"))
    rows.append(("evidence", EVIDENCE[at_bid.evidence]))
    rises = chance(crossing.probability)
    rows.append(("price alone", f"{rises}: the chance that the price rises above the bid"))
    rows.append(("bid", str(at_bid.bid)))

    risen = chance(at_bid.historical_share)
    past = f"after {risen} of past starts, the price rose above the bid within that time"
    rows.append(("historical", past))
    median = "no eviction so far"
    if estimated.median_seconds_to_eviction is not None:
        until = age(estimated.median_seconds_to_eviction)
        median = f"after {until} (median)"
    rows.append(("if evicted", median))
    windows = f"{estimated.observations:,.0f} independent windows"
    rows.append(("sample size", windows))
    rows.append(("basis", estimated.basis))

    return Group(market_name(at_bid.market), pairs_table(rows))


def scores_view(scored: Mapping[str, Calibration], width: int) -> Group:
    """The scores of several bids as a table, and a verdict on each. A narrow terminal gets fewer
    columns.
    """
    rows, verdicts = list(scored.items()), list[Text]()
    for bid, scores in rows:
        used = [f"{method} at {count}" for method, count in scores.methods.items() if count]
        relied = ", ".join(used)
        better = "better than" if scores.beats_both else "not significantly better than"
        verdict = (
            f"{better} both constant shares; methods used at {scores.origins} origins: {relied}"
        )
        if not scores.crossed:
            verdict = f"no bid was crossed; Brier score given the present: {scores.brier:.4f}"
        verdicts.append(Text(f"{bid}: {verdict}"))

    return Group(table(SCORES, rows, width), *verdicts)


def draw_curve(curve: Sequence[BidEstimate], path: Path) -> None:
    """Probability with its interval and the historical share, above the median time to eviction."""
    figure, (chances, times) = panels(8, 6.5, 2, sharex=True, height_ratios=(2, 1))
    deltas, lows, highs = list[float](), list[float](), list[float]()
    likely, shares, minutes = list[float](), list[float](), list[float]()
    for at_bid in curve:
        estimate = at_bid.estimate
        if isinstance(at_bid.bid, BidAbove):
            deltas.append(at_bid.bid.delta / NANOS_PER_DOLLAR)
        lows.append(estimate.low)
        highs.append(estimate.high)
        likely.append(estimate.probability)
        shares.append(at_bid.historical_share)
        median = estimate.median_seconds_to_eviction
        minutes.append(float("nan") if median is None else median / 60)

    label = "95% interval"
    chances.fill_between(deltas, lows, highs, color=_ESTIMATE, alpha=0.18, linewidth=0, label=label)
    chances.plot(deltas, likely, color=_ESTIMATE, marker="o", ms=3, label="estimate")
    chances.plot(deltas, shares, color=_HISTORY, linestyle="--", label="historical share")
    highest = max([*highs, *shares, 0.01])
    chances.set_ylim(0, min(1.0, highest * 1.05))
    first = curve[0]
    chances.set_ylabel(f"evicted within {age(first.window / 1e6)}")
    chances.yaxis.set_major_formatter("{x:.3g}")
    chances.legend(frameon=False, fontsize=9)
    title = f"{market_name(first.market)}, {format_time(first.at)}"
    chances.set_title(title, loc="left", fontsize=10)

    times.plot(deltas, minutes, color=_ESTIMATE, marker="o", ms=3)
    times.set_ylim(bottom=0)
    times.set_ylabel("median minutes\nto eviction")
    times.set_xlabel("bid above the price ($ per hour)")
    times.set_xscale("log")
    times.xaxis.set_major_formatter("{x:g}")
    _save(figure, path)


def draw_reliability(scored: Mapping[str, Calibration], path: Path) -> None:
    """Predicted against observed frequency for each bid; a perfect prediction lies on the
    diagonal."""
    figure, across = panels(4.2 * len(scored), 4.4, across=len(scored))
    for axes, (bid, calibration) in zip(across, scored.items(), strict=True):
        predicted = [band.predicted for band in calibration.reliability]
        observed = [band.observed for band in calibration.reliability]
        top = max(*predicted, *observed) * 1.08 + 1e-3
        axes.plot([0, top], [0, top], color=_HISTORY, linestyle="--", linewidth=1)
        axes.plot(predicted, observed, color=_ESTIMATE, linewidth=1)
        starts = [band.starts for band in calibration.reliability]
        largest = max(starts)
        sizes = [20 + 120 * of_band / largest for of_band in starts]
        axes.scatter(predicted, observed, s=sizes, color=_ESTIMATE)
        axes.set_xlabel("predicted")
        axes.set_ylabel("observed share of crossings")
        name, skill = f"price + \\${bid}", calibration.against_own.mean
        if bid == "on-demand":
            name = bid
        title = f"bid {name}: Brier {skill:.1%} better than own share"
        axes.set_title(title, loc="left", fontsize=9)

    _save(figure, path)


def _save(figure: Figure, path: Path) -> None:
    for axes in figure.axes:
        axes.grid(visible=True, alpha=_GRID)
    try:
        save_plot(figure, path)
    except OSError as error:
        raise BadRequest(f"plot to {path}: {error.strerror or error}") from error
