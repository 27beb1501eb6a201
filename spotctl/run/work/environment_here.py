"""The environment of a job on this computer: for machines of the local market, and for rehearsals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from spotctl.agent.container.named_packages import NamedPackages
from spotctl.agent.environment.built import BuiltEnvironment
from spotctl.files.job.environment import missing_here
from spotctl.files.job.spec import JobSpec

_SHOWN = 3


def environment_here(
    spec: JobSpec, cache: Path, given: Mapping[str, str], say: Callable[[str], object]
) -> dict[str, str]:
    """The variables of the job's environment on this computer, which is built if its own Python
    lacks some of it. CannotBuild."""
    named = spec.environment
    if not isinstance(named, NamedPackages):
        return {}
    missing = missing_here(spec, named.file) if named.file else [named.kind]
    if not missing:
        return {}
    shown = ", ".join(missing[:_SHOWN]) + (" ..." if len(missing) > _SHOWN else "")
    say(f"{spec.name}: needs {shown}, which this Python does not have (environment: none uses it)")
    built = BuiltEnvironment(replace(named, store=""), cache, spec.workdir)
    built.prepare(given, lambda line: say(f"{spec.name}: {line}"), again=True)
    return built.variables(given)
