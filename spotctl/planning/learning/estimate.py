"""Estimates from many runs, combined with prior assumptions. Pure.

Throughputs of runs scatter by `RUN_SPREAD` around the mean, however long a run is. Until two machine types have both
been used, their throughputs are assumed to differ as their vCPUs do, give or take `VCPU_SPREAD`. Scaling is estimated
only from runs in which the number of machines varied, because runs also differ from each other for other reasons.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from math import log
from statistics import median

import numpy as np

from spotctl.planning.learning.values import RUN_SPREAD, Learned, MeasuredSpan, Observed, Throughput, WorkOfSize
from spotctl.planning.work import VCPU_SPREAD

MOST_RUNS = 20
"""Maximum number of runs used, newest first: programs, data and machines change."""
SCALING_PRIOR = 0.1
"""Standard deviation of the prior of phi's exponent."""
PRIOR_WEIGHT = 4
"""Weight of the prior of a duration, in observations."""


def learn(
    runs: Iterable[Observed], vcpus: Mapping[str, float], machines: int | None, startup: int, eviction: int
) -> Learned | None:
    """Estimates from runs; None without any. `startup` and `eviction` are prior assumptions.

    `machines` is the job's limit; without one (None), the time that all its machines need is undefined.
    """
    known = sorted(runs, key=lambda run: run.wall_ended)[-MOST_RUNS:]
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
        rates = np.log([cell.clocks / _size_of(cell, vcpus) for cell in cells])
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


def _size_of(cell: WorkOfSize, vcpus: Mapping[str, float]) -> float:
    return sum(vcpus.get(name, 1.0) * hours for name, hours in cell.hours.items())


def _measured_span(spans: Sequence[float], assumed: int) -> MeasuredSpan:
    mean = (PRIOR_WEIGHT * assumed + sum(spans)) / (PRIOR_WEIGHT + len(spans))
    return MeasuredSpan(round(mean), len(spans), assumed)
