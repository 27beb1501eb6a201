"""Policies that are one linear program over the columns of X, or one sum of worths.

`max-throughput`, `fifo`, `shortest-job-first` (section 5.4.2), `min-cost` and
`makespan-within-budget` (section 6.4).
"""

from dataclasses import dataclass, replace

import numpy as np

from bidbrain.arrays import Floats, Ints
from bidbrain.gavel.baselines import allocation, require_prices, require_steps
from bidbrain.gavel.problem import (
    AllocationProblem,
    BadProblem,
    ClusterAllocation,
    Pieces,
    ShareColumns,
    best_throughput,
    effective_throughput,
    scale_of_rows,
)
from bidbrain.lp import (
    INF,
    CannotHold,
    ConstraintRows,
    GrowingSolver,
    LinearProgram,
    Solver,
    at_least,
    at_most,
)


def most_worth(
    columns: ShareColumns, worth: Floats, at_least: Floats | None = None
) -> tuple[Floats, float]:
    """The valid X of the greatest sum of worths, among those that give each column at least
    `at_least`; and that sum."""
    count = columns.count
    if not count:
        return columns.matrix(np.zeros(0)), 0.0
    lower = np.zeros(count) if at_least is None else at_least
    unbounded = np.full(count, INF)
    program = LinearProgram(worth, lower, unbounded, columns.limits())
    solution = GrowingSolver(program, np.arange(columns.alone)).optimum()
    return columns.matrix(solution.x), solution.value


def normalized_worth(
    columns: ShareColumns, *, price: Floats | None = None, weight: Floats | None = None
) -> Floats:
    """Throughput over the job's fastest, so that jobs with short steps do not dominate, times a
    weight.

    With prices of types it is throughput per price, over its maximum.
    """
    problem = columns.problem
    price = np.ones(len(problem.cluster.types)) if price is None else price
    job, column, throughput = columns.progress
    best = columns.best(price)
    price_of_columns = price[columns.type[column]]
    per_usd = throughput / price_of_columns
    worth = per_usd / best[job]
    if weight is not None:
        worth = worth * weight[job]
    return np.bincount(column, worth, columns.count).astype(np.float64)


def max_throughput_policy(problem: AllocationProblem, /) -> ClusterAllocation:
    """`max-throughput`: maximizes sum_m throughput(m, X) / throughput(m, X_fastest) (sections
    5.3.1, 6.4.1).

    The objective is the sum of normalized throughputs. Weights are ignored.
    """
    columns = ShareColumns.of(problem)
    return allocation(problem, *most_worth(columns, normalized_worth(columns)))


def fifo_policy(problem: AllocationProblem, /) -> ClusterAllocation:
    """Maximizes sum_m (M - m) throughput(m, X) / throughput(m, X_fastest), m by arrival.

    This is the paper's objective, not a queue: several later jobs together may outweigh an earlier
    one that holds many workers, and displace it.

    Jobs that arrive together keep the order in which they are given.
    """
    columns = ShareColumns.of(problem)
    worth = normalized_worth(columns, weight=_precedence(problem.jobs.arrival))
    return allocation(problem, *most_worth(columns, worth))


def shortest_job_first_policy(problem: AllocationProblem, /) -> ClusterAllocation:
    """Minimizes min_m steps_m / throughput(m, X): the job that can finish first gets its fastest
    type.

    The paper's objective does not rank the others; they follow as in `fifo`, by their shortest
    duration.

    The objective is the duration of the shortest job in seconds.
    """
    require_steps(problem, "shortest-job-first")
    best = best_throughput(problem)
    duration = np.full(len(best), np.inf)
    np.divide(problem.jobs.steps, best, out=duration, where=best > 0)
    if not np.isfinite(duration).any():
        nothing = ShareColumns.of(problem).matrix(np.zeros(0))
        return allocation(problem, nothing, 0.0)

    first = int(np.argmin(duration))
    columns = ShareColumns.of(problem)
    throughput = problem.jobs.throughputs[first, columns.type]
    is_fastest = throughput >= best[first]
    fastest = (columns.row == first) & is_fastest

    # Running the first job at once and all of the time outweighs all others together.
    weight = _precedence(duration)
    worth = normalized_worth(columns, weight=weight)
    given = np.zeros(columns.count)
    own = np.flatnonzero(fastest)[:1]
    most = problem.cluster.workers[columns.type[own]] / columns.held[own]
    given[own] = np.minimum(1.0, most)
    shares, _ = most_worth(columns, worth, at_least=given)

    return allocation(problem, shares, float(duration[first]))


def _precedence(key: Floats) -> Floats:
    """M for the job with the smallest key, 1 for that with the largest."""
    weight = np.empty(len(key))
    weight[np.argsort(key, kind="stable")] = np.arange(len(key), 0, -1)
    return weight


def min_cost_policy(problem: AllocationProblem, /) -> ClusterAllocation:
    """Maximizes sum_mj (T_mj / c_j) / max_j (T_mj / c_j) X_mj: each job gets time where it is
    cheapest for it.

    The paper's objective, the sum of throughput over cost, is reported as a note: any X that gives
    each job a little of its cheapest type would maximize it.

    The objective is the sum that is maximized; a note has the paper's, in steps per dollar.
    """
    price = require_prices(problem, "min-cost")
    columns = ShareColumns.of(problem)
    shares, value = most_worth(columns, normalized_worth(columns, price=price))
    hourly = (scale_of_rows(problem)[:, None] * shares) @ price
    each = hourly[: len(problem.jobs.ids)].copy()
    if problem.pairs is not None:
        # The two jobs of a pair split its cost equally.
        half_usd = hourly[len(each) :, None] / 2
        np.add.at(each, problem.pairs.members, half_usd)

    throughput = effective_throughput(problem, shares) * 3600
    per_job = np.divide(throughput, each, out=np.zeros(len(each)), where=each > 0).sum()
    per_dollar = float(per_job)
    return allocation(problem, shares, value, notes={"sum_of_steps_per_dollar": per_dollar})


class BudgetTooLow(CannotHold):
    """The budget cannot pay for all jobs, at any speed; `least_usd` would."""

    def __init__(self, budget_usd: float, least_usd: float) -> None:
        super().__init__(
            f"budget_usd: {budget_usd:g} is too low: even without a time limit, all jobs cost"
            f" at least {least_usd:.6g} dollars"
        )
        self.least_usd = least_usd


@dataclass(frozen=True, slots=True)
class _BudgetBatch:
    """Data of the programs. A unit of a column is the time in which one of its jobs does all its
    work there.

    So durations may differ by any number of decades: each row of work has entries of about 1.
    `work` are entries (job, column, share of the job's work); `jobs` those with any entry,
    `longest` the duration of the longest of them on its fastest type; `seconds` and `usd` the time
    and cost of a unit of a column.
    """

    columns: ShareColumns
    jobs: Ints
    longest: float
    work: tuple[Ints, Ints, Floats]
    seconds: Floats
    usd: Floats

    @classmethod
    def of(cls, columns: ShareColumns, price: Floats) -> "_BudgetBatch":
        steps = columns.problem.jobs.steps
        best = best_throughput(columns.problem)
        jobs = np.flatnonzero((steps > 0) & (best > 0))
        shortest = steps[jobs] / best[jobs]
        longest = float(shortest.max(initial=0.0))
        job, column, throughput = columns.progress
        row = np.full(len(steps), -1)
        row[jobs] = np.arange(len(jobs))
        counted = row[job] >= 0
        row = row[job[counted]]
        column = column[counted]
        pace = throughput[counted] / steps[job[counted]]

        seconds = np.full(columns.count, longest)
        np.minimum.at(seconds, column, 1 / pace)
        work = (row, column, pace * seconds[column])
        usd_per_hour = columns.held * price[columns.type]
        usd = usd_per_hour * seconds / 3600
        return cls(columns, jobs, longest, work, seconds, usd)

    def rows(self) -> ConstraintRows:
        """All work is done."""
        ids = self.columns.problem.jobs.ids
        names = [ids[job] for job in self.jobs.tolist()]
        all_work = np.ones(len(names))
        return at_least("job {!r}: all its steps", names, *self.work, all_work)

    def program(self, budget: float) -> LinearProgram:
        """Columns are those of X, as time, and the makespan in units of the longest job."""
        count = self.columns.count
        first_row = np.zeros(count, dtype=np.int64)
        money = at_most(
            "budget_usd: {:g}",
            (budget,),
            first_row,
            np.arange(count),
            self.usd / budget,
            np.ones(1),
        )

        unit = np.append(self.seconds / self.longest, 1.0)
        limits = []

        for kind in self.columns.limits():
            # Limits of time spent within a span whose length is the last column.
            rows = len(kind.upper)
            columns = np.concatenate([kind.columns, np.full(rows, count)])
            rows_of_kind = np.concatenate([kind.rows, np.arange(rows)])
            values_of_kind = np.concatenate([kind.values, -kind.upper])
            values = values_of_kind * unit[columns]
            limit = replace(
                kind, rows=rows_of_kind, columns=columns, values=values, upper=np.zeros(rows)
            )
            limits.append(limit)

        gain = np.zeros(count + 1)
        gain[-1] = -1.0
        lowest = np.zeros(count + 1)
        highest = np.full(count + 1, INF)
        return LinearProgram(gain, lowest, highest, (self.rows(), *limits, money))

    def least_usd(self) -> float:
        """The cost of all work, if time does not matter."""
        count = self.columns.count
        gain = -self.usd / self.usd.max()
        unbounded = np.full(count, INF)
        program = LinearProgram(gain, np.zeros(count), unbounded, (self.rows(),))
        value = -Solver(program).optimum().value
        dearest = float(self.usd.max())
        return value * dearest


def makespan_within_budget_policy(problem: AllocationProblem, /) -> ClusterAllocation:
    """Minimizes the makespan M of X with M sum_m cost(m, X) <= B.

    The budget is not linear in X, and the paper bisects M; in hours H = M X this is one linear
    program with M among its columns.

    The objective is the makespan in seconds; the result includes hours and their cost.
    """
    require_steps(problem, "makespan-within-budget")
    price = require_prices(problem, "makespan-within-budget")
    if problem.budget_usd is None:
        raise BadProblem("budget_usd: missing: makespan-within-budget needs a budget")

    batch = _BudgetBatch.of(ShareColumns.of(problem), price)
    columns = batch.columns
    nothing = np.zeros(batch.columns.count)
    if not len(batch.jobs):
        rest = allocation(problem, columns.matrix(nothing), 0.0)
        return replace(rest, hours=columns.placed(nothing), cost_usd=0.0)

    try:
        x = Solver(batch.program(problem.budget_usd)).optimum().x
    except CannotHold:
        least = batch.least_usd()
        if least <= problem.budget_usd:
            raise
        raise BudgetTooLow(problem.budget_usd, least) from None

    seconds = x[:-1] * batch.seconds
    makespan = x[-1] * batch.longest
    result = allocation(problem, columns.matrix(seconds / makespan), makespan)
    every = np.full(columns.count, makespan)
    fixed = Pieces(columns.row, columns.type, 0 * every, every, seconds / makespan)
    hours = columns.placed(seconds / 3600)

    cost = batch.usd @ x[:-1]
    return replace(result, hours=hours, cost_usd=float(cost), pieces=fixed)
