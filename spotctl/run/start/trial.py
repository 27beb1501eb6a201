"""A first launch on a cloud: a job on the smallest machine that boots, when to give it up, and the resources that the
cloud still lists afterwards."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from pricing_data.catalog import InstanceType
from pricing_data.library import Library, Selection
from pricing_data.market import LINUX
from pricing_data.units import MINUTE
from spotctl.clouds.errors import ProviderError, as_far_as_listed
from spotctl.clouds.provider import CloudProvider, Resource
from spotctl.clouds.wiring import provider_of
from spotctl.files.job.reader import loads
from spotctl.files.job.spec import JobSpec
from spotctl.home.config import Settings
from spotctl.home.errors import BadRequest
from spotctl.home.installation import INSTALLATION_TAG, RUN_TAG, installation_id
from spotctl.home.wall_clock import wall_us
from spotctl.log.events import StopRequested
from spotctl.log.outcomes import NO_CAPACITY
from spotctl.log.state import RunState
from spotctl.planning.offers import why_unsuitable
from spotctl.run.start.runs import request_stop

CAP_USD = 1
"""More than an hour of any small machine costs, with its disk and its address."""

GIVE_UP_AFTER = 10 * MINUTE
"""How long a trial waits for its machine to run."""

_JOB = """\
name: try-{cloud}
kind: command
run: echo "spotctl works on {cloud}"
workdir: {folder}
budget: {cap} USD
resources: {{clouds: [{cloud}]{types}{regions}}}
"""
_LOOKS, _PAUSE_SECONDS = 6, 10.0


def trial_job(cloud: str, regions: Sequence[str], known: Library, home: Path) -> JobSpec:
    """A job of one command on the smallest machine with a known price, with a budget of a dollar."""
    folder = home / "try"
    folder.mkdir(parents=True, exist_ok=True)
    named = f", regions: [{', '.join(regions)}]" if regions else ""
    values = {"cloud": cloud, "folder": folder, "cap": CAP_USD, "regions": named}
    any_type = loads(_JOB.format(**values, types=""), folder / "job.yaml")
    type_ = fitting_types(any_type, cloud, regions, known)[0].name
    return loads(_JOB.format(**values, types=f", types: [{type_}]"), folder / "job.yaml")


def known_types(cloud: str, regions: Sequence[str], known: Library) -> list[InstanceType]:
    """The types with a known price of Linux machines."""
    chosen = known.select(Selection(clouds=(cloud,), regions=tuple(regions)))
    names = {market.instance_type for market in chosen if market.os == LINUX}
    return [known.catalog.instance_type(cloud, name) for name in sorted(names) if known.catalog.knows(cloud, name)]


def fitting_types(spec: JobSpec, cloud: str, regions: Sequence[str], known: Library) -> list[InstanceType]:
    """The types without accelerators that suit a job, the smallest first. BadRequest: no price is known."""
    now, machines = wall_us(), known_types(cloud, regions, known)
    fitting = [machine for machine in machines if not machine.accelerators and not why_unsuitable(machine, spec, now)]
    if not fitting:
        where = "".join(f" --region {region}" for region in regions)
        raise BadRequest(
            f"no price of a machine on {cloud} that boots is stored; first run:"
            f" spotctl prices fetch --cloud {cloud}{where}"
        )
    return sorted(fitting, key=lambda machine: (machine.vcpus, machine.memory_gib, machine.name))


class TrialPatience:
    """Watches the turns of a trial: says why orders are refused, and ends a run whose machine does not run in time."""

    def __init__(
        self, spec: JobSpec, settings: Settings, remark: Callable[[str], None], now: Callable[[], int] = wall_us
    ) -> None:
        self._spec, self._settings, self._remark, self._now = spec, settings, remark, now
        self._refusal, self._gave_up = "", False

    def look(self, state: RunState) -> None:
        if state.began is None or any(held.ran is not None for held in state.machines.values()):
            return
        if state.refusal != self._refusal:
            self._refusal = state.refusal
            self._remark(f"refused: {state.refusal}; trying again")
        if self._now() - state.began.wall_us > GIVE_UP_AFTER and not self._gave_up:
            self._gave_up = True
            request_stop(self._spec.name, self._settings, StopRequested(NO_CAPACITY, _given_up(self._spec, state)))


def _given_up(spec: JobSpec, state: RunState) -> str:
    why = f" (the last refusal: {state.refusal})" if state.refusal else "; spotctl doctor checks the account"
    return f"gave up: no {spec.resources.types[0]} was running after {GIVE_UP_AFTER // MINUTE} minutes{why}"


def left_in_cloud(spec: JobSpec, run: str, settings: Settings) -> tuple[Resource, ...]:
    """The resources that the cloud still lists under a run's tags, after waiting a minute for them to vanish.

    ProviderError: the cloud does not answer, or not in all regions.
    """
    tags = {INSTALLATION_TAG: installation_id(settings.home), RUN_TAG: run}
    provider = provider_of(settings, spec)
    with closing(provider):
        return left_under(provider, tags)


def left_under(provider: CloudProvider, tags: Mapping[str, str]) -> tuple[Resource, ...]:
    """The resources that a provider still lists under the tags of a run, after waiting a minute for them to vanish.

    ProviderError: the cloud does not answer, or not in all regions.
    """
    for look in range(_LOOKS):
        left, failure = as_far_as_listed(partial(provider.resources, tags))
        if not left or look == _LOOKS - 1:
            break
        time.sleep(_PAUSE_SECONDS)
    if failure is not None:
        run = tags[RUN_TAG]
        raise ProviderError(
            f"not everything that may be left of {run} could be listed: {failure}; check again with spotctl gc"
        )
    return left
