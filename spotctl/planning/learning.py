"""Estimates from earlier runs, as frozen values, each with its number of observations."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import log, sqrt
from statistics import median
from types import MappingProxyType

import numpy as np

from bidbrain.eviction.hazard import Evidence
from pricing_data.units import MINUTE, counted, to_datetime
from spotctl.files.job.programs import Command
from spotctl.files.job.spec import JobSpec
from spotctl.planning.values import VCPU_SPREAD, TypeSpeed

RUN_SPREAD = 0.05
"""Throughputs of runs scatter by this standard deviation around their mean, whatever their length."""
MAX_RUNS = 20
"""Maximum number of runs used, newest first: programs, data and machines change."""
SCALING_PRIOR = 0.1
"""Standard deviation of the prior of phi's exponent."""
PRIOR_WEIGHT = 4
"""Weight of the prior of a duration, in observations."""


@dataclass(frozen=True, slots=True)
class Learned:
    """Estimates from the runs of one job; `last` is when the newest ended, on this computer's clock.

    `speeds` are those of one machine of a type when `size` machines work together. `scaling` is s if n machines do
    n^(1 + s) times the work of one (phi is n^s; 0 is linear scaling). `startup` and `eviction` are in microseconds, and
    `remarks` tell the user how they were measured. `hours` is how long all its machines need for a job whose work is
    not counted in clocks. `save_seconds` is what a checkpoint of a command takes.
    """

    runs: int
    last: int
    speeds: Mapping[str, TypeSpeed]
    size: float
    scaling: float
    startup: int
    eviction: int
    remarks: tuple[str, ...]
    hours: float | None
    evidence: tuple[Evidence, ...]
    save_seconds: float | None = None

    def per_hour(self, name: str, size: float) -> float:
        """Clocks per hour of one machine of a type among `size`: the measured figure, scaled by phi."""
        return float(self.speeds[name].nu * (size / self.size) ** self.scaling)


@dataclass(frozen=True, slots=True)
class Observed:
    """One run. `clocks` and `hours` are by the number of spot machines that worked together, and hours also by type.
    `startups` (from allocation to first work) and `losses` (work repeated after an eviction) are durations in
    microseconds. `machine_hours` counts spot machines at work. `saves` are the seconds that its checkpoints took."""

    wall_ended: int
    done: bool
    machine_hours: float
    clocks: Mapping[int, float]
    hours: Mapping[int, Mapping[str, float]]
    startups: tuple[float, ...]
    losses: tuple[float, ...]
    evidence: tuple[Evidence, ...]
    saves: tuple[float, ...] = ()


NOTHING_LEARNED: Mapping[str, Learned] = MappingProxyType({})


def learn(
    runs: Iterable[Observed], vcpus: Mapping[str, float], machines: int | None, startup: int, eviction: int
) -> Learned | None:
    """Estimates from runs; None without any. `startup` and `eviction` are prior assumptions.

    `machines` is the job's limit; without one (None), the time that all its machines need is undefined.
    """
    known = sorted(runs, key=lambda run: run.wall_ended)[-MAX_RUNS:]
    if not known:
        return None
    done = [run.machine_hours / machines for run in known if machines and run.done and run.machine_hours]
    scaling = _scaling(known, vcpus)
    size, speeds = _speeds(known, vcpus, scaling)
    startups = [span for run in known for span in run.startups]
    losses = [span for run in known for span in run.losses]
    return Learned(
        len(known),
        known[-1].wall_ended,
        speeds,
        size,
        scaling,
        _mean(startups, startup),
        _mean(losses, eviction),
        (*_remarks("start-up", startups, startup), *_remarks("an eviction costs", losses, eviction)),
        median(done) if done else None,
        tuple(chain.from_iterable(run.evidence for run in known)),
        median(saves) if (saves := [span for run in known for span in run.saves]) else None,
    )


def _scaling(runs: Sequence[Observed], vcpus: Mapping[str, float]) -> float:
    """The slope of log(clocks per vCPU-hour) over log(machines) within runs, shrunk towards 0."""
    weighted_products = weighted_squares = 0.0
    for run in runs:
        # Less than a clock says nothing about the rate.
        enough = [size for size in run.hours if run.clocks[size] >= 1]
        if len(enough) < 2:
            continue
        clocks = [run.clocks[size] for size in enough]
        sizes = np.log(enough)
        machines = [sum(vcpus.get(name, 1.0) * hours for name, hours in run.hours[size].items()) for size in enough]
        rates = np.log([done / machine for done, machine in zip(clocks, machines, strict=True)])
        weights = np.array([1 / (RUN_SPREAD**2 + 1 / done) for done in clocks])
        sizes -= np.average(sizes, weights=weights)
        rates -= np.average(rates, weights=weights)
        weighted_products += float(np.sum(weights * sizes * rates))
        weighted_squares += float(np.sum(weights * sizes**2))
    return weighted_products / (weighted_squares + SCALING_PRIOR**-2)


def _speeds(runs: Sequence[Observed], vcpus: Mapping[str, float], scaling: float) -> tuple[float, dict[str, TypeSpeed]]:
    """The mean number of machines at work, and by type the clocks per hour of one among that many, by least squares:
    the clocks of a run are the sum of hours times speed over its types."""
    used = [run for run in runs if sum(run.clocks.values()) >= 1]
    names = sorted({name for run in used for hours in run.hours.values() for name in hours})
    if not names:
        return 1.0, {}
    weights = [(count, sum(hours.values())) for run in used for count, hours in run.hours.items()]
    size = float(np.exp(sum(log(count) * hours for count, hours in weights) / sum(hours for _, hours in weights)))
    hours = np.array([[_hours(run, name, size, scaling) for name in names] for run in used])
    clocks = np.array([sum(run.clocks.values()) for run in used])
    # Before anything is measured, each type is expected to do the same work per vCPU.
    cpus = np.array([vcpus.get(name, 1.0) for name in names])
    expected = cpus * float(clocks.sum() / (hours @ cpus).sum())
    # A run's clocks scatter in proportion to their number.
    seen = hours / (RUN_SPREAD * clocks)[:, np.newaxis]
    precision = np.diag((VCPU_SPREAD * expected) ** -2.0)
    right = seen.T @ np.full(len(used), 1 / RUN_SPREAD) + precision @ expected
    solution = np.linalg.solve(seen.T @ seen + precision, right)
    # A type that was hardly used may come out at 0 or below; then the prior is used.
    solution = np.where(solution > 0, solution, expected)
    ends = {name: [run.wall_ended for run in used if _hours(run, name, size, scaling)] for name in names}
    return size, {
        name: _speed(name, float(per_hour), ends[name], scaling) for name, per_hour in zip(names, solution, strict=True)
    }


def _speed(name: str, per_hour: float, ends: Sequence[int], scaling: float) -> TypeSpeed:
    """The speed of a type in the runs that ended at some moments, with the spread of one run and of their mean."""
    newest = to_datetime(max(ends)).date().isoformat()
    source = f"throughput of {name}: {per_hour:.4g} clocks/h from {counted(len(ends), 'run')}, last {newest}"
    return TypeSpeed(per_hour, source, spread=RUN_SPREAD * sqrt(1 + 1 / len(ends)), scaling=scaling)


def _hours(run: Observed, name: str, size: float, scaling: float) -> float:
    """Hours of a type, converted to the hours that the same work takes among `size` machines."""
    return float(sum(hours.get(name, 0.0) * (count / size) ** scaling for count, hours in run.hours.items()))


def _mean(spans: Sequence[float], assumed: int) -> int:
    """The mean of measured durations, in microseconds; `assumed` is the prior."""
    return round((PRIOR_WEIGHT * assumed + sum(spans)) / (PRIOR_WEIGHT + len(spans)))


def _remarks(name: str, spans: Sequence[float], assumed: int) -> list[str]:
    """A measured duration as a plan shows it; nothing if only the prior is known."""
    if not spans:
        return []
    times = "once" if len(spans) == 1 else f"{len(spans)} times"
    return [f"{name} {_mean(spans, assumed) / MINUTE:.1f} minutes (assumed {assumed / MINUTE:.1f}, measured {times})"]


def most_machines(spec: JobSpec) -> int | None:
    """The most machines that work for a job at one time; None without a limit."""
    return spec.program.nodes.most if isinstance(spec.program, Command) else spec.resources.machines.most
