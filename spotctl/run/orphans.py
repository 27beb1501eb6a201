"""Finds what the clouds hold of this installation, by tags: orphans, which no active run owns, and all its machines.

The latter are shown and returned when the event log cannot be used.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from pricing_data.known_clouds import cloud_names, is_cloud
from spotctl.clouds.errors import PartlyListed, ProviderError, as_far_as_listed
from spotctl.clouds.provider import CloudProvider, Machine, MachineState, Resource
from spotctl.clouds.wiring import cloud_provider
from spotctl.home.config import Settings
from spotctl.home.errors import BadRequest
from spotctl.home.installation import INSTALLATION_TAG, RUN_TAG, ShownMachine, installation_id
from spotctl.home.paths import Paths
from spotctl.log.jobs import is_running, runner_of
from spotctl.log.statuses import read_log

_NOT_RUNNING = (MachineState.GONE, MachineState.LEAVING)

LOCAL = "local"

_ROUNDS, _PAUSE = 120, 0.5


@dataclass(frozen=True, slots=True)
class EmergencyReturn:
    """The result of an emergency return: machines returned, machines left, and clouds that could not be searched."""

    returned: tuple[ShownMachine, ...]
    """Machines that were returned."""
    left: tuple[ShownMachine, ...]
    """Machines that still run."""
    failures: tuple[str, ...]
    """Clouds that could not be searched."""


def shown_machines(settings: Settings, job: str = "") -> tuple[list[ShownMachine], list[str]]:
    """The machines of a job, or of all, that the providers show running; and the clouds that could not be searched."""
    shown, failures = list[ShownMachine](), list[str]()
    for cloud, provider, is_used in providers(settings):
        try:
            machines, failure = _running(provider, settings, job)
            shown += [
                ShownMachine(machine.id, machine.tags.get(RUN_TAG, ""), str(machine.market)) for machine in machines
            ]
            failures += [] if failure is None else [f"{cloud}: not fully searched: {failure}"]
        except ProviderError as error:
            failures += [f"{cloud}: not searched: {error}"] if is_used else []
    return shown, failures


def return_shown(settings: Settings, job: str = "") -> EmergencyReturn:
    """Stops the processes of a job's runs, or of all, and returns all machines that the providers show."""
    before, _ = shown_machines(settings, job)

    # A launcher that goes on would rent machines again, and one that ends returns its machines.
    locks = Paths(settings.home).locks
    jobs = [job] if job else [lock.stem for lock in locks.glob("*.lock")]
    # A launcher of several jobs gets one signal: a second one would end it at once.
    for process in {runner_of(locks, name) for name in jobs if is_running(locks, name)}:
        if process is not None:
            with suppress(OSError):
                os.kill(process, signal.SIGTERM)
    _wait(lambda: not any(is_running(locks, name) for name in jobs))

    clouds = tuple(dict.fromkeys(machine.market.partition("/")[0] for machine in before))
    _wait(lambda: not _return_once(settings, job, clouds))
    left, failures = shown_machines(settings, job)
    running = {machine.id for machine in left}
    returned = tuple(machine for machine in before if machine.id not in running)
    return EmergencyReturn(returned, tuple(left), tuple(failures))


def _return_once(settings: Settings, job: str, clouds: Sequence[str]) -> bool:
    """Whether machines were running in these clouds, and their return was asked for."""
    asked = False
    for _, provider, _ in providers(settings, clouds) if clouds else ():
        with suppress(ProviderError):
            ids = [machine.id for machine in _running(provider, settings, job)[0]]
            asked |= bool(ids)
            if ids:
                provider.terminate(ids)
    return asked


def _wait(until: Callable[[], bool]) -> None:
    for _ in range(_ROUNDS):
        if until():
            return
        time.sleep(_PAUSE)


def _running(provider: CloudProvider, settings: Settings, job: str) -> tuple[list[Machine], PartlyListed | None]:
    tags = {INSTALLATION_TAG: installation_id(settings.home)}
    listed, failure = as_far_as_listed(partial(provider.list, tags))
    alive = (machine for machine in listed if machine.state not in _NOT_RUNNING)
    return [machine for machine in alive if job in ("", job_of(machine.tags.get(RUN_TAG, "")))], failure


@dataclass(frozen=True, slots=True)
class Orphans:
    """The orphans of one cloud; `failure` says why the cloud could not be searched, or only in part. A cloud `is_used`
    if the log or the settings name it, or the user does."""

    cloud: str
    provider: CloudProvider
    is_used: bool
    resources: tuple[Resource, ...] = ()
    failure: ProviderError | None = None


def orphans(settings: Settings, clouds: Sequence[str] = ()) -> Iterator[Orphans]:
    """The orphans of these clouds; if none is named, of every cloud: the log may have lost what was launched."""
    for cloud, provider, is_used in providers(settings, clouds):
        tags = {INSTALLATION_TAG: installation_id(settings.home)}
        try:
            existing, failure = as_far_as_listed(partial(provider.resources, tags))
            # Read afterwards: what a run has rented that began in the meantime is not orphaned.
            active = {state.run for state in read_log(settings).latest if state.ended is None}
            locks = Paths(settings.home).locks
            orphaned = tuple(
                resource
                for resource in existing
                if (run := resource.tags.get(RUN_TAG, "")) not in active and not is_running(locks, job_of(run))
            )
        except ProviderError as error:
            yield Orphans(cloud, provider, is_used, failure=error)
            continue
        yield Orphans(cloud, provider, is_used, orphaned, failure)


def providers(settings: Settings, clouds: Sequence[str] = ()) -> Iterator[tuple[str, CloudProvider, bool]]:
    """The named clouds, or every cloud, and whether each is used: named here, in the log, or in the settings."""
    if unknown := [cloud for cloud in clouds if not is_cloud(cloud)]:
        raise BadRequest(f"cloud {unknown[0]!r} is not one of {', '.join(cloud_names())}")
    known = read_log(settings)
    used = clouds or [
        *(cloud for spec in known.specs(settings.home) for cloud in spec.resources.clouds),
        *settings.tables,
        *(cloud for key in settings.keys if is_cloud(cloud := key.partition("_")[0])),
    ]
    for cloud in dict.fromkeys(clouds or (LOCAL, *used, *cloud_names())):
        if cloud != LOCAL:
            # In all regions. If the cloud's settings name regions: in those, and in the regions that jobs named.
            own: tuple[str, ...] = getattr(settings.tables.get(cloud), "regions", ())
            jobs = known.specs(settings.home) if own else []
            named = dict.fromkeys(region for spec in jobs for region in spec.resources.regions)
            yield cloud, cloud_provider(settings, (cloud,), (*own, *named)), cloud in used
        else:
            # The local market, if it was ever started. Nothing is rented here, so no prices are needed.
            from spotctl.clouds.local.provider import LocalProvider
            from spotctl.clouds.local.replayed import Replayed

            local = LocalProvider(settings.home / LOCAL, lambda: Replayed.of(()))
            if local.has_begun:
                yield cloud, local, True


def job_of(run: str) -> str:
    """The job of a run, from the name of the run."""
    return run.rpartition("-")[0]
