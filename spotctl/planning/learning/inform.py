"""Measured values that replace assumptions of a plan. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from types import MappingProxyType

from bidbrain.eviction.hazard import Evidence
from bidbrain.values import Overheads
from spotctl.files.job.programs import Command, Training
from spotctl.files.job.spec import JobSpec
from spotctl.planning.learning.values import Learned
from spotctl.planning.work import TypeSpeed

NOTHING_LEARNED: Mapping[str, Learned] = MappingProxyType({})


def evidence_of(learned: Mapping[str, Learned]) -> tuple[Evidence, ...]:
    """Evictions of own runs that no price crossing explains."""
    return tuple(chain.from_iterable(estimates.evidence for estimates in learned.values()))


def measured_overheads(assumed: Overheads, learned: Mapping[str, Learned]) -> Overheads:
    """The overheads of the job that has the most runs; the assumed ones without any."""
    best = max(learned.values(), key=lambda estimates: estimates.runs, default=None)
    return assumed if best is None else replace(assumed, startup=best.startup.span, eviction=best.eviction.span)


def hours_of(spec: JobSpec, learned: Learned | None) -> float | None:
    """How long all machines of a job are busy, if neither clocks nor minutes say when it ends."""
    stop = spec.program.stop if isinstance(spec.program, Training) else None
    parallel = spec.program.parallel if isinstance(spec.program, Command) else None
    counted = stop is not None and (stop.clocks is not None or stop.span is not None)
    counted = counted or (parallel is not None and parallel.updates is not None)
    return None if learned is None or counted else learned.hours


def most_machines(spec: JobSpec) -> int | None:
    """The most machines that work for a job at one time; None without a limit."""
    return spec.program.nodes.most if isinstance(spec.program, Command) else spec.resources.machines.most


def measured_speeds(spec: JobSpec, learned: Learned) -> dict[str, TypeSpeed]:
    """The throughputs of a job that its earlier runs measured, by type."""
    most = most_machines(spec)
    return {
        name: TypeSpeed(
            learned.per_hour(name, most or throughput.size),
            throughput.words(name),
            spread=throughput.spread,
            scaling=learned.scaling,
        )
        for name, throughput in learned.throughputs.items()
    }
