"""Finds what the clouds hold of this installation, by tags: orphans, which no active run owns, and
all its machines.

The latter are shown and returned when the event log cannot be used.
"""

import os
import signal
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar, cast

from pricing_data.known_clouds import cloud_names, is_cloud
from spotctl.clouds.errors import (
    NotPermitted,
    PartlyListed,
    ProviderError,
    Unanswered,
    as_far_as_listed,
)
from spotctl.clouds.provider import CloudProvider, MachineState, Resource
from spotctl.clouds.wiring import cloud_provider
from spotctl.home.cloud import cloud_of
from spotctl.home.config import Settings, is_traced
from spotctl.home.errors import BadRequest, SpotctlError
from spotctl.home.installation import INSTALLATION_TAG, RUN_TAG, ShownMachine, installation_id
from spotctl.home.paths import Paths
from spotctl.log.jobs import is_running, runner_of
from spotctl.log.statuses import read_log
from spotctl.run.following import REACH_SECONDS, UNPRICED, in_time

_NOT_RUNNING = (MachineState.GONE, MachineState.LEAVING)

LOCAL = "local"

SEARCH_SECONDS, REMOVAL_SECONDS = 120.0, 300.0
"""How long clouds may take to list what they hold, or to remove it."""

_PAUSE = 0.5

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EmergencyReturn:
    """The result of an emergency return: machines returned, machines left, and clouds that could
    not be searched.
    """

    returned: tuple[ShownMachine, ...]
    """Machines that were returned."""
    left: tuple[ShownMachine, ...]
    """Machines that still run."""
    failures: tuple[str, ...]
    """Clouds that could not be searched."""


def shown_machines(
    settings: Settings, say: Callable[[str], object]
) -> tuple[list[ShownMachine], list[str]]:
    """The machines that the providers show running; and the clouds that could not be searched."""
    shown = list[ShownMachine]()
    failures = list[str]()
    for cloud, is_used, answer in _asked(
        settings, (), partial(_running, settings, ""), say, SEARCH_SECONDS
    ):
        if isinstance(answer, ProviderError):
            failures += [f"{cloud}: not searched: {answer}"] if is_used else []
            continue
        machines, failure = answer
        shown += machines
        failures += [] if failure is None else [f"{cloud}: not fully searched: {failure}"]

    return shown, failures


def return_shown(
    settings: Settings,
    say: Callable[[str], object],
    job: str = "",
    clouds: Sequence[str] = (),
    seconds: float = REACH_SECONDS,
) -> EmergencyReturn:
    """Stops the processes of a job's runs, or of all, and returns all machines that these clouds,
    or all, show, within `seconds`. A cloud that does not answer delays no other."""
    # A launcher that goes on would rent machines again, and one that ends returns its machines.
    locks = Paths(settings.home).locks
    jobs = [job] if job else [lock.stem for lock in locks.glob("*.lock")]
    # A launcher of several jobs gets one signal: a second one would end it at once.
    launchers = {runner_of(locks, name) for name in jobs if is_running(locks, name)} - {None}
    for process in launchers:
        with suppress(OSError):
            os.kill(cast("int", process), signal.SIGTERM)

    shown = dict[str, ShownMachine]()
    left = dict[str, ShownMachine]()
    patient_until = time.monotonic() + seconds / 2

    def returned(provider: CloudProvider) -> PartlyListed | None:
        own = dict[str, ShownMachine]()
        while True:
            try:
                machines, failure = _running(settings, job, provider)
                running = {machine.id: machine for machine in machines}
                own |= running
                shown.update(running)
                left.update(running)
                for gone in own.keys() - running.keys():
                    left.pop(gone, None)
                is_launching = any(is_running(locks, name) for name in jobs)
                if not running and not is_launching:
                    return failure
                if running and (not is_launching or time.monotonic() >= patient_until):
                    provider.terminate(list(running))
            except ProviderError:
                if not own:
                    raise
            time.sleep(_PAUSE)

    named = "".join(f", and process {process} to end" for process in launchers)
    failures = [
        f"{cloud}: not {'fully ' if isinstance(answer, PartlyListed) else ''}searched: {answer}"
        for cloud, is_used, answer in _asked(
            settings, clouds, returned, say, seconds, f"to return machines{named}"
        )
        if answer is not None and (is_used or isinstance(answer, PartlyListed))
    ]

    remaining = dict(left)
    gone = tuple(machine for id_, machine in tuple(shown.items()) if id_ not in remaining)
    return EmergencyReturn(gone, tuple(remaining.values()), tuple(failures))


def _asked(
    settings: Settings,
    clouds: Sequence[str],
    ask: Callable[[CloudProvider], T],
    say: Callable[[str], object],
    seconds: float,
    what: str = "to list what they hold",
    without: Collection[str] = (),
) -> Iterator[tuple[str, bool, T | ProviderError]]:
    """The answers of the named clouds, or of all `without` some, to the same question, with whether
    each is used (see `providers`); Unanswered stands for one that has not answered within these
    seconds.
    """

    def answer(provider: Callable[[], CloudProvider]) -> T | ProviderError:
        try:
            return ask(provider())
        except ProviderError as error:
            return error

    searched = [each for each in providers(settings, clouds) if each[0] not in without]
    calls = {cloud: partial(answer, provider) for cloud, provider, _ in searched}
    answers = in_time(calls, seconds, what, UNPRICED, say)
    late = Unanswered(f"no answer within {seconds:.0f} s; try again")
    for cloud, _, is_used in searched:
        yield cloud, is_used, answers.get(cloud, late)


def _running(
    settings: Settings, job: str, provider: CloudProvider
) -> tuple[list[ShownMachine], PartlyListed | None]:
    tags = {INSTALLATION_TAG: installation_id(settings.home)}
    listed, failure = as_far_as_listed(partial(provider.list, tags))
    alive = (
        ShownMachine(machine.id, machine.tags.get(RUN_TAG, ""), str(machine.market))
        for machine in listed
        if machine.state not in _NOT_RUNNING
    )
    return [machine for machine in alive if job in ("", job_of(machine.run))], failure


@dataclass(frozen=True, slots=True)
class Orphans:
    """The orphans of one cloud; `failure` says why the cloud could not be searched, or only in
    part. A cloud `is_used` if the log or the settings name it, or the user does."""

    cloud: str
    is_used: bool
    resources: tuple[Resource, ...] = ()
    failure: ProviderError | None = None
    provider: CloudProvider | None = None


def orphans(
    settings: Settings, say: Callable[[str], object], clouds: Sequence[str] = ()
) -> list[Orphans]:
    """The orphans of these clouds; if none is named, of every cloud that has an account here: the
    log may have lost what was launched.
    """

    def search(
        provider: CloudProvider,
    ) -> tuple[tuple[Resource, ...], PartlyListed | None, CloudProvider]:
        tags = {INSTALLATION_TAG: installation_id(settings.home)}
        existing, failure = as_far_as_listed(partial(provider.resources, tags))
        # Read afterwards: what a run has rented that began in the meantime is not orphaned.
        active = {state.run for state in read_log(settings).latest if state.ended is None}
        locks = Paths(settings.home).locks
        orphaned = (
            resource
            for resource in existing
            if (run := resource.tags.get(RUN_TAG, "")) not in active
            and not is_running(locks, job_of(run))
        )

        return tuple(orphaned), failure, provider

    # To ask a cloud without an account takes up to half a minute.
    every = list(providers(settings, clouds))
    without = [
        cloud
        for cloud, _, is_used in every
        if not is_used
        and (account := cloud_of(cloud).account) is not None
        and not is_traced(settings, account)
    ]
    no_account = NotPermitted("this computer has no account of it")
    answers = _asked(settings, clouds, search, say, SEARCH_SECONDS, without=without)
    parts = {cloud: Orphans(cloud, is_used=False, failure=no_account) for cloud in without}
    for cloud, is_used, answer in answers:
        parts[cloud] = (
            Orphans(cloud, is_used, failure=answer)
            if isinstance(answer, ProviderError)
            else Orphans(cloud, is_used, *answer)
        )
    return [parts[cloud] for cloud, *_ in every]


def remove_orphans(orphaned: Sequence[Orphans], say: Callable[[str], object]) -> list[str]:
    """Removes what was found in each cloud, even if another one fails; returns the failures."""

    def removed(part: Orphans) -> str:
        assert part.provider is not None
        try:
            part.provider.remove(part.resources)
        except SpotctlError as error:
            return f"{part.cloud}: not all was removed: {error}"
        return ""

    left = {part.cloud: partial(removed, part) for part in orphaned if part.resources}
    answers = in_time(left, REMOVAL_SECONDS, "to remove what belongs to no run", UNPRICED, say)
    late = f"not all was removed within {REMOVAL_SECONDS:.0f} s; try again"
    return [answer for cloud in left if (answer := answers.get(cloud, f"{cloud}: {late}"))]


def providers(
    settings: Settings, clouds: Sequence[str] = ()
) -> Iterator[tuple[str, Callable[[], CloudProvider], bool]]:
    """The named clouds, or every cloud, how to make each one's provider, which imports its SDK, and
    whether it is used: named here, in the log, or in the settings."""
    if unknown := [cloud for cloud in clouds if not is_cloud(cloud)]:
        raise BadRequest(f"cloud {unknown[0]!r} is not one of {', '.join(cloud_names())}")

    launched_on = read_log(settings).clouds
    used = clouds or [
        *launched_on,
        *settings.tables,
        *(cloud for key in settings.keys if is_cloud(cloud := key.partition("_")[0])),
    ]

    for cloud in dict.fromkeys(clouds or (LOCAL, *used, *cloud_names())):
        if cloud != LOCAL:
            # In all regions. If the cloud's settings name regions: in those, and in the regions
            # that jobs named.
            own: tuple[str, ...] = getattr(settings.tables.get(cloud), "regions", ())
            named = sorted(launched_on.get(cloud, ())) if own else ()
            regions = tuple(dict.fromkeys((*own, *named)))
            yield cloud, partial(cloud_provider, settings, (cloud,), regions), cloud in used
        else:
            # The local market, if it was ever started. Nothing is rented here, so no prices are
            # needed.
            from spotctl.clouds.local.provider import LocalProvider
            from spotctl.clouds.local.replayed import Replayed

            local = partial(LocalProvider, settings.home / LOCAL, lambda: Replayed.of(()))
            if local().has_begun:
                yield cloud, local, True


def job_of(run: str) -> str:
    """The job of a run, from the name of the run."""
    return run.rpartition("-")[0]
