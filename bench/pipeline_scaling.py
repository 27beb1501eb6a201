"""Speed of data parallelism from few measurements: a step takes T_1 + 2(d-1)/d x seconds on d
workers.

x is the time to move a model's gradients once; models of one family share it, so one measured size
gives the others.
"""

from collections.abc import Iterable
from statistics import median


def gradient_seconds(measured: Iterable[tuple[float, float, int]]) -> float:
    """x of a family, from seconds per step on one worker and on d workers; not below 0."""
    gradients = [(several - alone) * d / (2 * (d - 1)) for alone, several, d in measured]
    return max(median(gradients), 0.0)


def step_seconds_on(workers: int, alone: float, gradients: float) -> float:
    """Seconds per step when each of the workers processes a microbatch of its own."""
    return alone + 2 * (workers - 1) / workers * gradients
