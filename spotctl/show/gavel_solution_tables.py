"""An allocation as JSON and as a table."""

from __future__ import annotations

from math import isfinite
from typing import Any

from rich.table import Table
from rich.text import Text

from bidbrain.gavel.policies.base import usd_per_hour
from bidbrain.gavel.problem import Allocation, FloatArray, Problem
from bidbrain.gavel.shares import best_throughput

# Shares below are the solver's rounding. Where jobs differ a lot, a share that is meant may be very small.
_NOTHING = 1e-12


def answer(problem: Problem, found: Allocation, seconds: float) -> dict[str, Any]:
    """What `--json` prints."""
    told: dict[str, Any] = {
        "status": "relaxed" if found.infeasible else "optimal",
        "objective": found.objective if isfinite(found.objective) else None,
        "allocation": _by_row(problem, found.shares),
        "effective_throughput": dict(zip(problem.jobs.ids, found.effective_throughput.tolist(), strict=True)),
        "cost_usd_per_hour": usd_per_hour(problem, found.shares),
        "infeasible": list(found.infeasible),
        "solve_seconds": seconds,
    }
    if found.hours is not None:
        told["hours"] = _by_row(problem, found.hours)
    if found.cost_usd is not None:
        told["cost_usd"] = found.cost_usd
    return told | ({"notes": found.notes} if found.notes else {})


def row_names(problem: Problem) -> list[str]:
    """Jobs by their ids, pairs as `a+b`."""
    ids = problem.jobs.ids
    members = [] if problem.pairs is None else problem.pairs.members.tolist()
    return [*ids, *(f"{ids[first]}+{ids[second]}" for first, second in members)]


def _by_row(problem: Problem, matrix: FloatArray) -> dict[str, dict[str, float]]:
    """Jobs always, pairs where they have something; of both only the types where they have something."""
    jobs, types = len(problem.jobs.ids), problem.cluster.types
    told = {}
    for i, (name, row) in enumerate(zip(row_names(problem), matrix.tolist(), strict=True)):
        entries = {kind: value for kind, value in zip(types, row, strict=True) if value > _NOTHING}
        if entries or i < jobs:
            told[name] = entries
    return told


def table(problem: Problem, found: Allocation) -> Table:
    """A row for each job and for each pair that gets time: its share of each type, and what that comes to."""
    shown = Table(box=None, header_style="bold", pad_edge=False)
    shown.add_column("job", no_wrap=True)
    for name in (*problem.cluster.types, "steps/s", "of best"):
        shown.add_column(Text(name), justify="right", no_wrap=True)
    if found.hours is not None:
        shown.add_column("hours", justify="right", no_wrap=True)
    best = best_throughput(problem)
    for i, (name, row) in enumerate(zip(row_names(problem), found.shares.tolist(), strict=True)):
        job = i < len(problem.jobs.ids)
        if not job and max(row) <= _NOTHING:
            continue
        cells = [f"{share:.1%}" if share > _NOTHING else "-" for share in row]
        cells += _progress(found.effective_throughput[i], best[i]) if job else ["", ""]
        if found.hours is not None:
            cells.append(f"{found.hours[i].sum():.3g}")
        shown.add_row(Text(name), *cells)
    return shown


def _progress(throughput: float, best: float) -> list[str]:
    return [f"{throughput:.4g}", f"{throughput / best:.0%}" if best > 0 else "-"]


def remarks(problem: Problem, found: Allocation, seconds: float) -> list[str]:
    """What stands below the table."""
    lines = [f"objective {found.objective:.6g}, solved in {seconds * 1000:.3g} ms"]
    hourly = usd_per_hour(problem, found.shares)
    if hourly is not None:
        lines.append(f"costs ${hourly:.4g} an hour")
    if found.cost_usd is not None:
        lines.append(f"costs ${found.cost_usd:.6g} to the end")
    lines += [f"{name.replace('_', ' ')}: {value:.6g}" for name, value in found.notes.items()]
    return [*lines, *found.infeasible]
