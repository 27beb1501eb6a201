"""`deadline`: finishes in time at the least expected cost, deciding online.

The strategy learns from the market's history how long spells of capacity last (`spells`),
plans for such spells, and reads off the plan whether the slack is worth more than an on-demand
machine costs. No decision depends on the future. The plan's inputs are the price ratio, the delay,
and the rates at which spells end.

A plan is a value iteration over work left, slack, machine and market state, in steps of equal
length. A job with w steps of work and s steps of slack has w + s steps until its deadline; each
step either does work (w falls by one) or loses slack (s falls by one), and entering a machine loses
the delay as slack while the machine is paid for. With s < 0 everything is done on demand. With t =
w + s steps left,

    wait        E V(t-1, s-1)                    stay on a machine   price + E V(t-1, s)
    enter one   price + E V(t-1, s - delay)

are the expected costs to the end of the three options, E over the market's next state. V is the
cheapest of them, under the rule that a job without a spot machine never has less slack than the
safety net requires. The cheaper option must win by a margin, because estimates make it look better
than it is. More slack never makes an on-demand machine more attractive, so the whole policy is one
number per work left, market state and machine held: the least slack from which on-demand is not
chosen.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bidbrain.arrays import Bools, Floats
from bidbrain.errors import BidBrainError
from bidbrain.strategies.base import Offer, Overheads
from bidbrain.strategies.spells import (
    AGES,
    CLASSES,
    FACTOR_STEP,
    PUBLIC_PRIOR,
    Prior,
    SpotSpell,
)
from pricing_data.units import HOUR, MINUTE

# The public traces sample and change about every ten minutes; shorter jobs use finer steps, longer
# ones coarser steps.
_STEP: Final = 10 * MINUTE
_FEWEST_STEPS, _MAX_STEPS = 48, 288
# In steps of the spot price. A plan treats estimated rates as true, which makes waiting and spot
# look better than they are (decision 4).
HOPE_MARGIN: Final = 0.125
# The threshold lies somewhere between two steps of slack; half a step is the unbiased guess.
_ROUNDED: Final = 0.5


class ImpossibleJob(BidBrainError):
    """No strategy can finish the job in its time, or its terms are invalid."""


@dataclass(frozen=True, slots=True)
class DeadlineTerms:
    """A job's needs: `work` and the `delay` of entering a machine, in microseconds on one machine.

    `price_ratio` is the on-demand price over the spot price; no other property of prices affects a
    choice.
    """

    work: int
    delay: int
    price_ratio: float

    def __post_init__(self) -> None:
        if self.work <= 0:
            raise ImpossibleJob(
                f"a job of {self.work / HOUR:g} hours has no work; it must be above 0"
            )
        if self.delay < 0:
            raise ImpossibleJob(f"a delay of {self.delay / HOUR:g} hours is negative")

        if not 0 < self.price_ratio < float("inf"):
            raise ImpossibleJob(
                f"an on-demand price of {self.price_ratio:g} times the spot price is not positive "
                "and finite"
            )


class DeadlineStrategy:
    """Plans for one kind of job; a plan is computed when a market first needs it, then cached."""

    def __init__(
        self, terms: DeadlineTerms, prior: Prior = PUBLIC_PRIOR, margin: float = HOPE_MARGIN
    ) -> None:
        self.terms = terms
        self.prior = prior
        coarse = -(-terms.work // _MAX_STEPS)
        fine = -(-terms.work // _FEWEST_STEPS)
        least = min(_STEP, fine)
        self.step = max(coarse, least)
        steps = -(-terms.work // self.step)
        # Slack beyond half of the work is never scarce: a job with more slack may wait.
        delay_steps = terms.delay / self.step
        self._grid = PlanGrid(steps, steps // 2, delay_steps, terms.price_ratio, margin)
        self._numbers: dict[tuple[int, ...], int] = {}
        self._plans: NDArray[np.int16] = np.empty((0, 2, 2 * CLASSES, steps + 1), dtype=np.int16)

    @classmethod
    def of(
        cls, work: int, on_demand: Offer, spot: float, overheads: Overheads
    ) -> "DeadlineStrategy":
        """The strategy of a job by its work on machines of the on-demand offer, the price of spot
        machines for a unit of work (in nano-dollars per hour and nu), and what changing machines
        costs."""
        ratio = on_demand.on_demand / on_demand.nu / spot
        return cls(DeadlineTerms(work, overheads.startup + overheads.eviction, ratio))

    def least_slack(self, work_left: float, spell: SpotSpell, *, on_demand: bool) -> float:
        """The slack, in microseconds, from which waiting or a spot machine costs less than an
        on-demand machine.

        `on_demand` says that an on-demand machine is held already, which saves its delay.
        """
        (number,) = self._computed([spell.steps])
        in_steps = work_left / self.step
        work = min(max(in_steps, 0.0), self._grid.work)
        low = min(int(work), self._grid.work - 1)
        around = self._plans[number, int(on_demand), spell.state, low : low + 2]
        below, above = around.tolist()
        risen = (work - low) * (above - below)
        slack = below + risen - _ROUNDED
        return float(slack) * self.step

    def _computed(self, wanted: Iterable[tuple[int, ...]]) -> list[int]:
        """The numbers of plans; computes those that are missing."""
        made = []
        wanted = list(wanted)
        for steps in wanted:
            if steps not in self._numbers:
                self._numbers[steps] = len(self._numbers)
                factors = [FACTOR_STEP ** int(step) for step in steps]
                rates = self.prior.rates(factors)
                moves = spell_chain(rates, self.step)
                made.append(thresholds(moves, _IS_UP, self._grid))

        if made:
            self._plans = np.concatenate((self._plans, np.stack(made)))

        return [self._numbers[steps] for steps in wanted]


SlackThresholds = NDArray[np.int16]
CostTable = NDArray[np.float32]

NET_DELAYS: Final = 2
_IDLE, _OD, _SPOT = 0, 1, 2
_NEVER = np.float32(1e9)
_IS_UP: Final[Bools] = np.arange(2 * CLASSES) >= CLASSES
"""By state of a market (side and age class), whether spot machines are available."""


@dataclass(frozen=True, slots=True)
class PlanGrid:
    """Size of a plan in steps (work, slack, delay of entering a machine), and the price ratio.

    `margin` is how much the cheaper option must save over on-demand to be chosen, in steps of the
    spot price.
    """

    work: int
    slack: int
    delay: float
    price_ratio: float
    margin: float = 0.0


def spell_chain(rates: Floats, step: int) -> Floats:
    """The market as a Markov chain over `step` microseconds: how likely it moves from one state to
    another if spells end at `rates` per hour by age class.

    A spell moves to the next age class with the probability that the class width implies; steps
    longer than a class are composed of shorter ones, so that no class is skipped.
    """
    shortest = np.diff(AGES).min()
    class_length = int(shortest)
    parts = -(-step // class_length)
    part = step / parts
    ended = -rates * part / HOUR
    ends = 1 - np.exp(ended)
    aged = np.minimum(part / np.diff(AGES), 1.0)
    older = np.append(aged, 0.0)
    moves = np.zeros((2 * CLASSES, 2 * CLASSES))
    age = np.arange(CLASSES)

    for side in (0, 1):
        state = side * CLASSES + age
        stays = 1 - ends[side]
        moves[state, state] = stays * (1 - older)
        ages = (1 - ends[side]) * older
        moves[state[:-1], state[1:]] = ages[:-1]
        moves[state, (1 - side) * CLASSES] += ends[side]

    powers: Floats = np.linalg.matrix_power(moves, parts)
    return powers


def thresholds(moves: Floats, up: Bools, grid: PlanGrid) -> SlackThresholds:
    """Least slack, in steps, from which waiting (market down) or spot (market up) saves the margin
    over on-demand, in a market that `moves` from state to state and is `up` in some.

    By machine held (none, on-demand), market state and steps of work left; `grid.slack + 1` where
    no planned slack is enough.
    """
    least: SlackThresholds = np.zeros((2, up.size, grid.work + 1), dtype=np.int16)
    if grid.slack <= NET_DELAYS * grid.delay:
        # The safety net holds with any planned slack. The delay may be millions of steps of a very
        # short job.
        least[:, :, 0], least[:, :, 1:] = grid.slack, grid.slack + 1
        return least

    iteration = _ValueIteration(moves, up, grid)
    for left in range(1, grid.work + grid.slack + 1):
        on_demand_best = iteration.step(left)
        low = max(0, left - grid.work)
        high = min(grid.slack, left)
        # Slack rises as work falls along a row of constant steps left, hence the reversal.
        shifted = on_demand_best[:, :, low : high + 1]
        least[:, :, left - high : left - low + 1] += shifted[:, :, ::-1]

    return least


class _ValueIteration:
    """Expected costs to the end with a number of steps left, by machine, market state and slack."""

    def __init__(self, moves: Floats, up: Bools, grid: PlanGrid) -> None:
        self._moves = moves.astype(np.float32)
        self._up = up[:, None]
        self._grid = grid
        self._margin = int(grid.delay) + 1
        slack = np.arange(grid.slack + 1)
        self._caught = slack <= NET_DELAYS * grid.delay
        self._costs = np.zeros((3, up.size, slack.size), dtype=np.float32)

    def step(self, left: int) -> Bools:
        """Steps back to `left` steps before the deadline; returns where on-demand is chosen, for no
        machine and on-demand."""
        delay = self._grid.delay
        ratio = np.float32(self._grid.price_ratio)

        # The costs, preceded by those of the negative slacks that a delay can lead to: all on
        # demand.
        margin = np.arange(-self._margin, 0)
        work = left - 1 - margin
        width = self._margin + self._grid.slack + 1
        costs = np.empty((3, self._up.size, width), dtype=np.float32)
        costs[:, :, self._margin :] = self._costs
        costs[_OD, :, : self._margin] = self._grid.price_ratio * work
        all_work = work + delay
        costs[_IDLE, :, : self._margin] = self._grid.price_ratio * all_work
        costs[_SPOT, :, : self._margin] = costs[_IDLE, :, : self._margin]
        # A spot machine is lost when the market goes down.
        costs[_SPOT] = np.where(self._up, costs[_SPOT], costs[_IDLE])
        expected = np.matmul(self._moves, costs)

        wait = np.where(self._caught, _NEVER, self._at(expected[_IDLE], 1))
        may_enter = self._up & ~self._caught
        after_delay = self._at(expected[_SPOT], delay)
        entering = 1 + after_delay
        enter = np.where(may_enter, entering, _NEVER)
        now_on_spot = self._at(expected[_SPOT], 0)
        stay = np.where(self._up, 1 + now_on_spot, _NEVER)
        od_later = self._at(expected[_OD], delay)
        od_entering = ratio + od_later
        od_now = self._at(expected[_OD], 0)
        od_staying = ratio + od_now
        on_demand = np.stack((od_entering, od_staying))
        bold = np.minimum(wait, enter)
        idle, held = np.minimum(on_demand, bold)

        # An order from on demand is for spot itself: what waiting without a machine is worth does
        # not count.
        asked = np.stack((bold, np.where(self._up, enter, wait)))
        held_best = np.minimum(np.minimum(stay, on_demand[0]), wait)
        self._costs = np.stack((idle, held, held_best))
        self._costs[:, :, left:] = 0  # no more slack than steps: the work is done
        best: Bools = on_demand <= asked + np.float32(self._grid.margin)
        return best

    def _at(self, expected: CostTable, lost: float) -> CostTable:
        """The costs after losing some slack, interpolated between steps."""
        whole = int(lost)
        begin = self._margin - whole
        size = self._grid.slack + 1
        nearer = expected[:, begin : begin + size]
        if lost == whole:
            return nearer
        part = np.float32(lost - whole)
        end = begin - 1 + size
        further = expected[:, begin - 1 : end]
        return (1 - part) * nearer + part * further
