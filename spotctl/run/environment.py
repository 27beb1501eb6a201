"""`RunEnvironment`: everything that one run needs. Nothing of a job is set in the process that runs it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from spotctl.errors import MissingSecret
from spotctl.files.job.spec import JobSpec, ProgramKind, data_variable
from spotctl.machines.installation import installation_id
from spotctl.run.reconcile import LeaseTimes

if TYPE_CHECKING:
    from spotctl.machines.base import CloudProvider
    from spotctl.paths import Paths

_SHORTEST_SECRET = 4
"""Shorter values are ordinary words; hiding them would garble the text."""


@dataclass(frozen=True, slots=True)
class RunEnvironment:
    """One per run, and never changed: several runs share a process and must not see each other's.

    `installation` is the home's id, by which its machines are tagged. `clock` is the provider's, in microseconds UTC.
    `rendezvous` is the folder where the run's processes find each other, `results` where its results go, `workdir` the
    job's own folder, `cache` where data is kept for machines on this computer. `variables` are the environment
    variables of the job's programs, next to the `secrets`.
    """

    run: str
    installation: str
    provider: CloudProvider
    clock: Callable[[], int]
    lease_times: LeaseTimes
    rendezvous: Path
    results: Path
    workdir: Path
    cache: Path
    variables: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)

    def redacted(self, text: str) -> str:
        """The text without the values of secrets: what a program prints may contain them."""
        for value in sorted(self.secrets.values(), key=len, reverse=True):
            if len(value) >= _SHORTEST_SECRET:
                text = text.replace(value, "***")
        return text


def environment_of(
    spec: JobSpec, run: str, rendezvous: Path, provider: CloudProvider, paths: Paths, *, ending: bool = False
) -> RunEnvironment:
    """The environment of a run of a job. A run that is `ending` only returns its machines, and needs no secrets.

    Raises MissingSecret, and TransferFailed if a training's data cannot be copied to the cache.
    """
    return RunEnvironment(
        run,
        installation_id(paths.home),
        provider,
        provider.now,
        LeaseTimes.local(provider.speed),
        rendezvous,
        Path(spec.outputs.get("model", str(paths.results(run)))),
        spec.workdir,
        paths.cache,
        {} if ending else _variables(spec, paths.cache),
        {} if ending else secrets_of(spec),
    )


def secrets_of(spec: JobSpec) -> Mapping[str, str]:
    """The values of the secrets that a job names, from the environment of this process."""
    missing = [name for name in spec.secrets if name not in os.environ]
    if missing:
        raise MissingSecret(f"secret {missing[0]} is not in the environment; export it, then launch again")
    return {name: os.environ[name] for name in spec.secrets}


def _variables(spec: JobSpec, cache: Path) -> Mapping[str, str]:
    """Nodes of a training read the data where it is local_copy here; a command's machines stage it themselves."""
    if spec.kind is not ProgramKind.AGILEML:
        return dict(spec.env)
    from spotctl.agent.data_transfer import local_copy

    return {
        **spec.env,
        **{data_variable(name): str(local_copy(location, cache)) for name, location in spec.data.items()},
    }
