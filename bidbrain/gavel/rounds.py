"""The round mechanism: which jobs run in the next round (section 5.5, Algorithm 2), and on which workers.

Pure functions of their arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bidbrain.errors import BidBrainError
from bidbrain.gavel.problem import FloatArray, IntArray

NO_JOB = -1
_PORTION = 256


class DoesNotFit(BidBrainError):
    """The tasks of a round need more workers than there are."""


@dataclass(frozen=True, slots=True)
class RoundCandidates:
    """What may run in a round: rows of X (a job or a pair), each on one type.

    `first` and `second` are the jobs of the row, the second `NO_JOB` if it runs alone; `scale` the workers it holds.
    """

    first: IntArray
    second: IntArray
    type: IntArray
    scale: IntArray

    def only(self, those: IntArray | np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> RoundCandidates:
        """A subset of the candidates."""
        return RoundCandidates(self.first[those], self.second[those], self.type[those], self.scale[those])


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


@dataclass(frozen=True, slots=True)
class RoundTask:
    """What runs in a round: its key (a job's id, or both of a pair), the worker type, and the number of workers."""

    key: str
    type: str
    scale: int


@dataclass(frozen=True, slots=True)
class Placement:
    """The workers of each task. Those in `renewed` keep their workers, and with them their lease.

    All others load a checkpoint, and the jobs that ran on their workers before save one.
    """

    workers: Mapping[str, tuple[str, ...]]
    renewed: frozenset[str]


def place(
    tasks: Sequence[RoundTask], servers: Mapping[str, Sequence[Sequence[str]]], held: Mapping[str, tuple[str, ...]]
) -> Placement:
    """Assigns workers to the tasks of a round: renewed leases first, then large tasks before small ones, on few
    servers.

    `servers` are the workers of each type, server by server; `held` each key's workers in the previous round.
    """
    kept = {task.key: held[task.key] for task in tasks if _stays(task, servers, held)}
    free = {
        type_: [[worker for worker in server if worker not in taken] for server in rows]
        for type_, rows in servers.items()
        for taken in [{worker for workers in kept.values() for worker in workers}]
    }
    placed = dict(kept)
    for task in sorted((task for task in tasks if task.key not in kept), key=lambda task: -task.scale):
        placed[task.key] = _taken(task, free.get(task.type, []))
    return Placement(placed, frozenset(kept))


def _stays(
    task: RoundTask, servers: Mapping[str, Sequence[Sequence[str]]], held: Mapping[str, tuple[str, ...]]
) -> bool:
    """Whether the task held exactly as many workers of this type in the previous round."""
    own = held.get(task.key, ())
    there = {worker for server in servers.get(task.type, ()) for worker in server}
    return len(own) == task.scale and there.issuperset(own)


def _taken(task: RoundTask, free: Sequence[list[str]]) -> tuple[str, ...]:
    """Takes the task's workers: from the fullest server with room for all, else starting with the emptiest."""
    if task.scale > sum(map(len, free)):
        raise DoesNotFit(
            f"{task.key!r} takes {task.scale} workers of {task.type!r} but only {sum(map(len, free))} are free"
        )
    roomy = [server for server in free if len(server) >= task.scale]
    from_: Iterable[list[str]] = [min(roomy, key=len)] if roomy else sorted(free, key=len, reverse=True)
    taken: list[str] = []
    for server in from_:
        part = min(task.scale - len(taken), len(server))
        taken += server[:part]
        del server[:part]
    return tuple(taken)
