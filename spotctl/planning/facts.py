"""Step 1 of a plan: everything that it depends on, as one frozen value, and how that is arranged
from what is stored.

That is what earlier runs teach (`learn`), when jobs begin, the jobs themselves, and what evicts
machines. Pure.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from math import log, sqrt
from operator import attrgetter
from statistics import median
from types import MappingProxyType

import numpy as np

from agileml.pipeline.profile.model_profile import ModelProfile
from bidbrain.eviction.hazard import Evidence, Hazard, evidence_of_spans, hazard_of
from bidbrain.gavel.estimator import speeds_by_others
from bidbrain.strategies.base import Checkpointing, Overheads
from bidbrain.strategies.known_spells import KnownSpells, known_spells
from bidbrain.strategies.names import ON_DEMAND
from pricing_data.availability import AvailabilitySpan, Interruption, run_of_job
from pricing_data.market import Market
from pricing_data.store.table import PriceTable
from pricing_data.units import DAY, HOUR, MINUTE, SECOND, counted, format_time, to_datetime
from spotctl.files.job.programs import Command, Training
from spotctl.files.job.spec import JobSpec
from spotctl.home.quotas import Quota
from spotctl.planning.offers import STALE_AFTER, MarketSnapshot, age_text
from spotctl.planning.quotas import AccountQuotas
from spotctl.planning.values import VCPU_SPREAD, Job, TypeSpeed

LEARNING_PERIOD = 14 * DAY
"""How much price history lies before the default start of the local market: strategies learn from
it."""
OVERHEADS = Overheads(startup=5 * MINUTE, eviction=MINUTE, resize=MINUTE // 2)
"""Assumed until runs have measured their own."""
HazardOf = Callable[[Market], Hazard | None]
PUBLISHED_CHECKPOINTS = Checkpointing(speed=0.83, write=2 * MINUTE)
"""Checkpoint costs of the papers' comparison, for the published strategies."""
SAVE_TIME = 10 * SECOND
"""Assumed time to save a checkpoint, on the market's clock, of a program whose saves have no known
time or size."""
MAX_SAVING = 0.17
"""A program is assumed to save no more often than it can afford: the largest share of the time."""
_GB_PER_SECOND = 0.2
"""Assumed: about the rate at which one machine reads from an object store in another region."""
NOTHING_SEEN: Mapping[Market, KnownSpells] = MappingProxyType({})
RUN_SPREAD = 0.05
"""Throughputs of runs scatter by this standard deviation around their mean, whatever their
length."""
MAX_RUNS = 20
"""Maximum number of runs used, newest first: programs, data and machines change."""
SCALING_PRIOR = 0.1
"""Standard deviation of the prior of phi's exponent."""
PRIOR_WEIGHT = 4
"""Weight of the prior of a duration, in observations."""


@dataclass(frozen=True, slots=True)
class Learned:
    """Estimates from the runs of one job; `last` is when the newest ended, on this computer's
    clock.

    `speeds` are those of one machine of a type when `size` machines work together. `scaling` is s
    if n machines do n^(1 + s) times the work of one (phi is n^s; 0 is linear scaling). `startup`
    and `eviction` are in microseconds, and `remarks` tell the user how they were measured. `hours`
    is how long all its machines need for a job whose work is not counted in clocks. `save_seconds`
    is what a checkpoint of a command takes, and `save_bytes` how large it is.
    """

    runs: int
    last: int
    speeds: Mapping[str, TypeSpeed]
    size: float
    scaling: float
    startup: int
    eviction: int
    remarks: tuple[str, ...]
    hours: float | None
    evidence: tuple[Evidence, ...]
    save_seconds: float | None = None
    save_bytes: float | None = None

    def per_hour(self, name: str, size: float) -> float:
        """Clocks per hour of one machine of a type among `size`: the measured figure, scaled by
        phi.
        """
        scale = (size / self.size) ** self.scaling
        nu = self.speeds[name].nu * scale
        return float(nu)


NOTHING_LEARNED: Mapping[str, Learned] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class PlanningFacts:
    """Everything that plans of some jobs depend on: offers, eviction rates, spells of spot
    capacity, throughputs that earlier runs measured or other jobs tell (by job, then type), and the
    parts of the quotas of spot and of on-demand machines that the jobs may use.

    `account` are the account's quotas before running jobs took their parts; `remarks` tell the user
    about the data.
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
class Observed:
    """One run. `clocks` and `hours` are by the number of spot machines that worked together, and
    hours also by type. `startups` (from allocation to first work) and `losses` (work repeated after
    an eviction) are durations in microseconds. `machine_hours` counts spot machines at work.
    `saves` are the seconds that its checkpoints took, and their bytes."""

    wall_ended: int
    done: bool
    machine_hours: float
    clocks: Mapping[int, float]
    hours: Mapping[int, Mapping[str, float]]
    startups: tuple[float, ...]
    losses: tuple[float, ...]
    evidence: tuple[Evidence, ...]
    saves: tuple[tuple[float, int], ...] = ()


def learn(
    runs: Iterable[Observed],
    vcpus: Mapping[str, float],
    machines: int | None,
    startup: int,
    eviction: int,
) -> Learned | None:
    """Estimates from runs; None without any. `startup` and `eviction` are prior assumptions.

    `machines` is the job's limit; without one (None), the time that all its machines need is
    undefined.
    """
    in_order = sorted(runs, key=attrgetter("wall_ended"))
    known = in_order[-MAX_RUNS:]
    if not known:
        return None

    done = [
        run.machine_hours / machines for run in known if machines and run.done and run.machine_hours
    ]
    scaling = _scaling(known, vcpus)
    size, speeds = _speeds(known, vcpus, scaling)
    startups = [span for run in known for span in run.startups]
    losses = [span for run in known for span in run.losses]
    saves = [save for run in known for save in run.saves]
    evidence = chain.from_iterable(run.evidence for run in known)

    remarks = [*_remarks("start-up", startups, startup)]
    remarks += _remarks("an eviction costs", losses, eviction)
    mean_startup = _mean(startups, startup)
    mean_loss = _mean(losses, eviction)
    return Learned(
        runs=len(known),
        last=known[-1].wall_ended,
        speeds=speeds,
        size=size,
        scaling=scaling,
        startup=mean_startup,
        eviction=mean_loss,
        remarks=tuple(remarks),
        hours=median(done) if done else None,
        evidence=tuple(evidence),
        save_seconds=median(seconds for seconds, _ in saves) if saves else None,
        save_bytes=median(size for _, size in saves) if saves else None,
    )


def most_machines(spec: JobSpec) -> int | None:
    """The most machines that work for a job at one time; None without a limit."""
    if isinstance(spec.program, Command):
        return spec.program.nodes.most
    return spec.resources.machines.most


def _scaling(runs: Sequence[Observed], vcpus: Mapping[str, float]) -> float:
    """The slope of log(clocks per vCPU-hour) over log(machines) within runs, shrunk towards 0."""
    weighted_products = weighted_squares = 0.0
    for run in runs:
        # Less than a clock says nothing about the rate.
        enough = [size for size in run.hours if run.clocks[size] >= 1]
        if len(enough) < 2:
            continue
        clocks = [run.clocks[size] for size in enough]
        sizes = np.log(enough)
        machines = []
        for size in enough:
            items = run.hours[size].items()
            machines.append(sum(vcpus.get(name, 1.0) * hours for name, hours in items))
        pairs = zip(clocks, machines, strict=True)
        rates = np.log([done / machine for done, machine in pairs])
        weights = np.array([1 / (RUN_SPREAD**2 + 1 / done) for done in clocks])
        sizes -= np.average(sizes, weights=weights)
        rates -= np.average(rates, weights=weights)
        weighted_products += float(np.sum(weights * sizes * rates))
        weighted_squares += float(np.sum(weights * sizes**2))

    return weighted_products / (weighted_squares + SCALING_PRIOR**-2)


def _speeds(
    runs: Sequence[Observed], vcpus: Mapping[str, float], scaling: float
) -> tuple[float, dict[str, TypeSpeed]]:
    """The mean number of machines at work, and by type the clocks per hour of one among that many,
    by least squares: the clocks of a run are the sum of hours times speed over its types."""
    used = []
    for run in runs:
        counts = run.clocks.values()
        if sum(counts) >= 1:
            used.append(run)
    used_names = {name for run in used for hours in run.hours.values() for name in hours}
    names = sorted(used_names)
    if not names:
        return 1.0, {}

    weights = [(count, sum(hours.values())) for run in used for count, hours in run.hours.items()]
    weighed = (log(count) * hours for count, hours in weights)
    log_sizes = sum(weighed)
    spans = (hours for _, hours in weights)
    total_hours = sum(spans)
    size = float(np.exp(log_sizes / total_hours))

    hours = np.array([[_hours(run, name, size, scaling) for name in names] for run in used])
    clocks = np.array([sum(run.clocks.values()) for run in used])
    # Before anything is measured, each type is expected to do the same work per vCPU.
    cpus = np.array([vcpus.get(name, 1.0) for name in names])
    clocks_per_vcpu_hour = clocks.sum() / (hours @ cpus).sum()
    expected = cpus * float(clocks_per_vcpu_hour)

    # A run's clocks scatter in proportion to their number.
    seen = hours / (RUN_SPREAD * clocks)[:, np.newaxis]
    precision = np.diag((VCPU_SPREAD * expected) ** -2.0)
    certainties = np.full(len(used), 1 / RUN_SPREAD)
    right = seen.T @ certainties + precision @ expected
    solution = np.linalg.solve(seen.T @ seen + precision, right)

    # A type that was hardly used may come out at 0 or below; then the prior is used.
    solution = np.where(solution > 0, solution, expected)

    speeds = {}
    for name, per_hour in zip(names, solution.tolist(), strict=True):
        ends = [run.wall_ended for run in used if _hours(run, name, size, scaling)]
        newest = to_datetime(max(ends)).date().isoformat()
        source = (
            f"throughput of {name}: {per_hour:.4g} clocks/h from {counted(len(ends), 'run')}, last "
            f"{newest}"
        )
        # The spread of one run, and of the mean of these.
        spread = RUN_SPREAD * sqrt(1 + 1 / len(ends))
        speeds[name] = TypeSpeed(per_hour, source, spread=spread, scaling=scaling)

    return size, speeds


def _hours(run: Observed, name: str, size: float, scaling: float) -> float:
    """Hours of a type, converted to the hours that the same work takes among `size` machines."""
    return float(
        sum(hours.get(name, 0.0) * (count / size) ** scaling for count, hours in run.hours.items())
    )


def _mean(spans: Sequence[float], assumed: int) -> int:
    """The mean of measured durations, in microseconds; `assumed` is the prior."""
    weighed_spans = PRIOR_WEIGHT * assumed + sum(spans)
    weight = PRIOR_WEIGHT + len(spans)
    return round(weighed_spans / weight)


def _remarks(name: str, spans: Sequence[float], assumed: int) -> list[str]:
    """A measured duration as a plan shows it; nothing if only the prior is known."""
    if not spans:
        return []
    times = "once"
    if len(spans) != 1:
        times = f"{len(spans)} times"
    return [
        f"{name} {_mean(spans, assumed) / MINUTE:.1f} minutes (assumed {assumed / MINUTE:.1f}, "
        f"measured {times})"
    ]


def beginning(
    specs: Sequence[JobSpec],
    table: PriceTable,
    now: int,
    market_now: int | None = None,
    at: int | None = None,
) -> tuple[int, tuple[str, ...]]:
    """When jobs begin, in market time, and what the user should know about that moment: `at` if
    given, else now, or at the newest price if prices are stale.

    On the local market, jobs begin at the market's current time while machines run there
    (`market_now`), else at the start of the replay.
    """
    if at is not None:
        return at, ()
    if not len(table):
        return now, ()

    if all(spec.is_local for spec in specs):
        if market_now is not None:
            return market_now, (
                f"prices as of {format_time(market_now)}, the current time of the local market",
            )
        asked = specs[0].local.start
        start = replay_start(table) if asked is None else asked
        return start, (
            f"prices as of {format_time(start)}, where the replay of the synthetic market begins",
        )

    newest = int(table.times.max())
    if now - newest <= STALE_AFTER:
        return now, ()

    old = age_text(now - newest)
    remark = (
        f"prices as of {format_time(newest)}, the newest stored ones, {old} old (update: spotctl "
        "prices fetch)"
    )
    return newest, (remark,)


def replay_start(table: PriceTable) -> int:
    """The moment at which the local market begins unless a job sets `local.start`."""
    first_times = table.times[table.starts[:-1]]
    return int(first_times.min()) + LEARNING_PERIOD


def job_of(
    spec: JobSpec,
    at: int,
    learned: Learned | None = None,
    deadline: int | None = None,
    hours: float | None = None,
    place: tuple[str, str] | None = None,
    profiles: tuple[ModelProfile, ...] = (),
) -> Job:
    """A job that begins at a moment, with what is `learned` from its earlier runs.

    `deadline` is a moment, which was resolved when the job was launched: a run that is resumed in
    another time zone keeps it. `hours` is the user's estimate of how long the job keeps all its
    machines busy. `place` is the cloud and region in which a running job has its machines.
    `profiles` describe a model that is split over devices.
    """
    place = place or place_of(spec, at)
    saving = size = None
    if learned is not None:
        saving, size = learned.save_seconds, learned.save_bytes
    stop = None
    if isinstance(spec.program, Training):
        stop = spec.program.stop
    parallel = None
    if isinstance(spec.program, Command):
        parallel = spec.program.parallel

    # Clocks, updates or a time say when the job ends.
    states_its_end = stop is not None and (stop.clocks is not None or stop.span is not None)
    states_its_end = states_its_end or (parallel is not None and parallel.updates is not None)
    measured = None if hours or learned is None or states_its_end else learned.hours
    if measured is None:
        return Job(
            spec,
            deadline,
            hours,
            place,
            profiles=profiles,
            save_seconds=saving,
            save_bytes=size,
        )

    instead = ""
    if spec.hours is not None:
        instead = f", instead of {spec.hours.span / HOUR:g} in the job file"
        measured *= spec.hours.left
    source = f"as earlier runs took{instead}"
    return Job(spec, deadline, measured, place, source, profiles, saving, size)


def place_of(spec: JobSpec, at: int) -> tuple[str, str] | None:
    """The cloud and region that a job's reservations keep it in, because all its machines are in
    one.
    """
    markets = (named.market for named in spec.resources.reservations if named.leave > at)
    return next(((market.cloud, market.region) for market in markets), None)


def arranged_facts(
    jobs: Sequence[Job],
    snapshot: MarketSnapshot,
    interruptions: Sequence[Interruption] = (),
    availability: Sequence[AvailabilitySpan] = (),
    learned: Mapping[str, Learned] = NOTHING_LEARNED,
    quotas: Sequence[Quota] = (),
    of_others: Sequence[Mapping[str, float]] = (),
) -> PlanningFacts:
    """The facts that were known when jobs begin that get one allocation, which is the moment of the
    snapshot: published interruption figures, observed availability, and estimates `learned` from
    earlier runs. `quotas` are the parts of the known quotas that the jobs may use, spot and on
    demand, and `of_others` the speeds of other jobs by type."""
    at = snapshot.at
    specs = {job.spec.name: job.spec for job in jobs}
    spot = tuple(quota for quota in quotas if quota.spot)
    # What the runs of these jobs met is in `learned`, also if it was logged by an earlier version.
    others = []
    names_of_runs = tuple(map(run_of_job, learned))
    for span in availability:
        is_own = span.source.endswith(names_of_runs)
        if not is_own:
            others.append(span)
    evictions = chain.from_iterable(estimates.evidence for estimates in learned.values())

    overheads = OVERHEADS
    if learned:
        best = max(learned.values(), key=lambda estimates: estimates.runs)
        overheads = replace(OVERHEADS, startup=best.startup, eviction=best.eviction)

    measured: dict[str, dict[str, TypeSpeed]] = {}
    for name, estimates in learned.items():
        machines = most_machines(specs[name]) or estimates.size
        measured[name] = {
            each: replace(speed, nu=estimates.per_hour(each, machines))
            for each, speed in estimates.speeds.items()
        }

    vcpus = {machine.name: machine.steady_vcpus for machine in snapshot.catalog.types}
    for name, spec in specs.items() if of_others else ():
        own = measured.get(name, {})
        measured[name] = completed(spec.throughputs, own, of_others, vcpus)
    known_hazards = hazards(interruptions, at, (*evictions, *evidence_of_spans(others, at)))
    hosts = snapshot.hosts
    prices = dict(zip(snapshot.markets, snapshot.price.tolist(), strict=True)) if hosts else {}

    def hazard_with_hosts(market: Market) -> Hazard | None:
        # A machine at the market's price: higher bids are outbid less often.
        if market in hosts:
            return hosts[market].hazard(prices[market])
        return known_hazards(market)

    spells = known_spells(availability, at)
    limiting = spot if any(job.spec.strategy != ON_DEMAND for job in jobs) else ()
    on_demand = tuple(quota for quota in quotas if not quota.spot)
    return PlanningFacts(
        tuple(jobs),
        snapshot,
        hazard_with_hosts,
        spells,
        measured,
        quotas=limiting,
        on_demand_quotas=on_demand,
        overheads=overheads,
    )


def completed(
    stated: Mapping[str, float],
    measured: Mapping[str, TypeSpeed],
    others: Sequence[Mapping[str, float]],
    vcpus: Mapping[str, float],
) -> dict[str, TypeSpeed]:
    """The measured speeds with those on types that neither the job file states nor the job has run
    on, as far as other jobs' speeds tell them better than vCPUs do."""
    measured_nu = {kind: speed.nu for kind, speed in measured.items()}
    known = {**stated, **measured_nu}
    by_others = speeds_by_others(known, others, vcpus)
    if by_others is None:
        return dict(measured)

    errors = (
        f"{by_others.error:.0%} off on {by_others.cells} held-out throughputs, by vCPUs "
        f"{by_others.expected_error:.0%}"
    )
    source = f"completed from {by_others.jobs} other jobs ({errors})"
    spread = min(by_others.error, VCPU_SPREAD)
    speeds = by_others.speeds
    completed = {kind: TypeSpeed(nu, source, spread=spread) for kind, nu in speeds.items()}
    return {**completed, **measured}


def hazards(
    interruptions: Sequence[Interruption], at: int, evidence: Sequence[Evidence] = ()
) -> HazardOf:
    """Eviction rates beyond price crossings: from figures published up to a moment and from
    evictions of own runs.
    """
    figures: dict[tuple[str, str, str], list[Interruption]] = defaultdict(list)
    for interruption in interruptions:
        if interruption.as_of <= at:
            market = interruption.market
            figures[market.cloud, market.region, market.instance_type].append(interruption)

    def hazard(market: Market) -> Hazard | None:
        of_type = figures.get((market.cloud, market.region, market.instance_type), ())
        return hazard_of(market, evidence, of_type)

    return hazard


def transfer_time(gigabytes: float) -> int:
    """How long a checkpoint takes to another region, in microseconds."""
    return round(gigabytes / _GB_PER_SECOND * SECOND)
