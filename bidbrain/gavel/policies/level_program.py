"""The max-min program: max z with every job's throughput at least z times its need, X valid.

The program is written over groups of identical jobs. If jobs have the same throughputs, scale and need, an optimum
stays optimal when these jobs swap places, and so does the mean of all swaps: some optimum gives them equal shares. So
the program is exact, and no larger for a thousand copies of a job than for a single job.
"""

from dataclasses import dataclass

import numpy as np

from bidbrain.gavel.arrays import BoolArray, FloatArray
from bidbrain.gavel.lp import INF, ConstraintRows, LinearProgram, at_most

# Fraction of its level that a job keeps in later stages: a loss above the solver's tolerance, but negligible.
KEPT = 1 - 1e-8


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

    def program(self) -> LinearProgram:
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
        return LinearProgram(self.gain(), np.zeros(self.z + 1), upper, (level, time, workers))
