"""The price analysis (`gavel analyze`) as tables, JSON, CSV and plots."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import asdict, replace
from operator import attrgetter
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console, Group
from rich.measure import Measurement
from rich.text import Text

from bidbrain.lab.gavel.pricing_tables import (
    LENGTH_OF_FIGURE_6_5,
    Effective,
    Figure as PaperFigure,
    PricedJob,
    effective_prices,
)
from pricing_data.units import format_time
from spotctl.lab.gavel.analyze import Analysis
from spotctl.show.columns import WALL_SECONDS, Column, as_json, save_csv, table
from spotctl.show.layout import plain_table
from spotctl.show.plots import (
    BLUE,
    GOLD,
    GREEN,
    INK,
    ORANGE,
    PALE,
    draw_bars,
    output_folder,
    panels,
    save_plot,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

_COLORS = (PALE, INK, GOLD, BLUE, GREEN, ORANGE)
_STYLES = ("-", "--", ":", "-.")
_DAY = 24.0
_NO_GAIN = "#d0d7de"
"""The color of job types that gain nothing from moving."""

ANALYSIS: tuple[Column[Any], ...] = (
    Column("begin", "first moment with prices"),
    Column("end", "last moment with prices"),
    Column("markets", "number of markets"),
    Column("prices", "cost of an accelerator-hour by cloud and accelerator", each=Effective),
    Column("results", "costs by job type, length and strategy", each=PricedJob),
    Column("figures", "figures next to those printed in the paper", each=PaperFigure),
    Column("remarks", "remarks on the data"),
    WALL_SECONDS,
)


def analysis_json(analysis: Analysis, wall_seconds: float) -> dict[str, Any]:
    """The JSON of `gavel analyze --json`."""
    board, hours = analysis.board, 24 * shown_length(analysis)
    prices = effective_prices(board, analysis.plan.movement, hours)
    remarks = list(analysis.remarks)
    figures = {
        "begin": format_time(board.begin),
        "end": format_time(board.end),
        "markets": len(board.offers),
        "prices": prices,
        "results": analysis.results,
        "figures": analysis.figures,
        "remarks": remarks,
        "wall_seconds": wall_seconds,
    }

    return as_json(ANALYSIS, figures)


def shown_length(analysis: Analysis) -> float:
    """The job length of the main table: the paper's if it was requested, otherwise the longest with
    results.
    """
    lengths = {result.days for result in analysis.results}
    if LENGTH_OF_FIGURE_6_5 in lengths:
        return LENGTH_OF_FIGURE_6_5
    return max(lengths)


def tables(analysis: Analysis, width: int) -> Group:
    """Costs by job type and by length, effective prices, and a comparison with the paper."""

    # The gain from moving while training, as in Figure 6.6.
    rows, by_days = list[dict[str, Any]](), dict[float, dict[str, list[PricedJob]]]()
    for result in analysis.results:
        of_length = by_days.setdefault(result.days, {})
        of_length.setdefault(result.strategy, []).append(result)

    for days, of_strategy in by_days.items():
        fixed, moved = of_strategy.get("multi-cloud", []), of_strategy.get("dynamic", [])
        loaded = of_strategy.get("dynamic+data", [])
        gains, with_data = (
            [still.usd / moving.usd for still, moving in zip(fixed, jobs, strict=True)]
            for jobs in (moved, loaded)
        )
        moves = fmean(result.moves for result in moved)
        most_moves = max(result.most_moves for result in moved)
        moved_usd = fmean(result.moved_usd for result in moved)
        row = {
            "days": days,
            "mean": fmean(gains),
            "best": max(gains),
            "moves": moves,
            "most_moves": most_moves,
            "moved_usd": moved_usd,
            "loaded": fmean(with_data),
            "jobs": len(gains),
        }
        rows.append(row)

    shown = table(LENGTHS, rows, width)
    shown.title = (
        "Cost reduction from moving while training, by length (multi-cloud / dynamic, Figure 6.6)"
    )

    hours = 24 * shown_length(analysis)
    prices = effective_prices(analysis.board, analysis.plan.movement, hours)
    heading = f"with data, {prices[0].hours:g} h"
    dated: Column[Effective] = Column("usd_with_data", heading=heading, show="{:.4f}")
    effective = table((*EFFECTIVE, dated), prices)
    effective.title = (
        "Dollars per accelerator-hour at the cheapest place; effective: per hour of work that was "
        "kept"
    )

    return Group(
        _by_job(analysis, width),
        "",
        shown,
        "",
        effective,
        "",
        _against_paper(analysis.figures),
    )


def _by_job(analysis: Analysis, width: int) -> Table:
    """A row per job type; a narrow terminal gets the reductions of all job types together."""
    days, names = shown_length(analysis), [strategy.name for strategy in analysis.plan.strategies]
    of_length = [result for result in analysis.results if result.days == days]
    by_case = {(result.job, result.strategy): result for result in of_length}
    rows = dict[str, list[PricedJob]]()
    for job in analysis.jobs:
        cases = [(job.name, name) for name in names]
        row = [by_case[case] for case in cases if case in by_case]
        if row:
            rows[job.name] = row

    length = f"a job of {days:g} {analysis.plan.strategies[0].accelerator}-days on one accelerator"
    title = f"Dollars for {length} (and reduction)"
    full = plain_table("job type", *names, "moves", "starts", title=title)
    for name, row in rows.items():
        cells = [f"{result.usd:.2f} ({result.reduction:.2f}x)" for result in row]
        moves = max(result.moves for result in row)
        full.add_row(Text(name), *cells, f"{moves:.1f}", str(row[0].jobs))

    # It fits if nothing but its title has to be folded.
    untitled, console = copy(full), Console(width=1000)
    untitled.title = None
    if Measurement.get(console, console.options, untitled).maximum <= width:
        return full

    headings = [name.replace("-", "-\n", 1).replace("+", "\n+") for name in names]
    shown = plain_table("job type", *headings, title=f"Dollars for {length}")
    for name, row in rows.items():
        dollars = [f"{result.usd:.2f}" for result in row]
        shown.add_row(Text(name), *dollars)

    means = list[str]()
    for i in range(len(names)):
        mean = fmean(row[i].reduction for row in rows.values())
        means.append(f"{mean:.2f}x")
    shown.add_row(Text("mean reduction"), *means, style="bold")
    return shown


LENGTHS: tuple[Column[dict[str, Any]], ...] = (
    Column("days", heading="days", show="{:g}"),
    Column("mean", heading="mean", show="{:.2f}x"),
    Column("best", heading="best", show="{:.2f}x"),
    Column("moves", heading="moves", show="{:.2f}"),
    Column("most_moves", heading="most moves", rank=2),
    Column("moved_usd", heading="data moved, $", show="{:.4f}", rank=1),
    Column("loaded", heading="with dataset, mean", show="{:.2f}x"),
    Column("jobs", heading="job types", rank=3),
)


EFFECTIVE: tuple[Column[Effective], ...] = (
    Column("cloud", heading="cloud"),
    Column("accelerator", heading="accelerator"),
    Column("usd_per_hour", heading="price", show="{:.4f}"),
    Column("useful_share", heading="useful", show="{:.2%}"),
    Column("effective_usd_per_hour", heading="effective", show="{:.4f}"),
)


def _against_paper(figures: Sequence[PaperFigure]) -> Table:
    """Only figures that the paper prints; the rest is in the JSON and in figures.csv."""
    shown = plain_table("table or figure", "here", "paper", title="Comparison with the paper")
    printed: dict[tuple[str, str], list[PaperFigure]] = {}
    for figure in figures:
        if figure.paper is not None:
            printed.setdefault((figure.table, figure.what), []).append(figure)

    for (source, what), alike in printed.items():
        alike.sort(key=attrgetter("found"))
        low, high = alike[0], alike[-1]
        here = _text(low)
        if low is not high:
            here += f" to {_text(high)}"
        there = replace(low, found=low.paper or 0.0)
        shown.add_row(f"{source}  {what}", here, _text(there))

    return shown


def _text(figure: PaperFigure) -> str:
    amount = f"{figure.found:.2f}"
    if abs(figure.found) < 0.1:
        amount = f"{figure.found:.2g}"
    return f"{amount}{figure.unit}"


def write(folder: Path, analysis: Analysis) -> None:
    """Writes `costs.csv` (a row per job type, length and strategy), `figures.csv`, and pictures:
    `reduction.png`, `by_length.png` and `prices.png`. Creates the folder if needed."""
    costs = list[dict[str, Any]]()
    for result in analysis.results:
        most_first = sorted(result.offers.items(), key=lambda item: -item[1])
        offers = ", ".join(f"{kind} {count}" for kind, count in most_first)
        row = asdict(result)
        row["offers"] = offers
        costs.append(row)

    pictures = {
        "reduction": _draw_reductions,
        "by_length": _draw_lengths,
        "prices": _draw_prices,
    }
    with output_folder(folder):
        save_csv(folder / "costs.csv", costs)
        figures = [asdict(figure) for figure in analysis.figures]
        save_csv(folder / "figures.csv", figures)
        for name, draw in pictures.items():
            save_plot(draw(analysis), folder / f"{name}.png")


def _draw_reductions(analysis: Analysis) -> Figure:
    days = shown_length(analysis)
    names = [strategy.name for strategy in analysis.plan.strategies]
    jobs, heights = list[str](), dict[str, list[float]]()
    for name in names:
        heights[name] = []
    for result in analysis.results:
        if result.days == days:
            jobs.append(result.job)
            heights.setdefault(result.strategy, []).append(result.reduction)

    jobs = list(dict.fromkeys(jobs))
    width = max(8.0, 0.75 * len(jobs) + 2)
    figure, (axes,) = panels(width, 4.8)
    colors = dict(zip(names, _COLORS, strict=False))
    draw_bars(axes, heights, 0.85, colors)
    axes.set_xticks(np.arange(len(jobs)), jobs, rotation=35, ha="right", fontsize=8)
    baseline = analysis.plan.strategies[0]
    kind, columns = baseline.accelerator, len(names)
    axes.set_ylabel(f"cost reduction over 1x{kind} in {baseline.home}")
    axes.set_title(f"jobs of {days:g} {kind}-days", loc="left", fontsize=9)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.03), frameon=False, ncols=columns)

    return figure


def _draw_lengths(analysis: Analysis) -> Figure:
    """A line for each job type that gains from moving; the others share a grey line at 1."""
    from matplotlib import colormaps

    figure, (axes,) = panels(8, 4.5)
    colors = iter(colormaps["tab20"].colors)  # type: ignore[attr-defined]  # a listed map has them
    usd = {(result.job, result.days, result.strategy): result.usd for result in analysis.results}
    for job in analysis.jobs:
        days = [length for length in analysis.plan.days if (job.name, length, "dynamic") in usd]
        gains = list[float]()
        for length in days:
            fixed, moved = usd[job.name, length, "multi-cloud"], usd[job.name, length, "dynamic"]
            gains.append(fixed / moved)

        color: Any = _NO_GAIN
        label = ""
        if gains and max(gains) > 1.01:
            color, label = next(colors, None), job.name
        axes.plot(
            days,
            gains,
            marker="o",
            markersize=3,
            linewidth=1.2,
            color=color,
            label=label or None,
        )

    axes.set_xlabel(f"length of the job, {analysis.plan.strategies[0].accelerator}-days")
    axes.set_ylabel("cost reduction from moving while training")
    handles, _ = axes.get_legend_handles_labels()
    if handles:
        axes.legend(frameon=False, fontsize=7, ncols=2)
    return figure


def _draw_prices(analysis: Analysis) -> Figure:
    """Price per accelerator-hour in each cloud's cheapest zone, for machines with one accelerator
    and with several.
    """
    board = analysis.board
    kinds = sorted({offer.accelerator for offer in board.offers})
    clouds = sorted({offer.market.cloud for offer in board.offers})
    rows: dict[tuple[str, str, bool], list[int]] = {}
    for i, offer in enumerate(board.offers):
        key = (offer.accelerator, offer.market.cloud, offer.accelerators == 1)
        rows.setdefault(key, []).append(i)

    figure, grid = panels(9, 2.4 * len(kinds), len(kinds), sharex=True)
    days = np.append(board.hours, board.span) / _DAY
    for axes, kind in zip(grid, kinds, strict=True):
        for color, cloud in zip(_COLORS[3:], clouds, strict=False):
            for style, single in zip(_STYLES, (True, False), strict=False):
                alike = rows.get((kind, cloud, single))
                if alike is None:
                    continue
                low = board.usd[alike].min(axis=0)
                prices = np.append(low, low[-1])
                label = f"{cloud}, {'one' if single else 'several'} per machine"
                axes.step(days, prices, style, where="post", color=color, linewidth=1, label=label)
        axes.set_ylim(bottom=0)
        axes.set_ylabel(f"{kind}, $/h")
        axes.legend(frameon=False, fontsize=7, ncols=4)

    grid[-1].set_xlabel("days since the start of the common period")
    return figure
