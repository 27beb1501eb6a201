"""Does a run with a deadline decide as well as the backtest of its strategy? python -m
bench.live_deadline GLOB

Jobs of one machine on recorded availability are decided by the `Decider` of `spotctl lab backtest
deadline`, which sees the record up to the moment (`backtest`), and by the `LiveStrategy` of a run.
The run knows only what its own orders met: grants, refusals and evictions. `live` is offered spot
when there is some; `live, asking` only finds out by orders, and a market that refused rests as in a
run. `closed` is the part of the gap between uniform progress and perfect foresight.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import inf
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import numpy as np

from bidbrain.decision.decider import Decider
from bidbrain.eviction.hazard import PRIOR
from bidbrain.lab.backtest.deadline import (
    AvailabilityHistory,
    DeadlineJobs,
    DeadlineOutcome,
    cost_ratios,
    decided,
    decider_of,
    optimal,
    published,
    replay,
)
from bidbrain.strategies.base import Decision, Rent, Return, Situation
from bidbrain.strategies.deadline import DeadlineStrategy
from bidbrain.strategies.known_spells import UNSEEN, KnownSpells
from pricing_data.availability import AvailabilitySpan
from pricing_data.market import Market
from spotctl.files.job.programs import Stop, Training
from spotctl.lab.backtest.deadline import jobs_of
from spotctl.log import events as ev
from spotctl.log.folding import NO_MACHINES, fold
from spotctl.log.state import EVICTED, LogRow, RunState
from spotctl.run.turn.live_strategy import LiveStrategy

if TYPE_CHECKING:
    from spotctl.log.budget import Tariff
    from spotctl.planning.values import JobPlan

_CLOCKS = 10**6
_FAR = 1 << 62


@dataclass
class _Log:
    """The log of a run, and the decisions of its `LiveStrategy`."""

    plan: JobPlan
    state: RunState = field(default_factory=RunState)
    rows: int = 0
    now: int = 0

    @classmethod
    def of(cls, decider: Decider, work: int, start: int, spells: KnownSpells) -> _Log:
        market = decider.baseline.offer.market
        plan = SimpleNamespace(
            decider=decider,
            fleet=SimpleNamespace(
                work=float(work),
                market_history=SimpleNamespace(
                    now=start, hazards={market: PRIOR}, spells={market: spells}
                ),
            ),
            demand=SimpleNamespace(worded=str),
            job=SimpleNamespace(spec=SimpleNamespace(program=Training("mf", Stop(clocks=_CLOCKS)))),
        )
        log = cls(cast("JobPlan", plan), now=start)
        log.write(ev.RunBegan("job", "aws", {}, "", 0))
        return log

    def write(self, event: ev.Event) -> None:
        self.rows += 1
        self.state = fold([LogRow(self.rows, "r", self.now, event)], self.state)

    def decide(self, situation: Situation, done: float) -> Decision:
        self.write(ev.Progressed(round(done * _CLOCKS), None, 1))
        live = LiveStrategy(self.plan, lambda: self.state, lambda: (inf, 0.0), cast("Tariff", None))
        return live.decide(situation)

    def order(self, *, granted: bool) -> None:
        """Writes an order of one spot machine, and its answer."""
        offer, number = self.plan.decider.baseline.offer, self.state.intents + 1
        bid = offer.on_demand
        self.write(
            ev.RentIntended(
                number, offer.market, 1, bid, bid, 1.0, reliable=False, lease_until=_FAR
            )
        )
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
class _LiveJob:
    """A job that is decided as a run is; `asks`: it learns only by orders whether there is spot."""

    log: _Log
    work: int
    asks: bool
    name: str = "live"

    def decide(self, situation: Situation) -> Decision:
        """The decision of a run, which asks again, without spot, where the market does not have the
        machine.
        """
        log, up, on_spot = self.log, bool(situation.offers), bool(situation.on_spot)
        log.now = situation.now
        if not on_spot:
            log.end(EVICTED)
        if not self.asks and not on_spot and not up:
            log.order(granted=False)
        decision = self._decision(situation)
        if not on_spot and _rents_spot(decision):
            log.order(granted=up)
            if not up:
                decision = self._decision(situation)
                decision = Decision((), decision.wake_at) if _rents_spot(decision) else decision
        elif on_spot and any(
            isinstance(action, Return) or not action.spot for action in decision.actions
        ):
            log.end("returned")
        return decision

    def _decision(self, situation: Situation) -> Decision:
        if self.asks:
            offers = () if self.log.rests() else self.log.plan.decider.offers
            situation = replace(situation, offers=offers)
        return self.log.decide(situation, 1 - situation.work_left / self.work)


def _rents_spot(decision: Decision) -> bool:
    return any(isinstance(action, Rent) and action.spot for action in decision.actions)


def spells_before(history: AvailabilityHistory, tick: int) -> KnownSpells:
    """The spells that the record of a market shows until a tick."""
    market, end = Market("aws", "us-east-1", "us-east-1a", "recorded"), tick * history.gap
    edges = [0, *(np.flatnonzero(np.diff(history.up[:tick])) + 1).tolist(), tick]
    spans = [
        AvailabilitySpan(
            market,
            begin * history.gap,
            until * history.gap,
            int(history.up[begin]),
            1,
            "",
            "record",
        )
        for begin, until in pairwise(edges)
        if until > begin
    ]
    return KnownSpells.of(spans, end)


def live(jobs: DeadlineJobs, *, asks: bool, record: bool) -> DeadlineOutcome:
    """Replays every job as a run decides it; `record`: the availability before the job is known."""
    worth = DeadlineStrategy(jobs.terms)

    def job_of(jobs: DeadlineJobs, number: int) -> _LiveJob:
        print(f"\r{number} of {len(jobs)}", end="", file=sys.stderr, flush=True)
        first, history = int(jobs.start[number]), jobs.histories[int(jobs.history[number])]
        before = spells_before(history, first) if record else UNSEEN
        log = _Log.of(decider_of(jobs, number, worth), jobs.terms.work, first * history.gap, before)
        return _LiveJob(log, jobs.terms.work, asks)

    outcome = replay(jobs, job_of)
    print("\r", " " * 20, "\r", sep="", end="", file=sys.stderr)
    return outcome


def main(traces: str, hours: float = 48.0, starts: int = 5) -> None:
    """Prints the mean cost of each scheme as a share of on demand, and the part of the gap that is
    closed.
    """
    jobs, _ = jobs_of(traces, hours, "1.1,1.25,1.5,2", 3.0, "12m", starts)
    outcomes = {
        "uniform-progress": published(jobs, "uniform-progress"),
        "backtest": decided(jobs),
        "live": live(jobs, asks=False, record=False),
        "live, record": live(jobs, asks=False, record=True),
        "asking, record": live(jobs, asks=True, record=True),
        "optimal": optimal(jobs),
    }
    costs = {name: float(cost_ratios(jobs, outcome).mean()) for name, outcome in outcomes.items()}
    gap = costs["uniform-progress"] - costs["optimal"]
    print(f"{len(jobs)} jobs of {hours:g} hours, slacks 1.1 to 2")
    for name, cost in costs.items():
        closed = (costs["uniform-progress"] - cost) / gap
        print(
            f"{name:18} cost {cost:.4f}  closed {closed:6.3f}  missed "
            f"{int(outcomes[name].missed.sum())}"
        )


if __name__ == "__main__":
    traces, hours, starts = [*sys.argv[1:], *("48", "5")[len(sys.argv) - 2 :]]
    main(traces, float(hours), int(starts))
