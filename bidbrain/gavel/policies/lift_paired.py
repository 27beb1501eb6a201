"""The max-min program with pairs that share workers: an optimum uses few of very many pairs."""

import numpy as np

from bidbrain.gavel.arrays import FloatArray, IntArray
from bidbrain.gavel.lp import INF, ConstraintRows, GrowingSolver, LinearProgram
from bidbrain.gavel.policies.level_program import KEPT
from bidbrain.gavel.shares import ShareColumns


def lift_paired(columns: ShareColumns, best: FloatArray, relative: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """The largest z with throughput / best >= z relative, the shares, and the price of each job's row."""
    lifted = np.flatnonzero(relative > 0)
    z = columns.count
    level = progress_rows(columns, best, lifted, relative[lifted], np.full(len(lifted), z))
    gain, upper = np.zeros(z + 1), np.full(z + 1, INF)
    gain[-1], upper[-1] = 1.0, INF if len(lifted) else 0.0
    program = LinearProgram(gain, np.zeros(z + 1), upper, (level, *columns.limits()))
    solver = GrowingSolver(program, np.append(np.arange(columns.alone), z))
    first = solver.optimum()
    solver.set_gain(_leftover_gain(columns, best))
    solver.set_column(z, first.value * KEPT, INF if len(lifted) else 0.0)
    prices = np.zeros(len(relative))
    prices[lifted] = np.abs(first.prices[: len(lifted)])
    return first.value, columns.matrix(solver.optimum().x), prices


def progress_rows(
    columns: ShareColumns, best: FloatArray, jobs: IntArray, levels: FloatArray, level: IntArray
) -> ConstraintRows:
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


def _leftover_gain(columns: ShareColumns, best: FloatArray) -> FloatArray:
    """Normalized throughput, summed over jobs; zero for z."""
    job, column, throughput = columns.progress
    return np.bincount(column, throughput / best[job], columns.count + 1).astype(np.float64)
