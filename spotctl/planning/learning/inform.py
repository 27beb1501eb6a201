"""Planning inputs in which measured values replace assumptions. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from types import MappingProxyType

from bidbrain.eviction.hazard import Evidence
from bidbrain.values import Overheads
from spotctl.files.job.spec import Command, JobSpec, Training
from spotctl.planning.learning.values import Learnt
from spotctl.planning.values import PlanningInputs
from spotctl.planning.work import Measured

NOTHING_LEARNT: Mapping[str, Learnt] = MappingProxyType({})


def evidence_of(learnt: Mapping[str, Learnt]) -> tuple[Evidence, ...]:
    """Evictions of own runs that no price crossing explains."""
    return tuple(chain.from_iterable(one.evidence for one in learnt.values()))


def informed(known: PlanningInputs, specs: Mapping[str, JobSpec], learnt: Mapping[str, Learnt]) -> PlanningInputs:
    """The inputs with each job's measured throughputs, and with the overheads of the job that has the most runs."""
    earlier = {name: _measured(specs[name], one) for name, one in learnt.items()}
    best = max(learnt.values(), key=lambda one: one.runs, default=None)
    return replace(
        known,
        earlier={**known.earlier, **earlier},
        overheads=known.overheads if best is None else _overheads(known.overheads, best),
    )


def hours_of(spec: JobSpec, learnt: Learnt | None) -> float | None:
    """How long all machines of a job are busy, if its work is not counted in clocks."""
    counted = isinstance(spec.program, Training) and spec.program.stop.clocks is not None
    return None if learnt is None or counted or spec.hours is not None else learnt.hours


def most_machines(spec: JobSpec) -> int | None:
    """The most machines that work for a job at one time; None without a limit."""
    return spec.program.nodes if isinstance(spec.program, Command) else spec.resources.machines.most


def _measured(spec: JobSpec, learnt: Learnt) -> dict[str, Measured]:
    most = most_machines(spec)
    return {
        name: Measured(learnt.per_hour(name, most or one.size), one.words(name))
        for name, one in learnt.throughputs.items()
    }


def _overheads(assumed: Overheads, learnt: Learnt) -> Overheads:
    return replace(assumed, startup=learnt.startup.span, eviction=learnt.eviction.span)
