"""The start values of a runner on a rented machine, and its paths there."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from spotctl.agent import layout

ROOT = f"{layout.AGENT_FOLDER}/runner"
"""Folder of a runner on its machine: our code and the packages it imports, the run's home, and the
job's folder."""

CODE, PACKAGES, HOME, JOB = f"{ROOT}/code", f"{ROOT}/packages", f"{ROOT}/home", f"{ROOT}/job"
RENDEZVOUS = f"{ROOT}/rendezvous"
COMMAND = f"{ROOT}/spotctl"
"""spotctl with the run's home, for commands that arrive over ssh."""


@dataclass(frozen=True, slots=True)
class RunnerStart:
    """The input of the service: the run, its place in the object store, and the id of this machine.

    A `standby` waits until the runner is gone.
    """

    job: str
    run: str
    location: str
    machine: str
    secrets: Mapping[str, str] = field(repr=False)
    standby: bool = False
