"""The cost of finishing a job that may run in several regions, by work left and slack: backward
over time left.

The zones of a region are one place, with the price of its zones, the chance that spot is up there
now, and the rates at which it comes back and at which young and old machines are lost. A step
either does work or loses slack. With t steps left and slack s, for a checkpoint in place k:

    idle      min(on demand, wait: t-1, s-1, when places may come back)
    lost      the best place that is up, or idle
    run       price + lost or run on, t-1; a better place may come up
    start j   the move from k to j + the delay's price + run j, less the delay of slack

Below two delays of slack no spot machine starts, as the guarantee of the deadline has it. Dollars
and hours.
"""

from dataclasses import dataclass
from enum import IntEnum
from math import ceil, exp
from typing import Final

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.strategies.spells import HAZARDS
from pricing_data.series import Ints

MAX_STEPS: Final = 110
YOUNG: Final = 1.5
"""Until this age, in hours, a machine counts as young."""
_OLD_UNTIL: Final = 12.0


@dataclass(frozen=True, slots=True, eq=False)
class PlanTerms:
    """The inputs of a plan. By place, which is a region: its spot price (`usd`), the chance that
    spot is `up` now, returns per hour, and how much more often it ends spells. `moves[j, k]` are
    dollars from place j to place k; `on_demand` is the cheapest such price, and `work` and `slack`
    are the most that the plan covers. `place` has the place of each zone."""

    usd: Floats
    up: Floats
    returns: Floats
    losses: Floats
    moves: Floats
    on_demand: float
    work: float
    slack: float
    delay: float
    place: Ints


class RegionsPlan:
    """Expected dollars to the end of a job, for any work and slack up to those of its terms."""

    def __init__(self, terms: PlanTerms, most_steps: int = MAX_STEPS) -> None:
        self.on_demand = terms.on_demand
        self.place = terms.place
        work = terms.work
        self._step = max(terms.delay, (work + terms.slack) / most_steps, 1e-3)
        # More slack than this is never scarce.
        self._most = ceil(min(terms.slack, max(0.75 * work, 6 * terms.delay, 4.0)) / self._step) + 1
        self._last = ceil(work / self._step) + 1 + self._most
        self._table = np.zeros((self._last + 2, terms.usd.size, StepRow.OLD, self._most + 1))
        self._fill(terms)
        self._flat = self._table.ravel()

    def usd(
        self, row: "StepRow", places: Ints | int, work: Floats | float, slack: Floats | float
    ) -> Floats:
        """Dollars with the checkpoint or the machine in some places, interpolated between steps of
        work and of slack. A loss is in the table one step later.
        """
        steps = np.maximum(np.asarray(work, dtype=np.float64) / self._step, 0.0)
        spare = np.clip(np.asarray(slack, dtype=np.float64) / self._step, 0.0, self._most - 1e-9)
        low = steps.astype(np.int64)
        left = spare.astype(np.int64)
        more = steps - low
        further = spare - left

        # One number for each element read: three are several times slower.
        time = self._table[0].size
        place = self._table[0, 0].size
        slacks = self._most + 1
        column = places * place + row * slacks + left + (time if row == StepRow.LOST else 0)
        first, second, third = (
            np.minimum(low + left + later, self._last) * time + column for later in range(3)
        )
        read = self._flat.take
        near = (1 - further) * read(first) + further * read(second + 1)
        far = (1 - further) * read(second) + further * read(third + 1)
        usd: Floats = (1 - more) * near + more * far

        return usd

    def _fill(self, terms: PlanTerms) -> None:
        """Everything but the minima is linear, so a step is a matrix by place: there are many steps
        with few elements, and the number of array operations decides how long they take."""
        delay = terms.delay
        moves = terms.moves[:, :, None]
        count = terms.usd.size
        slacks = self._most + 1
        part = delay / self._step
        late, stuck = (ceil(min(most, slacks)) for most in (2 * part, part + 1))
        hours = np.arange(self._last + 2) * self._step
        late_usd = terms.on_demand * (delay + hours[:, None] - hours[:late])
        step = _linear_step(terms, self._step)
        known = np.zeros((count, step.shape[2], slacks))
        known[:, _CONSTANT] = 1.0
        best = known[:, _CONSTANT + 1 :].reshape(count, 4, count, slacks)
        values = np.empty((count, len(StepRow), slacks))
        starts = np.empty((count, count, slacks))
        held = values[:, StepRow.ON_DEMAND : StepRow.WAITS]
        stored = values[:, : StepRow.OLD]
        idle = values[:, StepRow.IDLE, stuck:]
        waits = values[:, StepRow.WAITS, stuck - 1 : -1]
        begun = values[:, StepRow.BEGUN]

        late_starts = starts[:, :, :late]
        # With one step less of slack.
        delayed = known[:, 4:_CONSTANT, 1:]
        running = values[:, StepRow.RUN : StepRow.IDLE, :-1]
        fresh = known[:, 4:_CONSTANT, 0]
        unused = values[:, StepRow.RUN : StepRow.IDLE, 0]

        for left in range(1, self._last + 2):
            np.matmul(step, known, out=values)
            np.minimum(idle, waits, out=idle)
            np.add(moves, begun, out=starts)
            np.maximum(late_starts, late_usd[left], out=late_starts)
            if left < slacks:
                values[:, :, left:] = starts[:, :, left:] = 0.0

            known[:, :4], delayed[...], fresh[...] = held, running, unused
            np.minimum(starts[:, None], held[:, :, None], out=best)
            self._table[left] = stored


class StepRow(IntEnum):
    """The rows that a step computes for each place and slack, from those of one step less of time.

    `LOST` is that of one step less itself. `OLD` and `YOUNG` are machines before a place may come
    up, `YOUNG` after it has aged. `WAITS` is nothing held once places may have come up, `IDLE`
    before that. `BEGUN` is a start without its move.
    """

    LOST = 0
    RUN = 1
    ON_DEMAND = 2
    IDLE = 3
    OLD = 4
    YOUNG = 5
    WAITS = 6
    BEGUN = 7


_CONSTANT: Final = 6
"""The place of the constant among the inputs of a step: the four things held (on demand, nothing,
an old and a young machine), a running machine and an on-demand one with one step less of slack, the
constant, and the better of each thing held and a start in each place."""


def _linear_step(terms: PlanTerms, step: float) -> Floats:
    """The matrix of each place that turns the inputs of a step into the costs with one more step of
    time.
    """
    price = terms.usd
    up = terms.up
    factor = terms.losses
    count = price.size
    part = terms.delay / step
    aging = 1 - exp(-step / YOUNG)
    chosen, rest = _first_up(
        up, np.argsort(price + factor * terms.moves.mean(axis=0), kind="stable")
    )
    known = np.eye(_CONSTANT + 1 + 4 * count)
    constant = known[_CONSTANT]
    starts = known[_CONSTANT + 1 :].reshape(4, count, -1)

    # By what is held (on demand, nothing, an old and a young machine) and where: how likely each
    # place comes up.
    back = _within(terms.returns, step)
    better = np.where(np.eye(count, dtype=np.bool_), 0.0, back * (1 - up))
    offers = np.stack([np.tile(back, (count, 1))] * 2 + [better] * 2)
    held = []
    for what in range(4):
        no_offer = 1 - offers[what].sum(axis=1)
        held.append(no_offer[:, None] * known[what] + offers[what] @ starts[what])

    # The chance that a machine is lost within a step, by its place and age.
    young_rate = HAZARDS[True].between(0.0, YOUNG) / YOUNG
    old_rate = HAZARDS[True].between(YOUNG, _OLD_UNTIL) / (_OLD_UNTIL - YOUNG)
    old = _within(factor * old_rate, step)[:, None]
    young = _within(factor * young_rate, step)[:, None]
    paid = (price * step)[:, None] * constant
    start_paid = (price * terms.delay)[:, None] * constant
    rows = np.empty((len(StepRow), count, known.shape[0]))
    lost = rows[StepRow.LOST] = rest[:, None] * known[1] + chosen @ starts[1]
    rows[StepRow.ON_DEMAND] = held[0] + terms.on_demand * step * constant
    rows[StepRow.WAITS] = held[1]
    rows[StepRow.OLD] = (1 - old) * held[2] + old * lost + paid
    rows[StepRow.RUN] = (1 - young) * held[3] + young * lost + paid
    rows[StepRow.YOUNG] = (1 - aging) * rows[StepRow.RUN] + aging * rows[StepRow.OLD]

    # A start takes its delay, which is a part of a step.
    idle = (1 - part) * rows[StepRow.ON_DEMAND] + part * known[5]
    rows[StepRow.IDLE] = idle + terms.on_demand * terms.delay * constant
    begun = (1 - part) * rows[StepRow.RUN] + part * known[4]
    rows[StepRow.BEGUN] = begun + start_paid
    return np.ascontiguousarray(rows.transpose(1, 0, 2))


def _within(rates: Floats, step: float) -> Floats:
    """The probability that something happens within a step."""
    return np.asarray(1 - np.exp(-rates * step))


def _first_up(
    up: Floats, best: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> tuple[Floats, Floats]:
    """By the place that was lost: the chance that a place is the best that is up, and that none
    is."""
    chosen = np.zeros((up.size, up.size))
    rest = np.ones(up.size)
    for place in best:
        chance = np.where(np.arange(up.size) == place, 0.0, up[place])
        chosen[:, place] = rest * chance
        rest = rest * (1 - chance)
    return chosen, rest
