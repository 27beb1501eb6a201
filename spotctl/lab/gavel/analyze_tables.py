"""The price analysis as tables, JSON and CSV."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console, Group
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from bidbrain.gavel.pricing.analysis import PricedJob
from bidbrain.gavel.pricing.published import LENGTH_OF_FIGURE_6_5
from bidbrain.gavel.pricing.tables import Effective, Figure, effective_prices
from pricing_data.units import format_time
from spotctl.lab.gavel.analyze import Analysis
from spotctl.show.layout import RankedColumn, plain_table, ranked_table
from spotctl.show.outputs import output_folder, save_rows


def answer(analysis: Analysis, wall_seconds: float) -> dict[str, Any]:
    """The JSON of `--json`.

    Fields:
        results[].offers.*: number of jobs that started on this kind
    """
    board = analysis.board
    return {
        "begin": format_time(board.begin),  #: first moment with prices
        "end": format_time(board.end),  #: last moment with prices
        "markets": len(board.offers),  #: number of markets
        #: cost of an accelerator-hour by cloud and accelerator, each -> Effective
        "prices": [asdict(price) for price in _prices(analysis)],
        #: costs by job type, length and strategy, each -> PricedJob
        "results": [asdict(result) for result in analysis.results],
        #: figures next to those printed in the paper, each -> Figure
        "figures": [asdict(figure) for figure in analysis.figures],
        "remarks": list(analysis.remarks),  #: remarks on the data
        "wall_seconds": wall_seconds,  #: time that the command took
    }


def shown_length(analysis: Analysis) -> float:
    """The job length of the main table: the paper's if it was requested, otherwise the longest with results."""
    lengths = {result.days for result in analysis.results}
    return LENGTH_OF_FIGURE_6_5 if LENGTH_OF_FIGURE_6_5 in lengths else max(lengths)


def tables(analysis: Analysis, width: int) -> Group:
    """Costs by job type and by length, effective prices, and a comparison with the paper."""
    return Group(
        _by_job(analysis, width),
        "",
        _by_length(analysis, width),
        "",
        _effective(analysis),
        "",
        _against_paper(analysis.figures),
    )


def write_csv(folder: Path, analysis: Analysis) -> None:
    """Writes `costs.csv` (a row per job type, length and strategy) and `figures.csv`; creates the folder if needed."""
    costs = [asdict(result) | {"offers": _kinds(result)} for result in analysis.results]
    with output_folder(folder):
        save_rows(folder / "costs.csv", costs)
        save_rows(folder / "figures.csv", [asdict(figure) for figure in analysis.figures])


def _kinds(result: PricedJob) -> str:
    return ", ".join(f"{kind} {count}" for kind, count in sorted(result.offers.items(), key=lambda item: -item[1]))


def _by_job(analysis: Analysis, width: int) -> Table:
    """A row per job type; a narrow terminal gets the reductions of all job types together."""
    days, names = shown_length(analysis), [strategy.name for strategy in analysis.plan.strategies]
    by_case = {(result.job, result.strategy): result for result in analysis.results if result.days == days}
    cases = {
        job.name: [by_case[job.name, name] for name in names if (job.name, name) in by_case] for job in analysis.jobs
    }
    rows = {job: row for job, row in cases.items() if row}
    length = f"a job of {days:g} {analysis.plan.strategies[0].accelerator}-days on one accelerator"
    full = _with_reductions(rows, names, f"Dollars for {length} (and reduction)")
    return full if _fits(full, width) else _dollars_only(rows, names, f"Dollars for {length}")


_ResultsByJob = Mapping[str, Sequence[PricedJob]]


def _with_reductions(rows: _ResultsByJob, names: Sequence[str], title: str) -> Table:
    table = plain_table("job type", *names, "moves", "starts", title=title)
    for job, row in rows.items():
        cells = (f"{result.usd:.2f} ({result.reduction:.2f}x)" for result in row)
        table.add_row(Text(job), *cells, f"{max(result.moves for result in row):.1f}", str(row[0].jobs))
    return table


def _dollars_only(rows: _ResultsByJob, names: Sequence[str], title: str) -> Table:
    """Headings in two lines, and the mean reduction of each strategy in a row of its own."""
    headings = [name.replace("-", "-\n", 1).replace("+", "\n+") for name in names]
    table = plain_table("job type", *headings, title=title)
    for job, row in rows.items():
        table.add_row(Text(job), *(f"{result.usd:.2f}" for result in row))
    means = [fmean(row[i].reduction for row in rows.values()) for i in range(len(names))]
    table.add_row(Text("mean reduction"), *(f"{mean:.2f}x" for mean in means), style="bold")
    return table


def _fits(table: Table, width: int) -> bool:
    """Whether nothing but the title has to be folded."""
    console = Console(width=1000)
    untitled = copy(table)
    untitled.title = None
    return Measurement.get(console, console.options, untitled).maximum <= width


def _by_length(analysis: Analysis, width: int) -> Table:
    """The gain from moving while training, by length: multi-cloud over dynamic, as in Figure 6.6."""
    lengths = list(dict.fromkeys(result.days for result in analysis.results))
    by_length = [_rows_of(analysis, days) for days in lengths]
    moved = [rows["dynamic"] for rows in by_length]
    gains = [_gains(rows["multi-cloud"], rows["dynamic"]) for rows in by_length]
    loaded = [_gains(rows["multi-cloud"], rows["dynamic+data"]) for rows in by_length]
    columns = (
        RankedColumn("days", [f"{days:g}" for days in lengths]),
        RankedColumn("mean", [f"{fmean(ratios):.2f}x" for ratios in gains]),
        RankedColumn("best", [f"{max(ratios):.2f}x" for ratios in gains]),
        RankedColumn("moves", [f"{fmean(result.moves for result in rows):.2f}" for rows in moved]),
        RankedColumn("most moves", [str(max(result.most_moves for result in rows)) for rows in moved], 2),
        RankedColumn("data moved, $", [f"{fmean(result.moved_usd for result in rows):.4f}" for rows in moved], 1),
        RankedColumn("with dataset, mean", [f"{fmean(ratios):.2f}x" for ratios in loaded]),
        RankedColumn("job types", [str(len(ratios)) for ratios in gains], 3),
    )
    table = ranked_table(width, columns)
    table.title = "Cost reduction from moving while training, by length (multi-cloud / dynamic, Figure 6.6)"
    return table


def _rows_of(analysis: Analysis, days: float) -> dict[str, list[PricedJob]]:
    """The results of one length, by strategy."""
    return {
        name: [result for result in analysis.results if result.days == days and result.strategy == name]
        for name in ("multi-cloud", "dynamic", "dynamic+data")
    }


def _gains(fixed: Sequence[PricedJob], moved: Sequence[PricedJob]) -> list[float]:
    return [still.usd / moving.usd for still, moving in zip(fixed, moved, strict=True)]


def _prices(analysis: Analysis) -> list[Effective]:
    return effective_prices(analysis.board, analysis.plan.movement, 24 * shown_length(analysis))


def _effective(analysis: Analysis) -> Table:
    prices = _prices(analysis)
    title = "Dollars per accelerator-hour at the cheapest place; effective: per hour of work that was kept"
    columns = ("cloud", "accelerator", "price", "useful", "effective", f"with data, {prices[0].hours:g} h")
    table = plain_table(*columns, title=title)
    for price in prices:
        table.add_row(
            price.cloud,
            price.accelerator,
            f"{price.usd_per_hour:.4f}",
            f"{price.useful_share:.2%}",
            f"{price.effective_usd_per_hour:.4f}",
            f"{price.usd_with_data:.4f}",
        )
    return table


def _against_paper(figures: Sequence[Figure]) -> Table:
    """Only figures that the paper prints; the rest is in the JSON and in figures.csv."""
    table = plain_table("table or figure", "here", "paper", title="Comparison with the paper")
    printed = [figure for figure in figures if figure.paper is not None]
    for source, what in dict.fromkeys((figure.table, figure.what) for figure in printed):
        alike = sorted(
            (figure for figure in printed if (figure.table, figure.what) == (source, what)),
            key=lambda figure: figure.found,
        )
        low, high = alike[0], alike[-1]
        here = _text(low) if low is high else f"{_text(low)} to {_text(high)}"
        table.add_row(f"{source}  {what}", here, _text(replace(low, found=low.paper or 0.0)))
    return table


def _text(figure: Figure) -> str:
    return f"{figure.found:.2g}{figure.unit}" if abs(figure.found) < 0.1 else f"{figure.found:.2f}{figure.unit}"
