"""What finishing a job costs, by work left and slack, when it may run in several regions: backward over time left.

The zones of a region are one place, with the price of its zones, the chance that spot is up there now, and the rates at
which it comes back and at which young and old machines are lost. A step either does work or loses slack. With t steps
left and slack s, for a checkpoint in place k:

    idle      min(on demand, wait: t-1, s-1, when places may come back)
    lost      the best place that is up, or idle
    run       price + lost or run on, t-1; a better place may come up
    start j   the move from k to j + the delay's price + run j, less the delay of slack

Below two delays of slack no spot machine starts, as the guarantee of the deadline has it. Dollars and hours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

import numpy as np

from bidbrain.strategies.regions_knowledge import HAZARDS, Floats

MOST_STEPS: Final = 110
YOUNG: Final = 1.5
"""Until this age, in hours, a machine counts as young."""
_OLD_UNTIL: Final = 12.0


@dataclass(frozen=True, slots=True)
class ZoneOption:
    """A region: its zones, spot price, chance of spot now, returns per hour, and how much more often it ends spells."""

    zones: tuple[int, ...]
    usd: float
    up: float
    returns: float
    losses: float


class Plan:
    """Expected dollars to the end of a job; `moves[j, k]` dollars from place j to place k."""

    def __init__(
        self, places: Sequence[ZoneOption], moves: Floats, on_demand: float, work: float, slack: float, delay: float
    ) -> None:
        self.places, self.on_demand = places, on_demand
        self._step = max(delay, (work + slack) / MOST_STEPS, 1e-3)
        self._place = {zone: number for number, place in enumerate(places) for zone in place.zones}
        # More slack than this is never scarce.
        self._most = ceil(min(slack, max(0.75 * work, 6 * delay, 4.0)) / self._step) + 1
        self._last = ceil(work / self._step) + 1 + self._most
        shape = (self._last + 1, len(places), self._most + 1)
        self._idle, self._lost, self._run, self._od = (np.zeros(shape) for _ in range(4))
        self._fill(moves, delay)

    def place_of(self, zone: int | None) -> int:
        """The number of a zone's place; of a place that is not in the plan, the last."""
        return len(self.places) - 1 if zone is None else self._place.get(zone, len(self.places) - 1)

    def idle(self, zone: int | None, work: float, slack: float) -> float:
        """Nothing runs, and waiting is possible."""
        return float(self._at(self._idle, zone, work, slack))

    def lost(self, zone: int, work: Floats, slack: Floats) -> Floats:
        """A spot machine in a zone has just been lost."""
        return self._at(self._lost, zone, work, slack)

    def on_demand_on(self, zone: int, work: float, slack: float) -> float:
        """An on-demand machine runs."""
        return float(self._at(self._od, zone, work, slack))

    def _at(self, table: Floats, zone: int | None, work: Floats | float, slack: Floats | float) -> Floats:
        place = self.place_of(zone)
        steps = np.maximum(np.asarray(work, dtype=np.float64) / self._step, 0.0)
        spare = np.clip(np.asarray(slack, dtype=np.float64) / self._step, 0.0, self._most - 1e-9)
        low, left = steps.astype(np.int64), spare.astype(np.int64)
        found = np.zeros(np.broadcast_shapes(steps.shape, spare.shape))
        for more in (0, 1):
            for further in (0, 1):
                weight: Floats = (steps - low if more else 1 - steps + low).astype(np.float64)
                weight = weight * (spare - left if further else 1 - spare + left)
                at = np.minimum(low + more + left + further, self._last)
                found = found + weight * table[at, place, left + further]
        return found

    def _fill(self, moves: Floats, delay: float) -> None:
        step, count = self._step, len(self.places)
        price = np.array([place.usd for place in self.places])
        up = np.array([place.up for place in self.places])
        factor = np.array([place.losses for place in self.places])
        young = _within(factor * HAZARDS[True].between(0.0, YOUNG) / YOUNG, step)
        old = _within(factor * HAZARDS[True].between(YOUNG, _OLD_UNTIL) / (_OLD_UNTIL - YOUNG), step)
        ages = 1 - np.exp(-step / YOUNG)
        back = _within(np.array([place.returns for place in self.places]), step)[:, 0]
        best = np.argsort(price + factor * moves.mean(axis=0), kind="stable")
        chosen, rest = _first_up(up, best)
        better = (back * (1 - up))[None, :, None] * (1 - np.eye(count))[:, :, None]
        start_usd = moves[:, :, None] + (price * delay)[None, :, None]
        slack = np.arange(self._most + 1)
        late, cannot_wait = slack < 2 * delay / step, slack < delay / step + 1
        starts = np.zeros((count, count, self._most + 1))
        old_run = np.zeros((count, self._most + 1))
        for left in range(1, self._last + 1):
            lost, idle, od = self._lost[left - 1], self._idle[left - 1], self._od[left - 1]
            young_run = (1 - ages) * self._run[left - 1] + ages * old_run
            old_run = price[:, None] * step + (1 - old) * _offered(old_run, starts, better) + old * lost
            run = price[:, None] * step + (1 - young) * _offered(young_run, starts, better) + young * lost
            on = self.on_demand * step + _offered(od, starts, back[None, :, None])
            work = np.maximum((left - slack) * step, 0.0)
            begun = start_usd + self._delayed(run, self._run, left, delay)[None]
            begun = np.where(late, np.maximum(begun, self.on_demand * (work + delay)), begun)
            waits = np.where(cannot_wait, np.inf, _one_less(_offered(idle, starts, back[None, :, None])))
            idle = np.minimum(self.on_demand * delay + self._delayed(on, self._od, left, delay), waits)
            lost = rest[:, None] * idle + (chosen[:, :, None] * np.minimum(begun, idle[:, None])).sum(axis=1)
            done = slack >= left
            for table, row in ((self._run, run), (self._od, on), (self._idle, idle), (self._lost, lost)):
                table[left] = np.where(done, 0.0, row)
            old_run, starts = np.where(done, 0.0, old_run), np.where(done, 0.0, begun)

    def _delayed(self, row: Floats, table: Floats, left: int, delay: float) -> Floats:
        """The values after a delay: as much less slack, and time; interpolated between steps."""
        whole, part = divmod(delay / self._step, 1.0)
        near = row if whole == 0 else _one_less(table[max(left - int(whole), 0)], int(whole))
        return (1 - part) * near + part * _one_less(table[max(left - int(whole) - 1, 0)], int(whole) + 1)


def _within(rates: Floats, step: float) -> Floats:
    """The probability that something happens within a step, as a column."""
    found: Floats = (1 - np.exp(-rates * step))[:, None]
    return found


def _first_up(up: Floats, best: np.ndarray[tuple[int], np.dtype[np.int64]]) -> tuple[Floats, Floats]:
    """By the place that was lost: the chance that a place is the best that is up, and that none is."""
    chosen, rest = np.zeros((up.size, up.size)), np.ones(up.size)
    for place in best:
        chance = np.where(np.arange(up.size) == place, 0.0, up[place])
        chosen[:, place] = rest * chance
        rest = rest * (1 - chance)
    return chosen, rest


def _offered(held: Floats, starts: Floats, chances: Floats) -> Floats:
    """The value of what is held, when better places may come up with some chance each."""
    found: Floats = held + (chances * np.minimum(starts - held[:, None], 0.0)).sum(axis=1)
    return found


def _one_less(row: Floats, steps: int = 1) -> Floats:
    """The values with some steps less of slack."""
    steps = min(steps, row.shape[1] - 1)
    return np.concatenate((np.repeat(row[:, :1], steps, axis=1), row[:, : row.shape[1] - steps]), axis=1)
