"""Jobs of the deadline replay, decided one by one by the object that decides for live runs.

Each job is a job of one machine with a `Decider`: entering a machine takes a start-up of the delay, nothing else costs
time, and a tick is the time between two decisions. The decider is asked when spot capacity comes or goes, and at the
times that it asks for.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bidbrain.arrays import Bools
from bidbrain.billing import billing_rule
from bidbrain.decision.decider import Decider
from bidbrain.decision.limits import MachineLimits
from bidbrain.lab.backtest.deadline import (
    NOT_RUNNING,
    ON_DEMAND,
    SPOT,
    WAIT,
    AvailabilityHistory,
    DeadlineJobs,
    DeadlineOutcome,
    JobTimeline,
)
from bidbrain.strategies.base import LOOK_AGAIN, Decision, Holding, Offer, Rent, Situation
from bidbrain.strategies.deadline import HOPE_MARGIN, DeadlineStrategy, DeadlineTerms
from bidbrain.strategies.deadline_spells import PUBLIC_PRIOR, Prior, SpellOutlook, outlook
from bidbrain.strategies.standard import Standard
from bidbrain.values import Overheads
from pricing_data.market import Market

_SPOT_PRICE = 1_000_000
_MARKET = Market("local", "recorded", "-", "machine")


def decided(
    jobs: DeadlineJobs,
    histories: Sequence[AvailabilityHistory],
    prior: Prior = PUBLIC_PRIOR,
    margin: float = HOPE_MARGIN,
    on_job: Callable[[], None] = lambda: None,
    *,
    keep_course: bool = False,
) -> DeadlineOutcome:
    """Replays every job under its decider, which sees its history up to the current tick."""
    size = len(jobs)
    billed = np.zeros((3, size), dtype=np.int64)
    missed = np.zeros(size, dtype=np.bool_)
    course: JobTimeline | None = None
    if keep_course:
        course = np.full((size, int(jobs.ticks.max(initial=0))), NOT_RUNNING, dtype=np.int8)
    worth = DeadlineStrategy(jobs.terms, prior, margin)
    seen = [outlook(history.up, history.gap, prior) for history in histories]
    for job in range(size):
        running = DecidedJob(
            decider_of(jobs.terms, worth, int(jobs.tick[job]), int(jobs.ticks[job])),
            jobs.terms,
            jobs.window(job),
            seen[int(jobs.history[job])],
            int(jobs.start[job]),
            int(jobs.tick[job]),
        )
        at = 0
        for choice, ticks in running.spans():
            billed[choice, job] += ticks
            if course is not None:
                course[job, at : at + ticks] = choice
            at += ticks
        missed[job] = running.work_left > 0
        on_job()
    return DeadlineOutcome(billed[SPOT], billed[ON_DEMAND], missed, course)


def decider_of(terms: DeadlineTerms, worth: DeadlineStrategy, tick: int, ticks: int) -> Decider:
    """The decider of a job of one machine, whose deadline is after a number of ticks."""
    offer = Offer(_MARKET, 1.0, round(_SPOT_PRICE * terms.price_ratio))
    return Decider(
        offers=(offer,),
        baseline=Rent(offer, 1, None),
        reliable=None,
        most_nu=1.0,
        limits=MachineLimits(1, 1, {}),
        overheads=Overheads(startup=terms.delay, eviction=0, resize=0),
        deadline=tick * ticks,
        strategy=Standard(),
        billing=billing_rule("per-second"),
        lease=tick,
        worth=worth,
        look=max(LOOK_AGAIN // tick * tick, tick),
    )


@dataclass(slots=True)
class DecidedJob:
    """One job on the clock of its own ticks, which starts at 0."""

    decider: Decider
    terms: DeadlineTerms
    up: Bools
    seen: SpellOutlook
    first: int
    tick: int
    now: int = 0
    work_left: int = 0
    delay_left: int = 0
    machine: int = WAIT

    def spans(self) -> list[tuple[int, int]]:
        """Each choice with the number of ticks that it held, until the work is done or the time is up."""
        self.work_left = self.terms.work
        changes = np.flatnonzero(self.up[1:] != self.up[:-1]) + 1
        until = [*changes.tolist(), self.up.size]
        spans, change = list[tuple[int, int]](), 0
        while self.work_left > 0 and self.now < self.up.size:
            if self.now >= until[change]:
                change += 1
            if self.machine == SPOT and not self.up[self.now]:
                self.machine, self.delay_left = WAIT, 0
            decision = self.decision()
            self.enter(self.choice(decision))
            wake_at = until[change] if decision.wake_at is None else max(decision.wake_at // self.tick, self.now + 1)
            spans.append((self.machine, self._advance(min(until[change], wake_at))))
        return spans

    def decision(self) -> Decision:
        """The decision at the current tick."""
        return self.decider.decide(self.situation())

    def situation(self) -> Situation:
        """All that the decider knows at the current tick."""
        now, offer = self.now * self.tick, self.decider.baseline.offer
        bid = None if self.machine == ON_DEMAND else offer.on_demand
        held = Holding(0, Rent(offer, 1, bid), 0, now + self.delay_left)
        return Situation(
            now=now,
            offers=(offer,) if self.up[self.now] else (),
            price=lambda _: _SPOT_PRICE,
            holdings=() if self.machine == WAIT else (held,),
            baseline=self.decider.baseline,
            most_nu=1.0,
            work_left=float(self.work_left),
            spell=lambda: self.seen.spell(self.first + self.now),
        )

    def choice(self, decision: Decision) -> int:
        """The machine that a decision asks for."""
        for action in decision.actions:
            if isinstance(action, Rent):
                return ON_DEMAND if action.bid is None else SPOT
        return WAIT if decision.actions else self.machine

    def enter(self, choice: int) -> None:
        """Enters a machine, or leaves the current one."""
        if choice != self.machine:
            self.machine, self.delay_left = choice, 0 if choice == WAIT else self.terms.delay

    def _advance(self, until: int) -> int:
        """Goes on until a tick, or to the end of the work; returns the ticks that passed."""
        if self.machine == WAIT:
            ticks = until - self.now
        else:
            needed = -(-(self.work_left + self.delay_left) // self.tick)
            ticks = min(until - self.now, needed)
            passed = ticks * self.tick
            lost = min(self.delay_left, passed)
            self.delay_left -= lost
            self.work_left -= passed - lost
        self.now += ticks
        return ticks
