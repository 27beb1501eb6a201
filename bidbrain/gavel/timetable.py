"""When each job of a plan runs, and where: pieces of time in which it holds its workers, all of the time or in part."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from bidbrain.gavel.arrays import FloatArray
from bidbrain.gavel.problem import AllocationProblem, ClusterAllocation, Pieces
from bidbrain.gavel.shares import scale_of_rows

# Of an hour; what is less is rounding.
_NO_HOURS = 1e-9
# Relative differences below which two times, or two shares, are the same.
_SAME = 1e-9


class PlannedPiece(NamedTuple):
    """One piece of time."""

    row: int
    type: int
    start: float
    end: float
    share: float


def _parts(columns: Pieces) -> Iterator[PlannedPiece]:
    """Pieces by row, type and start, without those of no length."""
    order = np.lexsort((columns.start, columns.type, columns.row))
    order = order[(columns.share * (columns.end - columns.start))[order] > _NO_HOURS * 3600]
    return map(PlannedPiece, *(getattr(columns, name)[order].tolist() for name in PlannedPiece._fields))


def _joined(parts: Iterable[PlannedPiece]) -> Iterator[PlannedPiece]:
    """The pieces, those that follow each other without a change as one."""
    ordered = iter(parts)
    first = next(ordered, None)
    if first is None:
        return
    row, kind, begun, until, held = first
    for next_row, next_kind, start, end, share in ordered:
        alike = next_row == row and next_kind == kind and abs(share - held) <= _SAME
        if not (alike and abs(until - start) <= _SAME * end):
            yield PlannedPiece(row, kind, begun, until, held)
            row, kind, begun, held = next_row, next_kind, start, share
        until = end
    yield PlannedPiece(row, kind, begun, until, held)


def timetable(problem: AllocationProblem, allocation: ClusterAllocation) -> list[PlannedPiece]:
    """The pieces of a plan by row, and of rows with hours but no fixed times: by arrival, as early as workers are free.

    Such a row runs on one type after the other, on the workers that fixed pieces and earlier rows leave.
    """
    table = [] if allocation.pieces is None else list(_joined(_parts(allocation.pieces)))
    if allocation.hours is not None:
        table += _in_free_time(problem, allocation.hours, table)
    return sorted(table, key=lambda piece: (piece.row, piece.start))


def _in_free_time(problem: AllocationProblem, hours: FloatArray, fixed: list[PlannedPiece]) -> Iterator[PlannedPiece]:
    planned = {piece.row for piece in fixed}
    scale = scale_of_rows(problem)
    held = [
        [(piece, float(scale[piece.row])) for piece in fixed if piece.type == kind] for kind in range(hours.shape[1])
    ]
    free = [_FreeWorkers(*pair) for pair in zip(problem.cluster.workers.tolist(), held, strict=True)]
    others = [row for row in np.flatnonzero(hours.sum(axis=1) > _NO_HOURS).tolist() if row not in planned]
    arrival = problem.jobs.arrival
    for row in sorted(others, key=lambda row: float(arrival[row]) if row < len(arrival) else np.inf):
        begin = 0.0
        for kind in np.flatnonzero(hours[row] > _NO_HOURS).tolist():
            taken = free[kind].take(float(hours[row, kind]) * 3600, begin, float(scale[row]))
            for piece in _joined(PlannedPiece(row, kind, *part) for part in taken):
                yield piece
                begin = piece.end


class _FreeWorkers:
    """Free workers of one type over time, constant between `times`; after the last, all are free."""

    def __init__(self, workers: float, held: list[tuple[PlannedPiece, float]]) -> None:
        edges = np.array([(time, sign) for piece, _ in held for time, sign in ((piece.start, 1), (piece.end, -1))])
        used = np.repeat([scale * piece.share for piece, scale in held], 2)
        times, places = np.unique(np.append(edges.reshape(-1, 2)[:, 0], 0.0), return_inverse=True)
        changes = np.bincount(places[:-1], edges.reshape(-1, 2)[:, 1] * used, len(times))
        self._times: list[float] = times.tolist()
        self._free: list[float] = np.maximum(workers - np.cumsum(changes), 0.0).tolist()
        self._first = 0
        """Before this place no worker is free."""

    def take(self, seconds: float, begin: float, scale: float) -> Iterator[tuple[float, float, float]]:
        """The times, with shares, in which a row gets its seconds, from `begin` on."""
        place = max(self._cut(begin), self._first)
        while place < len(self._times) and seconds > _NO_HOURS * 3600:
            share = min(1.0, self._free[place] / scale)
            if share > _SAME:
                start = self._times[place]
                self._cut(start + seconds / share)
                end = self._end(place, start + seconds / share)
                self._free[place] = max(self._free[place] - scale * share, 0.0)
                seconds -= share * (end - start)
                yield start, end, share
            place += 1
        while self._first < len(self._free) - 1 and self._free[self._first] <= _SAME:
            self._first += 1

    def _end(self, place: int, latest: float) -> float:
        return self._times[place + 1] if place + 1 < len(self._times) else latest

    def _cut(self, time: float) -> int:
        """Makes this one of the times; returns its place."""
        place = bisect_right(self._times, time) - 1
        if self._times[place] == time:
            return place
        self._times.insert(place + 1, time)
        self._free.insert(place + 1, self._free[place])
        return place + 1
