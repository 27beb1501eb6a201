"""The deadline replay of `spotctl lab backtest deadline`: from traces and options to the outcome of every job."""

from collections.abc import Mapping
from dataclasses import dataclass
from glob import glob
from pathlib import Path

import numpy as np

from bidbrain.backtest.deadline import (
    AvailabilityHistory,
    DeadlineJobs,
    DeadlineOutcome,
    DeadlineSummary,
    lay_out,
    summarize,
)
from bidbrain.strategies.deadline_job import DeadlineTerms
from pricing_data.availability import AvailabilityTrace
from pricing_data.sources.observations import read_availability
from pricing_data.units import DAY, HOUR, parse_duration
from spotctl.home.errors import BadRequest
from spotctl.lab.option_values import numbers


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """Jobs with these terms and slacks, replayed on these histories."""

    terms: DeadlineTerms
    slacks: tuple[float, ...]
    histories: tuple[AvailabilityHistory, ...]


def request_of(traces: str, hours: float, slack: str, on_demand_ratio: float, delay: str) -> ReplayRequest:
    """The request of the command's options; raises BadRequest for an option that makes no sense."""
    if not 0 < hours * HOUR < 100 * 365 * DAY:
        raise BadRequest(f"--hours {hours:g}: a job needs more than 0 hours of work, and fewer than a century")
    if not 0 < on_demand_ratio < float("inf"):
        raise BadRequest(f"--on-demand-ratio {on_demand_ratio:g}: is not above 0 (3: on demand costs three times spot)")
    terms = DeadlineTerms(round(hours * HOUR), parse_duration(delay, zero=True), on_demand_ratio)
    slacks = numbers("--slack", slack, "1.1,1.25,1.5,2")
    if wrong := [ratio for ratio in slacks if not 1 <= ratio < 1000]:
        raise BadRequest(f"--slack {wrong[0]:g}: the deadline must be at least 1 and less than 1000 times the work")
    return ReplayRequest(terms, slacks, read(traces))


def read(traces: str) -> tuple[AvailabilityHistory, ...]:
    """The histories in the files that match a glob, by name."""
    return tuple(map(AvailabilityHistory.of, recorded(traces)))


def recorded(traces: str) -> tuple[AvailabilityTrace, ...]:
    """The traces in the files that match a glob, by name."""
    names = glob(traces, recursive=True)  # noqa: PTH207  # Path.glob takes no absolute pattern
    paths = sorted(path for path in map(Path, names) if path.is_file())
    if not paths:
        raise BadRequest(f"--traces {traces!r}: no file matches (quote the glob, or the shell expands it)")
    return tuple(map(read_availability, paths))


def jobs_of(request: ReplayRequest, starts: int) -> DeadlineJobs:
    """The jobs to replay; raises BadRequest if every trace is too short for a slack."""
    jobs = lay_out(request.histories, request.terms, request.slacks, starts)
    for slack in request.slacks:
        if slack not in jobs.slack:
            longest = max(request.histories, key=lambda history: history.up.size * history.gap)
            raise BadRequest(
                f"slack {slack:g}: a job of {request.terms.work / HOUR:g} hours has"
                f" {slack * request.terms.work / HOUR:g} hours until its deadline, and the longest trace,"
                f" {longest.name}, has {longest.up.size * longest.gap / HOUR:.1f}; use longer traces or shorter jobs"
            )
    return jobs


def left_out(request: ReplayRequest, jobs: DeadlineJobs) -> list[str]:
    """A remark for each slack for which some traces are too short."""
    lines = []
    for slack in request.slacks:
        replayed = np.unique(jobs.history[jobs.slack == slack]).size
        if replayed < len(request.histories):
            span = slack * request.terms.work / HOUR
            short = len(request.histories) - replayed
            lines.append(f"slack {slack:g}: {short} of {len(request.histories)} traces are shorter than {span:g} hours")
    return lines


def summaries(jobs: DeadlineJobs, outcomes: Mapping[str, DeadlineOutcome]) -> list[DeadlineSummary]:
    return [summary for scheme, outcome in outcomes.items() for summary in summarize(jobs, scheme, outcome)]
