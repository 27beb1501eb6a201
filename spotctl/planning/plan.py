"""`plan`: from jobs and market data to a plan for each job, with reasons. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import floor, inf

import numpy as np

from bidbrain.gavel.lp import FloatArray
from pricing_data.series import Ints
from pricing_data.units import HOUR, NANOS_PER_DOLLAR
from spotctl.files.job.programs import Command
from spotctl.home.errors import BadRequest, SpotctlError
from spotctl.planning.choice import plan_on, violation
from spotctl.planning.columns import columns_of, lowest_prices, reliable_usd
from spotctl.planning.errors import NotInTime, OverBudget
from spotctl.planning.forecasting import clearly_over_budget
from spotctl.planning.machine_options import KindPrices, MachineOption, machine_options
from spotctl.planning.misspelled import misspelled
from spotctl.planning.offers import Bools, Eligible, eligible, in_zones, why_unusable
from spotctl.planning.on_demand_needs import equal_parts, possible
from spotctl.planning.quota_use import left_of
from spotctl.planning.roaming import may_roam
from spotctl.planning.share import Demand, JobShare, divide
from spotctl.planning.values import AllocatedJob, Job, JobPlan, KindColumns, PlanningInputs, QuotaShare
from spotctl.planning.work import Measured, TypeSpeed, length_of, measured_for, speeds_of

# Only the cheapest kinds per unit of work and the fastest ones are examined; the others are worse at both.
_CHEAPEST, _FASTEST = 24, 8
_CHEAPEST_ROAMING = 128
"""More kinds for a job that may move between regions, because it can use the same type in many of them."""
_MOST_MACHINES = 64
"""Default limit for a job without one."""


@dataclass(frozen=True, slots=True, eq=False)
class _Candidate:
    """A job with the kinds it may use: nu by kind, and the kinds worth examining."""

    job: Job
    eligible: Eligible
    rates: Mapping[str, TypeSpeed]
    nu: FloatArray
    kinds: list[int]


def plan(jobs: Sequence[Job], inputs: PlanningInputs) -> list[JobPlan]:
    """A plan for each job, from one allocation over all.

    Raises NotInTime or OverBudget, naming what would help, if a job cannot be planned.
    """
    usable = inputs.snapshot.usable & np.logical_or.reduce(
        [in_zones(inputs.snapshot, job.spec.resources) for job in jobs]
    )
    lowest = lowest_prices(inputs.snapshot, usable)
    candidates = [_candidate(job, inputs, usable, lowest) for job in jobs]
    wanted = sorted({kind for candidate in candidates for kind in candidate.kinds})
    columns = columns_of(wanted, inputs, usable)
    demands = [_demand(candidate, inputs, columns) for candidate in candidates]
    shares = divide(demands, columns.kinds, columns.usd_per_hour, columns.quotas)
    plans, left = list[JobPlan](), tuple(inputs.on_demand_quotas)
    for candidate, demand, share in zip(candidates, demands, shares, strict=True):
        allocated = _allocated(candidate, demand, share, _limiting(share, len(demands), columns))
        parts = equal_parts(left, len(jobs) - len(plans), candidate.job.spec.resources.clouds)
        plans.append(_first_that_fits(replace(allocated, on_demand_quotas=parts), inputs, columns))
        left = left_of(left, [possible(plans[-1])], inputs.snapshot.catalog)
    return plans


def _first_that_fits(allocated: AllocatedJob, inputs: PlanningInputs, columns: KindColumns) -> JobPlan:
    """The plan on the best machines that keep budget and deadline."""
    refused: list[SpotctlError] = []
    for option in _options(allocated, inputs, columns):
        try:
            plan = plan_on(allocated, option, inputs, columns)
            if allocated.demand.work.timed and (smaller := _fewer_machines(allocated, plan)) is not None:
                plan = plan_on(smaller, option, inputs, columns)
        except (OverBudget, NotInTime) as error:
            refused.append(error)
            continue
        # The first refusal states a forecast; for the others a few plays mostly do.
        if refused and clearly_over_budget(plan):
            continue
        wrong = violation(plan)
        if wrong is None:
            return plan
        refused.append(wrong)
    if refused:
        raise refused[0]
    least = allocated.demand.least
    raise NotInTime(
        f"{allocated.job.spec.name}: its share of the quotas is below {least} machines of any type; raise a quota, or"
        " plan fewer jobs at a time"
    )


def _options(allocated: AllocatedJob, inputs: PlanningInputs, columns: KindColumns) -> list[MachineOption]:
    price = columns.usd_per_hour * columns.useful
    usd_per_hour = reliable_usd(allocated, inputs, columns) + (allocated.job.value_of_time_usd or 0.0)
    prices = KindPrices(price, columns.useful, usd_per_hour, inputs.overheads)
    return machine_options(allocated.demand, allocated.share, columns.kinds, prices, columns.quotas)


def _fewer_machines(allocated: AllocatedJob, job_plan: JobPlan) -> AllocatedJob | None:
    """A job that ends after a fixed time, limited to the machines that its budget pays for; None if it needs no
    limit."""
    budget = allocated.job.budget_usd
    if budget is None or job_plan.estimate.usd <= budget:
        return None
    rented = sum(choice.rent.machines for choice in job_plan.choice)
    reliable = sum(term.usd for term in job_plan.estimate.terms[len(job_plan.choice) :])
    most = floor(rented * (budget - reliable) / (job_plan.estimate.usd - reliable))
    if most < max(allocated.demand.least, 1):
        return None
    share = replace(allocated.share, caps=tuple(min(cap, most) for cap in allocated.share.caps))
    demand = replace(
        allocated.demand, most=most, reference_nu=allocated.demand.reference_nu * most / allocated.demand.most
    )
    return replace(allocated, demand=demand, share=share)


def _candidate(job: Job, inputs: PlanningInputs, usable: Bools, lowest: Ints) -> _Candidate:
    snapshot, spec = inputs.snapshot, job.spec
    matches = eligible(snapshot, usable, spec.resources)
    kinds = matches.kinds.tolist()
    if job.place is not None:
        kinds = [kind for kind in kinds if (snapshot.kinds[kind].cloud, snapshot.kinds[kind].region) == job.place]
    if not kinds:
        raise _nothing_usable(job, inputs, matches)
    measured = measured_for(spec, inputs.earlier.get(spec.name, {}))
    if (split := _split(job, inputs, kinds)) is not None:
        measured = {name: replace(measured.get(name, speed), split=speed.split) for name, speed in split.items()}
        kinds = [kind for kind in kinds if snapshot.kinds[kind].type in measured]
    names = {snapshot.kinds[kind].type for kind in kinds} | measured.keys()
    speeds = speeds_of((machine for machine in snapshot.catalog.types if machine.name in names), measured)
    nu = np.zeros(len(snapshot.kinds))
    nu[kinds] = [speeds[snapshot.kinds[kind].type].nu for kind in kinds]
    most = _CHEAPEST_ROAMING if may_roam(spec) else _CHEAPEST
    return _Candidate(job, matches, speeds, nu, _worth_examining(np.array(kinds), nu, lowest, most))


def _split(job: Job, inputs: PlanningInputs, kinds: Sequence[int]) -> dict[str, Measured] | None:
    """Speeds of the job's model on kinds of machines; None for a job that does not split it."""
    program = job.spec.program
    if not isinstance(program, Command) or program.parallel is None:
        return None
    from spotctl.planning.parallel import split_speeds

    machines = [machine for kind in kinds if (machine := inputs.snapshot.machine[kind]) is not None]
    try:
        return split_speeds(program.parallel, job.profiles, program.nodes.most, machines)
    except BadRequest as error:
        raise BadRequest(f"{job.spec.name}: {error}") from None


def _nothing_usable(job: Job, inputs: PlanningInputs, matches: Eligible) -> SpotctlError:
    name, snapshot = job.spec.name, inputs.snapshot
    if matches.unusable.size:
        market, why = why_unusable(snapshot, int(matches.unusable[0]))
        return NotInTime(f"{name}: none of the {matches.unusable.size} matching markets can be used; {market}: {why}")
    hint = next(misspelled(job.spec.resources, snapshot), "")
    clouds = sorted({kind.cloud for kind in snapshot.kinds} & set(job.spec.resources.clouds))
    if not clouds:
        wanted = ", ".join(job.spec.resources.clouds)
        nothing = f"no price history of {wanted} is stored (run spotctl prices fetch or import)"
        return BadRequest(f"{name}: resources: {hint}; and {nothing}" if hint else f"{name}: {nothing}")
    return NotInTime(
        f"{name}: resources: no machine type in the price history of {', '.join(clouds)} matches"
        f"{f': {hint}' if hint else ''}; widen types or regions (spotctl prices ls lists what is stored)"
    )


def _worth_examining(kinds: Ints, nu: FloatArray, lowest: Ints, most: int) -> list[int]:
    per_work = lowest[kinds] / nu[kinds]
    cheapest = kinds[np.argsort(per_work, kind="stable")[:most]]
    fastest = kinds[np.lexsort((per_work, -nu[kinds]))[:_FASTEST]]
    numbers: list[int] = np.union1d(cheapest, fastest).tolist()
    return numbers


def _limiting(share: JobShare, jobs: int, columns: KindColumns) -> tuple[QuotaShare, ...]:
    """The quotas that the kinds of a plan count against, and the job's part of each."""
    return tuple(
        QuotaShare(group.quota, replace(group.quota, amount=int(part)), jobs)
        for group, part in zip(columns.quotas, share.quotas, strict=True)
    )


def _demand(candidate: _Candidate, inputs: PlanningInputs, columns: KindColumns) -> Demand:
    spec, snapshot = candidate.job.spec, inputs.snapshot
    limits = spec.resources.machines
    most = max(limits.least, _MOST_MACHINES) if limits.most is None else limits.most
    nu = candidate.nu[list(columns.numbers)]
    runs = np.flatnonzero(nu > 0)
    cheapest = runs[np.argmin(columns.usd_per_hour[runs] / nu[runs])]
    startup = inputs.overheads.startup
    left = inf if candidate.job.deadline is None else (candidate.job.deadline - snapshot.at - startup) / HOUR
    in_units = all(rate.in_units for rate in candidate.rates.values())
    work = length_of(spec, candidate.job.hours, candidate.job.hours_from, in_units=in_units)
    return Demand(
        name=spec.name,
        objective=spec.objective,
        nu=nu,
        least=limits.least,
        most=most,
        work=work,
        reference_nu=most * float(nu[cheapest]),
        hours_left=left,
        budget_usd=None if spec.budget is None else spec.budget / NANOS_PER_DOLLAR,
        gang=isinstance(spec.program, Command),
        roams=may_roam(spec) and not work.assumed,
    )


def _allocated(candidate: _Candidate, demand: Demand, share: JobShare, quotas: tuple[QuotaShare, ...]) -> AllocatedJob:
    matches = candidate.eligible
    unusable = tuple(matches.unusable.tolist())
    return AllocatedJob(candidate.job, demand, share, candidate.rates, matches.fitting, unusable, quotas)
