"""Reference policies as dense programs in another formulation for another solver front end.

Nothing is shared with the code under test: X is a full matrix with a column for every row and type,
bounded to 0 where nothing can run; the objectives are written out from the paper's formulas.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog

from bidbrain.arrays import Floats
from bidbrain.gavel.problem import AllocationProblem


class Dense:
    """X flat (rows by types), then further variables."""

    def __init__(self, problem: AllocationProblem, extra: int = 0) -> None:
        jobs, cluster = problem.jobs, problem.cluster
        self.m, self.n = jobs.throughputs.shape
        rows = self.m if problem.pairs is None else self.m + len(problem.pairs.members)
        self.size = rows * self.n
        self.extra = extra
        scale = list(jobs.scale) + (
            [] if problem.pairs is None else [jobs.scale[a] for a, _ in problem.pairs.members]
        )
        self.throughput = np.zeros((self.m, self.size))
        time, held = np.zeros((self.m, self.size)), np.zeros((self.n, self.size))
        self.bounds: list[tuple[float, float | None]] = [(0, 0)] * self.size + [(0, None)] * extra
        for r in range(rows):
            for j in range(self.n):
                cell = r * self.n + j
                if scale[r] > cluster.workers[j]:
                    continue
                if r < self.m:
                    who = [(r, jobs.throughputs[r, j])]
                else:
                    assert problem.pairs is not None
                    pair = r - self.m
                    who = list(
                        zip(
                            problem.pairs.members[pair],
                            problem.pairs.throughputs[pair, j],
                            strict=True,
                        )
                    )
                if min(rate for _, rate in who) <= 0:
                    continue
                self.bounds[cell] = (0, None)
                held[j, cell] = scale[r]
                for m, rate in who:
                    time[m, cell] = 1
                    self.throughput[m, cell] = rate
        self.limits = np.vstack([time, held])
        self.caps = np.concatenate([np.ones(self.m), cluster.workers])
        self.runs = np.array(
            [
                any(b[1] is None for b in self.bounds[m * self.n : (m + 1) * self.n])
                for m in range(self.m)
            ]
        )

    def maximum(
        self, gain: Floats, more: Floats | None = None, at_most: Floats | None = None
    ) -> float | None:
        """The largest gain under the limits and `more x <= at_most`; None where nothing satisfies
        them.
        """
        a = np.hstack([self.limits, np.zeros((len(self.limits), self.extra))])
        b = self.caps
        if more is not None and at_most is not None and len(more):
            a, b = np.vstack([a, more]), np.concatenate([b, at_most])
        found = linprog(-gain, A_ub=a, b_ub=b, bounds=self.bounds, method="highs-ds")
        assert found.status in {0, 2}, found.message
        return None if found.fun is None else -float(found.fun)

    def least(self, need: Floats) -> float:
        """max z with throughput(m, X) >= z need_m, over the jobs that run alone and need
        something."""
        assert self.extra == 1
        who = self.runs & (need > 0)
        if not who.any():
            return 0.0
        best = self.throughput.max(axis=1)[who]
        # One row is scaled so that its largest entry is 1; only z's unit depends on the input.
        unit = (need[who] / best).max()
        rows = np.hstack(
            [-self.throughput[who] / best[:, None], (need[who] / best / unit)[:, None]]
        )
        gain = np.append(np.zeros(self.size), 1.0)
        found = self.maximum(gain, rows, np.zeros(len(rows)))
        assert found is not None
        return float(found / unit)


def equal_share(problem: AllocationProblem) -> Floats:
    """throughput(m, X_equal), a job counted only where it fits."""
    jobs, workers = problem.jobs, problem.cluster.workers
    found = np.zeros(len(jobs.ids))
    for m in range(len(found)):
        for j in range(len(workers)):
            if jobs.scale[m] <= workers[j]:
                found[m] += jobs.throughputs[m, j] * workers[j] / workers.sum()
    return found
