"""The price analysis as tables for people, JSON for programs and CSV for both."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from bidbrain.gavel.pricing.analysis import Priced
from bidbrain.gavel.pricing.published import LENGTH_OF_FIGURE_6_5
from bidbrain.gavel.pricing.tables import Effective, Figure, effective_prices
from pricing_data.units import format_time
from spotctl.analyses.gavel_prices import Analysis
from spotctl.errors import BadRequest


def answer(found: Analysis, wall_seconds: float) -> dict[str, Any]:
    """What `--json` prints."""
    board = found.board
    return {
        "begin": format_time(board.begin),
        "end": format_time(board.end),
        "markets": len(board.offers),
        "prices": [asdict(one) for one in _prices(found)],
        "results": [asdict(one) for one in found.results],
        "figures": [asdict(one) for one in found.figures],
        "remarks": list(found.remarks),
        "wall_seconds": wall_seconds,
    }


def shown_length(found: Analysis) -> float:
    """The length that the main table shows: the paper's where it was asked for, else the longest that has results."""
    lengths = {one.days for one in found.results}
    return LENGTH_OF_FIGURE_6_5 if LENGTH_OF_FIGURE_6_5 in lengths else max(lengths)


def tables(found: Analysis) -> Group:
    """By job type, by length, and beside the paper's figures."""
    return Group(_by_job(found), "", _by_length(found), "", _effective(found), "", _beside(found.figures))


def write_csv(folder: Path, found: Analysis) -> None:
    """`costs.csv` (a row per job type, length and strategy) and `figures.csv`, in a folder that is made if need be."""
    costs = [asdict(one) | {"offers": _kinds(one)} for one in found.results]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / "costs.csv", costs)
        _write(folder / "figures.csv", [asdict(one) for one in found.figures])
    except OSError as error:
        raise BadRequest(f"--out {folder}: {error.strerror or error}") from error


def _write(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys() if rows else ())
        writer.writeheader()
        writer.writerows(rows)


def _kinds(one: Priced) -> str:
    return ", ".join(f"{kind} {count}" for kind, count in sorted(one.offers.items(), key=lambda item: -item[1]))


def _plain(title: str, first: str, *others: str) -> Table:
    shown = Table(title=title, title_justify="left", title_style="bold", box=None, header_style="bold", pad_edge=False)
    shown.add_column(first, no_wrap=True)
    for name in others:
        shown.add_column(name, justify="right", no_wrap=True)
    return shown


def _by_job(found: Analysis) -> Table:
    days, names = shown_length(found), [strategy.name for strategy in found.plan.strategies]
    baseline = found.plan.strategies[0]
    title = f"Dollars for a job of {days:g} {baseline.accelerator}-days on one accelerator; in brackets, saving"
    shown = _plain(title, "job type", *names, "moves", "starts")
    by_case = {(one.job, one.strategy): one for one in found.results if one.days == days}
    for job in found.jobs:
        rows = [by_case[job.name, name] for name in names if (job.name, name) in by_case]
        if rows:
            cells = (f"{one.usd:.2f} ({one.reduction:.2f}x)" for one in rows)
            moves = max(one.moves for one in rows)
            shown.add_row(Text(job.name), *cells, f"{moves:.1f}", str(rows[0].jobs))
    return shown


def _by_length(found: Analysis) -> Table:
    """What moving brings by length: multi-cloud over dynamic, as Figure 6.6 has it."""
    shown = _plain(
        "What moving while training brings, by length (multi-cloud over dynamic; Figure 6.6)",
        "days",
        "mean",
        "best",
        "moves",
        "most moves",
        "data moved, $",
        "with dataset, mean",
        "job types",
    )
    for days in dict.fromkeys(one.days for one in found.results):
        rows = {
            name: [one for one in found.results if one.days == days and one.strategy == name]
            for name in ("multi-cloud", "dynamic", "dynamic+data")
        }
        gains = [fixed.usd / moved.usd for fixed, moved in zip(rows["multi-cloud"], rows["dynamic"], strict=True)]
        loaded = [fixed.usd / moved.usd for fixed, moved in zip(rows["multi-cloud"], rows["dynamic+data"], strict=True)]
        shown.add_row(
            f"{days:g}",
            f"{sum(gains) / len(gains):.2f}x",
            f"{max(gains):.2f}x",
            f"{sum(one.moves for one in rows['dynamic']) / len(gains):.2f}",
            str(max(one.most_moves for one in rows["dynamic"])),
            f"{sum(one.moved_usd for one in rows['dynamic']) / len(gains):.4f}",
            f"{sum(loaded) / len(loaded):.2f}x",
            str(len(gains)),
        )
    return shown


def _prices(found: Analysis) -> list[Effective]:
    return effective_prices(found.board, found.plan.movement, 24 * shown_length(found))


def _effective(found: Analysis) -> Table:
    prices = _prices(found)
    title = "Dollars for an accelerator-hour where it was cheapest; effective: of lasting work"
    shown = _plain(title, "cloud", "accelerator", "price", "useful", "effective", f"with data, {prices[0].hours:g} h")
    for one in prices:
        shown.add_row(
            one.cloud,
            one.accelerator,
            f"{one.usd_per_hour:.4f}",
            f"{one.useful_share:.2%}",
            f"{one.effective_usd_per_hour:.4f}",
            f"{one.usd_with_data:.4f}",
        )
    return shown


def _beside(figures: Sequence[Figure]) -> Table:
    """Only what the paper prints too; the rest is in the JSON and in figures.csv."""
    shown = _plain("Beside the paper's figures", "table or figure", "here", "paper")
    printed = [one for one in figures if one.paper is not None]
    for table, what in dict.fromkeys((one.table, one.what) for one in printed):
        alike = sorted((one for one in printed if (one.table, one.what) == (table, what)), key=lambda one: one.found)
        low, high = alike[0], alike[-1]
        found = _text(low) if low is high else f"{_text(low)} to {_text(high)}"
        shown.add_row(f"{table}  {what}", found, _text(replace(low, found=low.paper or 0.0)))
    return shown


def _text(one: Figure) -> str:
    return f"{one.found:.2g}{one.unit}" if abs(one.found) < 0.1 else f"{one.found:.2f}{one.unit}"
