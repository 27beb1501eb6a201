"""A plan for many jobs whose deadlines collide: which to keep, and when and where each of them runs.

The program of `lateness` says which deadlines to give up, and what a second on each type is worth. Jobs then take free
workers one by one at these prices, by deadline, and last those that the program gives up, the cheapest first. Of the
jobs that do not fit, some fit after a few others were taken out and put back. At last each job is put again where it
costs the fewest dollars.
"""

import numpy as np

from bidbrain.gavel.arrays import FloatArray, IntArray
from bidbrain.gavel.policies.deadline_plan import DeadlineBatch, DeadlinePlan
from bidbrain.gavel.policies.free_time import FreeTime
from bidbrain.gavel.policies.lateness import Lateness
from bidbrain.gavel.problem import Pieces

# Bounds the intervals of a plan, and what is tried for jobs that do not fit.
_INTERVALS, _TRIES, _TAKEN_OUT = 512, 2000, 12
_LATE_TOLERANCE = 1e-9


def packed(batch: DeadlineBatch, lateness: Lateness) -> tuple[IntArray, DeadlinePlan, FloatArray]:
    """The kept jobs, their plan, and the share of each job's work that fits (1 for the kept)."""
    packing = _Packing(batch, lateness)
    packing.fill()
    packing.exchange()
    packing.cheapen()
    kept = np.array(sorted(packing.seconds), dtype=np.int64)
    done, out = np.ones(len(batch.left)), np.setdiff1d(np.arange(len(batch.left)), kept)
    done[out] = packing.time.most_done(out)
    return kept, packing.plan(kept), done


class _Packing:
    """Jobs with their seconds (types by intervals), and those that are out."""

    def __init__(self, batch: DeadlineBatch, lateness: Lateness) -> None:
        self._batch, self._price, self._late = batch, lateness.price, lateness.late
        possible = batch.left[lateness.late < 1 - _LATE_TOLERANCE]
        ends = np.unique(np.quantile(possible, np.linspace(0, 1, _INTERVALS + 1)[1:], method="higher"))
        self.time = FreeTime(batch, ends)
        self.seconds: dict[int, FloatArray] = {}
        self._out: list[int] = []

    def fill(self) -> None:
        """Puts the jobs that the program keeps, then the others if they fit."""
        batch, cheapest = self._batch, (self._price * self._batch.alone).min(axis=1)
        keeps = self._late < _LATE_TOLERANCE
        for m in np.lexsort((np.where(keeps, batch.left, cheapest), self._late, ~keeps)).tolist():
            if not self._put(m):
                self._out.append(m)

    def _put(self, m: int) -> bool:
        seconds = self.time.put(m, self._price[m])
        if seconds is not None:
            self.seconds[m] = seconds
        return seconds is not None

    def exchange(self) -> None:
        """Tries jobs that are out in place of a few others, which are put back: fewer must be out then, or others."""
        rng, tries = np.random.default_rng(0), _TRIES if len(self._batch.left) <= _INTERVALS else 0
        while tries > 0 and self._out and self.seconds:
            out, there = np.array(self._out), np.array(list(self.seconds))
            m = int(out[(self.time.most_done(out) * rng.uniform(0.7, 1, len(out))).argmax()])
            far = np.abs(np.log(self._batch.left[there] / self._batch.left[m])) + rng.exponential(0.5, len(there))
            tries -= _TAKEN_OUT
            self._replace(m, there[np.argsort(far)[:_TAKEN_OUT]].tolist())

    def _replace(self, m: int, others: list[int]) -> None:
        """Puts a job before others, unless more than one of these would be out."""
        free, before = self.time.free.copy(), {u: self.seconds.pop(u) for u in others}
        for u, seconds in before.items():
            self.time.take_out(u, seconds)
        lost = [u for u in [m, *sorted(others, key=lambda u: float(self._batch.left[u]))] if not self._put(u)]
        if m in lost or len(lost) > 1:
            self.time.free = free
            self.seconds.pop(m, None)
            self.seconds |= before
        else:
            self._out = [u for u in self._out if u != m] + lost

    def cheapen(self) -> None:
        """Puts each job again where it costs the fewest dollars."""
        for m in sorted(self.seconds, key=lambda m: float(self._batch.left[m])):
            before = self.seconds[m]
            free = self.time.free[:, : before.shape[1]]
            there = free.copy()
            self.time.take_out(m, before)
            seconds = self.time.put(m, self._batch.usd_per_second)
            if seconds is None or (seconds - before).sum(axis=1) @ self._batch.usd_per_second > 0:
                free[...] = there
            else:
                self.seconds[m] = seconds

    def plan(self, kept: IntArray) -> DeadlinePlan:
        """The plan of the kept jobs. Workers that are idle at first begin with the most urgent of later work."""
        batch = self._batch
        seconds = np.array([self.seconds[m].sum(axis=1) for m in kept.tolist()]).reshape(len(kept), -1)
        opening = np.array([self.seconds[m][:, 0] for m in kept.tolist()]).reshape(len(kept), -1)
        rates = opening / np.minimum(batch.left[kept, None], self.time.lengths[0])
        free = batch.workers - batch.scale[kept] @ rates
        for i in np.argsort(batch.left[kept], kind="stable").tolist():
            for j in np.flatnonzero(seconds[i] > opening[i]).tolist():
                more = min(1 - rates[i].sum(), free[j] / batch.scale[kept[i]])
                if more > 0:
                    rates[i, j] += more
                    free[j] -= more * batch.scale[kept[i]]
        usd = float((seconds * batch.scale[kept, None] * batch.usd_per_second).sum())
        return DeadlinePlan(seconds, np.clip(rates, 0.0, 1.0), usd, self._pieces(kept), exact=False)

    def _pieces(self, kept: IntArray) -> Pieces:
        """Jobs run evenly in each interval until their deadlines."""
        starts, lengths, parts = self.time.starts, self.time.lengths, []
        for i, m in enumerate(kept.tolist()):
            kind, interval = np.nonzero(self.seconds[m] > 0)
            start, span = starts[interval], np.minimum(self._batch.left[m] - starts[interval], lengths[interval])
            share = self.seconds[m][kind, interval] / span
            parts.append(Pieces(np.full(len(kind), i), kind, start, start + span, share))
        return Pieces.joined(parts)
