"""A job with a deadline: its terms, its state, and the safety net that keeps it from missing.

Time is cut into ticks. At the start of each tick it is known whether spot capacity is available, and one of three
choices holds for the whole tick: no machine, a spot machine, an on-demand machine. Entering a machine (the first one,
after a change of kind, after an eviction) costs the delay before work continues. Every field of a `DeadlineState` has
one element per job, so that thousands of replayed jobs are decided at once; a live job is a batch of one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from bidbrain.errors import BidBrainError
from pricing_data.series import Ints
from pricing_data.units import HOUR

Bools = NDArray[np.bool_]

WAIT: Final = 0
SPOT: Final = 1
ON_DEMAND: Final = 2


class ImpossibleJob(BidBrainError):
    """No strategy can finish the job in its time, or its terms are invalid."""


@dataclass(frozen=True, slots=True)
class DeadlineTerms:
    """A job's needs: `work` and the `delay` of entering a machine, in microseconds on one machine.

    `price_ratio` is the on-demand price over the spot price; no other property of prices affects a choice.
    """

    work: int
    delay: int
    price_ratio: float

    def __post_init__(self) -> None:
        if self.work <= 0:
            raise ImpossibleJob(f"a job of {self.work / HOUR:g} hours has no work; it must be above 0")
        if self.delay < 0:
            raise ImpossibleJob(f"a delay of {self.delay / HOUR:g} hours is negative")
        if not 0 < self.price_ratio < float("inf"):
            raise ImpossibleJob(
                f"an on-demand price of {self.price_ratio:g} times the spot price is not positive and finite"
            )


@dataclass(frozen=True, slots=True)
class DeadlineState:
    """The state of jobs at the start of a tick, after evictions: an evicted machine is no longer held.

    `at` is the tick of the observed availability; times are in microseconds.
    """

    terms: DeadlineTerms
    tick: Ints
    elapsed: Ints
    remaining: Ints
    work_left: Ints
    delay_left: Ints
    machine: Ints
    spot_up: Bools
    at: Ints

    @property
    def slack(self) -> Ints:
        """Time that can still be lost: the remaining time less the work and the rest of a delay in progress."""
        return self.remaining - self.work_left - self.delay_left


class BatchStrategy(Protocol):
    """A strategy that decides for a batch of jobs at once."""

    @property
    def name(self) -> str:
        """The strategy's name in results."""

    def choose(self, state: DeadlineState, /) -> Ints:
        """A choice for each job; the replay overrides it where the safety net applies."""


SafetyNet = Callable[[DeadlineState], Bools]
"""Decides which jobs must be on an on-demand machine from now on."""


def net_when_idle(state: DeadlineState) -> Bools:
    """Once the remaining time <= work + 2 delays, rounded up to ticks, a job that is not running on spot goes on
    demand.

    Why no job misses: a job outside the net still has, after one more tick without progress, at least its work and two
    delays; entering spot and being evicted costs at most one of them, and the other pays for entering the on-demand
    machine. A job on spot loses no slack by staying, so the net may wait for its eviction. Once on demand, the slack no
    longer changes.
    """
    caught: Bools = within_two_delays(state) & (state.machine != SPOT)
    return caught


def within_two_delays(state: DeadlineState) -> Bools:
    """The published rule as written, which also takes a job off a working spot machine."""
    need = state.work_left + 2 * state.terms.delay
    caught: Bools = state.remaining <= -(-need // state.tick) * state.tick
    return caught
