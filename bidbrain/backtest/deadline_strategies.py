"""The schemes of the deadline replay that choose online."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bidbrain.backtest.deadline import AvailabilityHistory
from bidbrain.strategies.deadline import HOPE_MARGIN, DeadlineStrategy
from bidbrain.strategies.deadline_job import ON_DEMAND, SPOT, WAIT, DeadlineState, DeadlineTerms
from bidbrain.strategies.deadline_spells import PUBLIC_PRIOR, Prior, SpellOutlook, outlook
from pricing_data.series import Ints


class Greedy:
    """Spot while there is any; otherwise waits until the safety net sends it on demand."""

    name = "greedy"

    def choose(self, standing: DeadlineState) -> Ints:
        """Spot or nothing."""
        return np.where(standing.spot_up, SPOT, WAIT)


class UniformProgress:
    """Keeps to the line from no progress at the start to all of it at the deadline.

    Spot while available. On its loss it waits where progress is on or ahead of the line, else goes on demand, and stays
    there until progress is ahead of where the line will be in `look_ahead` delays and spot is available.
    """

    name = "uniform-progress"

    def __init__(self, look_ahead: int = 2) -> None:
        self._look_ahead = look_ahead

    def choose(self, standing: DeadlineState) -> Ints:
        """By comparing the share of the work that is done with the share of the time that is gone."""
        span = standing.elapsed + standing.remaining
        progress = 1 - standing.work_left / standing.terms.work
        ahead = progress >= standing.elapsed / span
        later = standing.elapsed + self._look_ahead * standing.terms.delay
        leaves = standing.spot_up & (progress >= later / span)
        without_machine = np.where(ahead, WAIT, ON_DEMAND)
        return np.where(
            standing.machine == ON_DEMAND,
            np.where(leaves, SPOT, ON_DEMAND),
            np.where(standing.spot_up, SPOT, without_machine),
        )


class Deadline:
    """The project's own strategy, told at each tick what its history showed until then."""

    name = "deadline"

    def __init__(
        self,
        terms: DeadlineTerms,
        histories: Sequence[AvailabilityHistory],
        prior: Prior = PUBLIC_PRIOR,
        margin: float = HOPE_MARGIN,
    ) -> None:
        self._strategy = DeadlineStrategy(terms, prior, margin)
        seen = [self._learnt(outlook(history.up, history.gap, prior)) for history in histories]
        self._state = np.concatenate([one.state for one in seen])
        self._plan = np.concatenate([self._strategy.plans_for(one) for one in seen])

    def choose(self, standing: DeadlineState) -> Ints:
        """What the strategy chooses at each job's tick of its history."""
        return self._strategy.choose(standing, self._state[standing.at], self._plan[standing.at])

    def _learnt(self, seen: SpellOutlook) -> SpellOutlook:
        """What is taken from an outlook: all of it."""
        return seen
