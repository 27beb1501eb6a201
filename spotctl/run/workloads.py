"""What a run's machines are for: a command, or a training."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from spotctl.agent.data_transfer import staged
from spotctl.errors import MissingSecret
from spotctl.files.job.spec import Command, JobSpec, data_variable
from spotctl.run import rendezvous
from spotctl.run.workload import Workload
from spotctl.runlog.state import RunState

if TYPE_CHECKING:
    from agileml.core.events import Iteration
    from spotctl.machines.base import CloudProvider
    from spotctl.planning.values import JobPlan


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Where data is kept, where results go unless the job says otherwise, and who hears of every clock."""

    cache: Path
    results: Path
    heard: Callable[[Iteration], None]


def work_of(
    state: RunState, spec: JobSpec, provider: CloudProvider, plan: Callable[[], JobPlan], at: Whereabouts
) -> Workload:
    """The work of a run, from its beginning or from where another process left it."""
    began, program = state.began, spec.program
    assert began is not None
    if isinstance(program, Command):
        from spotctl.run.command_setup import command_work

        # Whoever only gives everything back needs no secret.
        known = secrets_of(spec) if state.stopping is None else {}
        return command_work(spec, state.run, provider, known, at.cache, plan)
    from spotctl.run import resume_state
    from spotctl.run.training_workload import Place, Training, training_job

    folder, results = Path(began.folder), Path(spec.outputs.get("model", str(at.results)))
    if state.stopping is not None:
        place = Place(folder, results, spec.workdir)
    else:
        place = Place(folder, results, spec.workdir, _surroundings(spec, at.cache), secrets_of(spec), spec.setup or "")
    return Training(
        training_job(spec, program),
        place,
        rendezvous.secret_of(folder),
        provider.speed,
        at.heard,
        resume_state.earlier(folder),
    )


def _surroundings(spec: JobSpec, cache: Path) -> Mapping[str, str]:
    """What the trainer's code finds around it on the nodes, and here, where its controller is made ready."""
    data = {data_variable(name): str(staged(location, cache)) for name, location in spec.data.items()}
    environment = {**spec.env, **data}
    os.environ.update(environment)
    if str(spec.workdir) not in sys.path:
        sys.path.insert(0, str(spec.workdir))
    return environment


def secrets_of(spec: JobSpec) -> Mapping[str, str]:
    """The values of the secrets that a job names."""
    missing = [name for name in spec.secrets if name not in os.environ]
    if missing:
        raise MissingSecret(f"secret {missing[0]} is not in the environment; export it, then launch again")
    return {name: os.environ[name] for name in spec.secrets}
