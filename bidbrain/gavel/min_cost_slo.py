"""`min-cost-slo`: the least cost that finishes every job by its deadline (section 6.4.3, as hours
instead of rates).
"""

from contextlib import suppress
from dataclasses import replace

import numpy as np

from bidbrain.arrays import Floats, Ints
from bidbrain.gavel.baselines import allocation, require_prices, require_steps
from bidbrain.gavel.deadline_packing import lateness, packed
from bidbrain.gavel.deadline_plan import (
    MAX_DEADLINES,
    DeadlineBatch,
    DeadlinePlan,
    DeadlineProgram,
    NoNearPlan,
    near_cheapest,
    part_of,
    uncrowded,
)
from bidbrain.gavel.linear import most_worth, normalized_worth
from bidbrain.gavel.problem import (
    AllocationProblem,
    Cluster,
    ClusterAllocation,
    ShareColumns,
    rows_of,
    runnable,
)
from bidbrain.lp import CannotHold

# Counts as done: further from 1 than the solver's tolerance, but less than a step.
_DONE = 1 - 1e-6
# A share of work that is rounding.
_NO_WORK = 1e-8
# Of many deadlines, how many that were given up are tried again with an exact program.
_TRIED_AGAIN = 12


def min_cost_slo_policy(problem: AllocationProblem, /) -> ClusterAllocation:
    """Hours of each job on each type, of least cost, keeping every deadline that can be kept.

    Jobs without an urgent deadline run where that is cheapest, on workers that the deadlines leave
    free. A deadline that cannot be kept is reported with what it would take, and only that one is
    given up. Pairs are not used: they affect rates, while deadlines are planned in hours.

    The objective and `cost_usd` are dollars to the end of all work; X is the beginning of the plan.
    """
    require_steps(problem, "min-cost-slo")
    batch = batch_of(problem)
    soonest = batch.alone.min(axis=1, initial=np.inf)
    runs = np.isfinite(soonest) & (problem.jobs.steps > 0)
    late = runs & (batch.left < soonest * _DONE)
    hurried = runs & np.isfinite(batch.left)
    hurried_jobs = np.flatnonzero(hurried & ~late)
    kept, plan, said = _kept(batch, hurried_jobs)
    said_late = [_late(problem, m, soonest[m]) for m in np.flatnonzero(late).tolist()]
    said = said_late + said
    seconds = np.zeros(batch.alone.shape)
    fixed = None
    shares = np.zeros((rows_of(problem), len(batch.types)))
    if plan is not None:
        seconds[kept], shares[kept] = plan.seconds, plan.rates
        fixed = replace(plan.pieces, row=kept[plan.pieces.row])

    others = np.setdiff1d(np.flatnonzero(runs), kept)
    usd_alone = batch.alone[others] * batch.usd_per_second
    kind = np.argmin(usd_alone, axis=1)
    seconds[others, kind] = batch.alone[others, kind]
    shares[others] = _in_what_is_free(problem, shares, others)
    scaled = seconds * batch.scale[:, None]
    dollars = (scaled * batch.usd_per_second).sum()
    usd = float(dollars)
    hours = np.zeros(shares.shape)
    hours[: len(seconds)] = seconds / 3600

    allocated = allocation(problem, shares, usd, tuple(said))
    is_exact = plan is None or plan.exact
    return replace(allocated, hours=hours, cost_usd=usd, pieces=fixed, exact=is_exact)


def batch_of(problem: AllocationProblem) -> DeadlineBatch:
    """The jobs' times and the workers' prices."""
    price = require_prices(problem, "min-cost-slo")
    jobs = problem.jobs
    cluster = problem.cluster
    alone = np.full(jobs.throughputs.shape, np.inf)
    steps = jobs.steps[:, None]
    np.divide(steps, jobs.throughputs, out=alone, where=runnable(problem))
    left = jobs.slo_seconds - jobs.elapsed_seconds
    scale = jobs.scale.astype(np.float64)
    return DeadlineBatch(jobs.ids, left, alone, scale, cluster.types, cluster.workers, price / 3600)


def _kept(batch: DeadlineBatch, hurried: Ints) -> tuple[Ints, DeadlinePlan | None, list[str]]:
    """The jobs whose deadlines are kept together, their plan, and what the others would take."""
    if not len(hurried):
        return hurried, None, []

    part = part_of(batch, hurried)
    plan = uncrowded(part)
    if plan is not None:
        return hurried, plan, []
    if len(hurried) <= MAX_DEADLINES:
        return kept_one_by_one(batch, hurried)

    late, price, least_usd = lateness(part)
    if not (late > 0).any():
        with suppress(CannotHold, NoNearPlan):
            return hurried, near_cheapest(part, least_usd), []

    kept, plan, done = packed(part, late, price)
    if len(kept) <= MAX_DEADLINES:
        # Tries again to place jobs that did not fit, closest misses first: an exact program may
        # move the others.
        out = np.setdiff1d(np.arange(len(hurried)), kept)
        by_done = np.argsort(-done[out], kind="stable")
        of = np.append(kept, out[by_done][:_TRIED_AGAIN])
        program = DeadlineProgram(part_of(part, of))
        inside = np.arange(len(kept))
        newcomers = np.arange(len(kept), len(of))
        with suppress(CannotHold):
            exact = program.cheapest(inside)
            inside, grown = _grown(program, inside, exact, newcomers)
            plan = grown or plan
        kept = of[inside]

    out = np.setdiff1d(np.arange(len(hurried)), kept)
    crowded = zip(hurried[out].tolist(), done[out].tolist(), strict=True)
    said = [_crowded_out(batch, m, share) for m, share in crowded]

    return hurried[kept], plan, said


def _grown(
    program: DeadlineProgram, kept: Ints, plan: DeadlinePlan | None, tried: Ints
) -> tuple[Ints, DeadlinePlan | None]:
    """The kept jobs with those that can be finished, too, one after the other, and the plan of
    all."""
    for m in tried.tolist():
        with suppress(CannotHold):
            plan = program.cheapest(np.append(kept, m))
            kept = np.append(kept, m)
    return kept, plan


def kept_one_by_one(
    batch: DeadlineBatch, hurried: Ints
) -> tuple[Ints, DeadlinePlan | None, list[str]]:
    """Exact: gives up no deadline that could be kept together with the others."""
    program = DeadlineProgram(part_of(batch, hurried))
    undone = program.undone()
    plan = None
    kept = np.flatnonzero(undone < _NO_WORK)
    if len(kept):
        plan = program.cheapest(kept)

    # Without some of those that lack work, others may fit again.
    short = np.flatnonzero(undone >= _NO_WORK)
    by_undone = np.argsort(undone[short], kind="stable")
    tried = short[by_undone]
    kept, plan = _grown(program, kept, plan, tried)
    out = np.setdiff1d(short, kept).tolist()
    crowded = []
    for m in out:
        share = 1 - undone[m]
        crowded.append(_crowded_out(batch, int(hurried[m]), share))
    return hurried[kept], plan, crowded


def _late(problem: AllocationProblem, m: int, soonest: float) -> str:
    jobs = problem.jobs
    left = jobs.slo_seconds[m] - jobs.elapsed_seconds[m]
    elapsed = jobs.elapsed_seconds[m]
    return (
        f"job {jobs.ids[m]!r}: its deadline cannot be kept: {left:g} s are left, but alone on its "
        "fastest type it takes"
        f" {soonest:.6g} s; set slo_seconds to at least {elapsed + soonest:.6g}"
    )


def _crowded_out(batch: DeadlineBatch, m: int, done: float) -> str:
    fastest = int(np.argmin(batch.alone[m]))
    lacking = (1 - done) * batch.alone[m, fastest]
    return (
        f"job {batch.names[m]!r}: its deadline cannot be kept together with the others: in the "
        f"{batch.left[m]:g} s left"
        f" only {done:.1%} of its steps fit; it lacks {lacking / 3600:.3g} h on "
        f"{batch.types[fastest]!r}: add workers,"
        f" or give it {batch.left[m] + lacking:.6g} s or more"
    )


def _in_what_is_free(problem: AllocationProblem, shares: Floats, unhurried: Ints) -> Floats:
    """X of the jobs without deadlines: where they are cheapest, on the workers that the others
    leave.
    """
    jobs = problem.jobs
    cluster = problem.cluster
    held = jobs.scale[:, None] * shares[: len(jobs.ids)]
    used = held.sum(axis=0)
    left_workers = np.maximum(0.0, cluster.workers - used)
    free = Cluster(cluster.types, left_workers, cluster.usd_per_hour)

    # What is free is time on workers, not workers: a job that needs more at once than are free gets
    # them for less time.
    given = ShareColumns.of(replace(problem, pairs=None))
    mine = np.isin(given.row, unhurried)
    left_problem = replace(given.problem, cluster=free)
    rest = replace(
        given,
        problem=left_problem,
        row=given.row[mine],
        type=given.type[mine],
        held=given.held[mine],
    )

    price = require_prices(problem, "min-cost-slo")
    worth = normalized_worth(given, price=price)[mine]
    free_shares, _ = most_worth(rest, worth)
    return free_shares[unhurried]
