"""The part of each reservation that each of several jobs gets if they name the same one. Pure.

As with quotas: whole machines, by need, and what one job does not need is left to the others. Jobs get the fewest
machines that they need, the earliest deadline first, then as they are named; what remains makes the smallest share as
large as possible.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from pricing_data.market import Market
from spotctl.planning.job import Job
from spotctl.planning.values import JobPlan


@dataclass(frozen=True, slots=True)
class ReservationClaim:
    """The fewest machines of a reservation that are of use to a job, and those that the job would rent alone."""

    job: int
    least: int
    most: int


def with_parts(jobs: Sequence[Job], plans: Sequence[JobPlan]) -> tuple[Job, ...] | None:
    """The jobs with their parts of reservations, if they would rent more machines of one than it has; else None.

    `plans` are those of the jobs as they are, which may have parts already.
    """
    claimed = {market: (total, _claims(market, plans)) for market, total in _totals(jobs).items()}
    parts = {
        market: _divided(total, claims)
        for market, (total, claims) in claimed.items()
        if sum(claim.most for claim in claims) > total
    }
    if not parts:
        return None
    return tuple(_with_part(job, m, parts) for m, job in enumerate(jobs))


def _totals(jobs: Sequence[Job]) -> dict[Market, int]:
    """The machines of each reservation, as the job files state them."""
    totals = dict[Market, int]()
    for job in jobs:
        for named in job.spec.resources.reservations:
            totals[named.market] = max(totals.get(named.market, 0), named.machines)
    return totals


def _claims(market: Market, plans: Sequence[JobPlan]) -> list[ReservationClaim]:
    """The claims to a reservation, in the order in which they are served."""
    order = sorted(range(len(plans)), key=lambda m: plans[m].job.deadline or inf)
    rented = {m: _rented(market, plans[m]) for m in order}
    return [ReservationClaim(m, _least(plans[m]), most) for m, most in rented.items() if most]


def _rented(market: Market, plan: JobPlan) -> int:
    return sum(choice.rent.machines for choice in plan.choice if choice.rent.offer.market == market)


def _least(plan: JobPlan) -> int:
    demand = plan.allocated.demand
    return demand.least if demand.gang else 1


def _divided(machines: int, claims: Sequence[ReservationClaim]) -> dict[int, int]:
    """The machines of a reservation by job."""
    parts = dict.fromkeys((claim.job for claim in claims), 0)
    for claim in claims:
        if claim.least <= machines:
            parts[claim.job] = claim.least
            machines -= claim.least
    while machines and (more := [claim for claim in claims if 0 < parts[claim.job] < claim.most]):
        parts[min(more, key=lambda claim: parts[claim.job] / claim.most).job] += 1
        machines -= 1
    return parts


def _with_part(job: Job, m: int, parts: Mapping[Market, Mapping[int, int]]) -> Job:
    held = [
        replace(named, machines=min(named.machines, parts.get(named.market, {}).get(m, named.machines)))
        for named in job.reservations
        if parts.get(named.market, {}).get(m, named.machines)
    ]
    return replace(job, reserved=tuple(held))
