"""The next points on a job's frontier of cost and time: its plan if its time is worth more, or less. Pure."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from bidbrain.strategies.names import DEADLINE
from pricing_data.units import NANOS_PER_DOLLAR
from spotctl.files.job.spec import AUTO, JobSpec
from spotctl.planning.forecasting import forecast_of
from spotctl.planning.values import JobPlan

_FACTORS = (1 / 8, 8)
_MATTERS = 0.02
"""Smaller changes of cost and time are not worth a line."""


@dataclass(frozen=True, slots=True)
class PacePoint:
    """A value of time, in nano-dollars per hour, and by which shares it changes the expected cost and time."""

    value_of_time: int
    usd: float
    hours: float


def pace_points(plan: JobPlan, plan_of: Callable[[JobSpec], JobPlan | None]) -> list[PacePoint]:
    """The changes if the time of the same job were worth an eighth, or eight times as much, as far as the plan is then
    cheaper and slower, or faster and more expensive."""
    spec = plan.job.spec
    if spec.strategy not in (AUTO, DEADLINE) or plan.work.assumed or plan.decider.roaming is not None:
        return []
    usd, hours = _expected(plan)
    # If the user does not say, an hour of the job's time is worth what an hour of the job costs.
    worth = spec.value_of_time or round(usd / hours * NANOS_PER_DOLLAR)
    points = []
    for value in (_two_digits(worth * factor) for factor in _FACTORS):
        other = plan_of(replace(spec, value_of_time=value))
        if other is None:
            continue
        changed_usd, changed_hours = _expected(other)
        points.append(PacePoint(value, changed_usd / usd - 1, changed_hours / hours - 1))
    return [point for point in points if point.usd * point.hours < 0 and max(-point.usd, -point.hours) > _MATTERS]


def _expected(plan: JobPlan) -> tuple[float, float]:
    expected = forecast_of(plan)
    return expected.usd.median, expected.hours.median


def _two_digits(nanos: float) -> int:
    return round(float(f"{nanos:.1e}"))
