"""The max-min program by an interior-point method that uses its structure.

Every job has one row for its time and one for its level, and all jobs together share a row for each type of workers. So
a Newton step is a formula per job, and one small system over the types and the level. The solution is the center of all
optimal X: jobs that are alike get the same, and capacity that no optimum needs is spread over those that can use it.
"""

from dataclasses import dataclass

import numpy as np

from bidbrain.gavel.arrays import BoolArray, FloatArray
from bidbrain.gavel.lp import SolverFailed

EXACT, ROUGH = 1e-10, 1e-4
"""Gaps: where the optimum matters, and where shares to a ten-thousandth are enough."""

_MOST_STEPS = 60
# Rounding may keep a gap from closing further; a larger one than this, or than the one asked for, is refused.
_NEAR_ENOUGH = 1e-7
# `ndarray.sum` wraps this in a function of Python, which takes as long as the sum itself where jobs are few.
_sum = np.add.reduce
# A step goes this far to the boundary.
_TO_BOUNDARY = 0.9995
# The price of what cannot run or has no need: as good as none.
_NO_PRICE = 1e-300


@dataclass(frozen=True, slots=True)
class CenterProgram:
    """Maximize z with every job's progress at least `need z`; progress on each type is over that on the fastest.

    `can` says where a job can run, `held` how many workers it holds, `workers` how many there are of each type.
    """

    progress: FloatArray
    can: BoolArray
    need: FloatArray
    held: FloatArray
    workers: FloatArray


@dataclass(frozen=True, slots=True)
class Center:
    """A z that is the largest up to the gap, X in the center of all optima, and the loss of z per unit of each job's
    progress."""

    z: float
    shares: FloatArray
    prices: FloatArray


def center(program: CenterProgram, gap: float) -> Center:
    """The center of the optima; prices prove that z could be larger by the gap at most, in relation to z.

    Jobs without a need get what is left; at least one that can run needs something. SolverFailed: rounding kept the gap
    from closing.
    """
    # So z is at most 1: no job does more than all of the time, and all together no more than there are workers.
    unit = min(1 / program.need.max(), float(program.workers.sum() / (program.held @ program.need)))
    point = _Point(program, program.need * unit)
    for _ in range(_MOST_STEPS):
        if point.gap() <= gap:
            break
        try:
            point.advance()
        except np.linalg.LinAlgError:
            break
    most = max(gap, _NEAR_ENOUGH)
    if not point.gap() <= most:
        raise SolverFailed(f"the largest level was not reached within {most:g}: check the spread of the input")
    return Center(float(point.y[-1]) * unit, point.shares(), point.split(point.w)[3] * unit)


def with_free_workers(shares: FloatArray, progress: FloatArray, held: FloatArray, workers: FloatArray) -> FloatArray:
    """Gives free workers to jobs with idle time, the fastest there first, so that no worker is idle that any job could
    use."""
    shares = shares.copy()
    for kind in np.argsort(-progress.sum(axis=0), kind="stable").tolist():
        idle = np.maximum(1 - shares.sum(axis=1), 0.0)
        order = np.argsort(-progress[:, kind], kind="stable")
        wanted = (idle * held * (progress[:, kind] > 0))[order]
        left = float(workers[kind] - held @ shares[:, kind]) - (np.cumsum(wanted) - wanted)
        shares[order, kind] += np.clip(left, 0.0, wanted) / held[order]
    return shares


class _Point:
    """A strictly feasible point of the program and of its dual: each entry of `y` times that of `w` tends to zero.

    Entries of y are shares (types by jobs), idle time, free workers (as parts of all of a type), progress above the
    level, and z. Those of w are what a share loses, and the prices of time, workers and levels, and of z.
    """

    def __init__(self, program: CenterProgram, need: FloatArray) -> None:
        can, workers = program.can.T, np.where(program.workers > 0, program.workers, 1.0)
        types, jobs = can.shape
        self.can, self.need, self.needs = can.astype(np.float64), need, need > 0
        self.part = self.can * program.held / workers[:, None]
        self.progress = np.where(can & self.needs, program.progress.T, 0.0)
        self._ends = [types * jobs, types * jobs + jobs, types * jobs + jobs + types, (types + 2) * jobs + types]
        self._number = int(can.sum()) + jobs + types + int(self.needs.sum()) + 1
        # Constants of all steps: differences of progress between types, and which types are others.
        self.kinds = np.arange(types)
        self.apart = self.progress[:, None] - self.progress
        self.apart_twice = self.apart[:, :, None] * self.apart[:, None]
        self.products = self.progress[:, None] * self.progress
        self.part_pairs = self.part[:, None] * self.part
        self.others = 1.0 - np.eye(types)
        self.other_pairs = 0.5 * (self.others[:, :, None] * self.others[:, None]).reshape(types, types * types)
        self.y, self.w = np.ones(self._ends[-1] + 1), np.full(self._ends[-1] + 1, _NO_PRICE)
        self._begin()

    def _begin(self) -> None:
        """Every job gets a little of each type, and every price is high enough."""
        x, idle, free, above, _ = self.split(self.y)
        lost, time, price, level, _ = self.split(self.w)
        even = self.can / np.maximum(self.can.sum(axis=0), 1.0)
        even *= 0.5 / np.maximum((self.part * even).sum(axis=1), 1.0)[:, None]
        x[...] = np.where(self.can > 0, even, 1.0)
        idle[...], free[...] = 1 - even.sum(axis=0), 1 - (self.part * even).sum(axis=1)
        reached = (self.progress * even).sum(axis=0)
        z = 0.5 * float((reached[self.needs] / self.need[self.needs]).min())
        above[...] = np.where(self.needs, reached - self.need * z, 1.0)
        level[...] = np.where(self.needs, 2.0 / self.need.sum(), _NO_PRICE)
        price[...] = 1.0 / len(price)
        worth = self.progress * level
        time[...] = worth.max(axis=0) + 1.0 / len(time)
        lost[...] = np.where(self.can > 0, time + self.part * price[:, None] - worth, _NO_PRICE)
        self.y[-1], self.w[-1] = z, float(self.need @ level) - 1

    def split(self, flat: FloatArray) -> tuple[FloatArray, ...]:
        """The five parts of a vector like y, as views."""
        a, b, c, d = self._ends
        return flat[:a].reshape(self.can.shape), flat[a:b], flat[b:c], flat[c:d], flat[d:]

    def shares(self) -> FloatArray:
        return np.ascontiguousarray((self.split(self.y)[0] * self.can).T)

    def gap(self) -> float:
        """The most that z may still grow, relative to z."""
        a, _, c, _ = self._ends
        return (float(self.w[a:c].sum()) - float(self.y[-1])) / float(self.y[-1])

    def advance(self) -> None:
        """One step: first straight toward the optimum, to see how far that leads, then corrected to stay central."""
        y, w = self.y, self.w
        newton = _Newton(self)
        mean = _total(y, w) / self._number
        dy, dw = newton.step(-w)
        left = _total(y + _length(dy, y, 1.0) * dy, w + _length(dw, w, 1.0) * dw) / self._number / mean
        dy, dw = newton.step((mean * left**3 - dy * dw) / y - w)
        self.y = y + _length(dy, y, _TO_BOUNDARY) * dy
        self.w = w + _length(dw, w, _TO_BOUNDARY) * dw


def _total(a: FloatArray, b: FloatArray) -> float:
    """The sum of products. A dot product of this length would begin threads, which take longer than the sum."""
    return float((a * b).sum())


def _length(change: FloatArray, at: FloatArray, most: float) -> float:
    """How much of a step keeps all entries positive, or this much of the way to where one ends."""
    return most / max(-float((change / at).min()), most)


class _Newton:
    """The linear system at a point; both steps from there share it.

    For each job, `_move` says how its shares follow the worth of types, `_up` how they follow a higher level, and
    `_out` how they follow more time. Nearly all of their terms have one sign: nothing cancels, however close to a
    corner the point is.
    """

    def __init__(self, point: _Point) -> None:
        self._point = point
        part, need, progress, apart, kinds = point.part, point.need, point.progress, point.apart, point.kinds
        ratio = point.y / point.w
        d, s2, self._free, s1, _ = point.split(ratio)
        d = point.can * d
        s1 = np.where(point.needs, s1, 1.0)
        self._idle, self._above = s2, s1 * point.needs
        types = len(d)
        scored, both = progress * d, s1 * s2
        alone = s1 * d + s2 * progress * scored
        pairs = d[:, None] * d
        spread = (pairs * apart * apart).reshape(types * types, len(need))
        inverse = 1.0 / (both + _sum(alone, 0) + 0.5 * _sum(spread, 0))
        between = _sum(d[:, None, None] * point.apart_twice, 0)
        self._move = pairs * (s1 + s2 * point.products + between) * -inverse
        self._move[kinds, kinds] = d * (both + point.others @ alone + point.other_pairs @ spread) * inverse
        self._up = d * (progress * s2 + _sum(d * apart, 1)) * inverse
        self._out = d * (s1 - _sum(scored * apart, 1)) * inverse
        self._a, self._b = (_sum(d, 0) + s2) * inverse, _sum(scored, 0) * inverse
        self._e = (_sum(progress * scored, 0) + s1) * inverse
        system = np.empty((types + 1, types + 1))
        system[:types, :types] = -_sum(point.part_pairs * self._move, 2)
        system[kinds, kinds] -= self._free
        system[:types, types] = system[types, :types] = (part * self._up) @ need
        system[types, types] = float((need * self._a) @ need) + 1 / ratio[-1]
        self._solved = np.linalg.inv(system)

    def step(self, q: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The changes of y and w for which each `w dy / y + dw` is `q`."""
        point = self._point
        part, need, progress = point.part, point.need, point.progress
        qx, q_idle, q_free, q_above, q_z = point.split(q)
        qx = qx * point.can
        n1, n2 = self._above * q_above, self._idle * q_idle
        known = _sum(self._move * qx, 1) + self._up * n1 - self._out * n2
        level_known = self._a * n1 - _sum(self._up * qx, 0) + self._b * n2
        right = np.append(-self._free * q_free - _sum(part * known, 1), q_z[0] - need @ level_known)
        solved = self._solved @ right
        d_price, dz = solved[:-1], float(solved[-1])
        paid, more = part * d_price[:, None], need * dz
        dx = known - _sum(self._move * paid, 1) + self._up * more
        d_level = (level_known + self._a * more + _sum(self._up * paid, 0)) * point.needs
        d_time = _sum(self._out * (qx - paid), 0) + self._b * (n1 + more) + self._e * n2
        above = (_sum(progress * dx, 0) - more) * point.needs
        lost = point.can * (d_time + paid - progress * d_level)
        dy = np.concatenate([dx.ravel(), -_sum(dx, 0), -_sum(part * dx, 1), above, [dz]])
        return dy, np.concatenate([lost.ravel(), d_time, d_price, d_level, [need @ d_level]])
