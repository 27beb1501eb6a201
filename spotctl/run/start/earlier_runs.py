"""Finds the earlier runs of a job in the event log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from spotctl.files.job.reader import written
from spotctl.files.job.spec import JobSpec
from spotctl.log.events import RunBegan
from spotctl.log.ledger_reader import events_of, stored
from spotctl.planning.facts import MAX_RUNS, OVERHEADS, Learned, learn, most_machines
from spotctl.run.start.measured_run import observations_of

if TYPE_CHECKING:
    from pricing_data.library import Library
    from spotctl.home.config import Settings

_SAME_WORK = ("kind", "app", "args", "run", "nodes", "data")
"""Keys that must be equal for two runs to be comparable: with another program or other arguments, a clock differs."""


def learn_from_runs(settings: Settings, known: Library, specs: Iterable[JobSpec], before: int) -> dict[str, Learned]:
    """By job, estimates from its runs that ended before a moment of this computer's clock."""
    estimates = {spec.name: _learn(settings, known, spec, before) for spec in specs}
    return {name: learned for name, learned in estimates.items() if learned is not None}


def _learn(settings: Settings, known: Library, spec: JobSpec, before: int) -> Learned | None:
    runs = events_of(settings, lambda began: _comparable(began, spec, before), MAX_RUNS)
    tariff = stored(lambda: known)
    observations = [observation for events in runs if (observation := observations_of(events, tariff)) is not None]
    vcpus = {
        machine.name: machine.steady_vcpus for machine in known.catalog.types if machine.cloud in spec.resources.clouds
    }
    ended = [observation for observation in observations if observation.wall_ended <= before]
    return learn(ended, vcpus, most_machines(spec), OVERHEADS.startup, OVERHEADS.eviction)


def _comparable(began: RunBegan, spec: JobSpec, before: int) -> bool:
    return began.job == spec.name and began.wall_us < before and _work(began.spec) == _work(written(spec))


def _work(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a job that must be equal in two runs: the program, the replay speed, which scales throughputs, and
    the stopping criteria except clocks."""
    ends = {name: value for name, value in (spec.get("stop") or {}).items() if name != "clocks"}
    return {
        **{name: spec.get(name) for name in _SAME_WORK},
        "stop": ends,
        "speed": (spec.get("local") or {}).get("speed"),
    }
