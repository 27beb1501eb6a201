"""`deadline`: finishes in time at the least expected cost, deciding online.

The strategy learns from the market's history how long spells of capacity last (`deadline_spells`), plans for such
spells (`deadline_plan`), and reads off the plan whether the slack is worth more than an on-demand machine costs. No
decision depends on the future. The plan's inputs are the price ratio, the delay, and the rates at which spells end.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bidbrain.strategies.deadline_job import DeadlineTerms
from bidbrain.strategies.deadline_plan import PlanGrid, spell_chain, thresholds
from bidbrain.strategies.deadline_spells import CLASSES, FACTOR_STEP, PUBLIC_PRIOR, Prior, SpotSpell
from pricing_data.units import MINUTE

# The public traces sample and change about every ten minutes; shorter jobs use finer steps, longer ones coarser steps.
_STEP: Final = 10 * MINUTE
_FEWEST_STEPS, _MOST_STEPS = 48, 288
# In steps of the spot price. A plan treats estimated rates as true, which makes waiting and spot look better than they
# are; decision 4 has the figures for other margins, per trace set.
HOPE_MARGIN: Final = 0.125
# The threshold lies somewhere between two steps of slack; half a step is the unbiased guess.
_ROUNDED: Final = 0.5


class DeadlineStrategy:
    """Plans for one kind of job; a plan is computed when a market first needs it, then cached."""

    def __init__(self, terms: DeadlineTerms, prior: Prior = PUBLIC_PRIOR, margin: float = HOPE_MARGIN) -> None:
        self.terms, self.prior = terms, prior
        self.step = max(-(-terms.work // _MOST_STEPS), min(_STEP, -(-terms.work // _FEWEST_STEPS)))
        steps = -(-terms.work // self.step)
        # Slack beyond half of the work is never scarce: a job with more slack may wait.
        self._grid = PlanGrid(steps, steps // 2, terms.delay / self.step, terms.price_ratio, margin)
        self._numbers: dict[tuple[int, ...], int] = {}
        self._plans: NDArray[np.int16] = np.empty((0, 2, 2 * CLASSES, steps + 1), dtype=np.int16)

    def least_slack(self, work_left: float, spell: SpotSpell, *, on_demand: bool) -> float:
        """The slack, in microseconds, from which waiting or a spot machine costs less than an on-demand machine.

        `on_demand` says that an on-demand machine is held already, which saves its delay.
        """
        (number,) = self._computed([spell.steps])
        work = min(max(work_left / self.step, 0.0), self._grid.work)
        low = min(int(work), self._grid.work - 1)
        below, above = self._plans[number, int(on_demand), spell.state, low : low + 2].tolist()
        return float(below + (work - low) * (above - below) - _ROUNDED) * self.step

    def _computed(self, wanted: Iterable[tuple[int, ...]]) -> list[int]:
        """The numbers of plans; computes those that are missing."""
        made, wanted = [], list(wanted)
        for steps in wanted:
            if steps not in self._numbers:
                self._numbers[steps] = len(self._numbers)
                made.append(thresholds(spell_chain(self.prior.rates(_factors(steps)), self.step), self._grid))
        if made:
            self._plans = np.concatenate((self._plans, np.stack(made)))
        return [self._numbers[steps] for steps in wanted]


def _factors(steps: Iterable[int]) -> list[float]:
    return [FACTOR_STEP ** int(step) for step in steps]
