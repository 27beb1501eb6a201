"""Nights of a job that was launched again and again, as a real event log: the real runner and
strategy on the bundled market, whose clock is moved by hand, with training that is modeled.

    python -m tests.spotctl.log.ledger.histories HOME [--runs 30] [--seed 0]

fills the log of a home folder, so that `spotctl report cost` and the like have something to tell.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from bidbrain.replay.market import Warnings
from pricing_data.library import Library, Selection
from pricing_data.store import PriceStore
from pricing_data.units import DAY, HOUR, MINUTE, SECOND, parse_time
from spotctl.agent.container.payload import Payload
from spotctl.clouds.link import LeaseTimes
from spotctl.clouds.local.replayed import Replayed
from spotctl.clouds.provider import Machine
from spotctl.files.job import reader
from spotctl.files.job.programs import Command, Training
from spotctl.files.job.reader import written
from spotctl.files.job.spec import JobSpec
from spotctl.log.budget import tariff_of
from spotctl.log.events import (
    AttemptBegan,
    AttemptStopped,
    Checkpointed,
    Event,
    Moment,
    Progressed,
    RentIntended,
    RunBegan,
    Stretch,
)
from spotctl.log.outcomes import DONE
from spotctl.log.state import EVICTED, Held, RunState
from spotctl.log.store import EventLog
from spotctl.planning.facts import NOTHING_LEARNED, Learned, arranged_facts, job_of
from spotctl.planning.offers import MarketSnapshot
from spotctl.planning.plan import plan_jobs
from spotctl.planning.values import JobPlan
from spotctl.run.environment import MachinePaths, RunEnvironment
from spotctl.run.start.stored_facts import price_table, records_of_evictions
from spotctl.run.turn.ending import RunLimits
from spotctl.run.turn.execute import Journal, RetryPolicy
from spotctl.run.turn.live_strategy import expectation, terms_of
from spotctl.run.turn.reconcile import StrategyTerms
from spotctl.run.turn.service import Runner, RunRules
from spotctl.run.work.workload import Workload, WorkReport
from tests.spotctl.clouds.fake import FakeProvider

JOB = """\
name: nightly-recsys
kind: agileml
app: mf
stop: {clocks: 250}
resources:
  clouds: [local]
  types: [c4.2xlarge, c4.xlarge]
  machines: 4..8
  reliable: {machines: 1, type: m3.medium}
strategy: proteus
"""
FIRST_NIGHT = parse_time("2026-01-02T02:00:00Z")
LAST_MORNING = parse_time("2026-11-20T06:00:00Z")
"""The end of the last night on this computer's clock."""
STEP = MINUTE


@dataclass(frozen=True, slots=True)
class Truth:
    """How the job really works, which no plan is told: clocks an hour of one machine by type, what
    is left of them for each doubling of the machines, minutes until a machine works, minutes lost
    with one that was not warned, and the clocks after which a job ends whose file does not say
    it."""

    per_hour: Mapping[str, float] = field(
        default_factory=lambda: {"c4.2xlarge": 14.0, "c4.xlarge": 7.5, "m3.medium": 0.0}
    )
    doubling: float = 0.94
    loading: float = 6.0
    lost: float = 5.0
    noise: float = 0.05
    clocks: int = 250


class Shift(Workload):
    """A modeled training, or a command on one machine, which tells of its attempts and checkpoints
    instead of clocks.

    It ends after `clocks` of work, or after `span` of time at work.
    """

    def __init__(self, spec: JobSpec, truth: Truth, rng: np.random.Generator, begin: int) -> None:
        stop = spec.program.stop if isinstance(spec.program, Training) else None
        self._span = inf if stop is None or stop.span is None else stop.span
        self._is_command = isinstance(spec.program, Command)
        self._clocks = truth.clocks if stop is None or stop.clocks is None else stop.clocks
        self._truth, self._rng = truth, rng
        self._worked = self._saved = 0
        self._pace = float(rng.normal(1.0, truth.noise))
        self._at = begin
        self._done = 0.0
        self._redo = 0
        self._ready: dict[str, int] = {}
        self._left: dict[str, int] = {}
        self._lost: set[str] = set()

    def payload(self, _: RentIntended) -> Payload:
        return Payload("node", ("node",))

    def facts(self) -> Mapping[str, Any]:
        return {"clocks": self._clocks, "updates_lost": 0}

    def turn(self, state: RunState, machines: Sequence[Machine], now: int) -> WorkReport:  # noqa: ARG002
        if state.stopping is not None:
            return WorkReport()
        since, self._at = self._at, now
        ready = tuple(self._news(self._ready, state, now, self._loaded))
        left = tuple(self._news(self._left, state, now, lambda held: held.warned_until and now))
        self._lose(state)
        again = min(self._redo, now - since)
        self._redo -= again
        before = int(self._done)
        speed = self._speed(state)
        self._done += speed * (now - since - again) / HOUR
        self._worked += now - since if speed else 0
        redone = (Stretch(now - again, now),) if again else ()
        over = self._done >= self._clocks or self._worked >= self._span
        clock = min(int(self._done), self._clocks)
        if self._is_command:
            return self._as_command(state, now, left, over=over)
        told = Progressed(
            clock, self._loss(), self._stage(state), ready=ready, left=left, redone=redone
        )
        if over:
            return WorkReport(told, DONE, f"{clock} clocks")
        return WorkReport(told if clock > before or ready or left or redone else None)

    def _as_command(
        self, state: RunState, now: int, left: tuple[Moment, ...], *, over: bool
    ) -> WorkReport:
        """An attempt on a machine that can work, with checkpoints as often as `lost` says."""
        work = state.work
        events: list[Event] = []
        machines = [held.id for held in self._working(state)]
        if work.runs and work.attempt is not None and work.attempt.machines[0] not in machines:
            events += [
                AttemptStopped(work.number, "gone"),
                Progressed(work.number, None, 0, left=left),
            ]
        elif work.runs and now - self._saved >= self._truth.lost * MINUTE:
            self._saved = now
            events.append(Checkpointed(work.number, 0, 1, 1, 0.0, 60.0))
        elif machines and not work.runs:
            self._saved = now
            begun = tuple(Moment(name, now) for name in machines[:1])
            events += [
                AttemptBegan(work.number + 1, (machines[0],), 1),
                Progressed(work.number + 1, None, 0, begun),
            ]
        return WorkReport(events=tuple(events), outcome=DONE if over else None)

    def _news(
        self, known: dict[str, int], state: RunState, now: int, when: Callable[[Held], int | None]
    ) -> list[Moment]:
        found = [
            Moment(held.id, at)
            for held in state.alive
            if held.id not in known and (at := when(held)) is not None
        ]
        news = [one for one in found if one.at <= now]
        known.update((one.id, one.at) for one in news)
        return news

    def _loaded(self, held: Held) -> int:
        spread = np.random.default_rng(
            [held.started // SECOND, len(held.id), int(held.id.split("-")[-1])]
        )
        return held.started + round(self._truth.loading * MINUTE * float(spread.uniform(0.8, 1.2)))

    def _lose(self, state: RunState) -> None:
        """Evictions without a warning lose work, once for machines that go together."""
        gone = {held.id: held for held in state.machines.values() if held.end_reason == EVICTED}
        fresh = [
            held
            for name, held in gone.items()
            if name not in self._lost and held.warned_until is None
        ]
        self._lost |= gone.keys()
        if any(held.id in self._ready for held in fresh):
            self._redo += round(self._truth.lost * MINUTE)

    def _working(self, state: RunState) -> list[Held]:
        return [
            held
            for held in state.alive
            if held.id in self._ready and held.id not in self._left and not held.returning
        ]

    def _speed(self, state: RunState) -> float:
        machines = [
            state.allocations[held.allocation].market.instance_type for held in self._working(state)
        ]
        types = [name for name in machines if self._truth.per_hour[name]]
        scaling = self._truth.doubling ** np.log2(max(len(types), 1))
        return float(self._pace * scaling * sum(self._truth.per_hour[name] for name in types))

    def _stage(self, state: RunState) -> int:
        transient = len(self._working(state)) - 1
        return 1 if transient <= 1 else 2 if transient < 15 else 3

    def _loss(self) -> float:
        return round(0.9 * float(np.exp(-self._done / 60)) + 0.05, 6)


def nights(
    home: Path,
    runs: int = 30,
    seed: int = 0,
    *,
    job: str = JOB,
    truth: Truth | None = None,
    plan: Callable[[JobSpec, int], JobPlan] | None = None,
    until: int = LAST_MORNING,
) -> list[str]:
    """Launches the job on `runs` nights in a row; returns the names of its runs."""
    home.mkdir(parents=True, exist_ok=True)
    path = home / "job.yaml"
    path.write_text(job)
    spec, known = reader.load(path), Library(PriceStore(home / "prices"))
    market = Replayed.of(known.table(known.require(Selection(clouds=("local",)))))
    with EventLog(home / "log.sqlite") as log:
        return [
            _night(
                log,
                spec,
                market,
                truth or Truth(),
                plan or _plain(known),
                [seed, night],
                night,
                until,
                runs,
            )
            for night in range(runs)
        ]


def _plain(known: Library) -> Callable[[JobSpec, int], JobPlan]:
    return lambda spec, moment: plan_of(spec, known, moment)


def plan_of(
    spec: JobSpec, known: Library, moment: int, learned: Mapping[str, Learned] = NOTHING_LEARNED
) -> JobPlan:
    """The plan of a job that begins at a moment of market time."""
    snapshot = MarketSnapshot.of(price_table(known, (spec,)), known.catalog, moment)
    deadline = None if spec.deadline is None else spec.deadline.moment(moment, UTC)
    job = job_of(spec, moment, learned.get(spec.name), deadline)
    facts = arranged_facts([job], snapshot, *records_of_evictions(known, (spec,)), learned)
    (found,) = plan_jobs(facts)
    return found


def _night(
    log: EventLog,
    spec: JobSpec,
    market: Replayed,
    truth: Truth,
    plan: Callable[[JobSpec, int], JobPlan],
    seeds: list[int],
    night: int,
    until: int,
    runs: int,
) -> str:
    rng = np.random.default_rng(seeds)
    begin = FIRST_NIGHT + night % 28 * DAY + int(rng.integers(0, 2 * MINUTE))
    provider = FakeProvider(market, begin, Warnings(2 * MINUTE, 0.3, night), name="local")
    wall = until - (runs - night) * DAY + 20 * HOUR
    run = f"{spec.name}-{int(rng.integers(16**6)):06x}"
    journal = Journal(log, run, provider.now)
    journal.write(RunBegan(spec.name, "local", written(spec), "", wall))

    def strategy() -> tuple[Any, StrategyTerms]:
        found = plan(spec, begin)
        journal.write(expectation(found))
        return found.decider, terms_of(found, provider.offers())

    work = Shift(spec, truth, rng, begin)
    folder = Path()
    environment = RunEnvironment(
        run,
        "tests",
        provider,
        provider.now,
        LeaseTimes(),
        folder,
        folder,
        folder,
        MachinePaths(sys.executable, str(folder), str(folder)),
    )
    limits = RunLimits(None if spec.budget is None else spec.budget * 3600)
    rules = RunRules(strategy, tariff_of(provider, begin), limits)
    runner = Runner(journal, environment, work, rules, RetryPolicy(attempts=1))
    runner.run(lambda: provider.advance(STEP / SECOND), lambda: wall + (provider.now() - begin))
    return run


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("home", type=Path)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    nights(asked.home, asked.runs, asked.seed)
