"""How fast machines work, and how much there is to do: from the job file, from earlier runs, or by vCPUs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from statistics import median

from bidbrain.eviction.hazard import family_of
from pricing_data.catalog import InstanceType
from pricing_data.units import HOUR
from spotctl.files.job.spec import JobSpec, Training


@dataclass(frozen=True, slots=True)
class Measured:
    """Work per hour of one machine of a type, and where it was measured."""

    per_hour: float
    source: str


@dataclass(frozen=True, slots=True)
class Rate:
    """nu of a type of machine, in words where it comes from, and whether it is in units of the job's own work."""

    nu: float
    source: str
    in_units: bool


def measured_for(spec: JobSpec, earlier: Mapping[str, Measured]) -> dict[str, Measured]:
    """What is known of types by name: the job file overrules what earlier runs measured."""
    declared = {name: Measured(value, "the job file") for name, value in spec.throughputs.items()}
    return {**earlier, **declared}


def rates(types: Iterable[InstanceType], known: Mapping[str, Measured]) -> dict[str, Rate]:
    """nu by the name of a type.

    A type that was not measured is as fast for each vCPU as its family, else as all that were. Where nothing was, work
    is counted in vCPU-hours: that compares machines, and says nothing of how long a job takes.
    """
    machines = {machine.name: machine for machine in types}
    per_vcpu = {name: known[name].per_hour / machine.vcpus for name, machine in machines.items() if name in known}
    return {name: _rate(machine, known.get(name), per_vcpu) for name, machine in machines.items()}


def _rate(machine: InstanceType, known: Measured | None, per_vcpu: Mapping[str, float]) -> Rate:
    if known is not None:
        return Rate(known.per_hour, known.source, in_units=True)
    if not per_vcpu:
        return Rate(float(machine.vcpus), "vCPU count, as no throughput is known", in_units=False)
    family = [name for name in per_vcpu if family_of(name) == family_of(machine.name)]
    siblings = family or list(per_vcpu)
    told = siblings[0] if len(siblings) == 1 else f"{len(siblings)} types"
    return Rate(
        median(per_vcpu[name] for name in siblings) * machine.vcpus, f"scaled by vCPUs from {told}", in_units=True
    )


@dataclass(frozen=True, slots=True)
class Work:
    """How much there is to do: `units` of work, or what all machines do in `hours`; at most for `longest` hours.

    With neither, the job ends when `longest` is over. An assumed amount stands for one that nobody knows: it makes
    costs comparable, and no deadline or budget is judged by it.
    """

    source: str
    units: float | None = None
    hours: float | None = None
    longest: float = inf
    assumed: bool = False

    def amount(self, nu: float) -> float:
        """In machine-hours times nu, where all machines do `nu` an hour."""
        if self.units is not None:
            return self.units
        return nu * (self.longest if self.hours is None else self.hours)

    @property
    def timed(self) -> bool:
        """Whether it is over when its time is, however much is done."""
        return self.units is None and self.hours is None


def work_of(spec: JobSpec, told_hours: float | None, *, in_units: bool) -> Work:
    """The work of a job. `told_hours` is how long the person who asks takes it to be; `in_units` whether throughputs
    are known, so that clocks can be counted in time."""
    stop = spec.program.stop if isinstance(spec.program, Training) else None
    longest = inf if stop is None or stop.span is None else stop.span / HOUR
    if stop is not None and stop.clocks is not None and in_units:
        return Work(f"{stop.clocks:,} clocks", units=float(stop.clocks), longest=longest)
    if told_hours is None and spec.hours is not None:
        told_hours = spec.hours / HOUR
    if told_hours is not None:
        return Work(f"{told_hours:g} hours of all machines, as specified", hours=told_hours, longest=longest)
    if longest < inf:
        return Work(f"whatever is done in {longest:g} hours", longest=longest)
    return Work(
        "Job length unknown: figures are per hour. Set `hours:` or pass --hours.",
        hours=1.0,
        assumed=True,
    )
