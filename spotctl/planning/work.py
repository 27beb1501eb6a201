"""Machine speed and job length: from the job file, from earlier runs, or estimated by vCPUs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf
from statistics import median

from agileml.pipeline.plan.parallel_plan import ParallelPlan
from bidbrain.eviction.hazard import family_of
from pricing_data.catalog import InstanceType
from pricing_data.units import HOUR
from spotctl.files.job.programs import Command, Training
from spotctl.files.job.spec import JobSpec

VCPU_SPREAD = 0.5
"""How far throughputs per vCPU of two types differ: the standard deviation of the logarithm of their ratio."""


@dataclass(frozen=True, slots=True)
class TypeSpeed:
    """Work per hour of one machine of a type (nu), and the source in words; `in_units` of the job's own work, or not.

    `spread` is the standard deviation of the logarithm of a run's own speed. With `scaling` s, n machines do n^(1 + s)
    times the work of one. `split` is how the job's model is split over the devices of its machines, and `least_stages`
    the number of stages without which it does not fit.
    """

    nu: float
    source: str
    in_units: bool = True
    spread: float = 0.0
    scaling: float = 0.0
    split: ParallelPlan | None = None
    least_stages: int = 1


def measured_for(spec: JobSpec, earlier: Mapping[str, TypeSpeed]) -> dict[str, TypeSpeed]:
    """Throughputs by type; measurements of earlier runs overrule the job file, which may be out of date."""
    declared = {name: TypeSpeed(value, "the job file") for name, value in spec.throughputs.items()}
    overruled = {
        name: replace(measured, source=f"{measured.source}, instead of {spec.throughputs[name]:g} in the job file")
        for name, measured in earlier.items()
        if name in spec.throughputs
    }
    return {**declared, **earlier, **overruled}


def speeds_of(types: Iterable[InstanceType], known: Mapping[str, TypeSpeed]) -> dict[str, TypeSpeed]:
    """nu by type name.

    A type that was not measured gets the throughput per vCPU of its family, else of all measured types. If none was
    measured, work is counted in vCPU-hours: enough to compare machines, but not to predict the job's length. Of a
    burstable type only the vCPUs count that it may use all the time.
    """
    machines = {machine.name: machine for machine in types}
    per_vcpu = {name: known[name].nu / machine.steady_vcpus for name, machine in machines.items() if name in known}
    return {name: _speed_of(machine, known.get(name), per_vcpu) for name, machine in machines.items()}


def _speed_of(machine: InstanceType, known: TypeSpeed | None, per_vcpu: Mapping[str, float]) -> TypeSpeed:
    if known is not None:
        return known
    if not per_vcpu:
        return TypeSpeed(machine.steady_vcpus, "vCPU count, as no throughput is known", in_units=False)
    family = [name for name in per_vcpu if family_of(name) == family_of(machine.name)]
    siblings = family or list(per_vcpu)
    source = siblings[0] if len(siblings) == 1 else f"{len(siblings)} types"
    return TypeSpeed(
        median(per_vcpu[name] for name in siblings) * machine.steady_vcpus,
        f"scaled by vCPUs from {source}",
        spread=VCPU_SPREAD,
    )


SPECIFIED = "as specified"
"""The source of a job's length that the user gave."""


@dataclass(frozen=True, slots=True)
class JobLength:
    """A job's length: `units` of work, or the work of all machines in `hours`; at most `longest` hours.

    With neither, the job ends after `longest`. An assumed amount stands in for an unknown one: costs become comparable,
    but no deadline or budget is checked.
    """

    source: str
    units: float | None = None
    hours: float | None = None
    longest: float = inf
    assumed: bool = False

    def amount(self, nu: float) -> float:
        """The work in machine-hours times nu, if all machines together do `nu` per hour."""
        if self.units is not None:
            return self.units
        return nu * (self.longest if self.hours is None else self.hours)

    @property
    def timed(self) -> bool:
        """Whether the job ends after a fixed time, however much work is done by then."""
        return self.units is None and self.hours is None


def _hours(number: float) -> str:
    return f"{number:g} hour{'' if number == 1 else 's'}"


def length_of(spec: JobSpec, user_hours: float | None, hours_from: str = SPECIFIED, *, in_units: bool) -> JobLength:
    """The length of a job. `user_hours` is an estimate, and `hours_from` says whether the user's or from earlier runs.
    `in_units` says that throughputs are known, so that clocks can be converted to time."""
    stop = spec.program.stop if isinstance(spec.program, Training) else None
    longest = inf if stop is None or stop.span is None else stop.span / HOUR
    if stop is not None and stop.clocks is not None and in_units:
        return JobLength(f"{stop.clocks:,} clocks", units=float(stop.clocks), longest=longest)
    parallel = spec.program.parallel if isinstance(spec.program, Command) else None
    if parallel is not None and parallel.updates is not None and in_units:
        return JobLength(f"{parallel.updates:,} updates", units=float(parallel.updates))
    if user_hours is None and spec.hours is not None:
        user_hours = spec.hours / HOUR
    if user_hours is not None:
        return JobLength(f"{_hours(user_hours)} of all machines, {hours_from}", hours=user_hours, longest=longest)
    if longest < inf:
        return JobLength(f"as much as can be done in {_hours(longest)}", longest=longest)
    return JobLength(
        "Job length unknown: figures are per hour. Set `hours:` or pass --hours.",
        hours=1.0,
        assumed=True,
    )
