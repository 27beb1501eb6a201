"""Replay of jobs with a deadline over availability traces, tick by tick, for all jobs at once.

Time is cut into ticks. At the start of each tick it is known whether spot capacity is available, and one of three
choices holds for the whole tick, which is billed whole: no machine, a spot machine, an on-demand machine. Entering a
machine (the first one, after a change of kind, after an eviction) costs the delay before work continues, counted in
time and not in ticks; a spot machine is evicted as soon as a tick shows spot down; the safety net overrides the
strategy. A job ends with the tick in which its work is done, and misses if there is no such tick. Cost is given as a
share of the same job's cost on demand only: one entry, then work to the end.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bidbrain.arrays import Bools, Floats
from bidbrain.lab.backtest.deadline_optimum import cheapest
from bidbrain.strategies.deadline import DeadlineTerms, ImpossibleJob
from pricing_data.availability import AvailabilityTrace
from pricing_data.series import Ints
from pricing_data.units import HOUR, SECOND

WAIT: Final = 0
SPOT: Final = 1
ON_DEMAND: Final = 2
JobTimeline = NDArray[np.int8]
NOT_RUNNING = -1


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


BatchStrategy = Callable[[DeadlineState], Ints]
"""Chooses for each job of a batch; the replay overrides it where the safety net applies."""

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


@dataclass(frozen=True, slots=True)
class AvailabilityHistory:
    """Whether spot was available at each tick of a trace; ticks are `gap` microseconds apart."""

    name: str
    gap: int
    up: Bools

    @classmethod
    def of(cls, trace: AvailabilityTrace) -> "AvailabilityHistory":
        """A trace of several machines counts as up only while all of them are, since the job needs its full size."""
        return cls(trace.name, trace.gap_seconds * SECOND, trace.up >= max(trace.wanted, 1))


@dataclass(frozen=True, slots=True, eq=False)
class DeadlineJobs:
    """Jobs on histories: per job its history, slack, first tick there, and ticks until the deadline.

    `up` holds all histories one after another, and `offset` where each begins in it.
    """

    terms: DeadlineTerms
    up: Bools
    offset: Ints
    history: Ints
    slack: Floats
    tick: Ints
    start: Ints
    ticks: Ints

    def __len__(self) -> int:
        return int(self.start.size)

    def only(self, job: int) -> "DeadlineJobs":
        """A single job as a batch of one."""
        rows = slice(job, job + 1)
        return replace(
            self,
            history=self.history[rows],
            slack=self.slack[rows],
            tick=self.tick[rows],
            start=self.start[rows],
            ticks=self.ticks[rows],
        )

    def window(self, job: int) -> Bools:
        """The availability during a job, from its start to its deadline."""
        first = self.offset[self.history[job]] + self.start[job]
        return self.up[first : first + self.ticks[job]]


@dataclass(frozen=True, slots=True, eq=False)
class DeadlineOutcome:
    """Result per job: ticks billed by kind of machine, and whether it missed.

    `course` has what each job held at each tick, NOT_RUNNING after its end; it is None unless requested.
    """

    spot_ticks: Ints
    on_demand_ticks: Ints
    missed: Bools
    course: JobTimeline | None = None


@dataclass(frozen=True, slots=True)
class DeadlineSummary:
    """A strategy over all jobs of one slack: mean share of the on-demand cost, mean machine-hours, number of missed
    jobs."""

    scheme: str
    """Name of the strategy."""
    slack: float
    """Time to the deadline as a multiple of the work."""
    jobs: int
    """Number of jobs."""
    cost_ratio: float
    """Mean cost as a share of on-demand."""
    spot_hours: float
    """Mean machine-hours on spot."""
    on_demand_hours: float
    """Mean machine-hours on demand."""
    misses: int
    """Number of jobs that missed their deadline."""


def lay_out(
    histories: Sequence[AvailabilityHistory], terms: DeadlineTerms, slacks: Sequence[float], starts: int
) -> DeadlineJobs:
    """Jobs at `starts` moments of each history, spread evenly up to the last moment that leaves enough room.

    Histories too short for a slack have no jobs of it.
    """
    rows, slack_of = [], []
    for number, history in enumerate(histories):
        for slack in slacks:
            ticks = ticks_until_deadline(terms, slack, history.gap)
            latest = history.up.size - ticks
            moments = np.linspace(0, latest, starts).astype(np.int64) if latest >= 0 else np.empty(0, np.int64)
            for moment in np.unique(moments).tolist():
                rows.append((number, history.gap, moment, ticks))
                slack_of.append(slack)
    history_of, tick, start, until = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    offset = np.concatenate(([0], np.cumsum([history.up.size for history in histories])))[:-1]
    up = np.concatenate([history.up for history in histories])
    return DeadlineJobs(terms, up, offset, history_of, np.array(slack_of), tick, start, until)


def ticks_until_deadline(terms: DeadlineTerms, slack: float, gap: int) -> int:
    """Whole ticks in slack x work; refused if even on-demand from the first tick would miss."""
    ticks = round(slack * terms.work) // gap
    needed = -(-(terms.work + terms.delay) // gap)
    if ticks < needed:
        raise ImpossibleJob(
            f"slack {slack:g} is too small: {max(ticks, 0)} ticks of {gap / SECOND:g} s cannot hold"
            f" {terms.work / HOUR:g} hours of work and the delay of {terms.delay / HOUR:g} hours on entering a machine;"
            f" use at least {needed * gap / terms.work:.4f}"
        )
    return ticks


def replay(
    jobs: DeadlineJobs, strategy: BatchStrategy, net: SafetyNet = net_when_idle, *, keep_course: bool = False
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
) -> DeadlineState:
    tick = jobs.tick[running]
    at = jobs.offset[jobs.history[running]] + jobs.start[running] + passed
    up = jobs.up[at]
    held = np.where((machine[running] == SPOT) & ~up, WAIT, machine[running])
    return DeadlineState(
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


def optimal(jobs: DeadlineJobs, on_job: Callable[[], None] = lambda: None) -> DeadlineOutcome:
    """The cost with perfect foresight, job by job."""
    spot, on_demand = np.zeros((2, len(jobs)), dtype=np.int64)
    for job in range(len(jobs)):
        spot[job], on_demand[job] = cheapest(jobs.window(job), int(jobs.tick[job]), jobs.terms)
        on_job()
    return DeadlineOutcome(spot, on_demand, np.zeros(len(jobs), dtype=np.bool_))


def cost_ratios(jobs: DeadlineJobs, outcome: DeadlineOutcome) -> Floats:
    """Each job's cost as a share of its cost on demand only."""
    ratio = jobs.terms.price_ratio
    on_demand_only = ratio * -(-(jobs.terms.work + jobs.terms.delay) // jobs.tick)
    shares: Floats = (outcome.spot_ticks + ratio * outcome.on_demand_ticks) / on_demand_only
    return shares


def summarize(jobs: DeadlineJobs, name: str, outcome: DeadlineOutcome) -> list[DeadlineSummary]:
    """A summary for each slack, in ascending order."""
    shares = cost_ratios(jobs, outcome)
    summaries = []
    for slack in np.unique(jobs.slack).tolist():
        of_slack = jobs.slack == slack
        hours = jobs.tick[of_slack] / HOUR
        summaries.append(
            DeadlineSummary(
                name,
                slack,
                int(of_slack.sum()),
                float(shares[of_slack].mean()),
                float((outcome.spot_ticks[of_slack] * hours).mean()),
                float((outcome.on_demand_ticks[of_slack] * hours).mean()),
                int(outcome.missed[of_slack].sum()),
            )
        )
    return summaries


def greedy(state: DeadlineState) -> Ints:
    """Spot while available; otherwise waits until the safety net sends the job on demand."""
    return np.where(state.spot_up, SPOT, WAIT)


def uniform_progress(state: DeadlineState, look_ahead: int = 2) -> Ints:
    """Keeps progress at or above the straight line from the start to the deadline.

    Spot while available. After an eviction it waits if progress is on or ahead of the line, else goes on demand, and
    stays there until spot is available and progress is ahead of where the line will be in `look_ahead` delays.
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


BASELINES: Mapping[str, BatchStrategy] = {"greedy": greedy, "uniform-progress": uniform_progress}
"""The strategies that the `deadline` strategy is compared with."""
