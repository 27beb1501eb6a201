"""The mechanism that turns shares into rounds: who runs where next (section 5.5, Algorithm 2), and on which workers.

Pure: the live scheduler and the simulator call the same functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bidbrain.errors import BidBrainError
from bidbrain.gavel.problem import FloatArray, IntArray

NOBODY = -1
_PORTION = 256


class DoesNotFit(BidBrainError):
    """More workers are to be held than there are."""


@dataclass(frozen=True, slots=True)
class RoundCandidates:
    """What may run in a round: a row of X (a job or a pair) on a type each.

    `first` and `second` are the jobs of the row, the second `NOBODY` where it runs alone; `scale` the workers it holds.
    """

    first: IntArray
    second: IntArray
    type: IntArray
    scale: IntArray

    def only(self, those: IntArray | np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> RoundCandidates:
        """Some of them."""
        return RoundCandidates(self.first[those], self.second[those], self.type[those], self.scale[those])


def priorities(share: FloatArray, received: FloatArray, type_: IntArray, of_type: FloatArray) -> FloatArray:
    """X / f: the share that was meant over the one that was had, f = time received over all time given on that type."""
    return np.asarray(share / received * of_type[type_])


def choose(candidates: RoundCandidates, priority: FloatArray, workers: FloatArray) -> IntArray:
    """The candidates that run in the next round, by falling priority; among equals the earlier.

    Greedy, as Algorithm 2: what no longer fits is passed over, and so is what shares a job with one that is chosen.
    """
    free = workers.tolist()
    left = sum(free)
    busy = {NOBODY}
    chosen = []
    for at, first, second, type_, scale in _in_order(candidates, np.argsort(-priority, kind="stable")):
        if scale > free[type_] or first in busy or (second != NOBODY and second in busy):
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
    """Candidates with their places, portion by portion: most often the workers are gone long before the last."""
    for begin in range(0, len(order), _PORTION):
        places = order[begin : begin + _PORTION]
        part = candidates.only(places)
        columns = (places, part.first, part.second, part.type, part.scale)
        yield from zip(*(column.tolist() for column in columns), strict=True)


@dataclass(frozen=True, slots=True)
class RoundTask:
    """What runs in a round: its key (a job's id, or both of a pair), the type of workers, and how many."""

    key: str
    type: str
    scale: int


@dataclass(frozen=True, slots=True)
class Placement:
    """The workers of each task. Those in `renewed` keep the ones they have, so that their lease goes on.

    All others load a checkpoint, and whoever ran on their workers saves one.
    """

    workers: Mapping[str, tuple[str, ...]]
    renewed: frozenset[str]


def place(
    tasks: Sequence[RoundTask], servers: Mapping[str, Sequence[Sequence[str]]], held: Mapping[str, tuple[str, ...]]
) -> Placement:
    """Workers for the tasks of a round: leases first, then big tasks before small ones, on as few servers as can be.

    `servers` are the workers of each type, server by server; `held` what each key had in the round before.
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
    """The same task wants as many workers of the same type as it has."""
    own = held.get(task.key, ())
    there = {worker for server in servers.get(task.type, ()) for worker in server}
    return len(own) == task.scale and there.issuperset(own)


def _taken(task: RoundTask, free: Sequence[list[str]]) -> tuple[str, ...]:
    """Takes the task's workers: from the fullest server that has room for all, else from the emptiest ones on."""
    if task.scale > sum(map(len, free)):
        raise DoesNotFit(
            f"{task.key!r} takes {task.scale} workers of {task.type!r} and {sum(map(len, free))} are free: fewer tasks"
        )
    roomy = [server for server in free if len(server) >= task.scale]
    from_: Iterable[list[str]] = [min(roomy, key=len)] if roomy else sorted(free, key=len, reverse=True)
    taken: list[str] = []
    for server in from_:
        part = min(task.scale - len(taken), len(server))
        taken += server[:part]
        del server[:part]
    return tuple(taken)
