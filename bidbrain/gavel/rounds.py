"""The round mechanism: which jobs run in the next round (section 5.5, Algorithm 2), and on which workers.

Pure functions of their arguments.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bidbrain.gavel.arrays import BoolArray, FloatArray, IntArray

NO_JOB = -1


@dataclass(frozen=True, slots=True)
class RoundCandidates:
    """Candidates for a round: rows of X (a job or a pair), each on one type.

    `first` and `second` are the jobs of the row, the second `NO_JOB` if it runs alone; `scale` the workers it holds.
    """

    first: IntArray
    second: IntArray
    type: IntArray
    scale: IntArray

    def only(self, chosen: IntArray | BoolArray) -> "RoundCandidates":
        return RoundCandidates(self.first[chosen], self.second[chosen], self.type[chosen], self.scale[chosen])


class RoundChoice:
    """Chooses among the same candidates round by round.

    Lists, because they are read one element at a time, and a simulation has thousands of rounds.
    """

    def __init__(self, candidates: RoundCandidates, workers: FloatArray) -> None:
        self._workers, self._type = workers.tolist(), candidates.type.tolist()
        self._first, self._second = candidates.first.tolist(), candidates.second.tolist()
        self._scale = candidates.scale.tolist()
        self._jobs = int(max(candidates.first.max(initial=0), candidates.second.max(initial=0))) + 1
        self._all = np.arange(len(candidates.type))
        self._of_type = [np.flatnonzero(candidates.type == kind) for kind in range(len(workers))]

    def next(self, priority: FloatArray, order: Sequence[int] | None) -> IntArray:
        """The candidates that run in the next round, by descending priority; ties go to the earlier candidate.

        Types choose in this order, one after the other; without an order, all candidates stand in one queue. Greedy, as
        Algorithm 2: skips a candidate that no longer fits, or that shares a job with a chosen one.
        """
        first, second, scale = self._first, self._second, self._scale
        # The last entry is that of `NO_JOB`.
        free, busy = list(self._workers), [False] * (self._jobs + 1)
        chosen: list[int] = []
        queues = [self._all] if order is None else [self._of_type[kind] for kind in order]
        for queue in queues:
            for at in queue[(-priority[queue]).argsort(kind="stable")].tolist():
                job, mate, kind = first[at], second[at], self._type[at]
                if busy[job] or busy[mate] or scale[at] > free[kind]:
                    continue
                chosen.append(at)
                busy[job] = busy[mate] = True
                busy[NO_JOB] = False
                free[kind] -= scale[at]
                if order is not None and free[kind] <= 0:
                    break
        return np.array(chosen, dtype=np.int64)
