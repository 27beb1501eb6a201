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


class Choice:
    """Chooses among the same candidates round by round.

    Lists, because they are read one element at a time, and a simulation has thousands of rounds.
    """

    def __init__(self, candidates: RoundCandidates, workers: FloatArray) -> None:
        self._workers = workers.tolist()
        self._first, self._second = candidates.first.tolist(), candidates.second.tolist()
        self._scale = candidates.scale.tolist()
        self._of_type = [np.flatnonzero(candidates.type == kind) for kind in range(len(workers))]

    def next(self, priority: FloatArray, order: Sequence[int]) -> IntArray:
        """The candidates that run in the next round: types choose in this order, each by descending priority; ties go
        to the earlier candidate.

        Greedy, as Algorithm 2: skips a candidate that no longer fits, or that shares a job with a chosen one.
        """
        first, second, scale = self._first, self._second, self._scale
        busy = {NO_JOB}
        chosen: list[int] = []
        for kind in order:
            free, places = self._workers[kind], self._of_type[kind]
            for at in places[(-priority[places]).argsort(kind="stable")].tolist():
                if scale[at] > free or first[at] in busy or (second[at] != NO_JOB and second[at] in busy):
                    continue
                chosen.append(at)
                busy.add(first[at])
                busy.add(second[at])
                free -= scale[at]
                if free <= 0:
                    break
        return np.array(chosen, dtype=np.int64)
