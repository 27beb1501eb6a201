"""A first launch on a cloud: a job on the smallest machine, and the resources that the cloud still lists afterwards."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pricing_data.library import Selection
from pricing_data.market import LINUX
from spotctl.clouds.capabilities import Closes
from spotctl.clouds.errors import ProviderError
from spotctl.clouds.installation import installation_id
from spotctl.clouds.requests import as_far_as_listed
from spotctl.clouds.tags import INSTALLATION_TAG, RUN_TAG
from spotctl.clouds.wiring import provider_of
from spotctl.files.job.reader import loads
from spotctl.home.errors import BadRequest

if TYPE_CHECKING:
    from pricing_data.library import Library
    from spotctl.clouds.base import Resource
    from spotctl.files.job.spec import JobSpec
    from spotctl.home.config import Settings

CAP_USD = 1
"""More than an hour of any small machine costs, with its disk and its address."""

LEAST_MEMORY_GIB = 2.0
"""Memory that the default images and the agent need."""

_JOB = """\
name: try-{cloud}
kind: command
run: echo "spotctl works on {cloud}"
workdir: {folder}
budget: {cap} USD
resources: {{clouds: [{cloud}], types: [{type}]{regions}}}
"""
_LOOKS, _PAUSE_SECONDS = 6, 10.0


def trial_job(cloud: str, regions: Sequence[str], known: Library, home: Path) -> JobSpec:
    """A job of one command on the smallest machine with a known price, with a budget of a dollar."""
    folder = home / "try"
    folder.mkdir(parents=True, exist_ok=True)
    type_ = smallest_type(cloud, regions, known)
    named = f", regions: [{', '.join(regions)}]" if regions else ""
    text = _JOB.format(cloud=cloud, folder=folder, cap=CAP_USD, type=type_, regions=named)
    return loads(text, folder / "job.yaml")


def smallest_type(cloud: str, regions: Sequence[str], known: Library) -> str:
    """The type with the fewest vCPUs, then the least memory, without accelerators. BadRequest: no price is known."""
    chosen = known.select(Selection(clouds=(cloud,), regions=tuple(regions)))
    names = {market.instance_type for market in chosen if market.os == LINUX}
    machines = (known.catalog.instance_type(cloud, name) for name in names if known.catalog.knows(cloud, name))
    fitting = [machine for machine in machines if not machine.accelerators and machine.memory_gib >= LEAST_MEMORY_GIB]
    if not fitting:
        where = "".join(f" --region {region}" for region in regions)
        raise BadRequest(
            f"no price of any machine on {cloud} is stored; first run: spotctl prices fetch --cloud {cloud}{where}"
        )
    return min(fitting, key=lambda machine: (machine.vcpus, machine.memory_gib, machine.name)).name


def left_in_cloud(spec: JobSpec, run: str, settings: Settings) -> tuple[Resource, ...]:
    """The resources that the cloud still lists under a run's tags, after waiting a minute for them to vanish.

    ProviderError: the cloud does not answer, or not in all regions.
    """
    tags = {INSTALLATION_TAG: installation_id(settings.home), RUN_TAG: run}
    provider = provider_of(settings, spec)
    with closing(provider) if isinstance(provider, Closes) else nullcontext():
        for look in range(_LOOKS):
            left, failure = as_far_as_listed(partial(provider.resources, tags))
            if not left or look == _LOOKS - 1:
                break
            time.sleep(_PAUSE_SECONDS)
    if failure is not None:
        raise ProviderError(
            f"not everything that may be left of {run} could be listed: {failure}; check again with spotctl gc"
        )
    return left
