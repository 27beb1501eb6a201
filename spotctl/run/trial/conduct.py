"""Tries a cloud: with the smallest job, or in full, step by step, with a record.

A step that fails does not keep the others from being carried out.
"""

import getpass
import json
import os
import platform
import socket
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import fields, replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pricing_data.catalog import InstanceType
from pricing_data.errors import PricingDataError
from pricing_data.library import Library, Selection
from pricing_data.market import LINUX
from pricing_data.units import MINUTE, counted
from spotctl.clouds.errors import ProviderError, as_far_as_listed
from spotctl.clouds.provider import CloudProvider, Resource
from spotctl.clouds.wiring import cloud_provider, provider_of
from spotctl.files.job.reader import loads
from spotctl.files.job.spec import JobSpec
from spotctl.home.cloud import cloud_of
from spotctl.home.config import Settings
from spotctl.home.errors import BadRequest, SpotctlError
from spotctl.home.installation import INSTALLATION_TAG, RUN_TAG, installation_id
from spotctl.home.wall_clock import wall_us
from spotctl.log.events import StopRequested
from spotctl.log.outcomes import NO_CAPACITY
from spotctl.log.state import RunState
from spotctl.planning.offers import why_unsuitable
from spotctl.run.start.runs import request_stop
from spotctl.run.trial import jobs
from spotctl.run.trial.machines import BareMachines, check_account, check_orders
from spotctl.run.trial.record import (
    FAILED,
    PASSED,
    SKIPPED,
    Kit,
    StepResult,
    StepSkipped,
    TrialFailed,
    TrialRecord,
    as_json,
)

KitStep = Iterator[StepResult]
"""A step of the trial, which begins when its first result is asked for."""

STEPS = "account orders machines token lease launcher eviction training runner left".split()
"""The names of the steps; the eviction also reports on the checkpoint."""

SHARED = ("account", "orders", "machines", "eviction")
"""The steps for a stranger's account: permissions and dry runs, one machine until its agent
answers, one eviction."""

_NEEDED = {"token": "machines", "lease": "machines"}
"""Steps that use what another has rented."""

_ANY = (
    "name: try\nkind: command\nrun: 'true'\nresources: {{clouds: [{cloud}], regions: "
    "[{region}]{arch}}}\n"
)


def conduct(kit: Kit, chosen: Collection[str], report: Callable[[StepResult], None]) -> TrialRecord:
    """Carries out the chosen steps, or all, and reports each result as soon as it is there."""
    wanted = {"left"} if chosen else set(STEPS)
    for name in chosen:
        if name not in STEPS:
            raise BadRequest(f"step {name!r} is not one of {', '.join(STEPS)}")
        wanted |= {name, _NEEDED.get(name, name)}

    machines, results = BareMachines(kit), list[StepResult]()
    try:
        for name, step in _steps(kit, machines).items():
            if name not in wanted:
                continue
            if name in ("launcher", "eviction"):
                _end(machines)
            for result in _carried_out(kit, name, step):
                results.append(result)
                report(result)
    finally:
        _end(machines)

    versions = {"python": platform.python_version()}
    for package in ("spotctl", *cloud_of(kit.cloud).packages):
        versions[package] = version(package)
    return TrialRecord(
        cloud=kit.cloud,
        region=kit.region,
        endpoint=kit.provider.endpoint,
        date=datetime.now(UTC).date().isoformat(),
        versions=versions,
        steps=tuple(results),
        most_usd=kit.spent_usd,
    )


def _steps(kit: Kit, machines: BareMachines) -> Mapping[str, KitStep]:
    # Each begins when its first result is asked for.
    bare = (machines.boot(), machines.repeat_token(), machines.let_lease_end())
    with_jobs = (jobs.kill_launcher(kit), jobs.evict(kit), jobs.train(kit), jobs.move_runner(kit))
    checks, left = (check_account(kit), check_orders(kit)), _find_left(kit, machines)
    return dict(zip(STEPS, (*checks, *bare, *with_jobs, left), strict=True))


def _carried_out(kit: Kit, name: str, step: KitStep) -> Iterator[StepResult]:
    began = time.monotonic()
    try:
        if name != "left" and kit.spent_usd >= kit.cap_usd:
            raise StepSkipped(f"the budget of ${kit.cap_usd:g} is reached")
        for result in step:
            now = time.monotonic()
            yield replace(result, seconds=now - began)
            began = now
    except StepSkipped as why:
        yield StepResult(name, SKIPPED, str(why))
    except (TrialFailed, SpotctlError, PricingDataError) as error:
        yield StepResult(name, FAILED, " ".join(str(error).split()), time.monotonic() - began)


def _end(machines: BareMachines) -> None:
    """Returns the machines without a job; what is left of them, the last step finds."""
    with suppress(TrialFailed, SpotctlError):
        machines.end()


def _find_left(kit: Kit, machines: BareMachines) -> Iterator[StepResult]:
    """Everything that the cloud still lists under the tags of the trial's runs."""
    _end(machines)
    runs = [kit.bare_run, *kit.runs]
    left = list[Resource]()
    for run in runs:
        left += left_under(kit.provider, {**kit.tags, RUN_TAG: run})

    if left:
        names = ", ".join(f"{resource.kind} {resource.id}" for resource in left)
        raise TrialFailed(f"left: {names} (spotctl gc removes it)")

    detail = f"nothing is left of {counted(len(runs), 'run')}"
    yield StepResult("left", PASSED, detail, figures={"runs": len(runs)})


def open_kit(
    cloud: str,
    regions: Sequence[str],
    types: Sequence[str],
    settings: Settings,
    known: Library,
    bucket: str,
    identity: str,
) -> Kit:
    """The kit for one region, the cloud's largest if none is named. BadRequest: its cloud cannot be
    tried, or no price is known."""
    job = cloud_of(cloud).job
    region = regions[0] if regions else (job.region if job is not None else "")
    if len(regions) > 1 or not region:
        raise BadRequest("a full trial is in one region: --region NAME")

    kinds = _kinds(cloud, region, types, known, settings)
    provider = cloud_provider(settings, [cloud], [region])
    if not provider.endpoint:
        raise BadRequest(
            f"{cloud} does not say how its orders are checked and its machines evicted; try it "
            "without --full"
        )

    every = tuple(known_types(cloud, [region], known))
    if all(machine.accelerators for machine in every):
        # Hosts are searched for each kind of GPU, and a day has a limited number of searches.
        every = kinds
    return Kit(
        cloud, region, settings, known, provider, kinds, every, bucket, identity, cap_usd=CAP_USD
    )


def _kinds(
    cloud: str, region: str, types: Sequence[str], known: Library, settings: Settings
) -> tuple[InstanceType, InstanceType]:
    """The named types, or the smallest that suits, and the smallest of another architecture or else
    another type.
    """
    if len(types) > 2:
        raise BadRequest("a full trial rents two kinds of machines: --type NAME, once or twice")
    if types:
        named = [known.catalog.instance_type(cloud, name) for name in types]
        return named[0], named[-1]

    file = Path("try.yaml")
    any_type = loads(_ANY.format(cloud=cloud, region=region, arch=""), file)
    fitting = fitting_types(any_type, cloud, [region], known)
    first = fitting[0]
    others = [machine for machine in fitting if machine.name != first.name] or fitting
    table: Any = settings.table(cloud, cloud_of(cloud).settings_of_machines.table)
    if getattr(table, "image", None) is None:
        with suppress(BadRequest):  # no price of an ARM machine may be known
            arm_type = loads(_ANY.format(cloud=cloud, region=region, arch=", arch: arm64"), file)
            others = fitting_types(arm_type, cloud, [region], known)

    return first, others[0]


def keep(kit: Kit, record: TrialRecord) -> Path:
    """Writes the record, and what a later comparison with a bill needs, to the home; returns the
    record's file.
    """
    words = private_words(kit)
    shown = as_json(record, words)
    path = kit.folder / f"record-{record.cloud}-{record.date}.json"
    path.write_text(json.dumps(shown, indent=2) + "\n")
    kept = {"record": shown, "file": path.name, "runs": kit.runs, "bare_run": kit.bare_run}
    kept_file(kit.settings, kit.cloud).write_text(json.dumps(kept, indent=2) + "\n")
    return path


def kept_file(settings: Settings, cloud: str) -> Path:
    """The file that the last full trial of a cloud keeps for `spotctl try --bill`."""
    return settings.home / "try" / f"full-{cloud}.json"


def private_words(kit: Kit) -> tuple[str, ...]:
    """Everything in settings, options and on this computer that names its user or the account."""
    words = [str(kit.settings.home), str(Path.home()), getpass.getuser(), socket.gethostname()]
    words += [kit.bucket, kit.identity]

    of_cloud = cloud_of(kit.cloud).settings_of_machines
    for name in of_cloud.keys:
        variable = of_cloud.variables.get(name, "")
        words.append(kit.settings.text(name) or os.environ.get(variable, ""))
    words += [os.environ.get(variable, "") for variable in of_cloud.variables.values()]

    table: Any = kit.settings.table(kit.cloud, of_cloud.table)
    for field in fields(table):
        value = getattr(table, field.name)
        if isinstance(value, str) and field.name != of_cloud.image:
            words.append(value)
        elif isinstance(value, tuple) and field.name != "regions":
            words += map(str, value)

    return tuple(filter(None, words))


SHARED_USD = 0.2
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
    """A job of one command on the smallest machine with a known price, with a budget of a
    dollar."""
    folder = home / "try"
    folder.mkdir(parents=True, exist_ok=True)
    named = f", regions: [{', '.join(regions)}]" if regions else ""
    values = {"cloud": cloud, "folder": folder, "cap": CAP_USD, "regions": named}
    any_type = loads(_JOB.format(**values, types=""), folder / "job.yaml")
    type_ = fitting_types(any_type, cloud, regions, known)[0].name
    text = _JOB.format(**values, types=f", types: [{type_}]")
    return loads(text, folder / "job.yaml")


def known_types(cloud: str, regions: Sequence[str], known: Library) -> list[InstanceType]:
    """The types with a known price of Linux machines."""
    names = set[str]()
    for market in known.select(Selection(clouds=(cloud,), regions=tuple(regions))):
        if market.os == LINUX and known.catalog.knows(cloud, market.instance_type):
            names.add(market.instance_type)
    return [known.catalog.instance_type(cloud, name) for name in sorted(names)]


def fitting_types(
    spec: JobSpec, cloud: str, regions: Sequence[str], known: Library
) -> list[InstanceType]:
    """The types without accelerators that suit a job, the smallest first; all that suit, the cheapest
    first, if each has accelerators. BadRequest: no price is known.
    """
    now, named = wall_us(), Selection(clouds=(cloud,), regions=tuple(regions))
    fitting = [
        machine
        for machine in known_types(cloud, regions, known)
        if not why_unsuitable(machine, spec, now)
    ]
    lowest: dict[str, int] = {}
    if fitting and all(machine.accelerators for machine in fitting):
        for series in known.table(known.select(named)):
            name, price = series.market.instance_type, int(series.prices[-1])
            lowest[name] = min(price, lowest.get(name, price))
    else:
        fitting = [machine for machine in fitting if not machine.accelerators]

    if not fitting:
        where = "".join(f" --region {region}" for region in regions)
        raise BadRequest(
            f"no price of a machine on {cloud} that boots is stored; first run:"
            f" spotctl prices fetch --cloud {cloud}{where}"
        )

    return sorted(
        fitting,
        key=lambda machine: (
            lowest.get(machine.name, 0),
            machine.vcpus,
            machine.memory_gib,
            machine.name,
        ),
    )


class TrialPatience:
    """Watches the turns of a trial: says why orders are refused, and ends a run whose machine does
    not run in time.
    """

    def __init__(
        self,
        spec: JobSpec,
        settings: Settings,
        remark: Callable[[str], None],
        now: Callable[[], int] = wall_us,
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
            why = "; spotctl doctor checks the account"
            if state.refusal:
                why = f" (the last refusal: {state.refusal})"
            type_, minutes = self._spec.resources.types[0], GIVE_UP_AFTER // MINUTE
            message = f"gave up: no {type_} was running after {minutes} minutes{why}"
            request_stop(self._spec.name, self._settings, StopRequested(NO_CAPACITY, message))


def left_in_cloud(spec: JobSpec, run: str, settings: Settings) -> tuple[Resource, ...]:
    """The resources that the cloud still lists under a run's tags, after waiting a minute for them
    to vanish.

    ProviderError: the cloud does not answer, or not in all regions.
    """
    tags = {INSTALLATION_TAG: installation_id(settings.home), RUN_TAG: run}
    provider = provider_of(settings, spec)
    with closing(provider):
        return left_under(provider, tags)


def left_under(provider: CloudProvider, tags: Mapping[str, str]) -> tuple[Resource, ...]:
    """The resources that a provider still lists under the tags of a run, after waiting a minute for
    them to vanish.

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
            f"not everything that may be left of {run} could be listed: {failure}; check again "
            "with spotctl gc"
        )

    return left
