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
from spotctl.planning.values import VCPU_SPREAD

RUN_SPREAD = 0.05
"""Throughputs of runs scatter by this standard deviation around their mean, whatever their length."""
MAX_RUNS = 20
"""Maximum number of runs used, newest first: programs, data and machines change."""
SCALING_PRIOR = 0.1
"""Standard deviation of the prior of phi's exponent."""
PRIOR_WEIGHT = 4
"""Weight of the prior of a duration, in observations."""


@dataclass(frozen=True, slots=True)
class Throughput:
    """Clocks per hour of one machine of a type when `size` machines work together."""

    per_hour: float
    size: float
    runs: int
    last: int

    @property
    def spread(self) -> float:
        """How far a run may be from the estimate: the spread of one run and of the mean of the measured runs."""
        return RUN_SPREAD * sqrt(1 + 1 / self.runs)

    def words(self, name: str) -> str:
        """The estimate as a plan shows it."""
        newest = to_datetime(self.last).date().isoformat()
        return f"throughput of {name}: {self.per_hour:.4g} clocks/h from {counted(self.runs, 'run')}, last {newest}"


@dataclass(frozen=True, slots=True)
class MeasuredSpan:
    """A duration in microseconds with its number of observations; `assumed` is the prior."""

    span: int
    seen: int
    assumed: int

    def words(self, name: str) -> str:
        """The estimate as a plan shows it."""
        measured, assumed = self.span / MINUTE, self.assumed / MINUTE
        times = "once" if self.seen == 1 else f"{self.seen} times"
        return f"{name} {measured:.1f} minutes (assumed {assumed:.1f}, measured {times})"


@dataclass(frozen=True, slots=True)
class Learned:
    """Estimates from the runs of one job; `last` is when the newest ended, on this computer's clock.

    `scaling` is s if n machines do n^(1 + s) times the work of one (phi is n^s; 0 is linear scaling). `hours` is how
    long all its machines need for a job whose work is not counted in clocks. `save_seconds` is what a checkpoint of a
    command takes.
    """

    runs: int
    last: int
    throughputs: Mapping[str, Throughput]
    scaling: float
    startup: MeasuredSpan
    eviction: MeasuredSpan
    hours: float | None
    evidence: tuple[Evidence, ...]
    save_seconds: float | None = None

    def per_hour(self, name: str, size: float) -> float:
        """Clocks per hour of one machine of a type among `size`: the measured figure, scaled by phi."""
        throughput = self.throughputs[name]
        return float(throughput.per_hour * (size / throughput.size) ** self.scaling)

    def words(self) -> tuple[str, ...]:
        """Measured overheads as a plan shows them."""
        spells = (("start-up", self.startup), ("an eviction costs", self.eviction))
        return tuple(spell.words(name) for name, spell in spells if spell.seen)


@dataclass(frozen=True, slots=True)
class WorkOfSize:
    """The work of `size` transient machines together: clocks, and machine-hours by type."""

    size: int
    clocks: float
    hours: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Observed:
    """One run. `startups` (from allocation to first work) and `losses` (work repeated after an eviction) are durations
    in microseconds. `machine_hours` counts transient machines at work. `saves` are the seconds that its checkpoints
    took."""

    wall_ended: int
    done: bool
    machine_hours: float
    cells: tuple[WorkOfSize, ...]
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
    return Learned(
        len(known),
        known[-1].wall_ended,
        _throughputs(known, vcpus, scaling),
        scaling,
        _measured_span([span for run in known for span in run.startups], startup),
        _measured_span([span for run in known for span in run.losses], eviction),
        median(done) if done else None,
        tuple(chain.from_iterable(run.evidence for run in known)),
        median(saves) if (saves := [span for run in known for span in run.saves]) else None,
    )


def _scaling(runs: Sequence[Observed], vcpus: Mapping[str, float]) -> float:
    """The slope of log(clocks per vCPU-hour) over log(machines) within runs, shrunk towards 0."""
    weighted_products = weighted_squares = 0.0
    for run in runs:
        cells = [cell for cell in run.cells if cell.clocks >= 1]
        if len(cells) < 2:
            continue
        sizes = np.log([cell.size for cell in cells])
        machines = [sum(vcpus.get(name, 1.0) * hours for name, hours in cell.hours.items()) for cell in cells]
        rates = np.log([cell.clocks / size for cell, size in zip(cells, machines, strict=True)])
        weights = np.array([1 / (RUN_SPREAD**2 + 1 / cell.clocks) for cell in cells])
        sizes -= np.average(sizes, weights=weights)
        rates -= np.average(rates, weights=weights)
        weighted_products += float(np.sum(weights * sizes * rates))
        weighted_squares += float(np.sum(weights * sizes**2))
    return weighted_products / (weighted_squares + SCALING_PRIOR**-2)


def _throughputs(runs: Sequence[Observed], vcpus: Mapping[str, float], scaling: float) -> dict[str, Throughput]:
    """Least squares: the clocks of a run are the sum of hours times throughput over its types."""
    counted = [run for run in runs if sum(cell.clocks for cell in run.cells) >= 1]
    names = sorted({name for run in counted for cell in run.cells for name in cell.hours})
    if not names:
        return {}
    weights = [(cell.size, sum(cell.hours.values())) for run in counted for cell in run.cells]
    size = float(np.exp(sum(log(count) * hours for count, hours in weights) / sum(hours for _, hours in weights)))
    hours = np.array([[_hours(run, name, size, scaling) for name in names] for run in counted])
    clocks = np.array([sum(cell.clocks for cell in run.cells) for run in counted])
    cpus = np.array([vcpus.get(name, 1.0) for name in names])
    expected = cpus * float(clocks.sum() / (hours @ cpus).sum())
    seen = hours / (RUN_SPREAD * clocks)[:, np.newaxis]
    precision = np.diag((VCPU_SPREAD * expected) ** -2.0)
    right = seen.T @ np.full(len(counted), 1 / RUN_SPREAD) + precision @ expected
    solution = np.linalg.solve(seen.T @ seen + precision, right)
    # A type that was hardly used may come out at 0 or below; then the prior is used.
    solution = np.where(solution > 0, solution, expected)
    used = {name: [run.wall_ended for run in counted if _hours(run, name, size, scaling)] for name in names}
    return {
        name: Throughput(float(per_hour), size, len(used[name]), max(used[name]))
        for name, per_hour in zip(names, solution, strict=True)
    }


def _hours(run: Observed, name: str, size: float, scaling: float) -> float:
    """Hours of a type, converted to the hours that the same work takes among `size` machines."""
    return float(sum(cell.hours.get(name, 0.0) * (cell.size / size) ** scaling for cell in run.cells))


def _measured_span(spans: Sequence[float], assumed: int) -> MeasuredSpan:
    mean = (PRIOR_WEIGHT * assumed + sum(spans)) / (PRIOR_WEIGHT + len(spans))
    return MeasuredSpan(round(mean), len(spans), assumed)


def most_machines(spec: JobSpec) -> int | None:
    """The most machines that work for a job at one time; None without a limit."""
    return spec.program.nodes.most if isinstance(spec.program, Command) else spec.resources.machines.most
