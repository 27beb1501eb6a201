"""Programs over many jobs that share few types of workers, solved for the few jobs that are
undecided.

At given prices of workers each group of identical jobs does best on one type, or on a mix of two
that just reaches its level (idling may be one of them). At the optimal prices only about as many
groups as there are types are indifferent between several mixes. So the program is solved for some
undecided groups, with the others on the mix that is best at the current prices; groups whose mix is
not the best at the new prices become undecided too, until there are none. Then the solution is
optimal for the whole program, because its prices prove it.
"""

from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from bidbrain.arrays import Bools, Floats, Ints
from bidbrain.lp import (
    AT_LOWER,
    AT_UPPER,
    BASIC,
    INF,
    CannotHold,
    ConstraintRows,
    LinearProgram,
    SimplexBasis,
    Solver,
    at_most,
)

# Up to this number of groups, the program is solved as it is.
_SOLVED_WHOLE, _SAMPLE_PER_STAGE = 64, 12
# How many groups are undecided at first.
_MIN_UNDECIDED, _UNDECIDED_ONE_IN = 32, 6
# With prices of a similar program, the first sample is one group in this many.
_SAMPLE_ONE_IN = 4
# Relative loss of value above which a mix is not the best; less is rounding.
_WORSE_BY = 1e-10
# Relative difference of value below which mixes count as equally good.
_EQUAL_VALUE, _EQUAL_LEVEL = 1e-7, 1e-9
_SHARE_TOLERANCE = 1e-12
_AT_LOWER_OR_BASIC = np.array([AT_LOWER, BASIC], dtype=object)
_AT_UPPER_OR_BASIC = np.array([AT_UPPER, BASIC], dtype=object)
_REACHABLE_PART = 1 - 1e-6


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups of identical jobs: progress on each type if they run there all the time (0 where they
    cannot run), and the workers that a group holds if all its jobs do.

    In a sequence of stages (rows of `workers`, by types), a group uses the workers of its own
    stage, and what earlier stages leave. `cost` is what a group pays for all of the time on each
    type.
    """

    progress: Floats
    held: Floats
    workers: Floats
    stage: Ints | None = None
    cost: Floats | None = None

    def part(self, of: Ints) -> "Groups":
        share = self.held[of].sum() / self.held.sum()
        stage = None
        if self.stage is not None:
            stage = self.stage[of]
        cost = None
        if self.cost is not None:
            cost = self.cost[of]
        workers = self.workers * share
        return Groups(self.progress[of], self.held[of], workers, stage, cost)

    def at_stages(self, values: Floats) -> Floats:
        """Each group's row of values that are given by stage and type."""
        if self.stage is None:
            return values
        by_stage = values.reshape(-1, self.progress.shape[1])
        return by_stage[self.stage]

    def used(self, shares: Floats, of: Bools) -> Floats:
        """The workers that some groups use, by stage and type."""
        held = (self.held * of)[:, None] * shares
        if self.stage is None:
            return np.asarray(held.sum(axis=0))
        types = self.progress.shape[1]
        used = np.zeros((len(self.workers), types))
        np.add.at(used, self.stage, held)
        return used.ravel()


@dataclass(frozen=True, slots=True)
class LevelObjective:
    """Maximize `gain_z z + sum gain progress`, with each group's progress at least `base + slope
    z`.
    """

    base: Floats
    slope: Floats
    gain: Floats
    gain_z: float

    def part(self, of: Ints) -> "LevelObjective":
        """The objective of some of the groups, with their part of `gain_z`."""
        share = 1.0
        if self.gain_z:
            share = self.slope[of].sum() / self.slope.sum()
        gain = self.gain_z * share
        return LevelObjective(self.base[of], self.slope[of], self.gain[of], gain)


@dataclass(frozen=True, slots=True)
class PriceStart:
    """Prices of workers, and z, at the optimum of a similar program."""

    prices: Floats
    z: float


@dataclass(frozen=True, slots=True)
class Sifted:
    """The optimum: z, the shares of the groups, the prices of workers, the loss per unit of each
    group's level, and which groups have several best mixes."""

    z: float
    shares: Floats
    prices: Floats
    level_prices: Floats
    tied: Bools

    def start(self) -> PriceStart:
        """Where a similar program may start."""
        return PriceStart(self.prices, self.z)


def sift(groups: Groups, objective: LevelObjective, start: PriceStart | None = None) -> Sifted:
    """The optimum of the program. Raises `CannotHold` if no z lets all groups reach their
    levels."""
    # Prices that nearly hold, from samples of twice as many groups each time: a few if there is a
    # start.
    count = len(groups.held)
    few = _SOLVED_WHOLE if groups.stage is None else _SAMPLE_PER_STAGE * len(groups.workers)
    size = few if start is None else max(few, count // _SAMPLE_ONE_IN)
    start = start or PriceStart(np.zeros(groups.workers.size), 0.0)
    while size < count:
        places = np.linspace(0, count - 1, size)
        sample = places.astype(np.int64)
        some = groups.part(sample)
        part = objective.part(sample)
        if size == few and not objective.gain_z and groups.stage is None:
            times = times_reached(some, part.base)
            reachable = min(1.0, times * _REACHABLE_PART)
            part = replace(part, base=part.base * reachable)
        # A sample may lack workers for its levels, though the whole has enough: then its prices say
        # nothing.
        with suppress(CannotHold):
            start = _sift_from(some, part, start).start()
        size *= 2

    return _sift_from(groups, objective, start)


def _sift_from(groups: Groups, objective: LevelObjective, start: PriceStart) -> Sifted:
    count = len(groups.held)
    sieve = _Sieve(groups, objective)
    undecided = count
    if count > _SOLVED_WHOLE:
        # With stages, prices of a sample say less.
        undecided = (
            max(_MIN_UNDECIDED, count // _UNDECIDED_ONE_IN)
            if groups.stage is None
            else 2 * count // 3
        )

    while undecided < count:
        try:
            return sieve.solve(sieve.closest(undecided, start), start)
        except CannotHold:
            # There may be no solution with the others where they are, although the program has one.
            undecided *= 4

    return sieve.solve(np.arange(count), start)


def excess(groups: Groups, level: Floats, prices: Floats) -> float:
    """The least cost of the workers for these levels at these prices, minus the price of all
    workers there are.

    A positive excess proves that workers do not suffice.
    """
    nothing = 0.0 * level
    objective = LevelObjective(level, nothing, nothing, 0.0)
    sieve = _Sieve(groups, objective)
    worth = float(prices @ groups.workers)
    # Each group has its cheapest mix.
    best = sieve._values(PriceStart(prices, 0.0)).max(axis=1)
    return -float(best.sum()) - worth


def times_reached(groups: Groups, level: Floats) -> float:
    """How many times their levels the groups can reach."""
    if not level.any():
        return np.inf
    nothing = 0.0 * level
    objective = LevelObjective(nothing, level, nothing, float(level.sum()))
    return sift(groups, objective).z


@dataclass(frozen=True, slots=True)
class _Mixes:
    """A mix for each group: all time on `fast` if that equals `slow`, else just enough there to
    reach the level.

    Type 0 is to idle, the others count from 1. The time on `fast` is `at_zero + per_z z`.
    """

    slow: Ints
    fast: Ints
    at_zero: Floats
    per_z: Floats

    def shares(self, types: int) -> tuple[Floats, Floats]:
        """Shares of time (groups by types) at z = 0, and per unit of z."""
        every = np.arange(len(self.slow))
        at_zero = np.zeros((len(every), types + 1))
        per_z = np.zeros((len(every), types + 1))
        at_zero[every, self.slow] += 1 - self.at_zero
        at_zero[every, self.fast] += self.at_zero
        per_z[every, self.slow] -= self.per_z
        per_z[every, self.fast] += self.per_z
        return at_zero[:, 1:], per_z[:, 1:]


class _Sieve:
    """A program, and how far each group gets on each type; column 0 is to idle."""

    def __init__(self, groups: Groups, objective: LevelObjective) -> None:
        self._groups = groups
        self._objective = objective
        count, types = groups.progress.shape
        self._every = np.arange(count)
        self._reach = np.column_stack([np.zeros(count), groups.progress])
        self._most = self._reach.max(axis=1, initial=0.0)
        always = np.ones(count, dtype=bool)
        self._can = np.column_stack([always, groups.progress > 0])

        # Without a gain, no group does more than its level asks for.
        self._single = self._can & (objective.gain[:, None] > 0)
        self._single[:, 0] = True
        kinds = np.arange(types + 1)
        differs = kinds[:, None] != kinds
        self._low, self._high = np.nonzero(differs)

        # Mixes of two come first: where one type is as good, they leave more to others.
        self._slow = np.concatenate([self._low, kinds])
        self._fast = np.concatenate([self._high, kinds])
        fast_reach = self._reach[:, self._high]
        slow_reach = self._reach[:, self._low]
        self._width = fast_reach - slow_reach
        slow_can = self._can[:, self._low]
        fast_can = self._can[:, self._high]
        self._usable = (self._width > 0) & slow_can & fast_can

    def closest(self, count: int, start: PriceStart) -> Ints:
        """The groups to which it matters least which mix they have, for the workers they hold."""
        value = self._values(start)
        last_two = value.shape[1] - 2
        two = np.partition(value, last_two, axis=1)[:, -2:]
        with np.errstate(invalid="ignore"):
            second = two[:, 0]
            ahead = two[:, 1] - two[:, 0]
            lead_of_value = np.where(np.isfinite(second), ahead, np.inf)
            lead = lead_of_value / self._groups.held
        return np.argsort(lead, kind="stable")[:count]

    def solve(self, undecided: Ints, start: PriceStart) -> Sifted:
        """The optimum, beginning with these undecided groups."""
        decided = np.ones(len(self._every), dtype=bool)
        decided[undecided] = False

        # The best mix of each group, and its share on the fast type.
        option = self._values(start).argmax(axis=1)
        slow = self._slow[option]
        fast = self._fast[option]
        reach = self._reach[self._every, slow]
        fast_reach = self._reach[self._every, fast]
        gap = fast_reach - reach
        width = np.where(slow != fast, gap, 1.0)
        missing = self._objective.base - reach
        share = missing / width
        at_zero = np.where(slow != fast, share, 1.0)
        per_z = np.where(slow != fast, self._objective.slope / width, 0.0)
        mixes = _Mixes(slow, fast, at_zero, per_z)

        while True:
            sifted = self._with(mixes, decided, start)
            start = sifted.start()

            # The decided groups whose mix is not the best, or not possible.
            points = self._points(start.prices)
            best = self._values(start).max(axis=1)
            part = mixes.at_zero + mixes.per_z * start.z
            low = points[self._every, mixes.slow]
            high = points[self._every, mixes.fast]
            now = low + part * (high - low)
            least = self._levels(start.z) * (1 - _SHARE_TOLERANCE)
            short = self._reach[self._every, mixes.fast] < least
            larger = np.maximum(np.abs(best), np.abs(now))
            is_worse = best - now > _WORSE_BY * larger
            impossible = (part < -_SHARE_TOLERANCE) | (part > 1 + _SHARE_TOLERANCE)
            wrong = decided & (is_worse | impossible | short)
            if not wrong.any():
                return sifted
            decided &= ~wrong

    def _values(self, start: PriceStart) -> Floats:
        """The value of each mix of two and each single type; minus infinity where it does not fit
        the level.
        """
        level = self._levels(start.z)[:, None]
        points = self._points(start.prices)
        low = self._reach[:, self._low]
        fast_reach = self._reach[:, self._high]
        fits = self._usable & (low < level) & (level <= fast_reach)
        nothing = np.zeros(low.shape)
        part = np.divide(level - low, self._width, out=nothing, where=fits)
        slow_points = points[:, self._low]
        rise = points[:, self._high] - slow_points
        value = points[:, self._low] + part * rise
        can_alone = self._single & (level <= self._reach)
        alone = np.where(can_alone, points, -np.inf)
        mixed = np.where(fits, value, -np.inf)
        return np.hstack([mixed, alone])

    def _levels(self, z: float) -> Floats:
        rising = self._objective.slope * z
        level = np.minimum(self._objective.base + rising, self._most)
        return np.asarray(level)

    def _points(self, prices: Floats) -> Floats:
        """The value of all time on each type."""
        groups = self._groups
        values = self._objective.gain[:, None] * self._reach
        held = groups.held[:, None]
        at_stages = groups.at_stages(prices)
        values[:, 1:] -= held * at_stages
        if groups.cost is not None:
            values[:, 1:] -= groups.cost
        return np.asarray(values)

    def _with(self, mixes: _Mixes, decided: Bools, start: PriceStart) -> Sifted:
        """The optimum if the decided groups keep their mixes."""
        types = self._groups.progress.shape[1]
        at_zero, per_z = mixes.shares(types)
        undecided = np.flatnonzero(~decided)
        workers = self._groups.workers.ravel()
        used = self._groups.used(at_zero, decided)
        left = workers - used
        used_per_z = self._groups.used(per_z, decided)
        program = self._program(undecided, left, used_per_z)
        basis = _basis(mixes.slow[undecided], mixes.fast[undecided], start.prices, types)
        solver = Solver(program, basis, brief=True)

        solution = solver.optimum()
        cells = len(undecided) * types
        z = float(solution.x[cells])
        first_worker = 2 * len(undecided)
        worker_prices = solution.prices[first_worker:]
        prices = np.abs(worker_prices)
        shares = at_zero + per_z * z
        decided_shares = solution.x[:cells]
        shares[undecided] = decided_shares.reshape(-1, types)
        points = self._points(prices)
        slow_points = points[self._every, mixes.slow]
        fast_points = points[self._every, mixes.fast]
        drop = slow_points - fast_points
        fast_reach = self._reach[self._every, mixes.fast]
        slow_reach = self._reach[self._every, mixes.slow]
        width = fast_reach - slow_reach
        level_prices = np.divide(drop, width, out=np.zeros(len(drop)), where=width > 0)
        prices_of_levels = solution.prices[: len(undecided)]
        level_prices[undecided] = np.abs(prices_of_levels)

        positive_prices = np.maximum(level_prices, 0.0)
        tied = self._tied(PriceStart(prices, z))
        return Sifted(z, shares, prices, positive_prices, tied)

    def _tied(self, start: PriceStart) -> Bools:
        """The groups that another mix suits as well as the best."""
        value = self._values(start)
        level = self._levels(start.z)[:, None]
        # A mix that needs all of the time on its fast type is no other than that type alone.
        above = self._reach[:, self._fast] - level
        whole = above <= _EQUAL_LEVEL * level
        kinds = np.where(whole, self._fast, self._slow)
        mix = kinds * self._reach.shape[1] + self._fast
        best = value.argmax(axis=1)[:, None]
        most = np.take_along_axis(value, best, axis=1)
        good = value >= most - _EQUAL_VALUE * np.abs(most)
        differs = mix != np.take_along_axis(mix, best, axis=1)
        is_tied = (good & differs).any(axis=1)
        return np.asarray(is_tied)

    def _program(self, of: Ints, left: Floats, per_z: Floats) -> LinearProgram:
        """Columns are the undecided groups' shares, then z, then what each stage leaves to the
        next; rows their levels and times, then the workers by stage and type."""
        groups = self._groups
        objective = self._objective
        progress = groups.progress[of]
        types = groups.progress.shape[1]
        cell = np.arange(progress.size)
        every = np.arange(len(of))
        z = progress.size
        group = cell // types
        passed = np.arange(len(left) - types)

        rows = np.concatenate([group, every])
        z_cells = np.full(len(of), z)
        columns = np.concatenate([cell, z_cells])
        minus_slope = -objective.slope[of]
        values = np.concatenate([progress.ravel(), minus_slope])
        names = of.tolist()
        unbounded = np.full(len(of), INF)
        level = ConstraintRows(
            "group {} of jobs: its level",
            names,
            rows,
            columns,
            values,
            objective.base[of],
            unbounded,
        )

        whole_time = np.ones(len(of))
        time = at_most("group {} of jobs: its time", names, group, cell, np.ones(z), whole_time)

        # Workers that a stage leaves are a column of their own: the next stage has them.
        stage = 0
        if groups.stage is not None:
            stage = groups.stage[of[group]] * types
        numbers = np.arange(len(left))
        handed = z + 1 + passed
        each = np.ones(len(passed))
        held = np.repeat(groups.held[of], types)
        kinds = (numbers % types).tolist()
        type_rows = cell % types + stage
        rows = np.concatenate([type_rows, numbers, passed, passed + types])
        z_columns = np.full(len(left), z)
        columns = np.concatenate([cell, z_columns, handed, handed])
        values = np.concatenate([held, per_z, each, -each])
        workers = at_most("type {}: its workers", kinds, rows, columns, values, left)

        own = 0.0 if groups.cost is None else groups.cost[of]
        rising = objective.slope > 0
        room_of_levels = self._most - objective.base
        room = room_of_levels[rising] / objective.slope[rising]

        # There the first group reaches its most, running all the time.
        most_z = 0.0
        if rising.any():
            most_z = max(0.0, float(room.min()))
        gain_of_cells = progress * objective.gain[of][:, None]
        of_cells = gain_of_cells - own
        gain = np.concatenate([of_cells.ravel(), [objective.gain_z], 0.0 * passed])
        most = np.where(progress > 0, INF, 0.0)
        upper = np.concatenate([most.ravel(), [most_z], np.full(len(passed), INF)])

        lowest = np.zeros(len(gain))
        return LinearProgram(gain, lowest, upper, (level, time, workers))


def _basis(slow: Ints, fast: Ints, prices: Floats, types: int) -> SimplexBasis:
    """The basis in which the groups have their mixes, and types with a price are used up."""
    groups = len(slow)
    basic = np.zeros((groups, types + 1), dtype=bool)
    every = np.arange(groups)
    basic[every, slow] = basic[every, fast] = True

    # Status objects are picked by arrays, because there are many of them.
    inner = basic[:, 1:].ravel()
    column_states = _AT_LOWER_OR_BASIC[inner.astype(np.int64)]
    columns = column_states.tolist()
    # Above its level a group is bound by its time alone, on its level by both.
    level = _AT_LOWER_OR_BASIC[(slow == fast).astype(np.int64)].tolist()
    is_basic = basic[:, 0].astype(np.int64)
    time_states = _AT_UPPER_OR_BASIC[is_basic]
    time = time_states.tolist()
    workers = _AT_UPPER_OR_BASIC[(prices <= 0).astype(np.int64)].tolist()
    passed = [AT_LOWER] * (len(prices) - types)

    return SimplexBasis([*columns, BASIC, *passed], [*level, *time, *workers])
