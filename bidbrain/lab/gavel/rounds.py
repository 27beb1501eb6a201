"""Rounds, servers and times: which jobs run in the next round (section 5.5, Algorithm 2), whose
workers are together on one server, and when the pieces of a plan run."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from bidbrain.arrays import Bools, Floats, Ints
from bidbrain.gavel.baselines import Policy
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
        first = candidates.first.max(initial=0)
        second = candidates.second.max(initial=0)
        last = max(first, second)
        self._jobs = int(last) + 1
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
            by_debt = -priority[queue]
            in_order = queue[by_debt.argsort(kind="stable")]
            for at in in_order.tolist():
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
            held = sum(place.values())
            is_whole = held == scale
            stays = is_whole and all(free[server] >= count for server, count in place.items())
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
        spread_jobs = {job for job, place in placed.items() if len(place) > 1}
        return spread_jobs, kept


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
    on_one = np.where(fits, placement.together, 0.0)
    prefers[:count] = jobs.throughputs > on_one
    mean = jobs.throughputs

    for _ in range(_MAX_PLACINGS):
        allocation = policy(replace(problem, jobs=replace(jobs, throughputs=mean)))
        believed = mean
        together = np.where(prefers, 0.0, allocation.shares)
        for kind in np.flatnonzero(np.isfinite(placement.per_server)).tolist():
            size = float(placement.per_server[kind])
            on_kind = together[:, kind]
            workers_of_kind = float(cluster.workers[kind])
            together[:, kind] *= _share_on_one_server(on_kind, scale, workers_of_kind, size)

        apart = allocation.shares - together
        share = allocation.shares[:count]
        in_one = placement.together * together[:count]
        in_several = placement.spread * apart[:count]
        progress = in_one + in_several
        mean = np.divide(progress, share, out=mean.copy(), where=share > _SAME)
        if np.allclose(mean, believed, rtol=_PLACED):
            break

    lost = (apart[:count] > _SAME) & (placement.spread <= 0)
    cells = np.argwhere(lost).tolist()
    texts = (
        f"job {jobs.ids[m]!r}: no server of {cluster.types[kind]} has room for its {jobs.scale[m]} "
        f"workers in {apart[m, kind]:.1%} of the time, and it has no throughput on "
        f"{cluster.types[kind]}{SPREAD}: add it"
        for m, kind in cells
    )
    messages = tuple(texts)

    pieces = allocation.pieces

    def both(columns: Floats, spread: Floats) -> Floats:
        kinds_apart = spread[..., kinds]
        return np.concatenate([columns, kinds_apart], axis=-1)

    throughputs = both(placement.together, placement.spread)
    of_both = _with_columns_apart(problem, kinds, throughputs)
    shares = both(together, apart)
    hours = allocation.hours
    if hours is not None:
        part = np.divide(
            together, allocation.shares, out=1.0 - prefers, where=allocation.shares > _SAME
        )
        hours = both(hours * part, hours * (1 - part))

    if pieces is not None:
        at = len(cluster.types) + np.searchsorted(kinds, pieces.type)
        types = np.where(prefers[pieces.row, pieces.type], at, pieces.type)
        pieces = replace(pieces, type=types)

    throughput = effective_throughput(of_both, shares)
    joined_allocation = replace(
        allocation,
        shares=shares,
        effective_throughput=throughput,
        hours=hours,
        pieces=pieces,
        infeasible=(*allocation.infeasible, *messages),
    )
    return of_both, joined_allocation


def _with_columns_apart(
    problem: AllocationProblem, kinds: Ints, throughputs: Floats
) -> AllocationProblem:
    """A problem without placement that has the types of these numbers twice: jobs on one server,
    and jobs on several. These are the throughputs on both.
    """
    cluster = problem.cluster
    apart = [cluster.types[kind] + SPREAD for kind in kinds.tolist()]
    workers = np.append(cluster.workers, cluster.workers[kinds])
    usd = cluster.usd_per_hour
    if usd is not None:
        usd = np.append(usd, usd[kinds])

    pairs = problem.pairs
    if pairs is not None:
        of_pairs = np.hstack([pairs.throughputs, pairs.throughputs[:, kinds]])
        pairs = replace(pairs, throughputs=of_pairs)

    return replace(
        problem,
        cluster=Cluster((*cluster.types, *apart), workers, usd),
        jobs=replace(problem.jobs, throughputs=throughputs),
        pairs=pairs,
        placement=None,
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
            rest = room - jobs * need
            there = rooms.get(rest, 0.0)
            rooms[rest] = there + taken
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
        touches = alike and abs(until - start) <= _SAME * end
        if not touches:
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
        spans = columns.end - columns.start
        seconds = columns.share * spans
        order = order[seconds[order] > _NO_HOURS * 3600]
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
    workers = problem.cluster.workers.tolist()
    free_and_held = zip(workers, held, strict=True)
    free = [_FreeWorkers(*pair) for pair in free_and_held]
    hours_of_rows = hours.sum(axis=1)
    long_enough = np.flatnonzero(hours_of_rows > _NO_HOURS)
    others = [row for row in long_enough.tolist() if row not in planned]
    arrival = problem.jobs.arrival

    for row in sorted(
        others, key=lambda row: float(arrival[row]) if row < len(arrival) else np.inf
    ):
        begin = 0.0
        for kind in np.flatnonzero(hours[row] > _NO_HOURS).tolist():
            kind_hours = hours[row, kind]
            kind_seconds = float(kind_hours) * 3600
            taken = free[kind].take(kind_seconds, begin, float(scale[row]))
            pieces = (PlannedPiece(row, kind, *part) for part in taken)
            for piece in _joined(pieces):
                yield piece
                begin = piece.end


class _FreeWorkers:
    """Free workers of one type over time, constant between `times`; after the last, all are
    free."""

    def __init__(self, workers: float, held: list[tuple[PlannedPiece, float]]) -> None:
        moments = [
            (time, sign) for piece, _ in held for time, sign in ((piece.start, 1), (piece.end, -1))
        ]
        edges = np.array(moments)

        shares = [scale * piece.share for piece, scale in held]
        used = np.repeat(shares, 2)
        rows = edges.reshape(-1, 2)
        starts = rows[:, 0]
        times, places = np.unique(np.append(starts, 0.0), return_inverse=True)
        signed = edges.reshape(-1, 2)[:, 1] * used
        changes = np.bincount(places[:-1], signed, len(times))
        self._times: list[float] = times.tolist()
        unused = workers - np.cumsum(changes)
        left = np.maximum(unused, 0.0)
        self._free: list[float] = left.tolist()
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
                has_next = place + 1 < len(self._times)
                end = self._times[place + 1] if has_next else start + seconds / share
                still_free = self._free[place] - scale * share
                self._free[place] = max(still_free, 0.0)
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
