"""Fairness by max-min programs (section 5.4).

`max-min-fairness` shares throughput, `makespan` ends a batch early, and `finish-time-fairness`
limits each job's slowdown. Their program is max z with every job's throughput at least z times its
need, X valid (`lift_least`).
"""

from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from bidbrain.arrays import Floats, Ints
from bidbrain.gavel.baselines import allocation, isolated_shares, require_steps
from bidbrain.gavel.interior import (
    EXACT,
    NEAR,
    ROUGH,
    Levels,
    Lifted,
    center,
    with_free_workers,
)
from bidbrain.gavel.problem import (
    AllocationProblem,
    ClusterAllocation,
    Pieces,
    ShareColumns,
    best_throughput,
    effective_throughput,
    equal_throughput,
    runnable,
)
from bidbrain.lp import INF, ConstraintRows, GrowingSolver, LinearProgram, SolverFailed

_REACHED, _CONVERGED = 1 - 1e-9, 1 + 1e-10
_MAX_STEPS = 100
# Fraction of its level that a job keeps in later stages: a loss above the solver's tolerance, but
# negligible.
_KEPT = 1 - 1e-8
# From this number of jobs on, what their bottleneck leaves is spread evenly: a second program takes
# as long again. On more types than these the interior point takes longer than a program in the
# solver.
_CENTER_FROM, _MAX_CENTER_TYPES = 64, 10


def max_min_fairness_policy(problem: AllocationProblem, /) -> ClusterAllocation:
    """Maximizes min_m scale_m / w_m throughput(m, X) / throughput(m, X_equal).

    The objective is that minimum, over the jobs that run anywhere.
    """
    jobs = problem.jobs
    fair = jobs.weight * equal_throughput(problem)
    need = fair / jobs.scale
    lifted = lift_least(problem, need)
    return allocation(problem, lifted.shares, lifted.level)


def makespan_policy(problem: AllocationProblem, /) -> ClusterAllocation:
    """Minimizes max_m steps_m / throughput(m, X): the max-min program, with steps as each job's
    need.

    The objective is the makespan in seconds, over the jobs that run anywhere.
    """
    require_steps(problem, "makespan")
    lifted = lift_least(problem, problem.jobs.steps)
    objective = 0.0
    if lifted.level > 0:
        objective = 1 / lifted.level
    earliest = allocation(problem, lifted.shares, objective)
    if problem.centered:
        return earliest

    # X from now until each job is done, and that of a pair until the makespan.
    row, kind = np.nonzero(earliest.shares)
    steps = problem.jobs.steps
    rate = earliest.effective_throughput
    never = np.zeros(len(rate))
    ends = np.divide(steps, rate, out=never, where=rate > 0)
    pairs = len(earliest.shares) - len(rate)
    ends_of_pairs = np.full(pairs, earliest.objective)
    ends = np.append(ends, ends_of_pairs)
    starts = np.zeros(len(row))
    share = earliest.shares[row, kind]
    pieces = Pieces(row, kind, starts, ends[row], share)

    return replace(earliest, pieces=pieces)


def finish_time_fairness_policy(problem: AllocationProblem, /) -> ClusterAllocation:
    """Minimizes max_m rho_m, rho_m = (t_m + steps_m / throughput(m, X)) / (t_isolated_m + steps_m /
    isolated).

    For a given rho every job needs a certain throughput, and the max-min program decides whether
    all can have it. If not, its prices give a lower bound of the least rho, which is the next
    candidate (Newton's method, from below).

    The objective is the largest rho, over the jobs that run anywhere.
    """
    require_steps(problem, "finish-time-fairness")
    race = _Race.of(problem)
    if not len(race.jobs):
        return allocation(problem, lift_least(problem, np.zeros(len(problem.jobs.ids))).shares, 0.0)

    rho = race.least()
    exactly = replace(problem, centered=False)
    for _ in range(_MAX_STEPS):
        need = race.need(rho, len(problem.jobs.ids))
        lifted = lift_least(exactly, need, EXACT)
        bound = race.bound(rho, lifted)
        if lifted.level >= _REACHED or bound <= rho * _CONVERGED:
            lifted = lift_least(problem, need) if problem.centered else lifted
            return allocation(problem, lifted.shares, rho)
        rho = bound

    raise SolverFailed(
        f"finish-time fairness did not converge beyond {rho:g}: check the spread of steps and times"
    )


@dataclass(frozen=True, slots=True)
class _Race:
    """The jobs with steps left that run somewhere: steps, elapsed time, time under a 1/n share,
    least time left.
    """

    jobs: Ints
    steps: Floats
    elapsed: Floats
    isolated: Floats
    soonest: Floats

    @classmethod
    def of(cls, problem: AllocationProblem) -> "_Race":
        best = best_throughput(problem)
        jobs = problem.jobs
        runs = np.flatnonzero((best > 0) & (jobs.steps > 0))
        throughput = (jobs.throughputs * isolated_shares(problem)).sum(axis=1)
        alone = throughput[runs]
        steps = jobs.steps[runs]
        elapsed = jobs.elapsed_seconds[runs]
        past = elapsed if jobs.isolated_seconds is None else jobs.isolated_seconds[runs]
        shared = past + steps / alone
        fastest = steps / best[runs]
        return cls(runs, steps, elapsed, shared, fastest)

    def least(self) -> float:
        """A lower bound: the largest rho of any job that has the cluster to itself."""
        return float(((self.elapsed + self.soonest) / self.isolated).max())

    def need(self, rho: float, count: int) -> Floats:
        """The throughput at which each job's own rho has this value."""
        need = np.zeros(count)
        work_time = rho * self.isolated - self.elapsed
        need[self.jobs] = self.steps / work_time
        return need

    def bound(self, rho: float, lifted: Lifted) -> float:
        """The rho at which the need, at the solution's prices, equals the supply: a lower bound of
        the least rho.
        """
        prices = lifted.prices[self.jobs]
        for _ in range(_MAX_STEPS):
            left = rho * self.isolated - self.elapsed
            need = prices * self.steps / left
            slope = (need * self.isolated / left).sum()
            step = (need.sum() - lifted.level) / slope
            rho += step
            if step <= 1e-14 * rho:
                break

        return rho


def lift_least(problem: AllocationProblem, need: Floats, gap: float = NEAR) -> Lifted:
    """Maximizes min_m throughput(m, X) / need_m over the jobs that need something and run
    somewhere; X uses the remaining capacity.

    That optimum is rarely unique: the capacity that its bottleneck leaves is distributed for the
    most normalized throughput, so that no worker is idle that any job could use, and X is Pareto
    efficient. Of many jobs it is spread evenly instead, which takes less time, and then only no
    worker is idle; the gap is how far from the optimum that may be. A problem that asks for the
    center gets X roughly in the middle of all optima, which is what the published solvers give.
    """
    usable = np.where(runnable(problem), problem.jobs.throughputs, 0.0)
    many = len(usable) >= _CENTER_FROM and usable.shape[1] <= _MAX_CENTER_TYPES
    if (
        problem.pairs is None
        and (problem.centered or many)
        and usable.any()
        and (need.any() or not problem.centered)
    ):
        with suppress(SolverFailed):
            return _centered(problem, usable, need, gap)

    lifted = _by_columns(ShareColumns.of(problem), need)
    shares = (
        lifted.shares if problem.pairs else _evened(lifted.shares, usable, need, problem.jobs.scale)
    )
    lacking = lifted.level * _KEPT * need - effective_throughput(problem, shares)

    # What jobs lack by the solver's tolerance is added on their fastest type. It is negligible for
    # the cluster, but everything for a job that needs a billionth of what others need.
    fastest = usable.max(axis=1, initial=0.0)
    short = np.flatnonzero((lacking > 0) & (fastest > 0))
    if len(short):
        shares = shares.copy()
        shares[short, usable[short].argmax(axis=1)] += lacking[short] / fastest[short]

    return replace(lifted, shares=shares)


def _centered(problem: AllocationProblem, usable: Floats, need: Floats, gap: float) -> Lifted:
    """The center of all optima; idle workers are given away where the problem does not ask for just
    that.
    """
    best = usable.max(axis=1)
    held = problem.jobs.scale.astype(np.float64)
    nonzero = np.where(best > 0, best, 1.0)[:, None]
    progress = usable / nonzero
    relative = np.divide(need, best, out=np.zeros(len(need)), where=best > 0)
    need_of_levels = relative if relative.any() else progress.max(axis=1)
    levels = Levels(progress, need_of_levels, held, problem.cluster.workers)

    middle = center(levels, ROUGH if problem.centered else gap)
    shares = middle.shares
    if not problem.centered:
        shares = with_free_workers(shares, progress, held, problem.cluster.workers)

    finite_best = np.where(best > 0, best, np.inf)
    prices = middle.prices / finite_best
    return Lifted(middle.level if relative.any() else 0.0, shares, prices)


def _evened(shares: Floats, usable: Floats, need: Floats, scale: Ints) -> Floats:
    """Jobs that are alike, except for their unit of throughput, get their mean, which is as
    good."""
    if not len(shares):
        return shares
    best = usable.max(axis=1)
    columns = np.column_stack([usable, need])
    nonzero = np.where(best > 0, best, 1.0)
    traits = columns / nonzero[:, None]
    kinds = np.column_stack([traits, scale])
    _, group = np.unique(kinds, axis=0, return_inverse=True)
    groups = group.max() + 1
    sums = np.zeros((groups, shares.shape[1]))
    np.add.at(sums, group, shares)
    means = (sums / np.bincount(group)[:, None])[group]
    return np.asarray(means)


def _by_columns(columns: ShareColumns, need: Floats) -> Lifted:
    """The optimum over all columns of X, and then the most normalized throughput."""
    best = columns.most()
    z = columns.count
    relative = np.divide(need, best, out=np.zeros(len(need)), where=best > 0)
    unit = relative.max(initial=0.0) or 1.0
    lifted = np.flatnonzero(relative > 0)
    levels = relative[lifted] / unit
    level_column = np.full(len(lifted), z)
    level = progress_rows(columns, best, lifted, levels, level_column)
    gain = np.zeros(z + 1)
    upper = np.full(z + 1, INF)
    most_level = INF if len(lifted) else 0.0
    gain[-1], upper[-1] = 1.0, most_level
    lowest = np.zeros(z + 1)
    program = LinearProgram(gain, lowest, upper, (level, *columns.limits()))
    first_columns = np.append(np.arange(columns.alone), z)
    solver = GrowingSolver(program, first_columns)
    first = solver.optimum()

    # Normalized throughput, summed over jobs; zero for z.
    job, column, throughput = columns.progress
    relative_throughput = throughput / best[job]
    gain_of_columns = np.bincount(column, relative_throughput, z + 1).astype(np.float64)
    solver.set_gain(gain_of_columns)
    least_level = first.value * _KEPT
    solver.set_column(z, least_level, upper[-1])
    prices = np.zeros(len(need))
    level_prices = first.prices[: len(lifted)]
    prices_of_jobs = np.abs(level_prices) / best[lifted]
    prices[lifted] = prices_of_jobs / unit

    matrix = columns.matrix(solver.optimum().x)
    return Lifted(first.value / unit, matrix, prices)


def progress_rows(
    columns: ShareColumns, best: Floats, jobs: Ints, levels: Floats, level: Ints
) -> ConstraintRows:
    """A row for each of some jobs: `throughput / best >= levels x[level]`."""
    job, column, throughput = columns.progress
    row = np.full(len(best), -1)
    row[jobs] = np.arange(len(jobs))
    counted = row[job] >= 0
    names = [columns.problem.jobs.ids[job] for job in jobs.tolist()]
    rows = np.concatenate([row[job[counted]], np.arange(len(jobs))])
    columns_of_rows = np.concatenate([column[counted], level])
    relative = throughput / best[job]
    values = np.concatenate([relative[counted], -levels])
    zeros = np.zeros(len(jobs))
    unbounded = np.full(len(jobs), INF)
    return ConstraintRows(
        "job {!r}: its level", names, rows, columns_of_rows, values, zeros, unbounded
    )
