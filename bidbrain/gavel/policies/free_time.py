"""Free workers over time, and jobs that are put into them one by one."""

import numpy as np

from bidbrain.gavel.arrays import FloatArray, IntArray
from bidbrain.gavel.policies.deadline_plan import DeadlineBatch

_NO_WORK, _ROUNDING = 1e-12, 1e-9


class FreeTime:
    """Free workers of each type in each of some intervals (types by intervals).

    A job whose deadline lies within an interval runs there evenly until then, and its workers count as used until the
    end of the interval.
    """

    def __init__(self, batch: DeadlineBatch, ends: FloatArray) -> None:
        self._batch, self.lengths = batch, np.diff(ends, prepend=0.0)
        self.starts = ends - self.lengths
        self.free = np.repeat(batch.workers[:, None], len(ends), axis=1)
        self._rate = 1 / batch.alone
        self._reaches: list[int] = np.searchsorted(self.starts, batch.left).tolist()

    def spans(self, jobs: IntArray) -> FloatArray:
        """Seconds of each interval before the jobs' deadlines (jobs by intervals)."""
        return np.clip(self._batch.left[jobs, None] - self.starts, 0.0, self.lengths)

    def most_done(self, jobs: IntArray) -> FloatArray:
        """The share of each job's work that fits into the free workers, if only this job is added."""
        batch, spans = self._batch, self.spans(jobs)
        idle, done, order = np.ones(spans.shape), np.zeros(len(jobs)), np.argsort(batch.alone[jobs], axis=1)
        for kind in order.T:
            part = np.minimum(idle, self.free[kind] / batch.scale[jobs, None])
            idle -= part
            done += self._rate[jobs, kind] * (part * spans).sum(axis=1)
        return done

    def put(self, m: int, price: FloatArray) -> FloatArray | None:
        """Seconds of a job (types by intervals) that do all its work where a second is cheap, as late as possible; None
        if it does not fit. Those workers are no longer free."""
        spans = self._spans(m)
        job = _Fitting(self.free[:, : len(spans)] / self._batch.scale[m], spans, self._rate[m], price)
        if not job.fits():
            return None
        self._use(m, job.part)
        return job.part * spans

    def take_out(self, m: int, seconds: FloatArray) -> None:
        """Frees the workers of a job."""
        self._use(m, -seconds / self._spans(m))

    def _spans(self, m: int) -> FloatArray:
        """Seconds of each interval before one job's deadline, up to its last interval."""
        reaches = self._reaches[m]
        spans = self.lengths[:reaches].copy()
        spans[-1] = min(spans[-1], self._batch.left[m] - self.starts[reaches - 1])
        return spans

    def _use(self, m: int, part: FloatArray) -> None:
        free = self.free[:, : part.shape[1]]
        free -= self._batch.scale[m] * part
        np.maximum(free, 0.0, out=free)


class _Fitting:
    """One job: `part` is its share of time on each type in each interval."""

    def __init__(self, free: FloatArray, spans: FloatArray, rate: FloatArray, price: FloatArray) -> None:
        self._free, self._spans, self._rate, self._price = free, spans, rate, price
        self.part, self._left = np.zeros(free.shape), 1.0

    def fits(self) -> bool:
        """Fills idle time with the cheapest types, then moves to faster ones, the cheapest moves first."""
        rate, price = self._rate, self._price
        # Most jobs that do not fit would not even if they could use several types at the same time.
        if float(rate @ np.minimum(self._free, 1.0) @ self._spans) < 1 - 2 * _ROUNDING:
            return False
        runs = [j for j in range(len(rate)) if rate[j] > 0]
        idle = np.ones(len(self._spans))
        for j in sorted(runs, key=lambda j: float(price[j] / rate[j])):
            taken = self._taken(np.minimum(idle, self._free[j]), float(rate[j]))
            self.part[j] += taken
            idle -= taken
            if self._left <= _NO_WORK:
                return True
        moves = [(slow, fast) for slow in runs for fast in runs if rate[fast] > rate[slow]]
        moves.sort(key=lambda move: float((price[move[1]] - price[move[0]]) / (rate[move[1]] - rate[move[0]])))
        for slow, fast in moves:
            room = np.maximum(self._free[fast] - self.part[fast], 0.0)
            taken = self._taken(np.minimum(self.part[slow], room), float(rate[fast] - rate[slow]))
            self.part[slow] -= taken
            self.part[fast] += taken
            if self._left <= _NO_WORK:
                return True
        return self._left <= _ROUNDING

    def _taken(self, most: FloatArray, gain: float) -> FloatArray:
        """The part of `most` that the job still needs, the last intervals first."""
        done = most * self._spans * gain
        reached = done[::-1].cumsum()
        if reached[-1] <= self._left:
            self._left -= float(reached[-1])
            return most
        after = int(reached.searchsorted(self._left))
        first, before = len(done) - 1 - after, reached[after - 1] if after else 0.0
        part = np.zeros(len(done))
        part[first + 1 :] = most[first + 1 :]
        part[first] = most[first] * (self._left - before) / done[first]
        self._left = 0.0
        return part
