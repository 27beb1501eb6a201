"""The online strategies that the deadline replay compares with the project's own."""

import numpy as np

from bidbrain.strategies.deadline_job import ON_DEMAND, SPOT, WAIT, DeadlineState
from pricing_data.series import Ints


class Greedy:
    """Spot while available; otherwise waits until the safety net sends the job on demand."""

    name = "greedy"

    def choose(self, state: DeadlineState) -> Ints:
        """Spot if available, else nothing."""
        return np.where(state.spot_up, SPOT, WAIT)


class UniformProgress:
    """Keeps progress at or above the straight line from the start to the deadline.

    Spot while available. After an eviction it waits if progress is on or ahead of the line, else goes on demand, and
    stays there until spot is available and progress is ahead of where the line will be in `look_ahead` delays.
    """

    name = "uniform-progress"

    def __init__(self, look_ahead: int = 2) -> None:
        self._look_ahead = look_ahead

    def choose(self, state: DeadlineState) -> Ints:
        """Compares the completed share of the work with the elapsed share of the time."""
        span = state.elapsed + state.remaining
        progress = 1 - state.work_left / state.terms.work
        ahead = progress >= state.elapsed / span
        later = state.elapsed + self._look_ahead * state.terms.delay
        leaves = state.spot_up & (progress >= later / span)
        without_machine = np.where(ahead, WAIT, ON_DEMAND)
        return np.where(
            state.machine == ON_DEMAND,
            np.where(leaves, SPOT, ON_DEMAND),
            np.where(state.spot_up, SPOT, without_machine),
        )
