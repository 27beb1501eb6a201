"""What a run's machines are for: a command, or a training."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from spotctl.errors import MissingSecret
from spotctl.jobspec.job import Command, JobSpec
from spotctl.launch import meeting
from spotctl.orchestrator.state import RunState
from spotctl.orchestrator.workload import Workload

if TYPE_CHECKING:
    from agileml.core.events import Iteration
    from spotctl.planning.values import JobPlan
    from spotctl.providers.base import Provider


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Where data is kept, where results go unless the job says otherwise, and who hears of every clock."""

    cache: Path
    results: Path
    heard: Callable[[Iteration], None]


def work_of(
    state: RunState, spec: JobSpec, provider: Provider, plan: Callable[[], JobPlan], at: Whereabouts
) -> Workload:
    """The work of a run, from its beginning or from where another process left it."""
    began, program = state.began, spec.program
    assert began is not None
    if isinstance(program, Command):
        from spotctl.launch.commanding import command_work

        # Whoever only gives everything back needs no secret.
        known = secrets_of(spec) if state.stopping is None else {}
        return command_work(spec, state.run, provider, known, at.cache, plan)
    from spotctl.launch import continuing
    from spotctl.launch.terms import training_job
    from spotctl.orchestrator.training import Place, Training

    folder = Path(began.folder)
    return Training(
        training_job(spec, program),
        Place(folder, Path(spec.outputs.get("model", str(at.results))), spec.workdir),
        meeting.secret_of(folder),
        provider.speed,
        at.heard,
        continuing.earlier(folder),
    )


def secrets_of(spec: JobSpec) -> Mapping[str, str]:
    """The values of the secrets that a job names."""
    missing = [name for name in spec.secrets if name not in os.environ]
    if missing:
        raise MissingSecret(f"secret {missing[0]} is not in the environment; export it, then launch again")
    return {name: os.environ[name] for name in spec.secrets}
