"""Whether a machine type suits a job: its processors, memory, credits, image and console. Pure."""

from collections.abc import Collection, Iterator
from fnmatch import fnmatchcase
from itertools import chain

from bidbrain.strategies.names import ON_DEMAND
from pricing_data.catalog import X86, XEN, InstanceType, obstacle
from spotctl.files.job.resources import Resources
from spotctl.files.job.spec import ANY, JobSpec
from spotctl.home.cloud import cloud_of

LEAST_MEMORY_GIB = 2.0
"""Memory that the default images and the agent need."""
_WILDCARDS = "*?["


def why_unsuitable(machine: InstanceType, spec: JobSpec, at: int, own_images: Collection[str] = ()) -> str:
    """Why a type does not suit a job at a time, and the cure; empty if it does. What is unknown counts as suitable.

    On the clouds of `own_images` the image is not the one that spotctl chooses.
    """
    return next(
        chain(
            _hardware_problems(machine, spec.resources),
            _placement_problems(machine, spec.resources),
            _other_problems(machine, spec, at, own_images),
        ),
        "",
    )


def _hardware_problems(machine: InstanceType, resources: Resources) -> Iterator[str]:
    wanted, architecture = resources.arch or X86, machine.traits.architecture
    if wanted != ANY and architecture not in (None, wanted):
        yield f"it is {architecture}, and the job {wanted} (resources: {{arch: {architecture}}}, or any)"
    if machine.memory_gib < (least := _least_memory(machine, resources)):
        yield f"it has {machine.memory_gib:g} GiB, and the job needs {least:g} (resources: {{memory: ...}})"
    if machine.is_burstable and not _may_burst(machine, resources):
        share = f"{machine.steady_vcpus / machine.vcpus:.0%}"
        yield f"it is burstable: it may use {share} of its vCPUs all the time (resources: {{burstable: true}})"


def _placement_problems(machine: InstanceType, resources: Resources) -> Iterator[str]:
    if resources.close and machine.is_burstable:
        yield "it is burstable, and such machines are not placed close together (remove placement, or name other types)"


def _other_problems(machine: InstanceType, spec: JobSpec, at: int, own_images: Collection[str]) -> Iterator[str]:
    traits, job = machine.traits, cloud_of(machine.cloud).job
    if traits.retires is not None and traits.retires <= at:
        yield "its cloud has retired it"
    if traits.hypervisor == XEN and not _is_named(machine, spec.resources):
        yield "its console is shown minutes late, perhaps after its first lease (resources: {types: [...]} names it)"
    if traits.spot is False and spec.strategy != ON_DEMAND:
        yield "its cloud sells it only on demand (strategy: on-demand)"
    is_usual_image = spec.image.of(machine.cloud) is None and machine.cloud not in own_images
    if is_usual_image and job is not None and (problem := obstacle(machine)):
        yield f"{problem}; name an image that does (image: {{{job.image}: ...}})"


def _least_memory(machine: InstanceType, resources: Resources) -> float:
    if resources.memory is not None:
        return resources.memory
    is_chosen = resources.needs.memory_gib is not None or machine.name in resources.types
    return 0.0 if is_chosen else LEAST_MEMORY_GIB


def _may_burst(machine: InstanceType, resources: Resources) -> bool:
    """Whether the job allows burstable types, or names this one or its family."""
    return _is_named(machine, resources) if resources.burstable is None else resources.burstable


def _is_named(machine: InstanceType, resources: Resources) -> bool:
    """Whether the job names a type or its family."""
    globs = (glob for glob in resources.types if glob[0] not in _WILDCARDS)
    return any(fnmatchcase(machine.name, glob) for glob in globs)
