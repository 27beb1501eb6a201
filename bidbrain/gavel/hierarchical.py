"""`hierarchical`: weighted fairness over entities, fairness or FIFO within, by water filling
(section 5.4.3).
"""

from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from bidbrain.arrays import Bools, Floats, Ints
from bidbrain.gavel import ENTITY_POLICIES
from bidbrain.gavel.baselines import allocation
from bidbrain.gavel.fairness import progress_rows
from bidbrain.gavel.problem import (
    AllocationProblem,
    BadProblem,
    ClusterAllocation,
    Entity,
    ShareColumns,
    equal_throughput,
    rows_of,
    runnable,
)
from bidbrain.gavel.sifting import Groups, LevelObjective, PriceStart, Sifted, excess, sift
from bidbrain.lp import INF, CannotHold, GrowingSolver, LinearProgram, SolverFailed

# Share of a rise that a job's level must be charged for the job to be a bottleneck; less is
# rounding.
_BINDING = 1e-9
# Fraction of a level that stuck jobs keep, so that solver tolerance does not make the next rise
# infeasible.
_KEPT = 1 - 1e-8
_FULL = 1 - 1e-9
# What tolerance may take of levels that were reached, from the least on.
_LEVEL_TOLERANCES = (1e-8, 1e-6, 1e-4)
# Cost over worth at which prices exclude levels, and part of the largest price that is none: more
# than rounding.
_EXCLUDED, _UNPRICED = 1e-9, 1e-8


def hierarchical_policy(problem: AllocationProblem, /) -> ClusterAllocation:
    """Raises all jobs in proportion to their weights until some cannot rise further, then the
    others, and so on.

    A job cannot rise if it runs all the time. When that happens follows from the weights, so a
    bisection over these events finds the first for which workers do not suffice; one program then
    finds how far the others rise. A bottleneck is recognized by its level's price: a positive price
    means that the level is tight in every optimum, so that the job cannot rise unless another
    falls. (The paper finds such jobs with a mixed-integer program.) An entity's weight goes to
    those of its jobs that can rise: by their weights, or all of it to the earliest. Jobs without an
    entity belong to one more, of weight 1; without any entities this is water filling by the jobs'
    own weights.

    The objective is the level of the first rise, which is what max-min fairness maximizes.
    """
    equal = equal_throughput(problem)
    jobs = np.flatnonzero(equal > 0)
    if not len(jobs):
        nothing = np.zeros((rows_of(problem), len(problem.cluster.types)))
        return allocation(problem, nothing, 0.0)

    columns = ShareColumns.of(problem)
    best = columns.most()[jobs]
    per_unit = equal[jobs] / best
    unit = per_unit / problem.jobs.scale[jobs]
    queues = _queues(problem, jobs, unit)
    program = _Alone(problem, jobs) if problem.pairs is None else _Paired(columns, jobs)
    filling = _Filling(queues, program)
    first = filling.rise()
    while any(queue.open.any() for queue in queues):
        filling.rise()

    return allocation(problem, filling.shares, first)


@dataclass(frozen=True, slots=True)
class LevelDemand:
    """Each job's progress must be at least `base + slope t`; `full` are jobs that make their most
    by then.
    """

    base: Floats
    slope: Floats
    full: Bools


@dataclass(slots=True)
class Queue:
    """An entity's jobs by arrival, as rows of the program: the progress per unit of level, and
    which can still rise.

    All rising jobs share one level: that of the entity, or of its earliest job. Its weight is
    divided among the rising jobs by their weights. A job rises until workers do not suffice, or
    until its progress is `most`: what it makes if it runs all the time on the fastest type that is
    not exhausted.
    """

    entity: Entity
    rows: Ints
    weight: Floats
    need: Floats
    open: Bools
    most: Floats
    level: float = 0.0

    def fill_times(self) -> tuple[Ints, Floats]:
        """The open jobs (positions) in the order in which they make their most, and when, if
        workers suffice.
        """
        places = np.flatnonzero(self.open)
        top = (self.most / self.need)[self.open]
        weight = self.weight[places]
        if self.entity.policy == "fifo":
            begins = np.where(np.arange(len(top)) == 0, self.level, 0.0)
            rise = top - begins
            work = np.maximum(rise, 0.0) * weight
            worked = np.cumsum(work)
            return places, worked / self.entity.weight

        order = np.argsort(top, kind="stable")
        tops = np.maximum(top[order], self.level)
        rise = np.diff(tops, prepend=self.level)
        from_last = weight[order][::-1]
        rest = np.cumsum(from_last)[::-1]
        time = np.cumsum(rise * rest) / self.entity.weight
        return places[order], time

    def demand(self, demand: LevelDemand, after: float) -> None:
        """Sets the demand of the open jobs in the time that follows `after`, until the next of them
        makes its most."""
        places, times = self.fill_times()
        done = int(np.searchsorted(times, after, side="right"))
        full = self.rows[places[:done]]
        most_of_done = self.most[places[:done]]
        demand.base[full], demand.slope[full], demand.full[full] = (most_of_done, 0.0, True)

        waiting = places[done:]
        if not len(waiting):
            return

        fifo = self.entity.policy == "fifo"
        rising = waiting[:1] if fifo else waiting
        rising_weight = self.weight[rising].sum()
        rate = self.entity.weight / float(rising_weight)
        begin = 0.0
        if done:
            begin = float(times[done - 1])
        level = 0.0 if fifo and done else self.level
        if done and not fifo:
            last = places[done - 1]
            last_level = self.most[last] / self.need[last]
            level = max(level, float(last_level))

        rows = self.rows[rising]
        need = self.need[rising]
        at_begin = level - rate * begin
        demand.base[rows], demand.slope[rows] = need * at_begin, need * rate
        rows = self.rows[waiting[len(rising) :]]
        demand.base[rows] = demand.slope[rows] = 0.0

    def close(self, level: Floats, stuck: Bools, most: Floats) -> None:
        """Stuck jobs stay where they are; the others go on from their levels. The arrays are over
        all rows.
        """
        self.most = most[self.rows]
        self.open = self.open & ~stuck[self.rows]
        rest = np.flatnonzero(self.open)[:1]
        levels = level[self.rows[rest]] / self.need[rest]
        self.level = float(levels.sum())


def _queues(problem: AllocationProblem, jobs: Ints, unit: Floats) -> list[Queue]:
    known = {entity.name: entity for entity in problem.entities}
    members: dict[str | None, list[int]] = {}
    for row, m in enumerate(jobs.tolist()):
        members.setdefault(problem.jobs.entity[m], []).append(row)
    queues = []

    for name, rows in members.items():
        entity = known.get(name) if name is not None else Entity("")
        if entity is None or entity.policy not in ENTITY_POLICIES:
            fault = "is not among the entities"
            if entity is not None:
                fault = f"has policy {entity.policy!r}"
            raise BadProblem(
                f"entity {name!r} {fault}: give it a weight and one of {', '.join(ENTITY_POLICIES)}"
            )
        arrivals = problem.jobs.arrival[jobs[rows]]
        by_arrival = np.argsort(arrivals, kind="stable")
        ordered = np.array(rows)[by_arrival]
        weight = problem.jobs.weight[jobs[ordered]]
        every = np.ones(len(rows))
        need = weight * unit[ordered]
        queue = Queue(entity, ordered, weight, need, every > 0, every)
        queues.append(queue)

    if not problem.entities:
        # Then a unit of level is a unit of every job's own weight.
        weight_of_all = queues[0].weight.sum()
        queues[0].entity = Entity("", weight=float(weight_of_all))

    return queues


@dataclass(frozen=True, slots=True)
class _Rise:
    """When it ends, X, the loss of time per unit of each job's level, and the most that each job
    can still reach.
    """

    time: float
    shares: Floats
    prices: Floats
    most: Floats


class _Filling:
    """The state between two rises: the queues, and the levels of the jobs that are stuck."""

    def __init__(self, queues: list[Queue], program: "_Alone | _Paired") -> None:
        self._queues = queues
        self._program = program
        count = sum(len(queue.rows) for queue in queues)
        self._stuck = np.zeros(count)
        self.shares = np.zeros((0, 0))

    def rise(self) -> float:
        """Lifts all rising jobs until workers do not suffice for some, or all run all the time;
        those are stuck.

        The result is the level at which the first job stopped.
        """
        moments = [queue.fill_times()[1] for queue in self._queues]
        events = np.unique(np.concatenate(moments))
        last = self._last(events)
        begin = 0.0
        if last >= 0:
            begin = float(events[last])
        at = self._demand(begin)
        rise = self._raised(at, begin)
        self.shares = rise.shares
        level = at.base + at.slope * rise.time
        charge = rise.prices * at.slope
        is_full = level >= rise.most * _FULL
        is_bound = (charge >= _BINDING) | is_full
        stuck = at.full | (at.slope > 0) & is_bound
        if not stuck[self._open()].any():
            # A degenerate optimum: the largest charge is the best sign of a bottleneck.
            stuck |= (at.slope > 0) & (charge >= charge.max())

        self._stuck = np.where(stuck, level, self._stuck)
        for queue in self._queues:
            queue.close(level, stuck, rise.most)
        is_open = np.isin(np.arange(len(stuck)), self._open())
        self._program.settle(~is_open)
        return min(float(events[0]), rise.time)

    def _last(self, events: Floats) -> int:
        """The last event for which workers suffice, or -1."""
        low = -1
        high = len(events)
        while high - low > 1:
            at = (low + high) // 2
            if self._program.priced:
                # The last event that is not excluded by prices, which say so without a solution.
                at = low
                while high - at > 1:
                    middle = (at + high) // 2
                    level_there = self._level(float(events[middle]))
                    excluded = self._program.excludes(level_there)
                    at, high = (at, middle) if excluded else (middle, high)
                if at == low:
                    break

            level = self._level(float(events[at]))
            suffices = self._program.times_reached(level) >= _FULL
            low, high = (at, high) if suffices else (low, at)
        return low

    def _level(self, time: float) -> Floats:
        at = self._demand(time)
        return np.asarray(_kept(at) + at.slope * time)

    def _open(self) -> Ints:
        rows = [queue.rows[queue.open] for queue in self._queues]
        return np.concatenate(rows)

    def _demand(self, after: float) -> LevelDemand:
        nothing_rising = np.zeros(len(self._stuck))
        nothing_full = np.zeros(len(self._stuck), dtype=bool)
        demand = LevelDemand(self._stuck.copy(), nothing_rising, nothing_full)
        for queue in self._queues:
            queue.demand(demand, after)
        return demand

    def _raised(self, at: LevelDemand, time: float) -> _Rise:
        """The rise from a time for which workers suffice."""
        with suppress(CannotHold):
            return self._program.raised(_kept(at), at.slope, time)
        # Levels that were reached before may be lost by the solver's tolerance.
        level = _kept(at) + at.slope * time
        level *= min(1.0, self._program.times_reached(level))
        for lost in _LEVEL_TOLERANCES:
            with suppress(CannotHold):
                lowered = level * (1 - lost)
                return self._program.raised(lowered - at.slope * time, at.slope, time)

        raise SolverFailed(
            f"hierarchical: levels that were reached are lost after {time:g}: check the spread of "
            "the input"
        )


def _kept(at: LevelDemand) -> Floats:
    """The base levels, less what rounding may take from those that do not rise."""
    return np.where(at.slope > 0, at.base, at.base * _KEPT)


class _Alone:
    """The program of a rise for jobs that do not share workers.

    Rows are jobs that run somewhere, and their progress is over that on the fastest type.

    A type with a price at the end of a rise is exhausted: stuck jobs need all of it for their
    levels. The others rise on the remaining types. Stuck jobs for which no other mix is as good
    keep their shares.
    """

    def __init__(self, problem: AllocationProblem, jobs: Ints) -> None:
        can = runnable(problem)
        usable = np.where(can, problem.jobs.throughputs, 0.0)[jobs]
        self._jobs = jobs
        self._shares = np.zeros(can.shape)
        self._progress = usable / usable.max(axis=1, keepdims=True)
        self._held = problem.jobs.scale[jobs].astype(np.float64)
        self._workers = problem.cluster.workers
        self._rows = np.arange(len(jobs))
        self._free = np.ones(can.shape[1], dtype=bool)
        self._prices: Floats | None = None
        self._last: Sifted | None = None

    @property
    def priced(self) -> bool:
        """Whether workers have prices that can exclude levels."""
        return self._prices is not None

    def excludes(self, level: Floats) -> bool:
        """Whether the last prices prove that these levels cannot be reached."""
        assert self._prices is not None
        worth = float(self._prices @ self._workers)
        over = excess(self._groups, level[self._rows], self._prices)
        return over > _EXCLUDED * worth

    def times_reached(self, level: Floats) -> float:
        """How many times these levels can be reached."""
        level = level[self._rows]
        if not level.any():
            return np.inf
        nothing = 0.0 * level
        objective = LevelObjective(nothing, level, nothing, float(level.sum()))
        return self._sift(objective, 1.0).z

    def raised(self, base: Floats, slope: Floats, time: float) -> _Rise:
        """The last time at which progress of `base + slope time` is possible; it is expected to be
        near `time`.
        """
        gain = float(slope.sum())
        nothing = np.zeros(len(self._rows))
        objective = LevelObjective(base[self._rows], slope[self._rows], nothing, gain)
        sifted = self._last = self._sift(objective, time)
        self._shares[self._jobs[self._rows]] = np.clip(sifted.shares, 0.0, 1.0)
        prices = np.zeros(len(base))
        most = self._progress.max(axis=1)

        if gain:
            prices[self._rows] = sifted.level_prices / gain
            used = self._held[self._rows] @ sifted.shares
            dearest = sifted.prices.max()
            unpriced = sifted.prices <= _UNPRICED * dearest
            is_free = used < self._workers * _FULL
            self._free &= unpriced | is_free
            reachable = np.where(self._free, self._progress, 0.0)
            most = reachable.max(axis=1)

        return _Rise(sifted.z if gain else time, self._shares, prices, most)

    def settle(self, stuck: Bools) -> None:
        """These jobs stay on the levels of the last rise."""
        assert self._last is not None
        fixed = stuck[self._rows] & ~self._last.tied
        rows = self._rows[fixed]
        used = self._held[rows] @ self._shares[self._jobs[rows]]
        unused = self._workers - used
        self._workers = np.maximum(0.0, unused)
        self._progress[np.ix_(~stuck, ~self._free)] = 0.0
        self._rows = self._rows[~fixed]
        self._prices = None

    @property
    def _groups(self) -> Groups:
        progress = self._progress[self._rows]
        held = self._held[self._rows]
        return Groups(progress, held, self._workers)

    def _sift(self, objective: LevelObjective, z: float) -> Sifted:
        start = None
        if self._prices is not None:
            start = PriceStart(self._prices, z)
        sifted = sift(self._groups, objective, start)
        self._prices = sifted.prices if sifted.prices.any() else None
        return sifted


class _Paired:
    """The program of a rise for jobs that can share workers in pairs. Columns are X, then z, then
    how many times the base levels are reached."""

    priced = False

    def __init__(self, columns: ShareColumns, jobs: Ints) -> None:
        self._columns = columns
        self._z = columns.count
        count = len(jobs)
        base = columns.count + 1
        z_columns = np.full(count, self._z)
        levels = progress_rows(columns, columns.most(), jobs, np.ones(count), z_columns)
        rows = np.concatenate([levels.rows, np.arange(count)])
        base_columns = np.full(count, base)
        columns_of_levels = np.concatenate([levels.columns, base_columns])
        values = np.concatenate([levels.values, -np.ones(count)])
        levels = replace(levels, rows=rows, columns=columns_of_levels, values=values)

        nothing = np.zeros(base + 1)
        unbounded = np.full(base + 1, INF)
        program = LinearProgram(nothing, nothing, unbounded, (levels, *columns.limits()))
        first_columns = np.append(np.arange(columns.alone), [self._z, base])
        self._solver = GrowingSolver(program, first_columns)

    def excludes(self, _level: Floats) -> bool:
        return False

    def times_reached(self, level: Floats) -> float:
        if not level.any():
            return np.inf
        self._set(level, 0.0 * level)
        return self._times(INF)

    def raised(self, base: Floats, slope: Floats, time: float) -> _Rise:
        """As without pairs. Base levels that the solver's tolerance has lost are lowered."""
        self._set(base, slope)
        full_times = self._times(1.0) * _FULL
        self._solver.set_column(self._z + 1, full_times, 1.0)
        self._maximize(self._z)
        solution = self._solver.optimum()
        prices = np.abs(solution.prices[: len(base)])
        shares = self._columns.matrix(solution.x)
        reached = float(solution.x[self._z]) if slope.any() else time
        return _Rise(reached, shares, prices, np.ones(len(base)))

    def settle(self, _stuck: Bools) -> None:
        """Without prices of types, nothing has to be settled."""

    def _set(self, base: Floats, slope: Floats) -> None:
        demands = zip(base.tolist(), slope.tolist(), strict=True)
        for row, (a, b) in enumerate(demands):
            self._solver.set_entry(row, self._z, -b)
            self._solver.set_entry(row, self._z + 1, -a)
        most_z = INF if slope.any() else 0.0
        self._solver.set_column(self._z, 0.0, most_z)

    def _times(self, most: float) -> float:
        self._solver.set_column(self._z + 1, 0.0, most)
        self._maximize(self._z + 1)
        return float(self._solver.optimum().x[self._z + 1])

    def _maximize(self, column: int) -> None:
        gain = np.zeros(self._z + 2)
        gain[column] = 1.0
        self._solver.set_gain(gain)
