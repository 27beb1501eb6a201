"""The three ways to run a training: as a script with checkpoints, and as a trainer with and without a reliable machine.
Pure."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from pricing_data.units import HOUR
from spotctl.files.job.programs import Checkpoint, Command, Training
from spotctl.files.job.spec import AUTO, JobSpec
from spotctl.files.job.values import Nodes, Range
from spotctl.planning.forecasting import forecast_of
from spotctl.planning.values import JobPlan


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
