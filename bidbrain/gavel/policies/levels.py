"""The max-min program: max z with every job's throughput at least z times its need, X valid.

It is written over groups of identical jobs. Where jobs have the same throughputs, scale and need, an optimum stays
optimal when they swap places, and so does the mean of all swaps: some optimum gives them equal shares. So it is exact,
and no larger for a thousand copies of a job than for one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bidbrain.gavel.lp import (
    AT_LOWER,
    AT_UPPER,
    BASIC,
    INF,
    Basis,
    ConstraintRows,
    FloatArray,
    IntArray,
    Program,
    Solver,
    at_most,
)
from bidbrain.gavel.shares import BoolArray

# Fraction of its level that a job keeps in later stages: a loss above the solver's tolerance, but negligible.
KEPT = 1 - 1e-8
# From this number of groups on, starting from a sample's prices is 3 to 10 times faster than starting from nothing.
_WORTH_SAMPLING = 400
_ONE_IN = 4


@dataclass(frozen=True, slots=True)
class Levels:
    """Groups: progress on each type over the fastest, one job's need, its scale, and the number of jobs.

    Columns of the program are the groups' shares, type by type, then z. Rows are the groups' levels, their time, and
    the workers of each type.
    """

    progress: FloatArray
    need: FloatArray
    scale: FloatArray
    count: FloatArray
    workers: FloatArray

    @property
    def z(self) -> int:
        """The column of z."""
        return self.progress.size

    def held(self) -> FloatArray:
        """Workers of each type that a group holds if all its jobs run there all the time."""
        return np.asarray(self.count * self.scale)

    def lifted(self) -> BoolArray:
        """The groups with jobs that need something."""
        return np.asarray((self.need > 0) & (self.count > 0))

    def gain(self) -> FloatArray:
        """The objective of the first stage: z."""
        gain = np.zeros(self.z + 1)
        gain[-1] = 1.0
        return gain

    def leftover_gain(self) -> FloatArray:
        """The objective of the second stage: normalized throughput, summed over jobs."""
        return np.append((self.progress * self.count[:, None]).ravel(), 0.0)

    def program(self) -> Program:
        """The program of the first stage."""
        groups, types = self.progress.shape
        cell = np.arange(groups * types)
        group, every = cell // types, np.arange(groups)
        lifted = self.lifted()
        level = ConstraintRows(
            lambda g: f"group {g} of jobs: its level",
            np.concatenate([group, every]),
            np.concatenate([cell, np.full(groups, self.z)]),
            np.concatenate([self.progress.ravel(), -self.need]),
            np.where(lifted, 0.0, -INF),
            np.full(groups, INF),
        )
        time = at_most(lambda g: f"group {g} of jobs: its time", group, cell, np.ones(len(cell)), np.ones(groups))
        workers = at_most(
            lambda j: f"type {j}: its workers", cell % types, cell, np.repeat(self.held(), types), self.workers
        )
        upper = np.append(np.where(self.progress > 0, INF, 0.0).ravel(), INF if lifted.any() else 0.0)
        return Program(self.gain(), np.zeros(self.z + 1), upper, (level, time, workers))


def near_optimal_basis(levels: Levels, z: float | None = None) -> Basis | None:
    """A start basis for large programs: worker prices that hold for a sample of groups nearly hold for all.

    At given prices each job does best on one type or a mix of two: those columns are basic. With z it is for the second
    stage, in which jobs also gain from exceeding their level.
    """
    held = levels.held()
    present = np.flatnonzero(held > 0)
    if len(present) < _WORTH_SAMPLING:
        return None
    sample = present[np.linspace(0, len(present) - 1, len(present) // _ONE_IN).astype(np.int64)]
    part = Levels(
        levels.progress[sample],
        levels.need[sample],
        levels.scale[sample],
        levels.count[sample],
        levels.workers * (held[sample].sum() / held.sum()),
    )
    solver = Solver(part.program(), near_optimal_basis(part))
    found = solver.optimum()
    level, gain = found.value, 0.0
    if z is not None:
        solver.set_gain(part.leftover_gain())
        solver.set_column(part.z, min(z, level * KEPT), INF)
        found = solver.optimum()
        level, gain = min(z, level), 1.0
    prices = np.abs(found.prices[-len(levels.workers) :])
    worth = gain * levels.progress - levels.scale[:, None] * prices
    return _basis(*_best_mix(levels.progress, level * levels.need, worth), prices)


def _best_mix(progress: FloatArray, level: FloatArray, worth: FloatArray) -> tuple[IntArray, IntArray]:
    """The two types whose mix just reaches a level at the greatest worth, or the one type that beats all mixes.

    Type 0 is idling. A single type is given twice; -1 where nothing reaches the level.
    """
    reach = np.column_stack([np.zeros(len(level)), progress])
    value = np.column_stack([np.zeros(len(level)), worth])
    most = np.full(len(level), -np.inf)
    slow, fast = np.full(len(level), -1), np.full(len(level), -1)
    for i in range(reach.shape[1]):
        for k in range(reach.shape[1]):
            within = ((reach[:, i] < level) & (level <= reach[:, k])) if i != k else level <= reach[:, k]
            part = (
                (level - reach[:, i]) / np.where(within & (i != k), reach[:, k] - reach[:, i], 1.0) if i != k else 1.0
            )
            found = np.where(within, value[:, i] + part * (value[:, k] - value[:, i]), -np.inf)
            better = found > most
            most[better], slow[better], fast[better] = found[better], i, k
    return slow, fast


def _basis(slow: IntArray, fast: IntArray, prices: FloatArray) -> Basis:
    groups, types = len(slow), len(prices)
    basic = np.zeros((groups, types + 1), dtype=bool)
    reached = np.flatnonzero(fast >= 0)
    basic[reached, slow[reached]] = basic[reached, fast[reached]] = True
    columns = [BASIC if used else AT_LOWER for used in basic[:, 1:].ravel().tolist()]
    # Above its level a job is bound by its time alone, on its level by both.
    level = [AT_LOWER if mixed else BASIC for mixed in (slow != fast).tolist()]
    time = [BASIC if idles else AT_UPPER for idles in (basic[:, 0] | (fast < 0)).tolist()]
    workers = [AT_UPPER if price > 0 else BASIC for price in prices.tolist()]
    return Basis([*columns, BASIC], [*level, *time, *workers])
