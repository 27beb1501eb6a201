"""The round mechanism: which jobs run in the next round (section 5.5, Algorithm 2), and on which workers.

Pure functions of their arguments.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bidbrain.gavel.arrays import BoolArray, FloatArray, IntArray

NO_JOB = -1
_PORTION = 256


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


def priorities(share: FloatArray, received: FloatArray, type_: IntArray, of_type: FloatArray) -> FloatArray:
    """X / f: the intended share over the received one, where f = time received over all time given on that type."""
    return np.asarray(share / received * of_type[type_])


def choose(candidates: RoundCandidates, priority: FloatArray, workers: FloatArray) -> IntArray:
    """The candidates that run in the next round, by descending priority; ties go to the earlier one.

    Greedy, as Algorithm 2: skips a candidate that no longer fits, or that shares a job with a chosen one.
    """
    free = workers.tolist()
    left = sum(free)
    busy = {NO_JOB}
    chosen = []
    for at, first, second, type_, scale in _in_order(candidates, np.argsort(-priority, kind="stable")):
        if scale > free[type_] or first in busy or (second != NO_JOB and second in busy):
            continue
        chosen.append(at)
        busy.add(first)
        busy.add(second)
        free[type_] -= scale
        left -= scale
        if left <= 0:
            break
    return np.array(chosen, dtype=np.int64)


def _in_order(candidates: RoundCandidates, order: IntArray) -> Iterator[tuple[int, int, int, int, int]]:
    """Candidates with their positions, in batches: most often all workers are taken long before the last."""
    for begin in range(0, len(order), _PORTION):
        places = order[begin : begin + _PORTION]
        part = candidates.only(places)
        columns = (places, part.first, part.second, part.type, part.scale)
        yield from zip(*(column.tolist() for column in columns), strict=True)
