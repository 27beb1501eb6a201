"""Whether a machine type suits a job: its processors, memory, credits and image. Pure."""

from __future__ import annotations

from fnmatch import fnmatchcase

from pricing_data.catalog import InstanceType
from pricing_data.machine_types import obstacle
from pricing_data.traits import X86
from spotctl.files.job.resources import Resources
from spotctl.files.job.spec import ANY, JobSpec
from spotctl.home.cloud import cloud_of

LEAST_MEMORY_GIB = 2.0
"""Memory that the default images and the agent need."""
_WILDCARDS = "*?["


def why_unsuitable(machine: InstanceType, spec: JobSpec, at: int) -> str:
    """Why a type does not suit a job at a time, and the cure; empty if it does. What is unknown counts as suitable."""
    resources, traits = spec.resources, machine.traits
    wanted = resources.arch or X86
    if wanted != ANY and traits.architecture not in (None, wanted):
        return f"it is {traits.architecture}, and the job {wanted} (resources: {{arch: {traits.architecture}}}, or any)"
    if machine.memory_gib < (least := _least_memory(machine, resources)):
        return f"it has {machine.memory_gib:g} GiB, and the job needs {least:g} (resources: {{memory: ...}})"
    if machine.is_burstable and not _may_burst(machine, resources):
        share = f"{machine.steady_vcpus / machine.vcpus:.0%}"
        return f"it is burstable: it may use {share} of its vCPUs all the time (resources: {{burstable: true}})"
    if traits.retires is not None and traits.retires <= at:
        return "its cloud has retired it"
    job = cloud_of(machine.cloud).job
    if spec.image.of(machine.cloud) is None and job is not None and (problem := obstacle(machine)):
        return f"{problem}; name an image that does (image: {{{job.image}: ...}})"
    return ""


def _least_memory(machine: InstanceType, resources: Resources) -> float:
    if resources.memory is not None:
        return resources.memory
    is_chosen = resources.needs.memory_gib is not None or machine.name in resources.types
    return 0.0 if is_chosen else LEAST_MEMORY_GIB


def _may_burst(machine: InstanceType, resources: Resources) -> bool:
    """Whether the job allows burstable types, or names this one or its family."""
    if resources.burstable is not None:
        return resources.burstable
    globs = (glob for glob in resources.types if glob[0] not in _WILDCARDS)
    return any(fnmatchcase(machine.name, glob) for glob in globs)
