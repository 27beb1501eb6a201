"""When each job of a plan runs, and where: pieces of time in which it holds its workers, all of the time or in part."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from bidbrain.gavel.arrays import FloatArray
from bidbrain.gavel.problem import AllocationProblem, ClusterAllocation, Pieces
from bidbrain.gavel.shares import scale_of_rows

# Of an hour; what is less is rounding.
_NO_HOURS = 1e-9
# Relative differences below which two times, or two shares, are the same.
_SAME = 1e-9


@dataclass(frozen=True, slots=True)
class PlannedPiece:
    """One piece of time."""

    row: int
    type: int
    start: float
    end: float
    share: float


def _joined(columns: Pieces) -> list[PlannedPiece]:
    """The pieces, those that follow each other without a change as one."""
    order = np.lexsort((columns.start, columns.type, columns.row))
    lists = (getattr(columns, name)[order].tolist() for name in ("row", "type", "start", "end", "share"))
    joined: list[PlannedPiece] = []
    for piece in map(PlannedPiece, *lists):
        if piece.share * (piece.end - piece.start) <= _NO_HOURS * 3600:
            continue
        if joined and _continues(joined[-1], piece):
            joined[-1] = replace(joined[-1], end=piece.end)
        else:
            joined.append(piece)
    return joined


def _continues(before: PlannedPiece, after: PlannedPiece) -> bool:
    alike = (before.row, before.type) == (after.row, after.type)
    return alike and abs(before.end - after.start) <= _SAME * after.end and abs(before.share - after.share) <= _SAME


def timetable(problem: AllocationProblem, allocation: ClusterAllocation) -> list[PlannedPiece]:
    """The pieces of a plan by row, and of rows with hours but no fixed times: by arrival, as early as workers are free.

    Such a row runs on one type after the other, on the workers that fixed pieces and earlier rows leave.
    """
    table = [] if allocation.pieces is None else _joined(allocation.pieces)
    if allocation.hours is not None:
        table += _in_free_time(problem, allocation.hours, table)
    return sorted(table, key=lambda piece: (piece.row, piece.start))


def _in_free_time(problem: AllocationProblem, hours: FloatArray, fixed: list[PlannedPiece]) -> Iterator[PlannedPiece]:
    planned = {piece.row for piece in fixed}
    scale = scale_of_rows(problem)
    free = _FreeWorkers(problem.cluster.workers, [(piece, float(scale[piece.row])) for piece in fixed])
    others = [row for row in np.flatnonzero(hours.sum(axis=1) > _NO_HOURS).tolist() if row not in planned]
    arrival = problem.jobs.arrival
    for row in sorted(others, key=lambda row: float(arrival[row]) if row < len(arrival) else np.inf):
        begin = 0.0
        for kind in np.flatnonzero(hours[row] > _NO_HOURS).tolist():
            taken = free.take(row, kind, float(hours[row, kind]) * 3600, begin, float(scale[row]))
            begin = taken[-1].end
            yield from taken


class _FreeWorkers:
    """Free workers of each type over time, constant between `times`; after the last, all are free."""

    def __init__(self, workers: FloatArray, held: list[tuple[PlannedPiece, float]]) -> None:
        self._workers = workers
        self._times = np.unique([0.0, *(time for piece, _ in held for time in (piece.start, piece.end))])
        self._free = np.repeat(workers[:, None], len(self._times), axis=1)
        for piece, scale in held:
            self._hold(piece, scale)

    def take(self, row: int, kind: int, seconds: float, begin: float, scale: float) -> list[PlannedPiece]:
        """The pieces in which a row gets its seconds, from `begin` on."""
        self._cut(begin)
        taken: list[PlannedPiece] = []
        for start, latest, share in list(self._chances(kind, begin, scale)):
            if share <= _SAME:
                continue
            piece = PlannedPiece(row, kind, start, min(latest, start + seconds / share), share)
            if taken and _continues(taken[-1], piece):
                taken[-1] = replace(taken[-1], end=piece.end)
            else:
                taken.append(piece)
            seconds -= share * (piece.end - start)
            if seconds <= _NO_HOURS * 3600:
                break
        for piece in taken:
            self._cut(piece.end)
            self._hold(piece, scale)
        return taken

    def _chances(self, kind: int, begin: float, scale: float) -> Iterator[tuple[float, float, float]]:
        ends = [*self._times[1:].tolist(), np.inf]
        for start, end, free in zip(self._times.tolist(), ends, self._free[kind].tolist(), strict=True):
            if start >= begin:
                yield start, end, min(1.0, free / scale)

    def _cut(self, time: float) -> None:
        """Makes this one of the times."""
        place = int(np.searchsorted(self._times, time, side="right")) - 1
        if self._times[place] != time:
            self._times = np.insert(self._times, place + 1, time)
            self._free = np.insert(self._free, place + 1, self._free[:, place], axis=1)

    def _hold(self, piece: PlannedPiece, scale: float) -> None:
        there = (self._times >= piece.start) & (self._times < piece.end)
        self._free[piece.type, there] = np.maximum(self._free[piece.type, there] - scale * piece.share, 0.0)
