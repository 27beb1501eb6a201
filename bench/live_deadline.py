"""Does a run with a deadline decide as well as the backtest of its strategy? python -m bench.live_deadline GLOB

Jobs of one machine on recorded availability are decided by the `Decider` of `spotctl lab backtest deadline`, which sees
the record up to the moment (`backtest`), and by the `LiveStrategy` of a run. The run knows only what its own orders
met: grants, refusals and evictions. `live` is offered spot when there is some; `live, asking` only finds out by orders,
and a market that refused rests as in a run. `closed` is the part of the gap between uniform progress and perfect
foresight.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import inf
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import numpy as np

from bidbrain.eviction.hazard import PRIOR
from bidbrain.lab.backtest.deadline import (
    ON_DEMAND,
    SPOT,
    AvailabilityHistory,
    DeadlineJobs,
    DeadlineOutcome,
    cost_ratios,
    optimal,
    replay,
    uniform_progress,
)
from bidbrain.lab.backtest.deadline_decided import DecidedJob, decided, decider_of
from bidbrain.strategies.base import Decision, Situation
from bidbrain.strategies.deadline import DeadlineStrategy
from bidbrain.strategies.deadline_spells import PUBLIC_PRIOR, outlook
from bidbrain.strategies.known_spells import UNSEEN, KnownSpells
from pricing_data.availability import AvailabilitySpan
from pricing_data.market import Market
from pricing_data.units import HOUR
from spotctl.files.job.programs import Stop, Training
from spotctl.lab.backtest.deadline import jobs_of, request_of
from spotctl.log import events as ev
from spotctl.log.folding import NO_MACHINES, after
from spotctl.log.log_row import LogRow
from spotctl.log.state import EVICTED, RunState
from spotctl.run.turn.live_strategy import LiveStrategy

if TYPE_CHECKING:
    from spotctl.log.budget import Tariff
    from spotctl.planning.values import JobPlan

_CLOCKS = 10**6
_FAR = 1 << 62
_NOT_SEEN = outlook(np.ones(1, dtype=np.bool_), HOUR, PUBLIC_PRIOR)


@dataclass
class _Log:
    """The log of a run, and the decisions of its `LiveStrategy`."""

    plan: JobPlan
    state: RunState = field(default_factory=RunState)
    rows: int = 0
    now: int = 0

    @classmethod
    def of(cls, job: DecidedJob, spells: KnownSpells) -> _Log:
        market = job.decider.baseline.offer.market
        plan = SimpleNamespace(
            decider=job.decider,
            fleet=SimpleNamespace(
                work=float(job.terms.work),
                market_history=SimpleNamespace(now=0, hazards={market: PRIOR}, spells={market: spells}),
            ),
            demand=SimpleNamespace(worded=str),
            job=SimpleNamespace(spec=SimpleNamespace(program=Training("mf", Stop(clocks=_CLOCKS)))),
        )
        log = cls(cast("JobPlan", plan))
        log.write(ev.RunBegan("job", "aws", {}, "", 0))
        return log

    def write(self, event: ev.Event) -> None:
        self.rows += 1
        self.state = after(self.state, LogRow(self.rows, "r", self.now, event))

    def decide(self, situation: Situation, done: float) -> Decision:
        self.write(ev.Progressed(round(done * _CLOCKS), None, 1))
        live = LiveStrategy(self.plan, lambda: self.state, lambda: (inf, 0.0), cast("Tariff", None))
        return live.decide(situation)

    def order(self, *, granted: bool) -> None:
        """Writes an order of one spot machine, and its answer."""
        offer, number = self.plan.decider.baseline.offer, self.state.intents + 1
        bid = offer.on_demand
        self.write(ev.RentIntended(number, offer.market, 1, bid, bid, 1.0, reliable=False, lease_until=_FAR))
        if granted:
            self.write(ev.Rented(number, (ev.Granted(f"m-{number}", self.now),)))
        else:
            self.write(ev.RentRefused(number, NO_MACHINES, ""))

    def end(self, reason: str) -> None:
        """Writes the end of the spot machine that is held."""
        for held in self.state.alive:
            self.write(ev.MachineEnded(held.id, self.now, reason))

    def rests(self) -> bool:
        """Whether the market refused too recently to be asked again."""
        back_off = self.state.back_offs.get((self.plan.decider.baseline.offer.market, True))
        return back_off is not None and self.now < (back_off.evicting_at or back_off.until)


@dataclass(slots=True)
class _LiveJob(DecidedJob):
    """A job that is decided as a run is; `asks`: it learns only by orders whether there is spot."""

    asks: bool = False
    spells: KnownSpells = UNSEEN
    log: _Log | None = None

    def situation(self) -> Situation:
        known, log = DecidedJob.situation(self), self._log()
        if self.machine != SPOT and log.state.alive:
            log.end(EVICTED)
        if not self.asks:
            return known
        offers = () if log.rests() else self.decider.offers
        return replace(known, offers=offers)

    def decision(self) -> Decision:
        log = self._log()
        situation = self.situation()
        if not self.asks and self.machine != SPOT and not self.up[self.now]:
            log.order(granted=False)
        return log.decide(situation, 1 - self.work_left / self.terms.work)

    def enter(self, choice: int) -> None:
        """Enters a machine if the market has it; otherwise decides again, without spot."""
        log = self._log()
        if choice == SPOT and self.machine != SPOT:
            log.order(granted=bool(self.up[self.now]))
            if not self.up[self.now]:
                choice = self.choice(self.decision())
                choice = self.machine if choice == SPOT else choice
        elif self.machine == SPOT and choice != SPOT:
            log.end("returned")
        DecidedJob.enter(self, choice)

    def _log(self) -> _Log:
        if self.log is None:
            self.log = _Log.of(self, self.spells)
        self.log.now = self.now * self.tick
        return self.log


def spells_before(history: AvailabilityHistory, tick: int) -> KnownSpells:
    """The spells that the record of a market shows until a tick."""
    market, end = Market("aws", "us-east-1", "us-east-1a", "recorded"), tick * history.gap
    edges = [0, *(np.flatnonzero(np.diff(history.up[:tick])) + 1).tolist(), tick]
    spans = [
        AvailabilitySpan(market, begin * history.gap, until * history.gap, int(history.up[begin]), 1, "", "record")
        for begin, until in pairwise(edges)
        if until > begin
    ]
    return KnownSpells.of(spans, end)


def live(jobs: DeadlineJobs, histories: Sequence[AvailabilityHistory], *, asks: bool, record: bool) -> DeadlineOutcome:
    """Replays every job as a run decides it; `record`: the availability before the job is known."""
    billed, missed = np.zeros((3, len(jobs)), dtype=np.int64), np.zeros(len(jobs), dtype=np.bool_)
    worth = DeadlineStrategy(jobs.terms)
    for number in range(len(jobs)):
        print(f"\r{number} of {len(jobs)}", end="", file=sys.stderr, flush=True)
        tick, ticks = int(jobs.tick[number]), int(jobs.ticks[number])
        decider = decider_of(jobs.terms, worth, tick, ticks)
        before = spells_before(histories[int(jobs.history[number])], int(jobs.start[number])) if record else UNSEEN
        job = _LiveJob(decider, jobs.terms, jobs.window(number), _NOT_SEEN, 0, tick, asks=asks, spells=before)
        for choice, span in job.spans():
            billed[choice, number] += span
        missed[number] = job.work_left > 0
    print("\r", " " * 20, "\r", sep="", end="", file=sys.stderr)
    return DeadlineOutcome(billed[SPOT], billed[ON_DEMAND], missed)


def main(traces: str, hours: float = 48.0, starts: int = 5) -> None:
    """Prints the mean cost of each scheme as a share of on demand, and the part of the gap that is closed."""
    request = request_of(traces, hours, "1.1,1.25,1.5,2", 3.0, "12m")
    jobs = jobs_of(request, starts)
    histories = request.histories
    outcomes = {
        "uniform-progress": replay(jobs, uniform_progress),
        "backtest": decided(jobs, histories),
        "live": live(jobs, histories, asks=False, record=False),
        "live, record": live(jobs, histories, asks=False, record=True),
        "asking, record": live(jobs, histories, asks=True, record=True),
        "optimal": optimal(jobs),
    }
    costs = {name: float(cost_ratios(jobs, outcome).mean()) for name, outcome in outcomes.items()}
    gap = costs["uniform-progress"] - costs["optimal"]
    print(f"{len(jobs)} jobs of {hours:g} hours, slacks 1.1 to 2")
    for name, cost in costs.items():
        closed = (costs["uniform-progress"] - cost) / gap
        print(f"{name:18} cost {cost:.4f}  closed {closed:6.3f}  missed {int(outcomes[name].missed.sum())}")


if __name__ == "__main__":
    traces, hours, starts = [*sys.argv[1:], *("48", "5")[len(sys.argv) - 2 :]]
    main(traces, float(hours), int(starts))
