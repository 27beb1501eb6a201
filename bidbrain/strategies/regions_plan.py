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

from dataclasses import dataclass
from math import ceil, exp
from typing import Final

import numpy as np

from bidbrain.strategies.regions_knowledge import HAZARDS, Floats
from pricing_data.series import Ints

MOST_STEPS: Final = 110
YOUNG: Final = 1.5
"""Until this age, in hours, a machine counts as young."""
_OLD_UNTIL: Final = 12.0


@dataclass(frozen=True, slots=True)
class PlacePrices:
    """A region: its spot price, chance of spot now, returns per hour, and how much more often it ends spells."""

    usd: float
    up: float
    returns: float
    losses: float


@dataclass(frozen=True, slots=True)
class PlanTerms:
    """What a plan depends on: `moves[j][k]` dollars from place j to place k, the cheapest on-demand price, and the most
    work and slack that it covers."""

    places: tuple[PlacePrices, ...]
    moves: tuple[tuple[float, ...], ...]
    on_demand: float
    work: float
    slack: float
    delay: float


class Plan:
    """Expected dollars to the end of a job, for any work and slack up to those of its terms."""

    def __init__(self, terms: PlanTerms) -> None:
        self.on_demand, work = terms.on_demand, terms.work
        self._step = max(terms.delay, (work + terms.slack) / MOST_STEPS, 1e-3)
        # More slack than this is never scarce.
        self._most = ceil(min(terms.slack, max(0.75 * work, 6 * terms.delay, 4.0)) / self._step) + 1
        self._last = ceil(work / self._step) + 1 + self._most
        shape = (self._last + 1, len(terms.places), self._most + 1)
        self._idle, self._lost, self._run, self._od = (np.zeros(shape) for _ in range(4))
        self._fill(terms)

    def idle(self, place: int, work: float, slack: float) -> float:
        """Nothing runs, the checkpoint is in a place, and waiting is possible."""
        return float(self._at(self._idle, place, work, slack))

    def lost(self, places: Ints | int, work: Floats | float, slack: Floats | float) -> Floats:
        """A spot machine in a place has just been lost."""
        return self._at(self._lost, places, work, slack)

    def on_demand_on(self, places: Ints | int, work: float, slack: float) -> Floats:
        """An on-demand machine runs in a place."""
        return self._at(self._od, places, work, slack)

    def _at(self, table: Floats, places: Ints | int, work: Floats | float, slack: Floats | float) -> Floats:
        """Interpolated between steps of work and of slack."""
        steps = np.maximum(np.asarray(work, dtype=np.float64) / self._step, 0.0)
        spare = np.clip(np.asarray(slack, dtype=np.float64) / self._step, 0.0, self._most - 1e-9)
        low, left = steps.astype(np.int64), spare.astype(np.int64)
        more, further = steps - low, spare - left
        rows = [np.minimum(low + left + one, self._last) for one in range(3)]
        found: Floats = (1 - more) * (
            (1 - further) * table[rows[0], places, left] + further * table[rows[1], places, left + 1]
        ) + more * ((1 - further) * table[rows[1], places, left] + further * table[rows[2], places, left + 1])
        return found

    def _fill(self, terms: PlanTerms) -> None:
        step, delay, moves = self._step, terms.delay, np.array(terms.moves)
        price, up, returns, factor = np.array([(one.usd, one.up, one.returns, one.losses) for one in terms.places]).T
        count, slacks = price.size, self._most + 1
        young = _within(factor * HAZARDS[True].between(0.0, YOUNG) / YOUNG, step)[:, None]
        old = _within(factor * HAZARDS[True].between(YOUNG, _OLD_UNTIL) / (_OLD_UNTIL - YOUNG), step)[:, None]
        aging, part = 1 - exp(-step / YOUNG), delay / step
        back = _within(returns, step)
        chosen, rest = _first_up(up, np.argsort(price + factor * moves.mean(axis=0), kind="stable"))
        # By what is held (on demand, nothing, an old and a young machine) and where: how likely each place comes up.
        better = np.where(np.eye(count, dtype=np.bool_), 0.0, back * (1 - up))
        offers = np.stack([np.tile(back, (count, 1))] * 2 + [better] * 2)[:, :, None, :]
        start_usd, paid = (moves + price * delay)[:, :, None], (price * step)[:, None]
        late, stuck = (ceil(min(most, slacks)) for most in (2 * part, part + 1))
        late_usd = terms.on_demand * (delay - np.arange(late) * step)
        held, lost = np.zeros((4, count, slacks)), np.zeros((count, slacks))
        starts, run = np.zeros((count, count, slacks)), np.zeros((count, slacks))
        delayed_run, delayed_od = np.zeros((count, slacks)), np.zeros((count, slacks))
        for left in range(1, self._last + 1):
            _one_less(held[0], delayed_od)
            _one_less(run, delayed_run)
            held[3] = (1 - aging) * run + aging * held[2]
            gains = np.minimum(starts - held[:, :, None], 0.0)
            held += np.matmul(offers, gains)[:, :, 0]
            waits = held[1]
            run = paid + (1 - young) * held[3] + young * lost
            held[2] = paid + (1 - old) * held[2] + old * lost
            held[0] += terms.on_demand * step
            starts = start_usd + ((1 - part) * run + part * delayed_run)
            starts[:, :, :late] = np.maximum(starts[:, :, :late], late_usd + terms.on_demand * left * step)
            idle = terms.on_demand * delay + (1 - part) * held[0] + part * delayed_od
            idle[:, stuck:] = np.minimum(idle[:, stuck:], waits[:, stuck - 1 : -1])
            lost = rest[:, None] * idle + (chosen[:, :, None] * np.minimum(starts, idle[:, None])).sum(axis=1)
            held[1] = idle
            if left < slacks:
                for values in (held, run, lost, starts):
                    values[..., left:] = 0.0
            self._run[left], self._od[left], self._idle[left], self._lost[left] = run, held[0], held[1], lost


def _within(rates: Floats, step: float) -> Floats:
    """The probability that something happens within a step."""
    return np.asarray(1 - np.exp(-rates * step))


def _first_up(up: Floats, best: np.ndarray[tuple[int], np.dtype[np.int64]]) -> tuple[Floats, Floats]:
    """By the place that was lost: the chance that a place is the best that is up, and that none is."""
    chosen, rest = np.zeros((up.size, up.size)), np.ones(up.size)
    for place in best:
        chance = np.where(np.arange(up.size) == place, 0.0, up[place])
        chosen[:, place] = rest * chance
        rest = rest * (1 - chance)
    return chosen, rest


def _one_less(row: Floats, out: Floats) -> None:
    """The values with one step less of slack."""
    out[:, 1:] = row[:, :-1]
    out[:, 0] = row[:, 0]
