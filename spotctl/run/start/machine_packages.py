"""Whether a job's machines can get the packages that they need; asked before anything is rented."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from pricing_data.catalog import ARM, X86
from spotctl.clouds.errors import ProviderError
from spotctl.clouds.remote.bundle import packages_for
from spotctl.clouds.remote.platforms import (
    OLDEST_GLIBC,
    PYTHONS,
    USUAL_GLIBC,
    USUAL_PYTHON,
    MachinePlatform,
    here,
)
from spotctl.files.job.data_places import store_packages
from spotctl.files.job.spec import ANY, JobSpec, ProgramKind
from spotctl.home.config import Settings
from spotctl.home.errors import BadRequest
from spotctl.run.start.stored_facts import own_images
from spotctl.run.work.training_workload import NODE_PACKAGES

_PROCESSORS = {X86: ("x86_64",), ARM: ("aarch64",), ANY: ("x86_64", "aarch64")}


def check_machine_packages(
    spec: JobSpec, settings: Settings, of_runner: Sequence[str] = ()
) -> None:
    """Chooses the packages of a job's nodes, and of a runner that is to move to a machine.
    BadRequest: some of the machines that the job may rent could not get theirs."""
    of_nodes = (*(NODE_PACKAGES if spec.kind is ProgramKind.AGILEML else ()), *store_packages(spec))
    if spec.is_local or spec.on_ray or not (of_nodes or of_runner):
        return
    folder = settings.home / "machines" / "archives"
    for names in filter(None, (of_nodes, tuple(of_runner))):
        for alternatives in possible_platforms(spec, own_images(settings), here()):
            if why := _refusal(folder, names, alternatives):
                raise BadRequest(f"{spec.name}: {why}")


def possible_platforms(
    spec: JobSpec, own: frozenset[str], launcher: MachinePlatform | None
) -> Iterator[tuple[MachinePlatform, ...]]:
    """For each processor that the job's machines may have, the platforms of which one is needed.

    spotctl's own image has a known Python; another one, as on the clouds `own`, may have any that
    is supported.
    """
    known = any(
        spec.image.of(cloud) is None and cloud not in own for cloud in spec.resources.clouds
    )
    unknown = any(
        spec.image.of(cloud) is not None or cloud in own for cloud in spec.resources.clouds
    )

    for processor in _PROCESSORS[spec.resources.arch or X86]:
        if known:
            yield (MachinePlatform(USUAL_PYTHON, processor, USUAL_GLIBC),)
        if unknown:
            any_python = [MachinePlatform(python, processor, OLDEST_GLIBC) for python in PYTHONS]
            yield tuple(
                sorted(any_python, key=lambda machine: not machine.runs_packages_of(launcher))
            )


def _refusal(folder: Path, names: Sequence[str], alternatives: Sequence[MachinePlatform]) -> str:
    """Why machines of none of these platforms could get packages; empty if those of some can."""
    why = ""
    for machine in alternatives:
        try:
            packages_for(folder, names, machine)
        except ProviderError as error:
            why = why or str(error)
        else:
            return ""

    return why
