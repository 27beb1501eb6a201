"""Step 2 of a plan: the kinds of machines that fit each job, and the job's demand for them. Pure."""

import fnmatch
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from bidbrain.gavel.arrays import FloatArray
from pricing_data.catalog import Catalog
from pricing_data.series import Ints
from pricing_data.spelling import closest, mistyped
from pricing_data.units import HOUR
from spotctl.files.job.programs import Command
from spotctl.files.job.reservations import Reservation
from spotctl.files.job.resources import Resources
from spotctl.home.errors import BadRequest, SpotctlError
from spotctl.planning.allocation import JobCandidates, KindColumns, PlanCandidates
from spotctl.planning.columns import columns_of, lowest_prices
from spotctl.planning.errors import NotInTime
from spotctl.planning.facts import PlanningFacts
from spotctl.planning.job import Demand, Job
from spotctl.planning.offers import Bools, Eligible, MarketSnapshot, eligible, in_zones, why_unusable
from spotctl.planning.reserved import current, is_kind_of
from spotctl.planning.roaming import may_roam
from spotctl.planning.work import TypeSpeed, length_of, measured_for, speeds_of

# Only the cheapest kinds per unit of work and the fastest ones are examined; the others are worse at both.
_CHEAPEST, _FASTEST = 24, 8
_CHEAPEST_ROAMING = 128
"""More kinds for a job that may move between regions, because it can use the same type in many of them."""
_MOST_MACHINES = 64
"""Default limit for a job without one."""


@dataclass(frozen=True, slots=True, eq=False)
class _FittingKinds:
    """A job with the kinds it may use: nu by kind, and the kinds worth examining."""

    job: Job
    eligible: Eligible
    rates: Mapping[str, TypeSpeed]
    nu: FloatArray
    kinds: list[int]


def candidates(facts: PlanningFacts) -> PlanCandidates:
    """The machines that fit the jobs; raises NotInTime or BadRequest if there are none for a job."""
    snapshot = facts.snapshot
    usable = snapshot.usable & np.logical_or.reduce([in_zones(snapshot, job.spec.resources) for job in facts.jobs])
    lowest = lowest_prices(snapshot, usable)
    fitting = [_fitting_kinds(job, facts, usable, lowest) for job in facts.jobs]
    wanted = sorted({kind for kinds in fitting for kind in kinds.kinds})
    columns = columns_of(wanted, facts, usable)
    return PlanCandidates(tuple(_job_candidates(kinds, facts, columns) for kinds in fitting), columns)


def _fitting_kinds(job: Job, facts: PlanningFacts, usable: Bools, lowest: Ints) -> _FittingKinds:
    snapshot, spec = facts.snapshot, job.spec
    matches = eligible(snapshot, usable, spec)
    kinds = matches.kinds.tolist()
    if job.place is not None:
        kinds = [kind for kind in kinds if (snapshot.kinds[kind].cloud, snapshot.kinds[kind].region) == job.place]
    if not kinds:
        raise _nothing_usable(job, facts, matches)
    measured = measured_for(spec, facts.earlier.get(spec.name, {}))
    if (split := _split(job, facts, kinds)) is not None:
        measured = {
            name: replace(measured.get(name, speed), split=speed.split, least_stages=speed.least_stages)
            for name, speed in split.items()
        }
        kinds = [kind for kind in kinds if snapshot.kinds[kind].type in measured]
    names = {snapshot.kinds[kind].type for kind in kinds} | measured.keys()
    speeds = speeds_of((machine for machine in snapshot.catalog.types if machine.name in names), measured)
    nu = np.zeros(len(snapshot.kinds))
    nu[kinds] = [speeds[snapshot.kinds[kind].type].nu for kind in kinds]
    most = _CHEAPEST_ROAMING if may_roam(spec) else _CHEAPEST
    reserved = {
        kind for kind in kinds if any(is_kind_of(named, snapshot.kinds[kind]) for named in _reserved(job, facts))
    }
    examined = {*_worth_examining(np.array(kinds), nu, lowest, most), *reserved}
    return _FittingKinds(job, matches, speeds, nu, sorted(examined))


def _reserved(job: Job, facts: PlanningFacts) -> Sequence[Reservation]:
    return current(job.reservations, facts.snapshot.at)


def _held_by_kind(
    reservations: Sequence[Reservation], columns: KindColumns, together: Callable[[list[int]], int]
) -> tuple[int, ...]:
    """The machines that reservations hold of each kind; a gang is in one reservation."""
    if not reservations:
        return ()
    return tuple(
        together([0, *(named.machines for named in reservations if is_kind_of(named, kind))]) for kind in columns.kinds
    )


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
        nodes = (resources.machines.most or resources.machines.least) + (resources.reliable.machines or 0)
        speed = job.spec.local.speed if job.spec.is_local else 1.0
        parallel = as_trained(program.parallel)
        return split_speeds(parallel, job.profiles, max(nodes, 1), machines, most_devices=1, market_speed=speed)
    except BadRequest as error:
        raise BadRequest(f"{job.spec.name}: {error}") from None


def _nothing_usable(job: Job, facts: PlanningFacts, matches: Eligible) -> SpotctlError:
    name, snapshot = job.spec.name, facts.snapshot
    if matches.unusable.size:
        row = int(matches.unusable[0])
        market, why = why_unusable(snapshot, row, job.spec)
        is_wrong = snapshot.why_unsuitable(snapshot.machine[int(snapshot.kind[row])], job.spec)
        error = BadRequest if is_wrong else NotInTime
        return error(f"{name}: none of the {matches.unusable.size} matching markets can be used; {market}: {why}")
    hint = next(_misspelled(job.spec.resources, snapshot), "")
    clouds = sorted({kind.cloud for kind in snapshot.kinds} & set(job.spec.resources.clouds))
    if not clouds:
        wanted = ", ".join(job.spec.resources.clouds)
        nothing = f"no price history of {wanted} is stored (run spotctl prices fetch or import)"
        return BadRequest(f"{name}: resources: {hint}; and {nothing}" if hint else f"{name}: {nothing}")
    if unknown := _unknown_accelerator(job.spec.resources, snapshot.catalog):
        return BadRequest(f"{name}: resources: {unknown}")
    if _unknown_types(job.spec.resources, snapshot):
        known, named = ", ".join(clouds), ", ".join(job.spec.resources.types)
        return BadRequest(f"{name}: resources.types: no type of {known} matches {named}{f': {hint}' if hint else ''}")
    return NotInTime(
        f"{name}: resources: no machine type in the price history of {', '.join(clouds)} matches"
        f"{f': {hint}' if hint else ''}; widen types or regions (spotctl lab prices ls lists what is stored)"
    )


def _worth_examining(kinds: Ints, nu: FloatArray, lowest: Ints, most: int) -> list[int]:
    per_work = lowest[kinds] / nu[kinds]
    cheapest = kinds[np.argsort(per_work, kind="stable")[:most]]
    fastest = kinds[np.lexsort((per_work, -nu[kinds]))[:_FASTEST]]
    numbers: list[int] = np.union1d(cheapest, fastest).tolist()
    return numbers


def _job_candidates(fitting: _FittingKinds, facts: PlanningFacts, columns: KindColumns) -> JobCandidates:
    demand, matches = _demand(fitting, facts, columns), fitting.eligible
    return JobCandidates(fitting.job, demand, fitting.rates, matches.fitting, tuple(matches.unusable.tolist()))


def _demand(fitting: _FittingKinds, facts: PlanningFacts, columns: KindColumns) -> Demand:
    job, spec = fitting.job, fitting.job.spec
    limits = spec.resources.machines
    most = max(limits.least, _MOST_MACHINES) if limits.most is None else limits.most
    nu = fitting.nu[list(columns.numbers)]
    runs = np.flatnonzero(nu > 0)
    cheapest = runs[np.argmin(columns.usd_per_hour[runs] / nu[runs])]
    gang = isinstance(spec.program, Command)
    left = inf if job.deadline is None else (job.deadline - facts.snapshot.at - facts.overheads.startup) / HOUR
    in_units = all(rate.in_units for rate in fitting.rates.values())
    work = length_of(spec, job.hours, job.hours_from, in_units=in_units)
    return Demand(
        name=spec.name,
        objective=spec.objective,
        nu=nu,
        least=limits.least,
        most=most,
        work=work,
        reference_nu=most * float(nu[cheapest]),
        hours_left=left,
        budget_usd=job.budget_usd,
        gang=gang,
        roams=may_roam(spec) and not work.assumed,
        reserved=_held_by_kind(_reserved(job, facts), columns, max if gang else sum),
    )


def _misspelled(resources: Resources, snapshot: MarketSnapshot) -> Iterator[str]:
    """Why nothing can match: a type, an accelerator or a region that does not exist."""
    stored = {kind.type for kind in snapshot.kinds if kind.cloud in resources.clouds}
    yield from _misspelled_types(resources, stored or _listed_types(resources, snapshot.catalog))
    if sentence := _unknown_accelerator(resources, snapshot.catalog):
        yield sentence
    known = {kind.region for kind in snapshot.kinds if kind.cloud in resources.clouds}
    for region in resources.regions:
        if region not in known and (near := mistyped(region)):
            yield f"no region is named {region} (did you mean {near}?)"


def _unknown_types(resources: Resources, snapshot: MarketSnapshot) -> bool:
    """Whether a job names types, and no cloud of the job has any of them."""
    known = {kind.type for kind in snapshot.kinds if kind.cloud in resources.clouds}
    known |= _listed_types(resources, snapshot.catalog)
    return bool(resources.types) and not any(fnmatch.filter(known, glob) for glob in resources.types)


def _listed_types(resources: Resources, catalog: Catalog) -> set[str]:
    return {machine.name for machine in catalog.types if machine.cloud in resources.clouds}


def _misspelled_types(resources: Resources, known: Collection[str]) -> Iterator[str]:
    for glob in resources.types:
        if not fnmatch.filter(known, glob) and (near := closest(glob, known)):
            yield f"no known type is named {glob} (did you mean {near[0]}?)"


def _unknown_accelerator(resources: Resources, catalog: Catalog) -> str:
    """A sentence about an accelerator that no machine has; empty if there are such machines."""
    wanted = resources.needs.accelerators
    if wanted is None or any(wanted.model.lower() in accelerator.lower() for accelerator in catalog.accelerators):
        return ""
    return catalog.unknown_accelerator(wanted.model)
