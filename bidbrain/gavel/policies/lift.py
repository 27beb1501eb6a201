"""Max-min programs shared by several policies: max z with every job's throughput at least z times its need, X valid.

The remaining capacity is distributed. The program is written over groups of identical jobs. If jobs have the same
throughputs, scale and need, an optimum stays optimal when these jobs swap places, and so does the mean of all swaps:
some optimum gives them equal shares. So the program is exact, and no larger for a thousand copies of a job than for a
single job. It is kept from call to call, because the next problem is usually similar. With pairs that share workers, an
optimum uses few of very many columns.
"""

from contextlib import suppress
from dataclasses import replace

import numpy as np

from bidbrain.arrays import Floats, Ints
from bidbrain.gavel.policies.base import Warm
from bidbrain.gavel.policies.interior import EXACT, Levels, Lifted, center, with_free_workers
from bidbrain.gavel.problem import AllocationProblem, ShareColumns, effective_throughput, runnable
from bidbrain.lp import (
    AT_LOWER,
    BASIC,
    INF,
    ConstraintRows,
    GrowingSolver,
    LinearProgram,
    SimplexBasis,
    Solver,
    SolverFailed,
)

# Fraction of its level that a job keeps in later stages: a loss above the solver's tolerance, but negligible.
_KEPT = 1 - 1e-8


# From this number of groups on, an interior point takes less time than changing the last program.
_CENTER_FROM = 300


def lift_least(problem: AllocationProblem, need: Floats, warm: Warm | None = None, *, gap: float = EXACT) -> Lifted:
    """Maximizes min_m throughput(m, X) / need_m over the jobs that need something and run somewhere; X uses the
    remaining capacity.

    That optimum is rarely unique: the capacity that its bottleneck leaves is distributed for the most normalized
    throughput, so that no worker is idle that any job could use, and X is Pareto efficient. Of many different jobs it
    is spread evenly instead, which takes less time, and then only no worker is idle. A problem that asks for the center
    gets X in the middle of all optima, which is what the published solvers give, up to the gap.
    """
    usable = np.where(runnable(problem), problem.jobs.throughputs, 0.0)
    if problem.pairs is not None:
        columns = ShareColumns.of(problem)
        best = columns.most()
        relative, unit = _relative(need, best)
        z, shares, prices = _lift_paired(columns, best, relative)
    else:
        best = usable.max(axis=1, initial=0.0)
        relative, unit = _relative(need, best)
        if problem.centered and relative.any():
            with suppress(SolverFailed):
                return _centered(problem, usable, best, relative, unit, gap)
        traits = np.column_stack([usable / np.where(best > 0, best, 1.0)[:, None], relative, problem.jobs.scale])
        kept = warm.keep(KeptLevels) if warm else KeptLevels()
        z, shares, prices = kept.lift(traits, problem.cluster.workers)
    # The program's need is in units of throughput on the fastest type, and of `unit`.
    level, prices = z / unit, prices / np.where(best > 0, best, np.inf) / unit
    lacking = level * _KEPT * need - effective_throughput(problem, shares)
    return Lifted(level, _topped_up(shares, usable, lacking), prices)


def _centered(
    problem: AllocationProblem, usable: Floats, best: Floats, relative: Floats, unit: float, gap: float
) -> Lifted:
    divisor = np.where(best > 0, best, 1.0)
    scale, workers = problem.jobs.scale.astype(np.float64), problem.cluster.workers
    middle = center(Levels(usable / divisor[:, None], relative, scale, np.ones(len(scale)), workers), gap)
    return Lifted(middle.level / unit, middle.shares, middle.prices / np.where(best > 0, best, np.inf) / unit)


def _topped_up(shares: Floats, usable: Floats, lacking: Floats) -> Floats:
    """Adds the throughput that jobs lack by the solver's tolerance, on their fastest type.

    It is negligible for the cluster, but everything for a job that needs a billionth of what others need.
    """
    fastest = usable.max(axis=1, initial=0.0)
    short = np.flatnonzero((lacking > 0) & (fastest > 0))
    if not len(short):
        return shares
    topped_up = shares.copy()
    topped_up[short, usable[short].argmax(axis=1)] += lacking[short] / fastest[short]
    return topped_up


def _relative(need: Floats, best: Floats) -> tuple[Floats, float]:
    """The need over the best throughput, in a unit that makes the largest about 1; jobs that cannot run need
    nothing."""
    relative = np.divide(need, best, out=np.zeros(len(need)), where=best > 0)
    largest = relative.max(initial=0.0)
    # A power of ten rather than the largest itself: a job's need then keeps its value when another job leaves.
    unit = float(10.0 ** np.round(np.log10(largest))) if largest > 0 else 1.0
    return relative / unit, unit


def _lift_paired(columns: ShareColumns, best: Floats, relative: Floats) -> tuple[float, Floats, Floats]:
    """The largest z with throughput / best >= z relative, the shares, and the price of each job's row."""
    lifted = np.flatnonzero(relative > 0)
    z = columns.count
    level = progress_rows(columns, best, lifted, relative[lifted], np.full(len(lifted), z))
    gain, upper = np.zeros(z + 1), np.full(z + 1, INF)
    gain[-1], upper[-1] = 1.0, INF if len(lifted) else 0.0
    program = LinearProgram(gain, np.zeros(z + 1), upper, (level, *columns.limits()))
    solver = GrowingSolver(program, np.append(np.arange(columns.alone), z))
    first = solver.optimum()
    # Normalized throughput, summed over jobs; zero for z.
    job, column, throughput = columns.progress
    solver.set_gain(np.bincount(column, throughput / best[job], columns.count + 1).astype(np.float64))
    solver.set_column(z, first.value * _KEPT, INF if len(lifted) else 0.0)
    prices = np.zeros(len(relative))
    prices[lifted] = np.abs(first.prices[: len(lifted)])
    return first.value, columns.matrix(solver.optimum().x), prices


def progress_rows(columns: ShareColumns, best: Floats, jobs: Ints, levels: Floats, level: Ints) -> ConstraintRows:
    """A row for each of some jobs: `throughput / best >= levels x[level]`."""
    job, column, throughput = columns.progress
    row = np.full(len(best), -1)
    row[jobs] = np.arange(len(jobs))
    counted = row[job] >= 0
    ids = columns.problem.jobs.ids
    return ConstraintRows(
        lambda i: f"job {ids[jobs[i]]!r}: its level",
        np.concatenate([row[job[counted]], np.arange(len(jobs))]),
        np.concatenate([column[counted], level]),
        np.concatenate([(throughput / best[job])[counted], -levels]),
        np.zeros(len(jobs)),
        np.full(len(jobs), INF),
    )


class KeptLevels:
    """The program of the last call. Between calls mostly the number of jobs per group changes."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._at: tuple[Levels, Solver] | None = None

    def lift(self, traits: Floats, workers: Floats) -> tuple[float, Floats, Floats]:
        """The largest z, each job's shares and price; a row of traits has progress on each type, need and scale."""
        if not len(traits):
            return 0.0, np.zeros((0, len(workers))), np.zeros(0)
        width, content = traits.shape[1] * traits.itemsize, np.ascontiguousarray(traits).tobytes()
        keys = [content[i : i + width] for i in range(0, len(content), width)]
        if not traits[:, :-2].any():
            return 0.0, np.zeros((len(traits), len(workers))), np.zeros(len(traits))
        if len(distinct := dict.fromkeys(keys)) >= _CENTER_FROM:
            with suppress(SolverFailed):
                return self._centered(workers, keys, {key: g for g, key in enumerate(distinct)})
        levels, solver = self._update(keys, workers)
        solver.set_gain(levels.gain())
        most = INF if levels.lifted().any() else 0.0
        solver.set_column(levels.z, 0.0, most)
        first = solver.optimum()
        z = first.value
        # In the second stage, normalized throughput, summed over jobs.
        solver.set_gain(np.append((levels.progress * levels.count[:, None]).ravel(), 0.0))
        solver.set_column(levels.z, z * _KEPT, most)
        shares = solver.optimum().x[: levels.z].reshape(-1, len(workers))
        groups = np.array([self._numbers[key] for key in keys])
        # A group's row is one constraint; each job gets its part of the row's price.
        prices = np.abs(first.prices[: len(levels.need)]) / np.maximum(levels.count, 1.0)
        return z, np.clip(shares[groups], 0.0, 1.0), prices[groups]

    def _centered(self, workers: Floats, keys: list[bytes], numbers: dict[bytes, int]) -> tuple[float, Floats, Floats]:
        groups = np.array([numbers[key] for key in keys])
        count = np.bincount(groups).astype(np.float64)
        traits = np.frombuffer(b"".join(numbers)).reshape(len(numbers), -1)
        progress, need = traits[:, :-2], traits[:, -2]
        if not need.any():
            need = progress.max(axis=1)
        levels = Levels(progress, need, traits[:, -1], count, workers)
        middle = center(levels, EXACT)
        z = middle.level if traits[:, -2].any() else 0.0
        shares = with_free_workers(middle.shares, progress, levels.held(), workers)
        return z, shares[groups], (middle.prices / count)[groups]

    def _update(self, keys: list[bytes], workers: Floats) -> tuple[Levels, Solver]:
        if self._at is None or not np.array_equal(workers, self._at[0].workers):
            self._numbers, self._at = {}, None
        if self._at is None or any(key not in self._numbers for key in keys):
            self._at = self._rebuild(keys, workers)
            return self._at

        # The groups stay, and only the number of jobs of some changes in the loaded program.
        known, solver = self._at
        changed = replace(known, count=self._counts(keys))
        groups, types = known.progress.shape
        lifted, held = changed.lifted(), changed.held()
        for g in np.flatnonzero(changed.count != known.count).tolist():
            solver.set_lower(g, 0.0 if lifted[g] else -INF)
            for j in range(types):
                solver.set_entry(2 * groups + j, g * types + j, float(held[g]))
        self._at = changed, solver
        return self._at

    def _counts(self, keys: list[bytes]) -> Floats:
        numbers = [self._numbers[key] for key in keys]
        return np.bincount(numbers, minlength=len(self._numbers)).astype(np.float64)

    def _rebuild(self, keys: list[bytes], workers: Floats) -> tuple[Levels, Solver]:
        """A program with the new groups, started from the last basis.

        Groups without jobs stay, because similar jobs tend to return, as long as they are the minority.
        """
        old, now = self._numbers, dict.fromkeys(keys)
        gone = sum(key not in now for key in old)
        stay = [key for key in old if key in now or 2 * gone <= len(old)]
        order = [*stay, *(key for key in now if key not in old)]
        self._numbers = {key: g for g, key in enumerate(order)}
        traits = np.frombuffer(b"".join(order)).reshape(len(order), -1)
        levels = Levels(traits[:, :-2], traits[:, -2], traits[:, -1], self._counts(keys), workers)
        start = None if self._at is None else _carried(self._at, [old[key] for key in stay], levels)
        return levels, Solver(levels.program(), start)


def _carried(at: tuple[Levels, Solver], stay: list[int], levels: Levels) -> SimplexBasis:
    """The last basis, restricted to the groups that stay."""
    basis, (old, types) = at[1].basis(), at[0].progress.shape
    new = len(levels.need) - len(stay)
    columns = [status for g in stay for status in basis.columns[g * types : (g + 1) * types]]
    level, time = [basis.rows[g] for g in stay], [basis.rows[old + g] for g in stay]
    return SimplexBasis(
        [*columns, *[AT_LOWER] * (new * types), basis.columns[-1]],
        [*level, *[BASIC] * new, *time, *[BASIC] * new, *basis.rows[2 * old :]],
    )
