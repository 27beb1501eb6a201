"""Replay of jobs with a deadline over availability traces, one machine each, in the loop that plays
every past.

Time is cut into ticks. At the start of each tick it is known whether spot capacity is available,
and one of three choices holds for the whole tick, which is billed whole: no machine, a spot
machine, an on-demand machine. Entering a machine (the first one, after a change of kind, after an
eviction) costs the delay before work continues, counted in time and not in ticks; a spot machine is
evicted as soon as a tick shows spot down. A job is decided when spot comes or goes, and when its
strategy asks for it: the `Decider` of a launch, or a published strategy with a safety net. A job
ends with the tick in which its work is done, and misses if there is no such tick. Cost is given as
a share of the same job's cost on demand only: one entry, then work to the end.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bidbrain.arrays import Bools, Floats
from bidbrain.billing import billing_rule
from bidbrain.decision.decider import Decider
from bidbrain.decision.limits import MachineLimits
from bidbrain.lab.backtest.bound import cheapest
from bidbrain.replay.job import run_job
from bidbrain.replay.market import Capacity, MarketReplay
from bidbrain.replay.run import ReplayedJob
from bidbrain.strategies.base import (
    LOOK_AGAIN,
    Decision,
    Offer,
    Overheads,
    Rent,
    Return,
    Situation,
    Strategy,
)
from bidbrain.strategies.deadline import DeadlineStrategy, DeadlineTerms, ImpossibleJob
from bidbrain.strategies.spells import PUBLIC_PRIOR, outlook
from bidbrain.strategies.standard import Standard
from pricing_data.availability import AvailabilityTrace
from pricing_data.market import Market
from pricing_data.series import Ints, PriceSeries
from pricing_data.units import HOUR, SECOND

WAIT: Final = 0
SPOT: Final = 1
ON_DEMAND: Final = 2
JobTimeline = NDArray[np.int8]
NOT_RUNNING = -1
_SPOT_PRICE = 1_000_000
_MARKET = Market("local", "recorded", "-", "machine")
_ENOUGH = 2
"""Machines of the market while it is up: one more than the job may hold, so that it is offered
while one is held."""


@dataclass(frozen=True, slots=True)
class AvailabilityHistory:
    """Whether spot was available at each tick of a trace; ticks are `gap` microseconds apart."""

    name: str
    gap: int
    up: Bools

    @classmethod
    def of(cls, trace: AvailabilityTrace) -> "AvailabilityHistory":
        """A trace of several machines counts as up only while all of them are, since the job needs
        its full size.
        """
        up = trace.up >= max(trace.wanted, 1)
        return cls(trace.name, trace.gap_seconds * SECOND, up)

    def replay(self) -> MarketReplay:
        """The trace as a market: one machine at a constant price, there while the trace is up."""
        changes = np.flatnonzero(self.up[1:] != self.up[:-1]) + 1
        edges = np.concatenate(([0], changes))
        counts = self.up[edges] * _ENOUGH
        capacity = Capacity(edges * self.gap, counts)
        end = self.up.size * self.gap
        ends = np.array([0, end], dtype=np.int64)
        prices_of_market = PriceSeries(_MARKET, ends, np.full(2, _SPOT_PRICE))
        return MarketReplay([prices_of_market], {_MARKET: capacity})


@dataclass(frozen=True, slots=True, eq=False)
class DeadlineJobs:
    """Jobs on histories: per job its history, slack, first tick there, and ticks until the
    deadline.
    """

    terms: DeadlineTerms
    histories: tuple[AvailabilityHistory, ...]
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
        first = self.start[job]
        history = int(self.history[job])
        last = first + self.ticks[job]
        return self.histories[history].up[first:last]

    @property
    def offer(self) -> Offer:
        """The machine that jobs run on, with its price on demand."""
        return Offer(_MARKET, 1.0, round(_SPOT_PRICE * self.terms.price_ratio))


@dataclass(frozen=True, slots=True, eq=False)
class DeadlineOutcome:
    """Result per job: ticks billed by kind of machine, and whether it missed.

    `course` has what each job held at each tick, NOT_RUNNING after its end; it is None where
    nothing was played.
    """

    spot_ticks: Ints
    on_demand_ticks: Ints
    missed: Bools
    course: JobTimeline | None = None


@dataclass(frozen=True, slots=True)
class DeadlineSummary:
    """A strategy over all jobs of one slack: mean share of the on-demand cost, mean machine-hours,
    number of missed jobs."""

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
    histories: Sequence[AvailabilityHistory],
    terms: DeadlineTerms,
    slacks: Sequence[float],
    starts: int,
) -> DeadlineJobs:
    """Jobs at `starts` moments of each history, spread evenly up to the last moment that leaves
    enough room.

    Histories too short for a slack have no jobs of it. A slack is refused if even on-demand from
    the first tick would miss the deadline.
    """
    rows = []
    slack_of = []
    for number, history in enumerate(histories):
        for slack in slacks:
            gap = history.gap
            ticks = round(slack * terms.work) // gap
            needed = -(-(terms.work + terms.delay) // gap)
            if ticks < needed:
                raise ImpossibleJob(
                    f"slack {slack:g} is too small: {max(ticks, 0)} ticks of {gap / SECOND:g} s "
                    f"cannot hold {terms.work / HOUR:g} hours of work and the delay of "
                    f"{terms.delay / HOUR:g} hours on entering a machine; use at least "
                    f"{needed * gap / terms.work:.4f}"
                )

            latest = history.up.size - ticks
            moments = (
                np.linspace(0, latest, starts).astype(np.int64)
                if latest >= 0
                else np.empty(0, np.int64)
            )
            for moment in np.unique(moments).tolist():
                rows.append((number, gap, moment, ticks))
                slack_of.append(slack)

    table = np.array(rows, dtype=np.int64)
    history_of, tick, start, until = table.reshape(-1, 4).T
    return DeadlineJobs(terms, tuple(histories), history_of, np.array(slack_of), tick, start, until)


StrategyOfJob = Callable[[DeadlineJobs, int], Strategy]
"""Makes the strategy of a job, by its number."""


def replay(
    jobs: DeadlineJobs, strategy_of: StrategyOfJob, on_job: Callable[[], None] | None = None
) -> DeadlineOutcome:
    """Replays every job under a strategy, which sees its history up to the current tick."""
    longest = jobs.ticks.max(initial=0)
    course = np.full((len(jobs), int(longest)), NOT_RUNNING, dtype=np.int8)
    missed = np.zeros(len(jobs), dtype=np.bool_)
    markets = [history.replay() for history in jobs.histories]
    seen = [outlook(history.up, history.gap, PUBLIC_PRIOR) for history in jobs.histories]
    overheads = Overheads(startup=jobs.terms.delay, eviction=0, resize=0)
    baseline = Rent(jobs.offer, 1, None)

    for job in range(len(jobs)):
        number = int(jobs.history[job])
        tick = int(jobs.tick[job])
        start = int(jobs.start[job]) * tick
        limit = start + int(jobs.ticks[job]) * tick
        work = float(jobs.terms.work)
        asked = ReplayedJob(
            start=start,
            work=work,
            limit=limit,
            offers=(jobs.offer,),
            baseline=baseline,
            most_nu=1.0,
            watched=seen[number],
            deadline=limit,
        )
        run = run_job(asked, strategy_of(jobs, job), markets[number], overheads)
        missed[job] = run.end is None
        ended = limit if run.end is None else run.end
        course[job, : -(-(ended - start) // tick)] = WAIT
        for tenure in run.tenures:
            since_start = tenure.start - start
            first = since_start // tick
            minus_until = -(tenure.end - start)
            last = -(minus_until // tick)
            held = slice(first, last)
            course[job, held] = SPOT if tenure.rent.spot else ON_DEMAND

        if on_job is not None:
            on_job()

    on_spot = (course == SPOT).sum(axis=1)
    by_demand = (course == ON_DEMAND).sum(axis=1)
    return DeadlineOutcome(on_spot, by_demand, missed, course)


def published(jobs: DeadlineJobs, name: str) -> DeadlineOutcome:
    """Replays every job under one of the `BASELINES`."""
    return replay(jobs, lambda jobs, job: Published(name, BASELINES[name], jobs, job))


def decided(jobs: DeadlineJobs, on_job: Callable[[], None] | None = None) -> DeadlineOutcome:
    """Replays every job under its `Decider`, as a launch would make it."""
    worth = DeadlineStrategy(jobs.terms)
    return replay(jobs, lambda jobs, job: decider_of(jobs, job, worth), on_job)


def decider_of(jobs: DeadlineJobs, job: int, worth: DeadlineStrategy) -> Decider:
    """The decider of a job of one machine."""
    tick = int(jobs.tick[job])
    baseline = Rent(jobs.offer, 1, None)
    limits = MachineLimits(1, 1, {})
    overheads = Overheads(startup=jobs.terms.delay, eviction=0, resize=0)
    end_tick = jobs.start[job] + jobs.ticks[job]
    deadline = int(end_tick) * tick
    whole_ticks = LOOK_AGAIN // tick * tick
    return Decider(
        offers=(jobs.offer,),
        baseline=baseline,
        reliable=None,
        most_nu=1.0,
        limits=limits,
        overheads=overheads,
        deadline=deadline,
        strategy=Standard(),
        billing=billing_rule("per-second"),
        lease=tick,
        worth=worth,
        look=max(whole_ticks, tick),
    )


def optimal(jobs: DeadlineJobs, on_job: Callable[[], None] | None = None) -> DeadlineOutcome:
    """The cost with perfect foresight, job by job."""
    spot, on_demand = np.zeros((2, len(jobs)), dtype=np.int64)
    for job in range(len(jobs)):
        tick = int(jobs.tick[job])
        spot[job], on_demand[job] = cheapest(jobs.window(job), tick, jobs.terms)
        if on_job is not None:
            on_job()
    none_missed = np.zeros(len(jobs), dtype=np.bool_)
    return DeadlineOutcome(spot, on_demand, none_missed)


def cost_ratios(jobs: DeadlineJobs, outcome: DeadlineOutcome) -> Floats:
    """Each job's cost as a share of its cost on demand only."""
    ratio = jobs.terms.price_ratio
    seconds = jobs.terms.work + jobs.terms.delay
    ticks_needed = -(-seconds // jobs.tick)
    on_demand_only = ratio * ticks_needed
    shares: Floats = (outcome.spot_ticks + ratio * outcome.on_demand_ticks) / on_demand_only
    return shares


def summarize(jobs: DeadlineJobs, name: str, outcome: DeadlineOutcome) -> list[DeadlineSummary]:
    """A summary for each slack, in ascending order."""
    shares = cost_ratios(jobs, outcome)
    summaries = []
    for slack in np.unique(jobs.slack).tolist():
        of_slack = jobs.slack == slack
        hours = jobs.tick[of_slack] / HOUR
        mean_share = shares[of_slack].mean()
        spot_hours = outcome.spot_ticks[of_slack] * hours
        mean_spot = spot_hours.mean()
        hours_on_demand = outcome.on_demand_ticks[of_slack] * hours
        mean_on_demand = hours_on_demand.mean()
        missed = outcome.missed[of_slack].sum()
        summaries.append(
            DeadlineSummary(
                name,
                slack,
                int(of_slack.sum()),
                float(mean_share),
                float(mean_spot),
                float(mean_on_demand),
                int(missed),
            )
        )

    return summaries


@dataclass(slots=True)
class DeadlineState:
    """A job at the start of a tick, after evictions: an evicted machine is no longer held."""

    terms: DeadlineTerms
    tick: int
    elapsed: int
    remaining: int
    work_left: int
    delay_left: int
    machine: int
    spot_up: bool

    def later(self, ticks: int) -> "DeadlineState":
        """The state after some ticks in which neither the market nor the machine changed."""
        passed = ticks * self.tick
        lost = passed if self.machine == WAIT else min(self.delay_left, passed)
        elapsed = self.elapsed + passed
        remaining = self.remaining - passed
        work_left = self.work_left - (passed - lost)
        delay_left = self.delay_left - lost
        return DeadlineState(
            terms=self.terms,
            tick=self.tick,
            elapsed=elapsed,
            remaining=remaining,
            work_left=work_left,
            delay_left=max(delay_left, 0),
            machine=self.machine,
            spot_up=self.spot_up,
        )

    @property
    def caught(self) -> bool:
        """Whether the safety net holds: a job that is not running on spot goes on demand once the
        remaining time is at most its work and two delays, rounded up to ticks.

        Why no job misses: a job outside the net still has, after one more tick without progress, at
        least its work and two delays; entering spot and being evicted costs at most one of them,
        and the other pays for entering the on-demand machine. A job on spot loses no slack by
        staying, so the net may wait for its eviction. Once on demand, the slack no longer changes.
        """
        if self.machine == SPOT:
            return False
        need = self.work_left + 2 * self.terms.delay
        ticks_needed = -(-need // self.tick)
        return self.remaining <= ticks_needed * self.tick


@dataclass(frozen=True, slots=True)
class Published:
    """A published strategy for one job: `choose` says what to hold from a tick on.

    While neither the market nor the machine changes, a choice changes at most once.
    """

    name: str
    choose: Callable[[DeadlineState], int]
    jobs: DeadlineJobs
    job: int

    def decide(self, situation: Situation) -> Decision:
        """Holds what is chosen, and decides again at the first tick at which the choice is another
        one.
        """
        jobs = self.jobs
        job = self.job
        now = situation.now
        tick = int(jobs.tick[job])
        machine = WAIT
        delay_left = 0
        for holding in situation.holdings:
            machine = SPOT if holding.rent.spot else ON_DEMAND
            delay_left = max(holding.ready - now, 0)

        elapsed = now - int(jobs.start[job]) * tick
        remaining = int(jobs.ticks[job]) * tick - elapsed
        work_left = round(situation.work_left)
        spot_up = bool(situation.offers)
        state = DeadlineState(
            terms=jobs.terms,
            tick=tick,
            elapsed=elapsed,
            remaining=remaining,
            work_left=work_left,
            delay_left=delay_left,
            machine=machine,
            spot_up=spot_up,
        )

        choice = self.choose(state)
        actions: list[Rent | Return] = []

        if choice != machine:
            state.machine = choice
            state.delay_left = 0 if choice == WAIT else jobs.terms.delay
            actions += [Return(holding.allocation) for holding in situation.holdings]

        if choice not in (machine, WAIT):
            offer = jobs.offer
            bid = max(offer.on_demand, _SPOT_PRICE)
            own_bid = bid if choice == SPOT else None
            actions.append(Rent(offer, 1, own_bid))

        if choice == SPOT:
            # Until its eviction.
            return Decision(tuple(actions))

        last = remaining // tick - 1
        if last < 1 or self.choose(state.later(last)) == choice:
            return Decision(tuple(actions))

        same = bisect_left(
            range(1, last), 1, key=lambda ticks: self.choose(state.later(ticks)) != choice
        )
        return Decision(tuple(actions), now + (1 + same) * tick)


def greedy(state: DeadlineState) -> int:
    """Spot while available; otherwise waits until the safety net sends the job on demand."""
    if state.caught:
        return ON_DEMAND
    return SPOT if state.spot_up else WAIT


def uniform_progress(state: DeadlineState) -> int:
    """Keeps progress at or above the straight line from the start to the deadline.

    Spot while available. After an eviction it waits if progress is on or ahead of the line, else
    goes on demand, and stays there until spot is available and progress is ahead of where the line
    will be in two delays.
    """
    if state.caught:
        return ON_DEMAND

    span = state.elapsed + state.remaining
    progress = 1 - state.work_left / state.terms.work
    if state.machine == ON_DEMAND:
        leaves = state.spot_up and progress >= (state.elapsed + 2 * state.terms.delay) / span
        return SPOT if leaves else ON_DEMAND

    if state.spot_up:
        return SPOT

    if progress >= state.elapsed / span:
        return WAIT
    return ON_DEMAND


BASELINES: Mapping[str, Callable[[DeadlineState], int]] = {
    "greedy": greedy,
    "uniform-progress": uniform_progress,
}
"""The strategies that the `deadline` strategy is compared with."""
