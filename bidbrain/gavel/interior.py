"""The max-min program by an interior-point method that uses its structure.

Every job has one row for its time and one for its level, and all jobs together share a row for each
type of workers. So a Newton step is a formula per job, and one small system over the types and the
level. The solution is the center of all optimal X: jobs that are alike get the same, and capacity
that no optimum needs is spread over those that can use it.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np

from bidbrain.arrays import Floats, Ints
from bidbrain.lp import SolverFailed

EXACT, NEAR, ROUGH = 1e-10, 1e-8, 1e-4
"""Gaps: where the next step starts from the optimum, where only the optimum matters, and where
shares to a ten-thousandth are enough."""

_MAX_STEPS = 60
# Rounding may keep a gap from closing further; a larger one than this, or than the one asked for,
# is refused.
_NEAR_ENOUGH = 1e-7
# `ndarray.sum` wraps this in a function of Python, which takes as long as the sum itself where jobs
# are few.
_sum = np.add.reduce
# A step goes this far to the boundary.
_TO_BOUNDARY = 0.9995
# The price of what cannot run or has no need: as good as none.
_NO_PRICE = 1e-300
# Free workers per job that are rounding.
_NO_WORKERS = 1e-7


@dataclass(frozen=True, slots=True)
class Levels:
    """Maximize z with the progress of every job at least its need times z: progress on each type
    over that on the fastest (0 where a job cannot run), the workers that a job holds while it runs,
    and those of each type."""

    progress: Floats
    need: Floats
    held: Floats
    workers: Floats


@dataclass(frozen=True, slots=True)
class Lifted:
    """The largest z for which every job m gets `z need_m`, and an X that achieves it.

    `prices[m]` is what z loses per unit of need: `sum of prices need` is 1 at this need, and for no
    other need' can z exceed `level / sum of prices need'`.
    """

    level: float
    shares: Floats
    prices: Floats


def center(levels: Levels, gap: float) -> Lifted:
    """The center of all optima; prices prove that z could be larger by the gap at most, in relation
    to z.

    Jobs without a need get what is left; at least one that can run needs something. SolverFailed:
    rounding kept the gap from closing.
    """
    # So z is at most 1: no job does more than all of the time, and all together no more than there
    # are workers.
    per_need = levels.workers.sum() / (levels.held @ levels.need)
    most_workers = float(per_need)
    unit = min(1 / levels.need.max(), most_workers)
    point = _Point(levels, levels.need * unit)
    for _ in range(_MAX_STEPS):
        if point.gap() <= gap:
            break
        try:
            point.advance()
        except np.linalg.LinAlgError:
            break

    most = max(gap, _NEAR_ENOUGH)
    if not point.gap() <= most:
        raise SolverFailed(
            f"the largest level was not reached within {most:g}: check the spread of the input"
        )

    level = point.y[-1]
    reached = float(level)
    prices = np.asarray(point.of_jobs(point.w)[-1]) * unit
    return Lifted(reached * unit, point.shares(), prices)


def with_free_workers(shares: Floats, progress: Floats, held: Floats, workers: Floats) -> Floats:
    """Gives free workers to jobs with idle time, the fastest there first, so that no worker is idle
    that any job could use."""
    free = workers - held @ shares
    if free.max(initial=0.0) <= _NO_WORKERS * held.sum():
        return shares

    shares = shares.copy()
    slowest_first = np.argsort(-progress.sum(axis=0), kind="stable")
    for kind in slowest_first.tolist():
        idle = np.maximum(1 - shares.sum(axis=1), 0.0)
        order = np.argsort(-progress[:, kind], kind="stable")
        idle_workers = idle * held * (progress[:, kind] > 0)
        wanted = idle_workers[order]
        before = np.cumsum(wanted) - wanted
        left = float(free[kind]) - before
        taken = np.clip(left, 0.0, wanted)
        shares[order, kind] += taken / held[order]

    return shares


class _Point:
    """A strictly feasible point of the program and of its dual: each entry of y times that of w
    tends to zero.

    A job has a *column* for its share of each type, one for its idle time, and one for its progress
    above the level. Entries of y are these (columns by jobs), the free workers of each type (as
    parts of all), and z. Those of w are what a share loses, and the prices of time, of levels, of
    workers, and of z.
    """

    def __init__(self, levels: Levels, need: Floats) -> None:
        can = (levels.progress > 0).T
        workers = np.where(levels.workers > 0, levels.workers, 1.0)
        self._types, self._jobs = can.shape
        self._end = (self._types + 2) * self._jobs
        self._need = need
        self._needs = need > 0

        # Which entries count: the others stay where they are.
        self.counts = np.ones(self._end + self._types + 1)
        self.of_jobs(self.counts)[: self._types], self.of_jobs(self.counts)[-1] = can, self._needs
        self._part = can * levels.held / workers[:, None]
        self._progress = np.where(can & self._needs, levels.progress.T, 0.0)
        self._number = int(_sum(self.counts))
        self.y = np.ones(len(self.counts))
        self.w = np.full(len(self.counts), _NO_PRICE)
        self._begin()
        self._constants = _Constants(self._progress, self._part, need)

    def _begin(self) -> None:
        """Every job gets a little of each type, and every price is high enough."""
        y = self.of_jobs(self.y)
        w = self.of_jobs(self.w)
        can = self._part > 0
        types = self._types
        even = can / np.maximum(_sum(can, 0), 1.0)
        summed = _sum(self._part * even, 1)
        used = np.maximum(summed, 1.0)
        even *= 0.5 / used[:, None]
        reached = _sum(self._progress * even, 0)
        levels = reached[self._needs] / self._need[self._needs]
        least = levels.min()
        z = 0.5 * float(least)
        y[:types], y[types] = np.where(can, even, 1.0), 1 - _sum(even, 0)
        spare = reached - self._need * z
        y[-1] = np.where(self._needs, spare, 1.0)
        w[-1] = np.where(self._needs, 2.0 / _sum(self._need), _NO_PRICE)
        worth = self._progress * w[-1]
        most_worth = worth.max(axis=0)
        w[types] = most_worth + 1.0 / self._jobs
        price = w[types] + self._part / types - worth
        w[:types] = np.where(can, price, _NO_PRICE)
        used_share = _sum(self._part * even, 1)
        self.y[self._end : -1], self.w[self._end : -1] = 1 - used_share, 1.0 / types
        priced = float(self._need @ w[-1])
        self.y[-1], self.w[-1] = z, priced - 1

    def of_jobs(self, entries: Floats) -> Floats:
        """The columns by jobs of a vector like y, as a view."""
        return entries[: self._end].reshape(-1, self._jobs)

    def shares(self) -> Floats:
        variables = self.y * self.counts
        of_types = self.of_jobs(variables)[: self._types]
        return np.ascontiguousarray(of_types.T)

    def gap(self) -> float:
        """The most that z may still grow, relative to z."""
        time = self.of_jobs(self.w)[self._types]
        workers = self.w[self._end : -1]
        spare_worth = _sum(time) + _sum(workers)
        return float(spare_worth) / float(self.y[-1]) - 1

    def advance(self) -> None:
        """One step: first straight toward the optimum, to see how far that leads, then corrected to
        stay central.
        """
        y = self.y
        w = self.w
        newton = _Newton(self._constants, y, w, self.counts)
        products = y * w
        total = float(_sum(products))

        # Straight ahead, each `dy / y + dw / w` is -1: the change of w need not be computed.
        ahead = newton.ahead() / y
        steepest = -float(ahead.min())
        far = 1 / max(steepest, 1.0)
        highest = float(ahead.max()) + 1
        fall = 1 / max(highest, 1.0)
        gained = float(_sum(products * ahead))

        # What would be left of the sum of products.
        left = 1 - fall + (far - fall) * gained / total
        aim = total / self._number * left**3
        curve = ahead * ahead + ahead - 1
        change = w * curve
        q = aim / y + change
        q *= self.counts
        dy, dw = newton.step(q)
        self.y = y + _length(dy, y) * dy
        self.w = w + _length(dw, w) * dw


def _length(change: Floats, at: Floats) -> float:
    """How much of a step keeps all entries positive, or nearly all of the way to where one ends."""
    least = float((change / at).min())
    steepest = max(-least, _TO_BOUNDARY)
    return _TO_BOUNDARY / steepest


@dataclass(frozen=True, slots=True)
class _Places:
    """Where the parts of a job's matrices are, for a number of columns.

    `first` and `second` are the columns of all pairs. `without` has a row for each column, of ones
    for the pairs without it, and a last row of ones. `entries` says which entry stands where in a
    matrix whose rows are the columns, the price of time, and the price of progress: entries are
    those of pairs, then the diagonal, then the last two rows.
    """

    first: Ints
    second: Ints
    without: Floats
    entries: Ints


@cache
def _places(columns: int) -> _Places:
    first, second = np.triu_indices(columns, 1)
    kinds = np.arange(columns)
    pairs = len(first)
    apart = (kinds[:, None] != first) & (kinds[:, None] != second)
    entries = np.empty((columns + 2, columns), dtype=np.int64)
    entries[first, second] = entries[second, first] = np.arange(pairs)
    entries[kinds, kinds] = pairs + kinds
    squared_entries = np.arange(2 * columns).reshape(2, columns)
    entries[columns:] = pairs + columns + squared_entries

    factors = np.concatenate([apart, np.ones((1, pairs))], dtype=np.float64)
    return _Places(first, second, factors, entries)


class _Constants:
    """Numbers of the program that no step changes.

    A column adds something to a job's time, and something to its progress beyond the level.
    `bracket` is the determinant of these for any two columns. `squares` are those of pairs. `sums`
    is to be multiplied by the weights of the columns and added up over them: it gives the entries
    of pairs and of the last two rows, and two more for the answer to a higher level.
    """

    def __init__(self, progress: Floats, part: Floats, need: Floats) -> None:
        (types, jobs), columns = progress.shape, len(progress) + 2
        self.places = _places(columns)
        self.need = need
        self.taken = -part[:, None]
        first = self.places.first
        second = self.places.second
        pairs = len(self.places.first)
        gain = np.zeros((columns, jobs))
        time = np.ones((columns, jobs))
        gain[:types], gain[-1], time[-1] = progress, -1.0, 0.0
        bracket = time[:, None] * gain
        bracket -= bracket.swapaxes(0, 1).copy()
        places = first * columns + second
        products = bracket.reshape(-1, jobs).take(places, 0)
        self.squares = np.square(products)
        terms = pairs + 2 * columns
        self.sums = np.empty((columns, terms + 2, jobs))
        first_bracket = bracket.take(first, 1)
        second_bracket = bracket.take(second, 1)
        of_pairs = self.sums[:, :pairs]
        np.multiply(first_bracket, -second_bracket, out=of_pairs)
        of_gain = self.sums[:, pairs : pairs + columns]
        np.multiply(bracket, -gain[:, None], out=of_gain)
        of_time = self.sums[:, pairs + columns : -2]
        np.multiply(bracket, time[:, None], out=of_time)
        np.multiply(time, gain, out=self.sums[:, -2])
        np.negative(time, out=self.sums[:, -1])

        # The rows of the whole program, workers and level, over the columns and prices of all jobs.
        rows = np.zeros((types + 1, columns + 2, jobs))
        kinds = np.arange(types)
        rows[kinds, kinds], rows[-1, -1] = part, -need
        self.rows = rows.reshape(types + 1, -1).T

        # Jobs without a need have no level, and their last column no effect, but their system must
        # not be singular.
        self.idle = np.zeros((columns, jobs))
        self.idle[-1] = need <= 0


class _Newton:
    """The linear system at a point; both steps from there share it.

    A job's rows of `_move` say how its columns follow what each column gains; `_follow` how they
    follow the price of each type of workers, and a higher level. These are minors of the job's own
    system, written as sums of products of determinants: nearly all terms have one sign, so nothing
    cancels, however close to a corner the point is. There are few array operations, because with a
    hundred jobs their number is what takes time.
    """

    def __init__(self, fixed: _Constants, y: Floats, w: Floats, counts: Floats) -> None:
        (columns, jobs), places = fixed.idle.shape, fixed.places
        pairs = len(places.first)
        end = fixed.idle.size
        self._ratio = y / w
        weighed = self._ratio[:end] * counts[:end]
        weight = weighed.reshape(columns, jobs)
        weight += fixed.idle
        both = weight.take(places.first, 0)
        both *= weight.take(places.second, 0)
        minors = places.without @ (both * fixed.squares)
        inverse = 1.0 / minors[-1]
        sums = _sum(fixed.sums * weight[:, None], 0)
        sums *= inverse
        parts = [sums[:pairs], minors[:-1], sums[pairs:-2]]
        entries = np.concatenate(parts)
        entries[:pairs] *= both
        entries[pairs : pairs + columns] *= weight * inverse
        entries[pairs + columns : -columns] *= weight
        entries[-columns:] *= weight
        self._move = entries.take(places.entries[:columns], 0)

        # How columns follow prices and level, the same for free workers and z, and the inverse of
        # the system of these.
        types = columns - 2
        follow = np.empty((types + 1, columns + 2, jobs))
        entries_of_types = entries.take(places.entries[:, :types].T, 0)
        np.multiply(entries_of_types, fixed.taken, out=follow[:types])
        np.multiply(entries[-columns:], fixed.need, out=follow[types, :columns])
        np.multiply(sums[-2:], fixed.need, out=follow[types, columns:])
        flat = follow.reshape(types + 1, -1)
        tail = -self._ratio[end:]
        system = flat @ fixed.rows
        diagonal = system.ravel()[:: types + 2]
        diagonal[:-1] += tail[:-1]
        diagonal[-1] -= 1 / tail[-1]
        tail[-1] = 1.0
        self._follow = flat[:, :end]
        self._tail = tail
        self._solved = np.linalg.inv(system).astype(np.float64, copy=False)

    def ahead(self) -> Floats:
        """The change of y in a step straight toward the optimum: there all prices only pay for the
        higher level.
        """
        solved = self._solved[:, -1]
        return np.concatenate([solved @ self._follow, self._tail * solved])

    def step(self, q: Floats) -> tuple[Floats, Floats]:
        """The changes of y and w for which each `w dy / y + dw` is `q`."""
        end = self._follow.shape[1]
        right = self._follow @ q[:end]
        right += self._tail * q[end:]
        solved = self._solved @ right
        dy = np.empty(len(q))
        own_q = q[:end].reshape(self._move.shape[1:])
        own = np.einsum("kjm,jm->km", self._move, own_q)
        followed = solved @ self._follow
        np.add(own.ravel(), followed, out=dy[:end])
        rest = solved - q[end:]
        dy[end:] = self._tail * rest
        dy[-1] = solved[-1]

        return dy, q - dy / self._ratio
