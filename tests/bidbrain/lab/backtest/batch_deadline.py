"""The replay of jobs with a deadline for many jobs at once, tick by tick, with strategies: the loop
of all plays must choose the same."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bidbrain.arrays import Bools, Floats
from bidbrain.lab.backtest.deadline import (
    NOT_RUNNING,
    ON_DEMAND,
    SPOT,
    WAIT,
    AvailabilityHistory,
    DeadlineJobs,
    DeadlineOutcome,
)
from bidbrain.strategies.deadline import HOPE_MARGIN, DeadlineStrategy, DeadlineTerms
from bidbrain.strategies.spells import PUBLIC_PRIOR, Prior, SpellOutlook, outlook
from pricing_data.series import Ints


@dataclass(frozen=True, slots=True)
class BatchState:
    """The state of jobs at the start of a tick, after evictions: an evicted machine is no longer
    held.

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
        """Time that can still be lost: the remaining time less the work and the rest of a delay in
        progress.
        """
        return self.remaining - self.work_left - self.delay_left


BatchStrategy = Callable[[BatchState], Ints]
"""Chooses for each job of a batch; the replay overrides it where the safety net applies."""

SafetyNet = Callable[[BatchState], Bools]
"""Decides which jobs must be on an on-demand machine from now on."""


def net_when_idle(state: BatchState) -> Bools:
    """Once the remaining time <= work + 2 delays, rounded up to ticks, a job that is not running on
    spot goes on demand.

    Why no job misses: a job outside the net still has, after one more tick without progress, at
    least its work and two delays; entering spot and being evicted costs at most one of them, and
    the other pays for entering the on-demand machine. A job on spot loses no slack by staying, so
    the net may wait for its eviction. Once on demand, the slack no longer changes.
    """
    caught: Bools = within_two_delays(state) & (state.machine != SPOT)
    return caught


def within_two_delays(state: BatchState) -> Bools:
    """The published rule as written, which also takes a job off a working spot machine."""
    need = state.work_left + 2 * state.terms.delay
    caught: Bools = state.remaining <= -(-need // state.tick) * state.tick
    return caught


def batch_replay(
    jobs: DeadlineJobs,
    strategy: BatchStrategy,
    net: SafetyNet = net_when_idle,
    *,
    keep_course: bool = False,
) -> DeadlineOutcome:
    """Replays every job under a strategy."""
    size = len(jobs)
    work_left, delay_left = np.full(size, jobs.terms.work), np.zeros(size, dtype=np.int64)
    machine = np.full(size, WAIT)
    billed = np.zeros((3, size), dtype=np.int64)
    longest = int(jobs.ticks.max(initial=0))
    course = np.full((size, longest), NOT_RUNNING, dtype=np.int8) if keep_course else None
    running = np.arange(size)
    for passed in range(longest):
        running = running[(work_left[running] > 0) & (passed < jobs.ticks[running])]
        if not running.size:
            break
        now = _state(jobs, running, passed, work_left, delay_left, machine)
        choice = np.where(net(now), ON_DEMAND, strategy(now))
        if ((choice == SPOT) & ~now.spot_up).any():
            raise ValueError("the strategy chose a spot machine while none was available")
        delay = np.where(choice == now.machine, now.delay_left, jobs.terms.delay)
        lost = np.minimum(delay, now.tick)
        work_left[running] -= np.where(choice == WAIT, 0, now.tick - lost)
        delay_left[running] = np.where(choice == WAIT, 0, delay - lost)
        machine[running] = choice
        billed[choice, running] += 1
        if course is not None:
            course[running, passed] = choice
    return DeadlineOutcome(billed[SPOT], billed[ON_DEMAND], work_left > 0, course)


def _state(
    jobs: DeadlineJobs, running: Ints, passed: int, work_left: Ints, delay_left: Ints, machine: Ints
) -> BatchState:
    tick = jobs.tick[running]
    sizes = [history.up.size for history in jobs.histories]
    offset = np.concatenate(([0], np.cumsum(sizes)))[:-1]
    at = offset[jobs.history[running]] + jobs.start[running] + passed
    up = np.concatenate([history.up for history in jobs.histories])[at]
    held = np.where((machine[running] == SPOT) & ~up, WAIT, machine[running])
    return BatchState(
        terms=jobs.terms,
        tick=tick,
        elapsed=passed * tick,
        remaining=(jobs.ticks[running] - passed) * tick,
        work_left=work_left[running],
        delay_left=np.where(held == WAIT, 0, delay_left[running]),
        machine=held,
        spot_up=up,
        at=at,
    )


def batch_greedy(state: BatchState) -> Ints:
    """Spot while available; otherwise waits until the safety net sends the job on demand."""
    return np.where(state.spot_up, SPOT, WAIT)


def batch_uniform_progress(state: BatchState, look_ahead: int = 2) -> Ints:
    """Keeps progress at or above the straight line from the start to the deadline.

    Spot while available. After an eviction it waits if progress is on or ahead of the line, else
    goes on demand, and stays there until spot is available and progress is ahead of where the line
    will be in `look_ahead` delays.
    """
    span = state.elapsed + state.remaining
    progress = 1 - state.work_left / state.terms.work
    ahead = progress >= state.elapsed / span
    later = state.elapsed + look_ahead * state.terms.delay
    leaves = state.spot_up & (progress >= later / span)
    without_machine = np.where(ahead, WAIT, ON_DEMAND)
    return np.where(
        state.machine == ON_DEMAND,
        np.where(leaves, SPOT, ON_DEMAND),
        np.where(state.spot_up, SPOT, without_machine),
    )


ROUNDED = 0.5
"""The threshold lies somewhere between two steps of slack."""


class BatchDeadline(DeadlineStrategy):
    """The plans of the strategy, read for batches of jobs."""

    def plans_for(self, seen: SpellOutlook) -> Ints:
        """The number of the plan that fits each outlook; computes missing plans."""
        wanted, which = np.unique(seen.steps, axis=0, return_inverse=True)
        numbers = self._computed([tuple(steps) for steps in wanted.tolist()])
        return np.array(numbers)[which.ravel()]

    def choose(self, job: BatchState, state: Ints, plan: Ints) -> Ints:
        """The choice for each job, from the state of its market and its plan number."""
        enough = job.slack >= self._worth(job, state, plan) * self.step
        bold = np.where(job.spot_up, SPOT, WAIT)
        return np.where((job.machine == SPOT) | enough, bold, ON_DEMAND)

    def _worth(self, job: BatchState, state: Ints, plan: Ints) -> Floats:
        """The least slack, in steps, at which the cheaper option is better; interpolated between
        steps of work.
        """
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

    def __call__(self, state: BatchState) -> Ints:
        """The strategy's choice at each job's tick of its history."""
        return self._strategy.choose(state, self._state[state.at], self._plan[state.at])
