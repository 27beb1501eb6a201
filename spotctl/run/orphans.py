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
from typing import TypeVar, cast

from pricing_data.known_clouds import cloud_names, is_cloud
from pricing_data.units import SECOND, counted, moment
from spotctl.clouds.errors import PartlyListed, ProviderError, Unanswered, as_far_as_listed
from spotctl.clouds.provider import CloudProvider, Machine, MachineState, Resource
from spotctl.clouds.wiring import cloud_provider
from spotctl.home.config import Settings
from spotctl.home.errors import BadRequest, SpotctlError
from spotctl.home.installation import INSTALLATION_TAG, RUN_TAG, ShownMachine, installation_id
from spotctl.home.paths import Paths
from spotctl.home.wall_clock import wall_us
from spotctl.log.jobs import is_running, runner_of
from spotctl.log.statuses import read_log
from spotctl.run.waits import UNPRICED, in_time, waits_said

_NOT_RUNNING = (MachineState.GONE, MachineState.LEAVING)

LOCAL = "local"

SEARCH_SECONDS, REMOVAL_SECONDS, RETURN_SECONDS = 120.0, 300.0, 60.0
"""How long clouds may take to list what they hold, or to remove it; and how long launchers may take to return their
machines, and machines to be gone."""

_PAUSE = 0.5

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EmergencyReturn:
    """The result of an emergency return: machines returned, machines left, and clouds that could not be searched."""

    returned: tuple[ShownMachine, ...]
    """Machines that were returned."""
    left: tuple[ShownMachine, ...]
    """Machines that still run."""
    failures: tuple[str, ...]
    """Clouds that could not be searched."""


def shown_machines(
    settings: Settings, say: Callable[[str], object], job: str = ""
) -> tuple[list[ShownMachine], list[str]]:
    """The machines of a job, or of all, that the providers show running; and the clouds that could not be searched."""
    shown, failures = list[ShownMachine](), list[str]()
    for cloud, _, is_used, answer in _asked(settings, (), partial(_running, settings, job), say):
        if isinstance(answer, ProviderError):
            failures += [f"{cloud}: not searched: {answer}"] if is_used else []
            continue
        machines, failure = answer
        shown += [ShownMachine(machine.id, machine.tags.get(RUN_TAG, ""), str(machine.market)) for machine in machines]
        failures += [] if failure is None else [f"{cloud}: not fully searched: {failure}"]
    return shown, failures


def return_shown(settings: Settings, say: Callable[[str], object], job: str = "") -> EmergencyReturn:
    """Stops the processes of a job's runs, or of all, and returns all machines that the providers show."""
    before, _ = shown_machines(settings, say, job)

    # A launcher that goes on would rent machines again, and one that ends returns its machines.
    locks = Paths(settings.home).locks
    jobs = [job] if job else [lock.stem for lock in locks.glob("*.lock")]
    # A launcher of several jobs gets one signal: a second one would end it at once.
    launchers = {runner_of(locks, name) for name in jobs if is_running(locks, name)} - {None}
    for process in launchers:
        with suppress(OSError):
            os.kill(cast("int", process), signal.SIGTERM)
    named = ", ".join(f"process {process}" for process in launchers)
    _wait(lambda: not any(is_running(locks, name) for name in jobs), f"{named} to return its machines", say)

    clouds = tuple(dict.fromkeys(machine.market.partition("/")[0] for machine in before))
    _wait(lambda: not _return_once(settings, job, clouds, say), f"{counted(len(before), 'machine')} to be gone", say)
    left, failures = shown_machines(settings, say, job)
    running = {machine.id for machine in left}
    returned = tuple(machine for machine in before if machine.id not in running)
    return EmergencyReturn(returned, tuple(left), tuple(failures))


def _return_once(settings: Settings, job: str, clouds: Sequence[str], say: Callable[[str], object]) -> bool:
    """Whether machines were running in these clouds, and their return was asked for."""

    def returned(provider: CloudProvider) -> bool:
        ids = [machine.id for machine in _running(settings, job, provider)[0]]
        if ids:
            provider.terminate(ids)
        return bool(ids)

    return bool(clouds) and any(answer is True for *_, answer in _asked(settings, clouds, returned, say))


def _wait(until: Callable[[], bool], what: str, say: Callable[[str], object]) -> None:
    give_up = wall_us() + round(RETURN_SECONDS * SECOND)
    with waits_said(lambda: f"waiting until {moment(give_up)} at the latest for {what}; {UNPRICED}", say):
        while not until() and wall_us() < give_up:
            time.sleep(_PAUSE)


def _asked(
    settings: Settings, clouds: Sequence[str], ask: Callable[[CloudProvider], T], say: Callable[[str], object]
) -> Iterator[tuple[str, CloudProvider, bool, T | ProviderError]]:
    """The answers of the named clouds, or of all, to the same question, with whether each is used (see `providers`);
    Unanswered stands for one that has not answered in time."""

    def answer(provider: CloudProvider) -> T | ProviderError:
        try:
            return ask(provider)
        except ProviderError as error:
            return error

    searched = list(providers(settings, clouds))
    calls = {cloud: partial(answer, provider) for cloud, provider, _ in searched}
    answers = in_time(calls, SEARCH_SECONDS, "to list what they hold", UNPRICED, say)
    late = Unanswered(f"no answer within {SEARCH_SECONDS:.0f} s; try again")
    for cloud, provider, is_used in searched:
        yield cloud, provider, is_used, answers.get(cloud, late)


def _running(settings: Settings, job: str, provider: CloudProvider) -> tuple[list[Machine], PartlyListed | None]:
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


def orphans(settings: Settings, say: Callable[[str], object], clouds: Sequence[str] = ()) -> list[Orphans]:
    """The orphans of these clouds; if none is named, of every cloud: the log may have lost what was launched."""

    def search(provider: CloudProvider) -> tuple[tuple[Resource, ...], PartlyListed | None]:
        tags = {INSTALLATION_TAG: installation_id(settings.home)}
        existing, failure = as_far_as_listed(partial(provider.resources, tags))
        # Read afterwards: what a run has rented that began in the meantime is not orphaned.
        active = {state.run for state in read_log(settings).latest if state.ended is None}
        locks = Paths(settings.home).locks
        orphaned = (
            resource
            for resource in existing
            if (run := resource.tags.get(RUN_TAG, "")) not in active and not is_running(locks, job_of(run))
        )
        return tuple(orphaned), failure

    return [
        Orphans(cloud, provider, is_used, failure=answer)
        if isinstance(answer, ProviderError)
        else Orphans(cloud, provider, is_used, *answer)
        for cloud, provider, is_used, answer in _asked(settings, clouds, search, say)
    ]


def remove_orphans(orphaned: Sequence[Orphans], say: Callable[[str], object]) -> list[str]:
    """Removes what was found in each cloud, even if another one fails; returns the failures."""

    def removed(part: Orphans) -> str:
        try:
            part.provider.remove(part.resources)
        except SpotctlError as error:
            return f"{part.cloud}: not all was removed: {error}"
        return ""

    left = {part.cloud: partial(removed, part) for part in orphaned if part.resources}
    answers = in_time(left, REMOVAL_SECONDS, "to remove what no run owns", UNPRICED, say)
    late = f"not all was removed within {REMOVAL_SECONDS:.0f} s; try again"
    return [answer for cloud in left if (answer := answers.get(cloud, f"{cloud}: {late}"))]


def providers(settings: Settings, clouds: Sequence[str] = ()) -> Iterator[tuple[str, CloudProvider, bool]]:
    """The named clouds, or every cloud, and whether each is used: named here, in the log, or in the settings."""
    if unknown := [cloud for cloud in clouds if not is_cloud(cloud)]:
        raise BadRequest(f"cloud {unknown[0]!r} is not one of {', '.join(cloud_names())}")
    known = read_log(settings)
    used = clouds or [
        *known.clouds,
        *settings.tables,
        *(cloud for key in settings.keys if is_cloud(cloud := key.partition("_")[0])),
    ]
    for cloud in dict.fromkeys(clouds or (LOCAL, *used, *cloud_names())):
        if cloud != LOCAL:
            # In all regions. If the cloud's settings name regions: in those, and in the regions that jobs named.
            own: tuple[str, ...] = getattr(settings.tables.get(cloud), "regions", ())
            named = sorted(known.clouds.get(cloud, ())) if own else ()
            yield cloud, cloud_provider(settings, (cloud,), tuple(dict.fromkeys((*own, *named)))), cloud in used
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
