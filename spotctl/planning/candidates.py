"""Step 2 of a plan: the kinds of machines that fit each job, and the job's demand for them.
Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from statistics import median

import numpy as np

from agileml.apps import BUILT_IN
from bidbrain.arrays import Bools, Floats, Ints
from bidbrain.cost import EvictionLoss, effective_usd_per_hour
from bidbrain.decision.mixture_solver import (
    KindOption,
    MixtureTerms,
    SharedQuota,
)
from bidbrain.decision.mixture_strategy import Aim
from bidbrain.eviction.hazard import Hazard, family_of, in_force
from bidbrain.forecast.values import LaunchTimes
from bidbrain.strategies.base import Overheads, mean_time_to_failure
from bidbrain.strategies.names import ON_DEMAND, REGIONS
from pricing_data.catalog import InstanceType
from pricing_data.series import PriceSeries
from pricing_data.units import HOUR, MINUTE, NANOS_PER_DOLLAR, SECOND, counted
from spotctl.files.job.conversions import span_text
from spotctl.files.job.programs import Command, Training
from spotctl.files.job.resources import Needs, Reservation
from spotctl.files.job.spec import ANY, AUTO, JobSpec, Objective
from spotctl.home.errors import BadRequest, SpotctlError
from spotctl.planning.errors import NotInTime
from spotctl.planning.facts import OVERHEADS, PlanningFacts, transfer_time
from spotctl.planning.offers import (
    MachineKind,
    _misspelled,
    _unknown_accelerator,
    _unknown_types,
    eligible,
    in_zones,
    is_kind_of,
    why_unusable,
)
from spotctl.planning.quotas import QuotaGroup, quota_groups
from spotctl.planning.values import (
    ANY_UNIT,
    CLOCK,
    GB,
    SPECIFIED,
    VCPU_SPREAD,
    Demand,
    Job,
    JobLength,
    JobPlan,
    TypeSpeed,
)

# Only the cheapest kinds per unit of work and the fastest ones are examined; the others are worse
# at both.
_CHEAPEST, _FASTEST = 24, 8
_CHEAPEST_ROAMING = 128
"""More kinds for a job that may move between regions, because it can use the same type in many of
them."""
_MAX_MACHINES = 64
"""Default limit for a job without one."""
_BY_GPUS, _BY_VCPUS = (f"{size} count, as no throughput is known" for size in ("GPU", "vCPU"))
_MARKETS_OF_KIND = 4
_LOCAL_STARTUP, _LOCAL_OWN_STARTUP = 0.4, 2.0
"""Median seconds until a program of this computer works, a built-in trainer or one's own, apart
from the time in which the market's clock stands: it does while the nodes of a training load their
libraries, and does not while they set the training up, or a command loads its own (PyTorch takes
one to two seconds). From `bench.promised_launches`."""
# From the decision to launch until machines are ordered, and from the end of the work until they
# are returned: the time of requests to a cloud, or of this computer's processes, which the market's
# clock multiplies. It stands while a run starts up, but only once a process of the run measures it.
_ON_CLOUD = LaunchTimes(order=MINUTE // 2, ending=2 * MINUTE)
_LOCAL_ORDER, _LOCAL_ENDING = 0.3, 0.2
_LOCAL_SPREAD = 0.7
_USER_TAG = "user"
"""The tag whose value says whose job it is."""


@dataclass(frozen=True, slots=True, eq=False)
class KindColumns:
    """Gavel's columns: kinds by their numbers in the snapshot, the rows of their markets, cheapest
    first, effective prices, the share of the paid time that evictions leave, and the quotas that
    the kinds count against."""

    numbers: tuple[int, ...]
    kinds: tuple[MachineKind, ...]
    rows: tuple[tuple[int, ...], ...]
    usd_per_hour: Floats
    useful: Floats
    quotas: tuple[QuotaGroup, ...]


def candidates(facts: PlanningFacts) -> tuple[list[tuple[Job, Demand]], KindColumns]:
    """The jobs with their demands for the machines that fit them, in columns that all jobs share.

    Raises NotInTime or BadRequest if there are none for a job.
    """
    snapshot = facts.snapshot
    in_wanted_zones = [in_zones(snapshot, job.spec.resources) for job in facts.jobs]
    usable = snapshot.usable & np.logical_or.reduce(in_wanted_zones)

    # The lowest spot price by kind.
    rows = np.flatnonzero(usable)
    highest = np.iinfo(np.int64).max
    lowest = np.full(len(snapshot.kinds), highest, dtype=np.int64)
    np.minimum.at(lowest, snapshot.kind[rows], snapshot.price[rows])

    matches = [eligible(snapshot, usable, job.spec) for job in facts.jobs]
    rows_of_jobs = zip(facts.jobs, matches, strict=True)
    fitting = [
        _fitting_kinds(job, facts, kinds, unusable, lowest)
        for job, (kinds, _, unusable) in rows_of_jobs
    ]
    examined = sorted({kind for _, _, kinds in fitting for kind in kinds})
    columns = columns_of(examined, facts, usable)

    parts_of_jobs = zip(facts.jobs, matches, fitting, strict=True)
    demands = []
    for job, (_, count, rows), (rates, nu, _) in parts_of_jobs:
        demand = _demand(job, facts, rates, nu, columns)
        counted_demand = replace(demand, fitting=count, unusable=tuple(rows.tolist()))
        demands.append((job, counted_demand))
    return demands, columns


def _fitting_kinds(
    job: Job, facts: PlanningFacts, eligible_kinds: Ints, unusable: Ints, lowest: Ints
) -> tuple[dict[str, TypeSpeed], Floats, list[int]]:
    """The speeds of the types that a job may use, nu by kind, and the kinds that are worth
    examining.
    """
    snapshot = facts.snapshot
    spec = job.spec
    kinds = eligible_kinds.tolist()
    if job.place is not None:
        places_of_kinds = [(kind.cloud, kind.region) for kind in snapshot.kinds]
        kinds = [kind for kind in kinds if places_of_kinds[kind] == job.place]

    if not kinds:
        raise _nothing_usable(job, facts, unusable)

    measured = measured_for(spec, facts.earlier.get(spec.name, {}))
    if (split := _split(job, facts, kinds)) is not None:
        measured = {
            name: replace(
                measured.get(name, speed), split=speed.split, least_stages=speed.least_stages
            )
            for name, speed in split.items()
        }
        kinds = [kind for kind in kinds if snapshot.kinds[kind].type in measured]

    names = {snapshot.kinds[kind].type for kind in kinds} | measured.keys()
    if spec.hours is not None and spec.hours.on is not None:
        names.add(spec.hours.on)
    named_types = (machine for machine in snapshot.catalog.types if machine.name in names)
    speeds = speeds_of(named_types, measured)
    nu = np.zeros(len(snapshot.kinds))
    nu[kinds] = [speeds[snapshot.kinds[kind].type].nu for kind in kinds]

    most = _CHEAPEST_ROAMING if may_roam(spec) else _CHEAPEST
    numbers = np.array(kinds)
    per_work = lowest[numbers] / nu[numbers]
    cheapest_first = np.argsort(per_work, kind="stable")
    cheapest = numbers[cheapest_first[:most]]
    fastest_first = np.lexsort((per_work, -nu[numbers]))
    fastest = numbers[fastest_first[:_FASTEST]]
    named = _reservations(job, snapshot.at)
    reserved = (
        kind for kind in kinds if any(is_kind_of(each, snapshot.kinds[kind]) for each in named)
    )

    return speeds, nu, [*np.union1d(cheapest, fastest).tolist(), *reserved]


def _split(job: Job, facts: PlanningFacts, kinds: Sequence[int]) -> dict[str, TypeSpeed] | None:
    """Speeds of the job's model on kinds of machines; None for a job that does not split it."""
    program = job.spec.program
    if program.parallel is None:
        return None

    from spotctl.planning.parallel import as_trained, split_speeds

    machines = [machine for kind in kinds if (machine := facts.snapshot.machine[kind]) is not None]
    try:
        if isinstance(program, Command):
            return split_speeds(program.parallel, job.profiles, program.nodes.most, machines)
        resources = job.spec.resources
        nodes = (resources.machines.most or resources.machines.least) + (
            resources.reliable.machines or 0
        )
        parallel = as_trained(program.parallel)
        speed = market_speed(job.spec)
        return split_speeds(
            parallel, job.profiles, max(nodes, 1), machines, most_devices=1, market_speed=speed
        )
    except BadRequest as error:
        raise BadRequest(f"{job.spec.name}: {error}") from None


def _nothing_usable(job: Job, facts: PlanningFacts, unusable: Ints) -> SpotctlError:
    name = job.spec.name
    snapshot = facts.snapshot
    if unusable.size:
        row = int(unusable[0])
        market, why = why_unusable(snapshot, row, job.spec)
        number = int(snapshot.kind[row])
        is_wrong = snapshot.why_unsuitable(snapshot.machine[number], job.spec)
        error = BadRequest if is_wrong else NotInTime
        return error(
            f"{name}: none of the {unusable.size} matching markets can be used; {market}: {why}"
        )

    hint = next(_misspelled(job.spec.resources, snapshot), "")
    sold_clouds = {kind.cloud for kind in snapshot.kinds}
    wanted_clouds = set(job.spec.resources.clouds)
    clouds = sorted(sold_clouds & wanted_clouds)
    if not clouds:
        wanted = ", ".join(job.spec.resources.clouds)
        cloud_options = (f" --cloud {cloud}" for cloud in job.spec.resources.clouds)
        options = "".join(cloud_options)
        regions = () if hint else job.spec.resources.regions
        region_options = (f" --region {region}" for region in regions if region != ANY)
        options += "".join(region_options)
        nothing = (
            f"no price history of {wanted} is stored; get it: spotctl prices fetch{options} "
            "(spotctl prices best shows what is known without it)"
        )
        return BadRequest(
            f"{name}: resources: {hint}; and {nothing}" if hint else f"{name}: {nothing}"
        )
    if unknown := _unknown_accelerator(job.spec.resources, snapshot.catalog):
        return BadRequest(f"{name}: resources: {unknown}")

    if _unknown_types(job.spec.resources, snapshot):
        known = ", ".join(clouds)
        named = ", ".join(job.spec.resources.types)
        return BadRequest(
            f"{name}: resources.types: no type of {known} matches "
            f"{named}{f': {hint}' if hint else ''}"
        )

    return NotInTime(
        f"{name}: resources: no machine type in the price history of {', '.join(clouds)} matches"
        f"{f': {hint}' if hint else ''}; widen types or regions (spotctl lab prices ls lists what "
        "is stored)"
    )


def _demand(
    job: Job, facts: PlanningFacts, rates: Mapping[str, TypeSpeed], nu: Floats, columns: KindColumns
) -> Demand:
    """A job's demand for the columns, with everything that later steps read of the job; `nu` is by
    kind of the snapshot.
    """
    spec = job.spec
    limits = job.spec.resources.machines
    at = facts.snapshot.at
    most = max(limits.least, _MAX_MACHINES) if limits.most is None else limits.most
    gang = isinstance(spec.program, Command)
    named = _reservations(job, at)

    # A gang is in one reservation.
    together = max if gang else sum
    held_counts = []
    for kind in columns.kinds if named else ():
        machines = [each.machines for each in named if is_kind_of(each, kind)]
        held_counts.append(together([0, *machines]))

    left = inf
    if job.deadline is not None:
        left = (job.deadline - at - facts.overheads.startup) / HOUR

    in_units = all(rate.in_units for rate in rates.values())
    counts_gpus = any(rate.source == _BY_GPUS for rate in rates.values())
    by_size = "GPU-hour" if counts_gpus else "vCPU-hour"
    work = length_of(spec, job.hours, job.hours_from, in_units=in_units)
    fits = {facts.snapshot.kinds[kind].type for kind in np.flatnonzero(nu)}
    nu = nu[list(columns.numbers)]
    runs = np.flatnonzero(nu > 0)
    usd_per_work = columns.usd_per_hour[runs] / nu[runs]
    cheapest = columns.kinds[runs[np.argmin(usd_per_work)]].type
    reference, names_reference = _reference(job, work, rates, fits, cheapest)
    unit = CLOCK if isinstance(spec.program, Training) else ANY_UNIT
    times = _ON_CLOUD
    if gang and spec.program.parallel is not None:
        unit = "update"

    if spec.is_local:
        second = spec.local.speed * SECOND
        loads = isinstance(spec.program, Training)
        spread = 0.0
        if loads and facts.overheads.startup == OVERHEADS.startup:
            spread = _LOCAL_SPREAD
        order = round(_LOCAL_ORDER * second)
        ending = round(_LOCAL_ENDING * second)
        times = LaunchTimes(order, ending, _LOCAL_SPREAD, spread)

    budget_usd = None
    if spec.budget is not None:
        budget_usd = spec.budget / NANOS_PER_DOLLAR
    value_of_time_usd = None
    if spec.value_of_time is not None:
        value_of_time_usd = spec.value_of_time / NANOS_PER_DOLLAR
    aim = aim_of(spec.objective, is_unknown=work.assumed)
    roams = may_roam(spec) and not work.assumed
    saves, save_time, saved_gb = saves_of(job)
    own_startup = None
    if facts.overheads.startup == OVERHEADS.startup:
        own_startup = local_startup(spec)
    return Demand(
        name=spec.name,
        objective=spec.objective,
        nu=nu,
        least=limits.least,
        most=most,
        work=work,
        reference_nu=most * rates[reference].nu,
        hours_left=left,
        budget_usd=budget_usd,
        value_of_time_usd=value_of_time_usd,
        hurries=left < inf and not work.assumed,
        aim=aim,
        gang=gang,
        roams=roams,
        saves=saves,
        save_time=save_time,
        saved_gb=saved_gb,
        reservations=named,
        reserved=tuple(held_counts),
        times=times,
        startup=own_startup,
        user=spec.tags.get(_USER_TAG, ""),
        weight=spec.queue.weight,
        unit=unit if in_units else by_size,
        reference=reference,
        names_reference=names_reference,
        rates=rates,
    )


def _reference(
    job: Job,
    work: JobLength,
    rates: Mapping[str, TypeSpeed],
    fits: Collection[str],
    cheapest: str,
) -> tuple[str, bool]:
    """The type of machine whose hours are the hours of a job, and whether the job says so: the one
    that they are said to be `on`, the first of `types`, or the slowest that is as large as the job
    asks. Hours that were not stated, and those of this computer, are those of the cheapest type.
    """
    spec = job.spec
    wanted = spec.resources
    if spec.hours is not None and spec.hours.on is not None:
        if spec.hours.on not in rates:
            raise BadRequest(
                f"{spec.name}: hours: no type is called {spec.hours.on} in the clouds of this job"
            )
        return spec.hours.on, True

    for name in wanted.types:
        if name in fits:
            return name, True

    if work.hours is None or work.assumed or job.hours_from != SPECIFIED or spec.is_local:
        return cheapest, True

    slowest = min(fits, key=lambda name: (rates[name].nu, name))
    speeds = {rates[name].nu for name in fits}
    is_named = wanted.needs != Needs() or len(spec.throughputs) > 0 or len(speeds) == 1
    return slowest, is_named


def check_hours(plan: JobPlan) -> None:
    """Raises BadRequest if the hours of a job that is not launched yet may be those of any type."""
    spec, demand = plan.job.spec, plan.demand
    if demand.names_reference or demand.work.hours is None:
        return

    span = span_text(round(demand.work.hours * HOUR))
    raise BadRequest(
        f"{spec.name}: hours: {span} of work are not the same on every type that may be rented; "
        f"say which: `hours: {span} on {demand.reference}`"
    )


def _reservations(job: Job, at: int) -> tuple[Reservation, ...]:
    """The job's part of the reservations that have not ended."""
    held = job.spec.resources.reservations if job.reserved is None else job.reserved
    return tuple(named for named in held if named.leave > at)


def aim_of(objective: Objective, *, is_unknown: bool) -> Aim:
    """The aim by which a job's machines are chosen. With a budget, the aim is the speed that the
    budget pays for, or the highest one if the job's length `is_unknown`."""
    if objective is Objective.MAKESPAN_WITHIN_BUDGET:
        return Aim.HIGHEST_RATE if is_unknown else Aim.SHORTEST_TIME
    if objective is Objective.MAX_THROUGHPUT:
        return Aim.HIGHEST_RATE
    return Aim.LEAST_COST


def market_speed(spec: JobSpec) -> float:
    """Seconds that pass on a job's market in one of computing."""
    return spec.local.speed if spec.is_local else 1.0


def saves_of(job: Job) -> tuple[bool, int | None, float | None]:
    """Whether a job saves checkpoints; how long one took in earlier runs, takes by the job file or
    its rehearsal, or takes by its size, in microseconds of the market's clock; and how many GB it
    has. None: nothing is known."""
    program = job.spec.program
    kept = program.checkpoint if isinstance(program, Command) else None
    if kept is None:
        return False, None, None

    size = job.save_bytes if kept.size is None else kept.size
    saved_gb = None if size is None else size / GB
    takes = kept.takes
    if job.save_seconds is not None:
        takes = round(job.save_seconds * SECOND)
    elif takes is None and kept.size is not None:
        takes = transfer_time(kept.size / GB)
    time = None if takes is None else round(takes * market_speed(job.spec))
    return True, time, saved_gb


def local_startup(spec: JobSpec) -> int | None:
    """How long a machine of the local market takes to work: a process of this computer starts no
    faster because the market's clock is fast. None for machines of clouds."""
    is_built_in = isinstance(spec.program, Training) and spec.program.app in BUILT_IN
    seconds = _LOCAL_STARTUP if is_built_in else _LOCAL_OWN_STARTUP
    if spec.is_local:
        return round(seconds * spec.local.speed * SECOND)
    return None


def may_roam(spec: JobSpec) -> bool:
    """Whether a job may move between markets while it runs: by its strategy, or unless it is bound
    to one zone.
    """
    program = spec.program
    wanted = spec.resources
    if not isinstance(program, Command) or program.checkpoint is None or spec.deadline is None:
        return False
    if wanted.reservations:
        return False
    is_bound = len(wanted.zones) == 1 and wanted.zones != (ANY,)
    return spec.strategy == REGIONS or (spec.strategy == AUTO and not is_bound)


def measured_for(spec: JobSpec, earlier: Mapping[str, TypeSpeed]) -> dict[str, TypeSpeed]:
    """Throughputs by type; measurements of earlier runs overrule the job file, which may be out of
    date.
    """
    declared = {name: TypeSpeed(value, "the job file") for name, value in spec.throughputs.items()}
    overruled = {
        name: replace(
            measured,
            source=f"{measured.source}, instead of {spec.throughputs[name]:g} in the job file",
        )
        for name, measured in earlier.items()
        if name in spec.throughputs
    }

    return {**declared, **earlier, **overruled}


def speeds_of(
    types: Iterable[InstanceType], known: Mapping[str, TypeSpeed]
) -> dict[str, TypeSpeed]:
    """nu by type name.

    A type that was not measured, and of which other jobs tell nothing (`completed`), gets the
    throughput per vCPU of its family, else of all measured types. If none was measured, work is
    counted in vCPU-hours: enough to compare machines, but not to predict the job's length. Of a
    burstable type only the vCPUs count that it may use all the time. Where all types have GPUs,
    these count instead: vCPUs that a type has besides them hardly make it faster.
    """
    machines = {machine.name: machine for machine in types}
    has_gpus = all(machine.accelerators for machine in machines.values())
    sizes = {
        name: float(machine.accelerators if has_gpus else machine.steady_vcpus)
        for name, machine in machines.items()
    }
    per_size = {name: known[name].nu / size for name, size in sizes.items() if name in known}

    speeds = {}
    for name, size in sizes.items():
        if name in known:
            speeds[name] = known[name]
        elif not per_size:
            speeds[name] = TypeSpeed(size, _BY_GPUS if has_gpus else _BY_VCPUS, in_units=False)
        else:
            same_family = [other for other in per_size if family_of(other) == family_of(name)]
            siblings = same_family or list(per_size)
            source = siblings[0] if len(siblings) == 1 else f"{len(siblings)} types"
            nu = median(per_size[other] for other in siblings) * size
            by = "GPUs" if has_gpus else "vCPUs"
            speeds[name] = TypeSpeed(nu, f"scaled by {by} from {source}", spread=VCPU_SPREAD)

    return speeds


def length_of(
    spec: JobSpec, user_hours: float | None, hours_from: str = SPECIFIED, *, in_units: bool
) -> JobLength:
    """The length of a job. `user_hours` is an estimate, and `hours_from` says whether the user's or
    from earlier runs. `in_units` says that throughputs are known, so that clocks can be converted
    to time."""
    stop = None
    if isinstance(spec.program, Training):
        stop = spec.program.stop
    longest = inf
    if not (stop is None or stop.span is None):
        longest = stop.span / HOUR
    if stop is not None and stop.clocks is not None and in_units:
        text = counted(stop.clocks, "clock")
        return JobLength(text, units=float(stop.clocks), longest=longest)

    parallel = None
    if isinstance(spec.program, Command):
        parallel = spec.program.parallel
    if parallel is not None and parallel.updates is not None and in_units:
        return JobLength(f"{parallel.updates:,} updates", units=float(parallel.updates))

    if user_hours is None and spec.hours is not None:
        user_hours = spec.hours.span * spec.hours.left / HOUR
    hours = longest if user_hours is None else user_hours
    stated = f"{hours:g} hour{'' if hours == 1 else 's'}"
    if user_hours is not None:
        return JobLength(
            f"{stated} of all machines, {hours_from}", hours=user_hours, longest=longest
        )
    if longest < inf:
        return JobLength(f"as much as can be done in {stated}", longest=longest)

    return JobLength(
        "Job length unknown: figures are per hour. Set `hours:` or pass --hours.",
        hours=1.0,
        assumed=True,
    )


def columns_of(wanted: Sequence[int], facts: PlanningFacts, usable: Bools) -> KindColumns:
    """The columns of some kinds of the snapshot, each with the rows of its cheapest markets."""
    snapshot = facts.snapshot
    rows: dict[int, tuple[int, ...]] = dict.fromkeys(wanted, ())
    sold = np.flatnonzero(np.isin(snapshot.kind, wanted) & usable)
    by_price = sold[np.argsort(snapshot.price[sold], kind="stable")]
    for row in by_price.tolist():
        kind = int(snapshot.kind[row])
        rows[kind] = (*rows[kind], row)[:_MARKETS_OF_KIND]

    prices = [_effective_price(facts, kind, rows[kind]) for kind in wanted]
    price, useful = np.array(prices).T
    kinds = tuple(snapshot.kinds[kind] for kind in wanted)
    machines = [snapshot.machine[kind] for kind in wanted]
    groups = tuple(quota_groups(kinds, machines, facts.quotas))
    rows_of_kinds = tuple(rows[kind] for kind in wanted)
    return KindColumns(tuple(wanted), kinds, rows_of_kinds, price, useful, groups)


def useful_share(
    history: PriceSeries, hazard: Hazard | None, on_demand: int, overheads: Overheads
) -> float:
    """The share of the time paid for in a market that evictions, and the starts after them, leave
    for work.
    """
    per_hour = HOUR / max(mean_time_to_failure(history, on_demand), 1.0)
    per_hour += 0.0 if hazard is None else hazard.rate[0]
    return EvictionLoss(per_hour, startup_hours=overheads.startup / HOUR).useful_share


def _effective_price(facts: PlanningFacts, kind: int, rows: Sequence[int]) -> tuple[float, float]:
    """Dollars per hour of lasting work in the best market or on demand, and the share of the paid
    time that lasts.

    Jobs that all use on-demand machines only are not compared by spot prices.
    """
    snapshot = facts.snapshot
    listed = facts.snapshot.list_price(kind)
    best = listed / NANOS_PER_DOLLAR, 1.0
    if all(job.spec.strategy == ON_DEMAND for job in facts.jobs):
        return best

    for row in rows:
        history = snapshot.history(row)
        market = snapshot.markets[row]
        hazard = in_force(market, facts.hazard_of(market), snapshot.at)
        share = useful_share(history, hazard, listed, facts.overheads)
        usd = inf
        if share > 0:
            usd = effective_usd_per_hour(int(snapshot.price[row]) / NANOS_PER_DOLLAR, share)
        best = min(best, (usd, share))

    return best


def mixture_terms(
    job: Demand,
    place: Ints,
    caps: Ints,
    groups: Sequence[QuotaGroup],
    usd_per_hour: Floats | None = None,
) -> MixtureTerms:
    """The terms of mixtures of all columns; only those of one region can be rented together."""
    is_here = np.isin(np.arange(len(job.nu)), place)
    here = is_here & (job.nu > 0)
    price = np.zeros(len(job.nu)) if usd_per_hour is None else usd_per_hour
    per_kind = zip(job.nu, price, caps, here, strict=True)
    choosable = []
    for nu, usd, cap, usable in per_kind:
        most_machines = int(cap) if usable else 0
        choosable.append(KindOption(float(nu), float(usd), most_machines))
    options = tuple(choosable)
    limits = []
    for group in groups:
        uses = tuple(group.per_machine.tolist())
        limits.append(SharedQuota(uses, group.most))
    quotas = tuple(limits)
    return MixtureTerms(options, job.least, job.most, quotas=quotas)
