"""The `deadline` strategy for many jobs at once, and for whole histories: the decider must choose the same."""

from collections.abc import Sequence

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.lab.backtest.deadline import ON_DEMAND, SPOT, WAIT, AvailabilityHistory, DeadlineState
from bidbrain.strategies.deadline import HOPE_MARGIN, DeadlineStrategy, DeadlineTerms
from bidbrain.strategies.deadline_spells import PUBLIC_PRIOR, Prior, SpellOutlook, outlook
from pricing_data.series import Ints

ROUNDED = 0.5
"""The threshold lies somewhere between two steps of slack."""


class BatchDeadline(DeadlineStrategy):
    """The plans of the strategy, read for batches of jobs."""

    def plans_for(self, seen: SpellOutlook) -> Ints:
        """The number of the plan that fits each outlook; computes missing plans."""
        wanted, which = np.unique(seen.steps, axis=0, return_inverse=True)
        numbers = self._computed([tuple(steps) for steps in wanted.tolist()])
        return np.array(numbers)[which.ravel()]

    def choose(self, job: DeadlineState, state: Ints, plan: Ints) -> Ints:
        """The choice for each job, from the state of its market and its plan number."""
        enough = job.slack >= self._worth(job, state, plan) * self.step
        bold = np.where(job.spot_up, SPOT, WAIT)
        return np.where((job.machine == SPOT) | enough, bold, ON_DEMAND)

    def _worth(self, job: DeadlineState, state: Ints, plan: Ints) -> Floats:
        """The least slack, in steps, at which the cheaper option is better; interpolated between steps of work."""
        work = np.minimum(job.work_left / self.step, self._grid.work)
        low = np.minimum(work.astype(np.int64), self._grid.work - 1)
        held = (job.machine == ON_DEMAND).astype(np.int64)
        below, above = (self._plans[plan, held, state, low + more] for more in (0, 1))
        worth: Floats = below + (work - low) * (above.astype(np.float64) - below) - ROUNDED
        return worth


class Deadline:
    """The `deadline` strategy; at each tick it knows the history up to that tick."""

    name = "deadline"

    def __init__(
        self,
        terms: DeadlineTerms,
        histories: Sequence[AvailabilityHistory],
        prior: Prior = PUBLIC_PRIOR,
        margin: float = HOPE_MARGIN,
    ) -> None:
        self._strategy = BatchDeadline(terms, prior, margin)
        outlooks = [outlook(history.up, history.gap, prior) for history in histories]
        self._state = np.concatenate([spells.state for spells in outlooks])
        self._plan = np.concatenate([self._strategy.plans_for(spells) for spells in outlooks])

    def __call__(self, state: DeadlineState) -> Ints:
        """The strategy's choice at each job's tick of its history."""
        return self._strategy.choose(state, self._state[state.at], self._plan[state.at])
