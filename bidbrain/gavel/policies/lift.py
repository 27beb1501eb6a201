"""Max-min programs shared by several policies, with the remaining capacity distributed."""

from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from bidbrain.gavel.arrays import FloatArray
from bidbrain.gavel.lp import SolverFailed
from bidbrain.gavel.policies.base import Warm
from bidbrain.gavel.policies.interior import EXACT, CenterProgram, center
from bidbrain.gavel.policies.level_program import KEPT
from bidbrain.gavel.policies.lift_paired import lift_paired
from bidbrain.gavel.policies.lift_warm import KeptLevels
from bidbrain.gavel.problem import AllocationProblem
from bidbrain.gavel.shares import ShareColumns, effective_throughput, runnable


@dataclass(frozen=True, slots=True)
class Lifted:
    """The largest z for which every job m gets `z need_m`, and an X that achieves it and uses the remaining capacity.

    `prices[m]` is what z loses per unit of need: `sum of prices need` is 1 at this need, and for no other need' can z
    exceed `level / sum of prices need'`.
    """

    level: float
    shares: FloatArray
    prices: FloatArray


def lift_least(problem: AllocationProblem, need: FloatArray, warm: Warm | None = None, *, gap: float = EXACT) -> Lifted:
    """Maximizes min_m throughput(m, X) / need_m over the jobs that need something and run somewhere.

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
        z, shares, prices = lift_paired(columns, best, relative)
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
    lacking = level * KEPT * need - effective_throughput(problem, shares)
    return Lifted(level, _topped_up(shares, usable, lacking), prices)


def _centered(
    problem: AllocationProblem, usable: FloatArray, best: FloatArray, relative: FloatArray, unit: float, gap: float
) -> Lifted:
    divisor = np.where(best > 0, best, 1.0)
    scale, workers = problem.jobs.scale.astype(np.float64), problem.cluster.workers
    middle = center(CenterProgram(usable / divisor[:, None], usable > 0, relative, scale, workers), gap)
    return Lifted(middle.z / unit, middle.shares, middle.prices / np.where(best > 0, best, np.inf) / unit)


def _topped_up(shares: FloatArray, usable: FloatArray, lacking: FloatArray) -> FloatArray:
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


def _relative(need: FloatArray, best: FloatArray) -> tuple[FloatArray, float]:
    """The need over the best throughput, in a unit that makes the largest about 1; jobs that cannot run need
    nothing."""
    relative = np.divide(need, best, out=np.zeros(len(need)), where=best > 0)
    largest = relative.max(initial=0.0)
    # A power of ten rather than the largest itself: a job's need then keeps its value when another job leaves.
    unit = float(10.0 ** np.round(np.log10(largest))) if largest > 0 else 1.0
    return relative / unit, unit
