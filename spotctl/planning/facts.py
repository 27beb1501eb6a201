"""Everything that plans depend on, as one frozen value, and how it is arranged from what is stored. Pure."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from itertools import chain
from types import MappingProxyType

from agileml.pipeline.profile.model_profile import ModelProfile
from bidbrain.eviction.hazard import Evidence, Hazard, evidence_of_spans, hazard_of, in_force
from bidbrain.forecast.values import KnownPast, LaunchTimes
from bidbrain.strategies.inputs import Checkpointing
from bidbrain.strategies.known_spells import KnownSpells, known_spells
from bidbrain.strategies.names import ON_DEMAND
from bidbrain.values import Overheads
from pricing_data.availability import AvailabilitySpan, Interruption, run_of_job
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.store.table import PriceTable
from pricing_data.units import DAY, HOUR, MINUTE, SECOND, format_time
from spotctl.files.job.programs import Command, Training
from spotctl.files.job.spec import JobSpec
from spotctl.home.quotas import Quota
from spotctl.planning.learning import (
    NOTHING_LEARNED,
    Learned,
    most_machines,
)
from spotctl.planning.offers import STALE_AFTER, MarketSnapshot, age_text, place_of
from spotctl.planning.quotas import AccountQuotas
from spotctl.planning.values import Job, TypeSpeed

LEARNING_PERIOD = 14 * DAY
"""How much price history lies before the default start of the local market: strategies learn from it."""
UNRESOLVED: Mapping[str, int] = MappingProxyType({})
NO_PROFILES: Mapping[str, tuple[ModelProfile, ...]] = MappingProxyType({})
OVERHEADS = Overheads(startup=5 * MINUTE, eviction=MINUTE, resize=MINUTE // 2)
"""Assumed until runs have measured their own."""
_LIMIT = HOUR // 2
_LOCAL_STARTUP, _LOCAL_SPLIT_STARTUP = 1.5, 4.0
"""Seconds until a process of this computer works. Models that are split are mostly PyTorch's, whose import takes two
seconds of a core, and more nodes than there are cores start at a time."""
# From the decision to launch until machines are ordered, and from the end of the work until they are returned: the time
# of requests to a cloud, or of this computer's processes, which the market's clock multiplies and other work delays.
_ON_CLOUD = LaunchTimes(order=MINUTE // 2, ending=2 * MINUTE)
_LOCAL_ORDER, _LOCAL_ENDING = 2.5, 0.6
_LOCAL_SPREAD = 0.4
HazardOf = Callable[[Market], Hazard | None]
CHECKPOINT = Checkpointing(speed=0.83, write=2 * MINUTE)
"""Checkpoint costs of the papers' comparison, assumed until a run has measured its own."""
_GB_PER_SECOND = 0.2
"""Assumed: about the rate at which one machine reads from an object store in another region."""
NOTHING_SEEN: Mapping[Market, KnownSpells] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class PlanningFacts:
    """Everything that plans of some jobs depend on: offers, eviction rates, spells of spot capacity, throughputs that
    earlier runs measured (by job, then type), and the parts of the quotas of spot and of on-demand machines that the
    jobs may use.

    `account` are the account's quotas before running jobs took their parts; `remarks` tell the user about the data.
    """

    jobs: tuple[Job, ...]
    snapshot: MarketSnapshot
    hazard_of: HazardOf = lambda _: None
    spells: Mapping[Market, KnownSpells] = field(default_factory=lambda: NOTHING_SEEN)
    earlier: Mapping[str, Mapping[str, TypeSpeed]] = field(default_factory=dict)
    quotas: Sequence[Quota] = ()
    on_demand_quotas: Sequence[Quota] = ()
    overheads: Overheads = OVERHEADS
    account: AccountQuotas = field(default_factory=AccountQuotas)
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """Jobs that get one allocation.

    `zone` is the time zone of a deadline such as `22:00`. `hours` is the user's estimate of how long each job keeps all
    its machines busy. `deadlines`, by job name, are moments that were resolved when the job was launched: a run that is
    resumed in another time zone keeps its deadline. `quotas` are the parts of the known quotas that the jobs may use,
    spot and on demand. `place` is the cloud and region in which a running job has its machines. `profiles`, by job
    name, describe models that are split over devices.
    """

    specs: tuple[JobSpec, ...]
    zone: tzinfo
    hours: float | None = None
    deadlines: Mapping[str, int] = field(default_factory=lambda: UNRESOLVED)
    quotas: tuple[Quota, ...] = ()
    place: tuple[str, str] | None = None
    profiles: Mapping[str, tuple[ModelProfile, ...]] = field(default_factory=lambda: NO_PROFILES)


def arranged_facts(
    request: PlanRequest,
    snapshot: MarketSnapshot,
    interruptions: Sequence[Interruption] = (),
    availability: Sequence[AvailabilitySpan] = (),
    learned: Mapping[str, Learned] = NOTHING_LEARNED,
) -> PlanningFacts:
    """The facts that were known when the jobs begin, which is the moment of the snapshot: published interruption
    figures, observed availability, and estimates `learned` from earlier runs."""
    specs, at = {spec.name: spec for spec in request.specs}, snapshot.at
    spot = tuple(quota for quota in request.quotas if quota.spot)
    places = {spec.name: request.place or place_of(spec, at) for spec in request.specs}
    # What the runs of these jobs met is in `learned`, also if it was logged by an earlier version.
    others = [span for span in availability if not span.source.endswith(tuple(map(run_of_job, learned)))]
    evictions = chain.from_iterable(estimates.evidence for estimates in learned.values())
    overheads = OVERHEADS
    if learned:
        best = max(learned.values(), key=lambda estimates: estimates.runs)
        overheads = replace(OVERHEADS, startup=best.startup, eviction=best.eviction)
    return PlanningFacts(
        tuple(_job(spec, request, at, places[spec.name], learned.get(spec.name)) for spec in request.specs),
        snapshot,
        hazards(interruptions, at, (*evictions, *evidence_of_spans(others, at))),
        known_spells(availability, at),
        {name: measured_speeds(specs[name], estimates) for name, estimates in learned.items()},
        quotas=spot if any(spec.strategy != ON_DEMAND for spec in request.specs) else (),
        on_demand_quotas=tuple(quota for quota in request.quotas if not quota.spot),
        overheads=overheads,
    )


def _job(spec: JobSpec, request: PlanRequest, at: int, place: tuple[str, str] | None, learned: Learned | None) -> Job:
    deadline = request.deadlines.get(spec.name)
    if deadline is None and spec.deadline is not None:
        deadline = spec.deadline.moment(at, request.zone)
    saving = None if learned is None else learned.save_seconds
    measured, profiles = None if request.hours else hours_of(spec, learned), request.profiles.get(spec.name, ())
    if measured is None:
        return Job(spec, deadline, request.hours, place, profiles=profiles, save_seconds=saving)
    instead = "" if spec.hours is None else f", instead of {spec.hours / HOUR:g} in the job file"
    return Job(spec, deadline, measured, place, f"as earlier runs took{instead}", profiles, saving)


def hours_of(spec: JobSpec, learned: Learned | None) -> float | None:
    """How long all machines of a job are busy, if neither clocks nor minutes say when it ends."""
    stop = spec.program.stop if isinstance(spec.program, Training) else None
    parallel = spec.program.parallel if isinstance(spec.program, Command) else None
    counted = stop is not None and (stop.clocks is not None or stop.span is not None)
    counted = counted or (parallel is not None and parallel.updates is not None)
    return None if learned is None or counted else learned.hours


def measured_speeds(spec: JobSpec, learned: Learned) -> dict[str, TypeSpeed]:
    """The throughputs of a job that its earlier runs measured, by type."""
    machines = most_machines(spec)
    return {
        name: replace(speed, nu=learned.per_hour(name, machines or learned.size))
        for name, speed in learned.speeds.items()
    }


def beginning(
    specs: Sequence[JobSpec], table: PriceTable, now: int, market_now: int | None = None, at: int | None = None
) -> tuple[int, tuple[str, ...]]:
    """When jobs begin, in market time, and what the user should know about that moment: `at` if given, else now, or at
    the newest price if prices are stale.

    On the local market, jobs begin at the market's current time while machines run there (`market_now`), else at the
    start of the replay.
    """
    if at is not None:
        return at, ()
    if not len(table):
        return now, ()
    if all(spec.is_local for spec in specs):
        if market_now is not None:
            return market_now, (f"prices as of {format_time(market_now)}, the current time of the local market",)
        asked = specs[0].local.start
        start = replay_start(table) if asked is None else asked
        return start, (f"prices as of {format_time(start)}, where the replay of the synthetic market begins",)
    newest = int(table.times.max())
    if now - newest <= STALE_AFTER:
        return now, ()
    old = age_text(now - newest)
    remark = f"prices as of {format_time(newest)}, the newest stored ones, {old} old (update: spotctl prices fetch)"
    return newest, (remark,)


def replay_start(table: PriceTable) -> int:
    """The moment at which the local market begins unless a job sets `local.start`."""
    return int(table.times[table.starts[:-1]].min()) + LEARNING_PERIOD


def hazards(interruptions: Sequence[Interruption], at: int, evidence: Sequence[Evidence] = ()) -> HazardOf:
    """Eviction rates beyond price crossings: from figures published up to a moment and from evictions of own runs."""
    figures: dict[tuple[str, str, str], list[Interruption]] = defaultdict(list)
    for interruption in interruptions:
        if interruption.as_of <= at:
            market = interruption.market
            figures[market.cloud, market.region, market.instance_type].append(interruption)

    def hazard(market: Market) -> Hazard | None:
        return hazard_of(market, evidence, figures.get((market.cloud, market.region, market.instance_type), ()))

    return hazard


def within_the_hour(overheads: Overheads) -> Overheads:
    """The overheads with at most half an hour for a start-up, and for a pause after an eviction: strategies compare
    machines by their next hour, in which machines with longer start-ups would be worthless."""
    return replace(overheads, startup=min(overheads.startup, _LIMIT), eviction=min(overheads.eviction, _LIMIT))


def with_local_starts(overheads: Overheads, spec: JobSpec) -> Overheads:
    """The overheads of a job; a process of this computer starts no faster because the market's clock is fast."""
    if not spec.is_local:
        return overheads
    split = isinstance(spec.program, Training) and spec.program.parallel is not None
    seconds = _LOCAL_SPLIT_STARTUP if split else _LOCAL_STARTUP
    return replace(overheads, startup=max(overheads.startup, round(seconds * spec.local.speed * SECOND)))


def launch_times(spec: JobSpec) -> LaunchTimes:
    """How long a launch takes around its work, on the market's clock."""
    if not spec.is_local:
        return _ON_CLOUD
    second = spec.local.speed * SECOND
    return LaunchTimes(round(_LOCAL_ORDER * second), round(_LOCAL_ENDING * second), _LOCAL_SPREAD)


def past_of(
    histories: Iterable[PriceSeries],
    hazard_of: HazardOf,
    at: int,
    spells: Mapping[Market, KnownSpells] = NOTHING_SEEN,
) -> KnownPast:
    """The past of some markets as known at a moment: their prices up to then (`MarketSnapshot.history`), rates of
    evictions that prices do not explain, and what was seen of spells.

    An unrecorded rate is a prior, so that unknown never counts as safe; None where only the price evicts.
    """
    remembered = {series.market: series for series in histories}
    hazards = {market: in_force(market, hazard_of(market), at) for market in remembered}
    return KnownPast(at, remembered, hazards, {market: spells[market] for market in remembered if market in spells})


def transfer_time(gigabytes: float) -> int:
    """How long a checkpoint takes to another region, in microseconds."""
    return round(gigabytes / _GB_PER_SECOND * SECOND)
