"""Step 1 of a plan: reads everything that plans depend on.

That is prices, the catalog and interruption records; earlier runs and those under way, with the
machines they hold; quotas; profiles; the clock and the time zone.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

from agileml.pipeline.profile.model_profile import ModelProfile
from bidbrain.eviction.estimate import MEMORY
from bidbrain.outbid.bid import HostMarket
from pricing_data.availability import AvailabilitySpan, Interruption
from pricing_data.library import Library, Selection
from pricing_data.market import Market
from pricing_data.store.facts import AVAILABILITY, INTERRUPTIONS
from pricing_data.store.table import PriceTable
from pricing_data.units import SECOND, age
from spotctl.clouds.wiring import library, recorded_hosts, said_of_hosts
from spotctl.files.job.spec import JobSpec
from spotctl.files.model_files import profiles_of
from spotctl.home import account_quotas
from spotctl.home.cloud import cloud_of, rented_clouds
from spotctl.home.config import Settings
from spotctl.home.process_memory import without_garbage_collection
from spotctl.home.quotas import Quota
from spotctl.home.wall_clock import wall_us
from spotctl.log.statuses import unfinished_runs
from spotctl.planning.facts import Learned, PlanningFacts, arranged_facts, beginning, job_of
from spotctl.planning.offers import MarketSnapshot
from spotctl.planning.quotas import AccountQuotas
from spotctl.planning.values import Job
from spotctl.run.start.earlier_runs import learn_from_runs, speeds_of_others
from spotctl.run.start.live_markets import market_now
from spotctl.run.start.shared_queue import queue_of, queue_terms

_LOCALTIME = Path("/etc/localtime")


@dataclass(frozen=True, slots=True)
class LoggedTerms:
    """The terms of a run that its log keeps, so that every process that works on the run makes the
    same plan.

    The run was launched at `launched` on this computer's clock, and `started` in market time.
    `quotas` are its parts, and its machines stay in `place`, a cloud and a region.
    """

    launched: int
    started: int
    deadline: int | None
    quotas: tuple[Quota, ...]
    place: tuple[str, str] | None = None


def read_facts(
    specs: Sequence[JobSpec],
    settings: Settings,
    terms: LoggedTerms | None = None,
    at: int | None = None,
    hours: float | None = None,
) -> PlanningFacts:
    """The facts for jobs that begin together, as they are now, or for a run as its log has them.

    Instead of now, the user may name the moment `at`; `hours` is the user's estimate of a job's
    length.
    """
    known = library(settings)
    # These tell users apart, too.
    specs = [replace(spec, tags={**settings.tags, **spec.tags}) for spec in specs]
    table = price_table(known, specs)
    catalog = known.catalog
    images = own_images(settings)
    records = records_of_evictions(known, specs)
    account = AccountQuotas()
    remarks = tuple[str, ...]()

    if terms is not None:
        before = terms.launched
        begin = terms.started
        quotas = terms.quotas
    else:
        before = now = wall_us()
        # A remark for each quota that the jobs' clouds stated, with its age.
        clouds = {cloud for spec in specs for cloud in spec.resources.clouds}
        stated = tuple(
            f"quota {quota}, as read {age((now - read) / SECOND)} ago"
            for quota, read in account_quotas.stated(settings, now).items()
            if quota.cloud in clouds
        )
        account = read_account(settings, now)
        market = market_now(specs, settings) if at is None else None
        sharing = queue_terms(specs, settings)
        queue = replace(account.queue, terms=sharing)
        if account.spot and at is None:
            queue = queue_of(specs[0], settings).present(sharing, [spec.name for spec in specs])
        queued = {job.name for job in queue.jobs}
        # The queue divides what its jobs hold again.
        others = {job: machines for job, machines in account.spot_held.items() if job not in queued}
        account = replace(account, spot_held=others, queue=queue)
        quotas = account.left(catalog)
        held = account.remarks(catalog)
        if queued:
            held += (
                f"quotas are shared with {', '.join(sorted(queued))}: rounds of their queue divide "
                "them",
            )
        begin, remarks = beginning(specs, table, now, market, at)
        remarks += stated + held

    learned = learn_from_runs(settings, known, specs, before)
    profiles = profiles_of(specs)
    jobs = [
        _job(spec, terms, begin, hours, learned.get(spec.name), profiles.get(spec.name, ()))
        for spec in specs
    ]
    snapshot = MarketSnapshot.of(table, catalog, begin)
    traffic = said_of_hosts("traffic", settings, _clouds_of(specs), begin)
    hosts = host_markets(settings, specs, snapshot)
    snapshot = replace(snapshot, own_images=images, hosts=hosts, traffic=traffic)
    of_others = tuple[dict[str, float], ...]()
    # They may tell how fast a job is that knows its speed on some types, not on all that it names.
    known_types = [
        (spec.resources.types, {*spec.throughputs, *(own.speeds if own is not None else ())})
        for spec in specs
        for own in [learned.get(spec.name)]
    ]
    if any(some and (not types or not some.issuperset(types)) for types, some in known_types):
        of_others = speeds_of_others(settings, known, specs, before)
    facts = arranged_facts(jobs, snapshot, *records, learned, quotas, of_others)
    measured = tuple(
        f"{name}: {words}" for name, estimates in learned.items() for words in estimates.remarks
    )

    return replace(facts, account=account, remarks=remarks + measured)


def _job(
    spec: JobSpec,
    terms: LoggedTerms | None,
    begin: int,
    hours: float | None,
    learned: Learned | None,
    profiles: tuple[ModelProfile, ...],
) -> Job:
    if terms is None:
        return job_of(spec, begin, learned, deadline_of(spec, begin), hours, profiles=profiles)

    deadline = terms.deadline
    if deadline is None and spec.deadline is not None:
        # Logs of earlier versions have no resolved deadline; their planner read times of day as
        # UTC.
        deadline = spec.deadline.moment(begin, UTC)

    return job_of(spec, begin, learned, deadline, place=terms.place, profiles=profiles)


def own_images(settings: Settings) -> frozenset[str]:
    """The clouds for which the settings name an image."""
    of_machines = {cloud: cloud_of(cloud).settings_of_machines for cloud in rented_clouds()}
    return frozenset(
        cloud
        for cloud, named in of_machines.items()
        if named.image and getattr(settings.table(cloud, named.table), named.image)
    )


def read_account(settings: Settings, now: int) -> AccountQuotas:
    """The known quotas, and what running jobs of this home hold of them."""
    spot = account_quotas.known(settings, now)
    on_demand = account_quotas.known(settings, now, spot=False)
    running = unfinished_runs(settings) if spot or on_demand else {}

    return AccountQuotas(
        spot,
        on_demand,
        {job: state.by_market(spot=True) for job, state in running.items()},
        {job: state.by_market(spot=False) for job, state in running.items()},
    )


def price_table(library: Library, specs: Sequence[JobSpec]) -> PriceTable:
    """The prices that are stored of the clouds that jobs may use; empty if there are none."""
    # Markets are read by tens of thousands.
    with without_garbage_collection():
        return library.table(library.select(Selection(clouds=_clouds_of(specs)))).with_last_seen()


def records_of_evictions(
    library: Library, specs: Sequence[JobSpec]
) -> tuple[tuple[Interruption, ...], tuple[AvailabilitySpan, ...]]:
    """Published interruption figures, and observed availability, of the clouds that jobs may
    use."""
    clouds = _clouds_of(specs)
    stored = library.store.facts
    figures = tuple(figure for cloud in clouds for figure in stored(INTERRUPTIONS, cloud))
    return figures, tuple(span for cloud in clouds for span in stored(AVAILABILITY, cloud))


def host_markets(
    settings: Settings, specs: Sequence[JobSpec], snapshot: MarketSnapshot
) -> dict[Market, HostMarket]:
    """The markets in which each host runs the highest bid, by the offers of hosts that were
    recorded of them.
    """
    hosts: dict[Market, HostMarket] = {}
    for cloud in _clouds_of(specs):
        for market, record in recorded_hosts(
            settings, cloud, snapshot.at - MEMORY, snapshot.at
        ).items():
            if market in snapshot.markets:
                hosts[market] = HostMarket.of(record)
    return hosts


def _clouds_of(specs: Sequence[JobSpec]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(cloud for spec in specs for cloud in spec.resources.clouds))


def deadline_of(spec: JobSpec, moment: int) -> int | None:
    """The deadline of a job that begins at a moment, in the computer's time zone; None without
    one."""
    if spec.deadline is None:
        return None

    # The zone with its daylight-saving rules, from TZ or /etc/localtime; else its current offset.
    name = os.environ.get("TZ", "").removeprefix(":")
    try:
        if name:
            zone: tzinfo | None = ZoneInfo(name)
        else:
            with _LOCALTIME.open("rb") as file:
                zone = ZoneInfo.from_file(file)
    except (OSError, ValueError):
        # TZ may also hold a POSIX rule, such as CET-1CEST, or nothing that is installed here.
        zone = datetime.now().astimezone().tzinfo

    assert zone is not None
    return spec.deadline.moment(moment, zone)
