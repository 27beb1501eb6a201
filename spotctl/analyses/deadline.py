"""The deadline replay for the command line: traces and options in, table and JSON out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from glob import glob
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from bidbrain.backtest.deadline import (
    AvailabilityHistory,
    DeadlineJobs,
    DeadlineOutcome,
    DeadlineSummary,
    lay_out,
    summarise,
)
from bidbrain.strategies.deadline_job import DeadlineTerms
from pricing_data.lifetimes import AvailabilityTrace
from pricing_data.sources.observations import read_availability
from pricing_data.units import DAY, HOUR, parse_duration
from spotctl.errors import BadRequest


@dataclass(frozen=True, slots=True)
class Question:
    """What is replayed: jobs of these terms and slacks on these histories."""

    terms: DeadlineTerms
    slacks: tuple[float, ...]
    histories: tuple[AvailabilityHistory, ...]


def question(traces: str, hours: float, slack: str, on_demand_ratio: float, delay: str) -> Question:
    """The options of the command understood; what makes no sense is refused."""
    if not 0 < hours * HOUR < 100 * 365 * DAY:
        raise BadRequest(f"--hours {hours:g}: a job needs more than 0 hours of work, and fewer than a century")
    if not 0 < on_demand_ratio < float("inf"):
        raise BadRequest(f"--on-demand-ratio {on_demand_ratio:g}: is not above 0 (3: on demand costs three times spot)")
    terms = DeadlineTerms(round(hours * HOUR), _delay(delay), on_demand_ratio)
    return Question(terms, _slacks(slack), read(traces))


def read(traces: str) -> tuple[AvailabilityHistory, ...]:
    """The histories in the files that fit a glob, in the order of their names."""
    return tuple(map(AvailabilityHistory.of, recorded(traces)))


def recorded(traces: str) -> tuple[AvailabilityTrace, ...]:
    """The traces in the files that fit a glob, in the order of their names."""
    names = glob(traces, recursive=True)  # noqa: PTH207  # Path.glob takes no absolute pattern
    paths = sorted(path for path in map(Path, names) if path.is_file())
    if not paths:
        raise BadRequest(f"--traces {traces!r}: no file fits (quote the glob, so that the shell leaves it alone)")
    return tuple(map(read_availability, paths))


def jobs_of(asked: Question, starts: int) -> DeadlineJobs:
    """The jobs to replay; refused where a slack has no trace that holds a job of it."""
    jobs = lay_out(asked.histories, asked.terms, asked.slacks, starts)
    for slack in asked.slacks:
        if slack not in jobs.slack:
            longest = max(asked.histories, key=lambda history: history.up.size * history.gap)
            raise BadRequest(
                f"slack {slack:g}: a job of {asked.terms.work / HOUR:g} hours has"
                f" {slack * asked.terms.work / HOUR:g} hours until its deadline, and the longest trace, {longest.name},"
                f" has {longest.up.size * longest.gap / HOUR:.1f}; take longer traces or shorter jobs"
            )
    return jobs


def left_out(asked: Question, jobs: DeadlineJobs) -> list[str]:
    """A line for each slack that some traces are too short for."""
    lines = []
    for slack in asked.slacks:
        held = np.unique(jobs.history[jobs.slack == slack]).size
        if held < len(asked.histories):
            span = slack * asked.terms.work / HOUR
            short = len(asked.histories) - held
            lines.append(f"slack {slack:g}: {short} of {len(asked.histories)} traces are shorter than {span:g} hours")
    return lines


def summaries(jobs: DeadlineJobs, outcomes: Mapping[str, DeadlineOutcome]) -> list[DeadlineSummary]:
    """All schemes, each by slack."""
    return [one for scheme, outcome in outcomes.items() for one in summarise(jobs, scheme, outcome)]


def gap_closed(found: Sequence[DeadlineSummary]) -> dict[float, float]:
    """By slack, how much of the way from uniform-progress to the optimum the project's own strategy goes."""
    cost = {(one.scheme, one.slack): one.cost_ratio for one in found}
    shares = {}
    for slack in dict.fromkeys(one.slack for one in found):
        plain, own, best = (cost[scheme, slack] for scheme in ("uniform-progress", "deadline", "optimal"))
        shares[slack] = (plain - own) / (plain - best) if plain > best else float("nan")
    return shares


def answer(found: Sequence[DeadlineSummary], wall_seconds: float) -> dict[str, Any]:
    """What `--json` prints."""
    closed = [
        {"slack": slack, "share": share if isfinite(share) else None} for slack, share in gap_closed(found).items()
    ]
    return {"results": [asdict(one) for one in found], "gap_closed": closed, "wall_seconds": wall_seconds}


def table(found: Sequence[DeadlineSummary]) -> Table:
    """A row for each scheme, the cost by slack; below them the share of the gap that is closed."""
    slacks = list(dict.fromkeys(one.slack for one in found))
    shown = Table(box=None, header_style="bold", pad_edge=False)
    shown.add_column("scheme", no_wrap=True)
    for name in (*(f"slack {slack:g}" for slack in slacks), "spot h", "on-demand h", "misses"):
        shown.add_column(name, justify="right", no_wrap=True)
    for scheme in dict.fromkeys(one.scheme for one in found):
        rows = [one for one in found if one.scheme == scheme]
        jobs = sum(row.jobs for row in rows)
        shown.add_row(
            scheme,
            *(f"{row.cost_ratio:.3f}" for row in rows),
            f"{sum(row.spot_hours * row.jobs for row in rows) / jobs:.1f}",
            f"{sum(row.on_demand_hours * row.jobs for row in rows) / jobs:.1f}",
            str(sum(row.misses for row in rows)),
        )
    closed = ("-" if not isfinite(share) else f"{share:.0%}" for share in gap_closed(found).values())
    shown.add_row("gap closed", *closed, "", "", "", style="dim")
    return shown


def _delay(text: str) -> int:
    number = text.strip()[:-1]
    return 0 if number and not number.strip("0.") and text.strip()[-1] in "smhd" else parse_duration(text)


def _slacks(text: str) -> tuple[float, ...]:
    try:
        slacks = tuple(dict.fromkeys(float(part) for part in text.split(",")))
    except ValueError:
        raise BadRequest(f"--slack {text!r}: is no list of numbers (write 1.1,1.25,1.5,2)") from None
    for slack in slacks:
        if not 1 <= slack < 1000:
            raise BadRequest(f"--slack {slack:g}: a deadline is at least 1 and below 1000 times the work")
    return slacks
