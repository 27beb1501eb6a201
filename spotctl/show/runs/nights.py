"""Nightly jobs on the terminal."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.table import Table

from pricing_data.units import usd_text
from spotctl.show.layout import RankedColumn, ranked_table
from spotctl.show.printable import printable


def jobs_table(jobs: Sequence[Mapping[str, Any]], width: int) -> Table:
    """A row per job of `spotctl nightly ls --json`. A narrow terminal leaves out columns, but never breaks a name."""

    def column(heading: str, cells: Iterable[str], rank: int = 0) -> RankedColumn:
        return RankedColumn(heading, [printable(cell) for cell in cells], rank)

    return ranked_table(
        width,
        (
            column("name", (job["name"] for job in jobs)),
            column("hours", map(_hours, jobs), 2),
            column("by", (job["scheduler"] or "" for job in jobs), 3),
            column("next", (job["next"] or "" for job in jobs), 1),
            column("last night", map(_outcome, jobs)),
            column("cost", map(_cost, jobs)),
        ),
        names=5,
    )


def _hours(job: Mapping[str, Any]) -> str:
    return job["at"] or "" if job["deadline"] is None else f"{job['at']}-{job['deadline']}"


def _outcome(job: Mapping[str, Any]) -> str:
    last = job["last_night"]
    return "" if last is None else f"{last['night']} {last['outcome']}"


def _cost(job: Mapping[str, Any]) -> str:
    last = job["last_night"] or {}
    cost = last.get("cost_usd")
    if cost is None:
        return ""
    return f"{usd_text(cost)} replayed" if last.get("replayed") else usd_text(cost)
