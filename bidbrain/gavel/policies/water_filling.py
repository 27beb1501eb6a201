"""Levels of entities that share a cluster by weight, as functions of the time that water flows."""

from dataclasses import dataclass

import numpy as np

from bidbrain.gavel.arrays import BoolArray, FloatArray, IntArray
from bidbrain.gavel.problem import Entity


@dataclass(frozen=True, slots=True)
class LevelDemand:
    """Each job's progress must be at least `base + slope t`; `full` are jobs that make their most by then."""

    base: FloatArray
    slope: FloatArray
    full: BoolArray


@dataclass(slots=True)
class Queue:
    """An entity's jobs by arrival, as rows of the program: the progress per unit of level, and which can still rise.

    All rising jobs share one level: that of the entity, or of its earliest job. Its weight is divided among the rising
    jobs by their weights. A job rises until workers do not suffice, or until its progress is `most`: what it makes if
    it runs all the time on the fastest type that is not exhausted.
    """

    entity: Entity
    rows: IntArray
    weight: FloatArray
    need: FloatArray
    open: BoolArray
    most: FloatArray
    level: float = 0.0

    def fill_times(self) -> tuple[IntArray, FloatArray]:
        """The open jobs (positions) in the order in which they make their most, and when, if workers suffice."""
        places, top = np.flatnonzero(self.open), (self.most / self.need)[self.open]
        weight = self.weight[places]
        if self.entity.policy == "fifo":
            rise = top - np.where(np.arange(len(top)) == 0, self.level, 0.0)
            return places, np.cumsum(np.maximum(rise, 0.0) * weight) / self.entity.weight
        order = np.argsort(top, kind="stable")
        rise = np.diff(np.maximum(top[order], self.level), prepend=self.level)
        rest = np.cumsum(weight[order][::-1])[::-1]
        return places[order], np.cumsum(rise * rest) / self.entity.weight

    def demand(self, demand: LevelDemand, after: float) -> None:
        """Sets the demand of the open jobs in the time that follows `after`, until the next of them makes its
        most."""
        places, times = self.fill_times()
        done = int(np.searchsorted(times, after, side="right"))
        full = self.rows[places[:done]]
        demand.base[full], demand.slope[full], demand.full[full] = self.most[places[:done]], 0.0, True
        waiting = places[done:]
        if not len(waiting):
            return
        fifo = self.entity.policy == "fifo"
        rising = waiting[:1] if fifo else waiting
        rate = self.entity.weight / float(self.weight[rising].sum())
        begin = float(times[done - 1]) if done else 0.0
        level = 0.0 if fifo and done else self.level
        if done and not fifo:
            last = places[done - 1]
            level = max(level, float(self.most[last] / self.need[last]))
        rows, need = self.rows[rising], self.need[rising]
        demand.base[rows], demand.slope[rows] = need * (level - rate * begin), need * rate
        rows = self.rows[waiting[len(rising) :]]
        demand.base[rows] = demand.slope[rows] = 0.0

    def close(self, level: FloatArray, stuck: BoolArray, most: FloatArray) -> None:
        """Stuck jobs stay where they are; the others go on from their levels. The arrays are over all rows."""
        self.most = most[self.rows]
        self.open = self.open & ~stuck[self.rows]
        rest = np.flatnonzero(self.open)[:1]
        self.level = float((level[self.rows[rest]] / self.need[rest]).sum())
