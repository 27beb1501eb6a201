"""The plans that explain a plan: the three ways to run a training (as a script with checkpoints, as a trainer with and
without a reliable machine), and the next points of cost and time if the job's time is worth more, or less. Pure."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from bidbrain.strategies.names import DEADLINE
from pricing_data.units import HOUR, NANOS_PER_DOLLAR
from spotctl.files.job.programs import Checkpoint, Command, Training
from spotctl.files.job.spec import AUTO, JobSpec
from spotctl.files.job.values import Nodes, Range
from spotctl.planning.forecasting import forecast_of
from spotctl.planning.values import JobPlan

_FACTORS = (1 / 8, 8)
_MATTERS = 0.02
"""Smaller changes of cost and time are not worth a line."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to run a job, and its plan; None if there is none."""

    name: str
    plan: JobPlan | None
    is_chosen: bool = False


def ways_of(plan: JobPlan, plan_of: Callable[[JobSpec], JobPlan | None]) -> list[Way]:
    """The ways of a planned training of known length, on the same kinds of machines and as fast on each."""
    spec = plan.job.spec
    if not isinstance(spec.program, Training) or plan.work.assumed or plan.work.timed:
        return []
    kept = spec.resources.reliable.machines or 0
    bare, held = (
        (plan if bool(kept) is wanted else plan_of(spec.with_reliable(int(wanted)))) for wanted in (False, True)
    )
    return [
        Way("script", plan_of(_as_script(plan))),
        Way("trainer with a reliable machine", held, is_chosen=bool(kept)),
        Way("trainer without one", bare, is_chosen=not kept),
    ]


def _as_script(plan: JobPlan) -> JobSpec:
    """The job as a command on as many nodes, which keeps checkpoints and starts again on the nodes that remain."""
    spec, demand = plan.job.spec, plan.allocated.demand
    command = Command(spec.name, Nodes(max(demand.least, 1), demand.most), Checkpoint("checkpoint"))
    resources = replace(spec.resources, machines=Range(max(demand.least, 1), demand.most))
    hours = round(demand.amount / demand.reference_nu * HOUR)
    return replace(spec, program=command, resources=resources, strategy=AUTO, hours=hours).with_reliable(0)


def expected_of(way: Way) -> tuple[float, float, float, float] | None:
    """The median cost, its P10 and P90, and the median hours of a way; None without a plan."""
    if way.plan is None:
        return None
    forecast = forecast_of(way.plan)
    return forecast.usd.median, *forecast.usd.likely, forecast.hours.median


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
