"""Whether a launch is admitted: all that can refuse it, or is to be said about it, before anything is
rented.

A job is checked alone first; then its machines' packages, and, with a plan, the orders that the
plan begins with, by the clouds themselves, and the regions of the data that its machines read. A
cloud is only asked here: what it answers may have changed by the purchase, which has the last
word. Nothing here may cost money or change anything at a cloud.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path

from pricing_data.catalog import ARM, X86
from pricing_data.errors import PricingDataError
from pricing_data.list_prices import Location, egress
from pricing_data.market import Market, api_region
from pricing_data.units import usd_text
from spotctl.agent.cloud_parts import clouds_by_scheme
from spotctl.agent.data.locations import StoreIdentity
from spotctl.agent.data.sets import SetLocation
from spotctl.agent.data.stores import StoreRefused
from spotctl.agent.data.transfer import described
from spotctl.agent.errors import AgentError
from spotctl.clouds.doctor import Finding, Level, all_found
from spotctl.clouds.errors import Answers, NotPermitted, ProviderError
from spotctl.clouds.provider import MachineRequest
from spotctl.clouds.remote.bundle import packages_for
from spotctl.clouds.remote.job_folder import check_folder
from spotctl.clouds.remote.platforms import (
    OLDEST_GLIBC,
    PYTHONS,
    USUAL_GLIBC,
    USUAL_PYTHON,
    MachinePlatform,
    here,
)
from spotctl.clouds.wiring import buckets_of, cloud_provider
from spotctl.files.job.checks import launch_problems
from spotctl.files.job.data_places import (
    bucket_at,
    bucket_of,
    checkpoint_place,
    store_packages,
    stored_folders,
)
from spotctl.files.job.spec import ANY, JobSpec, ProgramKind
from spotctl.home.config import Settings
from spotctl.home.errors import BadRequest
from spotctl.home.installation import INSTALLATION_TAG, installation_id
from spotctl.log.state import covers
from spotctl.log.statuses import not_ended
from spotctl.log.store import EventLog
from spotctl.planning.values import JobPlan
from spotctl.run.environment import LAUNCHER, secrets_of
from spotctl.run.start.stored_facts import own_images
from spotctl.run.work.training_workload import NODE_PACKAGES
from spotctl.run.work.workload import check_podman


def check_launchable(spec: JobSpec) -> None:
    """Refuses a job that cannot run where it asks for machines, before anything is rented."""
    for problem in launch_problems(spec):
        raise BadRequest(f"{spec.name}: {'.'.join(map(str, problem.loc))}: {problem.message}")
    check_podman(spec)
    secrets_of(spec)
    if not spec.is_local and not spec.on_ray:
        check_folder(spec.workdir)

    for place in spec.data.values():
        if "://" not in place:
            try:
                described(Path(place))
            except AgentError as error:
                raise BadRequest(f"{spec.name}: {error}") from error


def check_checkpoint_is_free(spec: JobSpec, log: EventLog) -> None:
    """Refuses a place for checkpoints where the run of another job, which has not ended, keeps its
    own.
    """
    if (place := checkpoint_place(spec)) is None:
        return
    for run, began in not_ended(log).items():
        theirs = (began.spec.get("checkpoint") or {}).get("path", "").rstrip("/")
        if began.job != spec.name and place == theirs:
            raise BadRequest(
                f"{spec.name}: checkpoint.path is {place}, where run {run} of job {began.job}, "
                "which has not ended,"
                f" keeps its checkpoint; write another path, or stop that run (spotctl stop "
                f"{began.job})"
            )


def refuse(obstacles: Sequence[Finding]) -> None:
    """Raises the first reason why no order of a plan can succeed. NotPermitted: permissions are
    missing.
    """
    # Problems that only an administrator can solve come first.
    for finding in obstacles:
        if finding.level is Level.NO_ACCESS:
            raise NotPermitted(str(finding))
    if obstacles:
        raise ProviderError(str(obstacles[0]))


def checked(plan: JobPlan, settings: Settings) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """Asks the clouds of a plan about the orders that it begins with, all at the same time. A zone
    without a network is no reason against orders in others.

    Returns the findings, each once; and if no order of the plan can succeed, why the first one
    fails.
    """
    findings = dict[tuple[str, str, str], Finding]()
    failing = list[tuple[Market, list[Finding]]]()
    requests = _requests(plan, installation_id(settings.home))
    for cloud in dict.fromkeys(request.market.cloud for request in requests):
        with closing(cloud_provider(settings, (cloud,), answers=Answers())) as provider:
            own = [request for request in requests if request.market.cloud == cloud]
            each = [provider.checks(request) for request in own]
            answers = iter(all_found(cloud, [check for checks in each for check in checks]))
            for request, checks in zip(own, each, strict=True):
                of_order = [next(answers) for _ in checks]
                failing.append(
                    (request.market, [finding for finding in of_order if finding.is_bad])
                )
                findings |= {
                    (finding.about, finding.what, finding.detail): finding for finding in of_order
                }

    # The problems of the first order count, if all orders fail, and for reasons that reach all
    # markets of the plan.
    barred = [(finding.scope.value, market) for market, problems in failing for finding in problems]
    markets = {market for market, _ in failing} | {offer.market for offer in plan.decider.offers}
    fail = all(problems for _, problems in failing)
    fail = fail and all(
        any(covers(scope, refused, market) for scope, refused in barred) for market in markets
    )
    obstacles = tuple(failing[0][1]) if failing and fail else ()
    return tuple(findings.values()), obstacles


def _requests(plan: JobPlan, installation: str) -> Sequence[MachineRequest]:
    """The orders of a plan's first machines, and of those on demand in their place."""
    spec = plan.job.spec
    if spec.is_local or spec.on_ray:
        return ()

    rents = [
        *(choice.rent for choice in plan.cost.choice),
        plan.decider.reliable,
        plan.decider.baseline,
    ]

    orders = {(rent.offer.market, rent.spot): rent for rent in rents if rent is not None}
    return [
        MachineRequest(
            "check",
            market,
            rent.machines,
            rent.bid,
            0,
            {**spec.tags, INSTALLATION_TAG: installation},
            image=spec.image.of(market.cloud),
            identity=spec.identity.get(market.cloud),
            disk_gib=spec.image.disk_gib,
            reservation=market.reservation,
        )
        for (market, _), rent in orders.items()
    ]


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
            # Machines of one of these platforms must be able to get theirs.
            why = ""
            for machine in alternatives:
                try:
                    packages_for(folder, names, machine)
                except ProviderError as error:
                    why = why or str(error)
                else:
                    why = ""
                    break
            if why:
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


RegionOf = Callable[[str], Location | None]
"""Where the bucket of a location is; None if nothing says so."""


def far_data(plan: JobPlan, region_of: RegionOf) -> Iterator[str]:
    """A line for each part of the data that is in another region than the machines that the plan
    rents first.
    """
    markets = [choice.rent.offer.market for choice in plan.cost.choice] or [
        plan.decider.baseline.offer.market
    ]
    here = Location(markets[0].cloud, markets[0].region)
    spec = plan.job.spec
    near = bucket_at(spec, here.cloud, here.region)

    for name, location in stored_data(spec).items():
        there = region_of(location)
        if there is None or _is_same(there, here):
            continue
        where = there.region if there.cloud == here.cloud else f"{there.cloud}/{there.region}"
        is_copied = near and (name in stored_folders(spec) or SetLocation.parse(location))
        how = "each of them reads it from there"
        if is_copied:
            how = f"it is copied to {near} once, and until then each of them reads it from there"
        price = ""
        with suppress(PricingDataError):
            price = f", for about {usd_text(egress(there, here).usd_per_gb)} per GB"
        yield f"data {name}: {location} is in {where}, and the machines are in {here.region}: {how}{price}"


def misplaced_buckets(spec: JobSpec, region_of: RegionOf) -> Iterator[str]:
    """A line for each of a job's `data_buckets` that is not in the region for which it is named."""
    for region, bucket in spec.data_buckets.items():
        there = region_of(bucket)
        if there is not None and not _is_same(there, Location(there.cloud, region)):
            yield f"data_buckets.{region}: {bucket} is in {there.region}; name a bucket in {region}"


def bucket_location(location: str, identity: StoreIdentity = LAUNCHER) -> Location | None:
    """Where a bucket is, if its cloud says so to this identity."""
    scheme, _, rest = location.partition("://")
    cloud = clouds_by_scheme().get(scheme)
    if cloud is None:
        return None

    try:
        region = buckets_of(cloud).region_of(rest.partition("/")[0], identity(cloud))
    except StoreRefused:
        # Whoever may only read objects cannot ask; the launch goes on without the line.
        return None

    return Location(cloud, region) if region else None


def stored_data(spec: JobSpec) -> dict[str, str]:
    """The places in object stores from which rented machines read data, by the names of the
    data."""
    if spec.is_local:
        return {}
    places = {**spec.data, **dict.fromkeys(stored_folders(spec), bucket_of(spec))}
    return {name: place for name, place in places.items() if "://" in place}


def _is_same(there: Location, here: Location) -> bool:
    regions = {api_region(place.cloud, place.region) for place in (there, here)}
    return there.cloud == here.cloud and len(regions) == 1
