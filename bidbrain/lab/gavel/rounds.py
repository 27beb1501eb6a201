"""Rounds, servers and times: which jobs run in the next round (section 5.5, Algorithm 2), whose
workers are together on one server, and when the pieces of a plan run."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from bidbrain.arrays import Bools, Floats, Ints
from bidbrain.gavel.policies.base import Policy
from bidbrain.gavel.problem import (
    AllocationProblem,
    Cluster,
    ClusterAllocation,
    effective_throughput,
    scale_of_rows,
)

# Of an hour; what is less is rounding.
_NO_HOURS = 1e-9
# How often a policy is asked again where its jobs are placed in another way than it believed, and
# when it is not.
_MAX_PLACINGS, _PLACED = 8, 1e-4
# Relative differences below which two times, or two shares, are the same.
_SAME = 1e-9


NO_JOB = -1


@dataclass(frozen=True, slots=True)
class RoundCandidates:
    """Candidates for a round: rows of X (a job or a pair), each on one type.

    `first` and `second` are the jobs of the row, the second `NO_JOB` if it runs alone; `scale` the
    workers it holds.
    """

    first: Ints
    second: Ints
    type: Ints
    scale: Ints

    def only(self, chosen: Ints | Bools) -> "RoundCandidates":
        return RoundCandidates(
            self.first[chosen], self.second[chosen], self.type[chosen], self.scale[chosen]
        )


class RoundChoice:
    """Chooses among the same candidates round by round.

    Lists, because they are read one element at a time, and a simulation has thousands of rounds.
    """

    def __init__(self, candidates: RoundCandidates, workers: Floats) -> None:
        self._workers = workers.tolist()
        self._type = candidates.type.tolist()
        self._first = candidates.first.tolist()
        self._second = candidates.second.tolist()
        self._scale = candidates.scale.tolist()
        self._jobs = int(max(candidates.first.max(initial=0), candidates.second.max(initial=0))) + 1
        self._all = np.arange(len(candidates.type))
        self._of_type = [np.flatnonzero(candidates.type == kind) for kind in range(len(workers))]

    def next(self, priority: Floats, order: Sequence[int] | None) -> Ints:
        """The candidates that run in the next round, by descending priority; ties go to the earlier
        candidate.

        Types choose in this order, one after the other; without an order, all candidates stand in
        one queue. Greedy, as Algorithm 2: skips a candidate that no longer fits, or that shares a
        job with a chosen one.
        """
        first = self._first
        second = self._second
        scale = self._scale
        # The last entry is that of `NO_JOB`.
        free = list(self._workers)
        busy = [False] * (self._jobs + 1)
        chosen: list[int] = []
        queues = [self._all] if order is None else [self._of_type[kind] for kind in order]

        for queue in queues:
            for at in queue[(-priority[queue]).argsort(kind="stable")].tolist():
                job = first[at]
                mate = second[at]
                kind = self._type[at]
                if busy[job] or busy[mate] or scale[at] > free[kind]:
                    continue

                chosen.append(at)
                busy[job] = busy[mate] = True
                busy[NO_JOB] = False
                free[kind] -= scale[at]
                if order is not None and free[kind] <= 0:
                    break

        return np.array(chosen, dtype=np.int64)


class Servers:
    """The workers of one type on servers of one size, round after round; the last server may have
    fewer.
    """

    def __init__(self, workers: int, per_server: int) -> None:
        full, rest = divmod(workers, per_server)
        self._sizes = [per_server] * full + [rest] * (rest > 0)
        self._held: dict[int, dict[int, int]] = {}

    def place(self, jobs: Mapping[int, int]) -> tuple[set[int], set[int]]:
        """The jobs whose workers are on several servers in the next round, and those that keep
        their workers.

        Big jobs first, as published, each on the fullest server with room for it. A job keeps its
        workers if they are free and together, or no server has room for it. `jobs` has their
        numbers of workers.
        """
        free = list(self._sizes)
        placed = dict[int, dict[int, int]]()
        # Of equal jobs first those that are on one server, then those on several, then new ones.
        for job, scale in sorted(
            jobs.items(), key=lambda item: (-item[1], len(self._held.get(item[0], free)))
        ):
            room = [server for server, count in enumerate(free) if count >= scale]
            place = self._held.get(job, {})
            stays = sum(place.values()) == scale and all(
                free[server] >= count for server, count in place.items()
            )
            if not stays or (room and len(place) > 1):
                place = {}
                left = scale
                for server in sorted(
                    room or range(len(free)), key=lambda at: (free[at] if room else -free[at], at)
                ):
                    if count := min(free[server], left):
                        place[server], left = count, left - count

            for server, count in place.items():
                free[server] -= count
            placed[job] = place

        kept = {job for job, place in placed.items() if place == self._held.get(job)}
        self._held = placed
        return {job for job, place in placed.items() if len(place) > 1}, kept


SPREAD = "_unconsolidated"
"""Ends the name of a type where a job has its workers on several servers."""


def by_placement(
    problem: AllocationProblem, policy: Policy
) -> tuple[AllocationProblem, ClusterAllocation]:
    """A policy's allocation with a column of its own for each type where jobs are spread over
    servers.

    Servers are filled with shares of time, big jobs first, and jobs of the same size alike; what
    finds no room on one server is spread. The policy knows jobs by their mean throughput, and is
    asked again as long as that changes.
    """
    placement = problem.placement
    cluster = problem.cluster
    jobs = problem.jobs
    if placement is None:
        return problem, policy(problem)

    scale = scale_of_rows(problem)
    count = len(jobs.ids)
    kinds = placement.kinds(jobs.scale)
    prefers = np.zeros((len(scale), len(cluster.types)), dtype=bool)
    fits = jobs.scale[:, None] <= placement.per_server
    prefers[:count] = jobs.throughputs > np.where(fits, placement.together, 0.0)
    mean = jobs.throughputs

    for _ in range(_MAX_PLACINGS):
        allocation = policy(replace(problem, jobs=replace(jobs, throughputs=mean)))
        believed = mean
        together = np.where(prefers, 0.0, allocation.shares)
        for kind in np.flatnonzero(np.isfinite(placement.per_server)).tolist():
            size = float(placement.per_server[kind])
            together[:, kind] *= _share_on_one_server(
                together[:, kind], scale, float(cluster.workers[kind]), size
            )

        apart = allocation.shares - together
        share = allocation.shares[:count]
        progress = placement.together * together[:count] + placement.spread * apart[:count]
        mean = np.divide(progress, share, out=mean.copy(), where=share > _SAME)
        if np.allclose(mean, believed, rtol=_PLACED):
            break

    lost = (apart[:count] > _SAME) & (placement.spread <= 0)
    messages = tuple(
        f"job {jobs.ids[m]!r}: no server of {cluster.types[kind]} has room for its {jobs.scale[m]} "
        "workers in"
        f" {apart[m, kind]:.1%} of the time, and it has no throughput on "
        f"{cluster.types[kind]}{SPREAD}: add it"
        for m, kind in np.argwhere(lost).tolist()
    )

    usd = cluster.usd_per_hour
    pairs = problem.pairs
    pieces = allocation.pieces

    def both(columns: Floats, spread: Floats) -> Floats:
        return np.concatenate([columns, spread[..., kinds]], axis=-1)

    apart_types = tuple(cluster.types[kind] + SPREAD for kind in kinds.tolist())
    of_both = replace(
        problem,
        cluster=Cluster(
            (*cluster.types, *apart_types),
            both(cluster.workers, cluster.workers),
            None if usd is None else both(usd, usd),
        ),
        jobs=replace(jobs, throughputs=both(placement.together, placement.spread)),
        pairs=pairs
        and replace(pairs, throughputs=np.hstack([pairs.throughputs, pairs.throughputs[:, kinds]])),
        placement=None,
    )

    shares = both(together, apart)
    hours = allocation.hours
    if hours is not None:
        part = np.divide(
            together, allocation.shares, out=1.0 - prefers, where=allocation.shares > _SAME
        )
        hours = both(hours * part, hours * (1 - part))

    if pieces is not None:
        at = len(cluster.types) + np.searchsorted(kinds, pieces.type)
        pieces = replace(pieces, type=np.where(prefers[pieces.row, pieces.type], at, pieces.type))

    return of_both, replace(
        allocation,
        shares=shares,
        effective_throughput=effective_throughput(of_both, shares),
        hours=hours,
        pieces=pieces,
        infeasible=(*allocation.infeasible, *messages),
    )


def _share_on_one_server(shares: Floats, scale: Floats, workers: float, size: float) -> Floats:
    """The part of each row's share for which some server has room: big jobs first, on the fullest
    with room.
    """
    rooms = {size: workers // size, workers % size: 1.0}
    part = np.zeros(len(shares))
    for need in np.unique(scale)[::-1].tolist():
        alike = scale == need
        left = total = float(shares[alike].sum())
        for room in sorted(room for room in rooms if room >= need):
            jobs = room // need
            taken = min(rooms[room], left / jobs)
            rooms[room] -= taken
            rooms[room - jobs * need] = rooms.get(room - jobs * need, 0.0) + taken
            left -= taken * jobs

        part[alike] = 1 - left / total if total > 0 else 0.0

    return part


class PlannedPiece(NamedTuple):
    """One piece of time."""

    row: int
    type: int
    start: float
    end: float
    share: float


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
            row = next_row
            kind = next_kind
            begun = start
            held = share
        until = end

    yield PlannedPiece(row, kind, begun, until, held)


def timetable(problem: AllocationProblem, allocation: ClusterAllocation) -> list[PlannedPiece]:
    """The pieces of a plan by row, and of rows with hours but no fixed times: by arrival, as early
    as workers are free.

    Such a row runs on one type after the other, on the workers that fixed pieces and earlier rows
    leave.
    """
    table = list[PlannedPiece]()
    columns = allocation.pieces
    if columns is not None:
        # By row, type and start, without those of no length.
        order = np.lexsort((columns.start, columns.type, columns.row))
        order = order[(columns.share * (columns.end - columns.start))[order] > _NO_HOURS * 3600]
        ordered = (getattr(columns, name)[order].tolist() for name in PlannedPiece._fields)
        table = list(_joined(map(PlannedPiece, *ordered)))

    if allocation.hours is not None:
        table += _in_free_time(problem, allocation.hours, table)

    return sorted(table, key=lambda piece: (piece.row, piece.start))


def _in_free_time(
    problem: AllocationProblem, hours: Floats, fixed: list[PlannedPiece]
) -> Iterator[PlannedPiece]:
    planned = {piece.row for piece in fixed}
    scale = scale_of_rows(problem)
    held = [
        [(piece, float(scale[piece.row])) for piece in fixed if piece.type == kind]
        for kind in range(hours.shape[1])
    ]
    free = [
        _FreeWorkers(*pair) for pair in zip(problem.cluster.workers.tolist(), held, strict=True)
    ]
    others = [
        row for row in np.flatnonzero(hours.sum(axis=1) > _NO_HOURS).tolist() if row not in planned
    ]
    arrival = problem.jobs.arrival

    for row in sorted(
        others, key=lambda row: float(arrival[row]) if row < len(arrival) else np.inf
    ):
        begin = 0.0
        for kind in np.flatnonzero(hours[row] > _NO_HOURS).tolist():
            taken = free[kind].take(float(hours[row, kind]) * 3600, begin, float(scale[row]))
            for piece in _joined(PlannedPiece(row, kind, *part) for part in taken):
                yield piece
                begin = piece.end


class _FreeWorkers:
    """Free workers of one type over time, constant between `times`; after the last, all are
    free."""

    def __init__(self, workers: float, held: list[tuple[PlannedPiece, float]]) -> None:
        edges = np.array(
            [
                (time, sign)
                for piece, _ in held
                for time, sign in ((piece.start, 1), (piece.end, -1))
            ]
        )

        used = np.repeat([scale * piece.share for piece, scale in held], 2)
        times, places = np.unique(np.append(edges.reshape(-1, 2)[:, 0], 0.0), return_inverse=True)
        changes = np.bincount(places[:-1], edges.reshape(-1, 2)[:, 1] * used, len(times))
        self._times: list[float] = times.tolist()
        self._free: list[float] = np.maximum(workers - np.cumsum(changes), 0.0).tolist()
        self._first = 0
        """Before this place no worker is free."""

    def take(
        self, seconds: float, begin: float, scale: float
    ) -> Iterator[tuple[float, float, float]]:
        """The times, with shares, in which a row gets its seconds, from `begin` on."""
        place = max(self._cut(begin), self._first)
        while place < len(self._times) and seconds > _NO_HOURS * 3600:
            share = min(1.0, self._free[place] / scale)
            if share > _SAME:
                start = self._times[place]
                self._cut(start + seconds / share)
                end = (
                    self._times[place + 1]
                    if place + 1 < len(self._times)
                    else start + seconds / share
                )
                self._free[place] = max(self._free[place] - scale * share, 0.0)
                seconds -= share * (end - start)
                yield start, end, share

            place += 1

        while self._first < len(self._free) - 1 and self._free[self._first] <= _SAME:
            self._first += 1

    def _cut(self, time: float) -> int:
        """Makes this one of the times; returns its place."""
        place = bisect_right(self._times, time) - 1
        if self._times[place] == time:
            return place
        self._times.insert(place + 1, time)
        self._free.insert(place + 1, self._free[place])
        return place + 1
