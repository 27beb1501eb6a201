"""A small world for runs: the shipped fake cloud, work of a number of rounds, and runners that die
at any point.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from bidbrain.billing import billing_rule
from bidbrain.strategies.base import Offer, Rent, Strategy
from bidbrain.strategies.standard import Standard
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import DAY, parse_time
from spotctl.agent.container.payload import Payload
from spotctl.clouds.link import LeaseTimes
from spotctl.clouds.local.replayed import Replayed
from spotctl.clouds.provider import Machine
from spotctl.log.budget import Tariff
from spotctl.log.events import Event, RentIntended, RunBegan, RunEnded
from spotctl.log.outcomes import DONE
from spotctl.log.state import LogRow, RunState
from spotctl.log.store import EventLog
from spotctl.run.environment import MachinePaths, RunEnvironment
from spotctl.run.turn.ending import RunLimits
from spotctl.run.turn.execute import Journal, RetryPolicy
from spotctl.run.turn.reconcile import StrategyTerms
from spotctl.run.turn.service import Runner, RunRules
from spotctl.run.work.workload import Workload, WorkReport
from tests.spotctl.clouds.fake import Call, FakeProvider

START = parse_time("2026-01-01T00:00:00Z")
ROUND_SECONDS = 30
WARNING_SECONDS = 120
MARKETS = tuple(Market("local", "sim-east", zone, "c4.xlarge") for zone in ("a", "b"))
ON_DEMAND = 200_000_000
OFFERS = tuple(Offer(market, 4.0, ON_DEMAND) for market in MARKETS)
LEASE_TIMES = LeaseTimes()
ONCE = RetryPolicy(attempts=1)
RULE = billing_rule("per-second")
RUN = "job-1"
CHANGING = ("create", "list", "terminate")
LINKED = ("assign", "renew")
"""The calls around which a runner is killed: of the provider, and of the links to its machines."""


def flat(market: Market, price: int) -> PriceSeries:
    return PriceSeries(market, np.array([START, START + DAY]), np.array([price, price]))


PRICES = {
    market: flat(market, price)
    for market, price in zip(MARKETS, (50_000_000, 60_000_000), strict=True)
}
TARIFF = Tariff(lambda _: RULE, lambda market, _: PRICES[market])


def terms(reliable: int = 1) -> StrategyTerms:
    held = Rent(OFFERS[1], reliable, None) if reliable else None
    return StrategyTerms(OFFERS, Rent(OFFERS[0], 3, None), 64.0, 100.0, held)


@dataclass
class World:
    """A cloud whose time passes in rounds. `taken` names by round a market that evicts all, and
    whether it warns.
    """

    cloud: FakeProvider
    taken: Mapping[int, tuple[Market, bool]] = field(default_factory=dict)
    rounds: int = 0
    round_seconds: int = ROUND_SECONDS

    @property
    def running(self) -> list[Machine]:
        return [one for one in self.cloud.everything if one.ended is None]

    def pass_round(self) -> None:
        self.rounds += 1
        if self.rounds in self.taken:
            market, warns = self.taken[self.rounds]
            for one in self.running:
                if one.market == market and one.bid is not None:
                    self.cloud.evict(one.id, WARNING_SECONDS if warns else None)
        self.cloud.advance(self.round_seconds)

    def calls(self, name: str) -> list[Call]:
        return [call for call in self.cloud.calls if call.name == name]


@dataclass
class Toil(Workload):
    """Work of a number of machine-rounds, each of which derives the model from the one before."""

    world: World
    rounds: int = 120
    done: set[tuple[int, str]] = field(default_factory=set)
    model: str = ""

    def payload(self, order: RentIntended) -> Payload:
        return Payload(f"toil-{order.intent}", ("toil",))

    def turn(self, state: RunState, machines: Sequence[Machine], now: int) -> WorkReport:  # noqa: ARG002
        # Work is recorded by round, so that a killed runner does not make machines work twice.
        for machine in machines:
            here = (self.world.rounds, machine.id)
            if machine.ended is None and here not in self.done and len(self.done) < self.rounds:
                self.done.add(here)
                self.model = sha256(f"{self.model}{len(self.done)}".encode()).hexdigest()
        done = len(self.done)
        return WorkReport(
            outcome=DONE if done >= self.rounds else None, share_done=done / self.rounds
        )

    def facts(self) -> Mapping[str, Any]:
        return {"model": self.model}


class Killed(BaseException):
    """The process is gone; no code catches this."""


@dataclass
class Death:
    """Happens at point number `at`; `met` lists the points passed."""

    at: int = -1
    met: list[str] = field(default_factory=list)

    def point(self, where: str) -> None:
        self.met.append(where)
        if len(self.met) - 1 == self.at:
            raise Killed(where)

    @contextmanager
    def around(self, where: str) -> Iterator[None]:
        self.point(f"before {where}")
        yield
        self.point(f"after {where}")


class MemoryLog(EventLog):
    """A log that outlives its writers in memory, where thousands of runs are too many for a
    disk."""

    def __init__(self) -> None:
        self.rows: list[LogRow] = []

    def close(self) -> None:
        """Nothing is open."""

    def append_if(
        self, run: str, at: int, event: Event, holds: Callable[[], bool]
    ) -> LogRow | None:
        if not holds():
            return None
        self.rows.append(LogRow(len(self.rows) + 1, run, at, event))
        return self.rows[-1]

    def of_run(self, run: str, after: int = 0) -> list[LogRow]:
        return [row for row in self.rows[after:] if row.run == run]


class DeadlyLog(EventLog):
    """A log whose writer may die before and after each write."""

    def __init__(self, log: EventLog, death: Death) -> None:
        self._given, self._death = log, death

    def close(self) -> None:
        """Its owner closes it."""

    def append_if(
        self, run: str, at: int, event: Event, holds: Callable[[], bool]
    ) -> LogRow | None:
        with self._death.around(f"write {type(event).__name__}"):
            return self._given.append_if(run, at, event, holds)

    def of_run(self, run: str, after: int = 0) -> list[LogRow]:
        return self._given.of_run(run, after)


class DeadlyProvider:
    """A provider whose caller may die before and after each request: between an answer and its
    record, too.
    """

    def __init__(self, cloud: FakeProvider, death: Death) -> None:
        self._cloud, self._death = cloud, death

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        if name == "link":
            return lambda machine: Deadly(self._cloud.link(machine), self._death, LINKED)
        return getattr(Deadly(self._cloud, self._death, CHANGING), name)


class Deadly:
    """An object whose caller may die before and after each call of some of its methods."""

    def __init__(self, called: object, death: Death, names: tuple[str, ...]) -> None:
        self._called, self._death, self._names = called, death, names

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        attribute = getattr(self._called, name)
        if name not in self._names:
            return attribute

        def call(*arguments: object) -> object:
            with self._death.around(name):
                return attribute(*arguments)

        return call


# A provider, or a deadly one.
def environment(provider: Any, folder: Path = Path()) -> RunEnvironment:  # noqa: ANN401
    return RunEnvironment(
        RUN,
        "tests",
        provider,
        provider.now,
        LEASE_TIMES,
        folder,
        folder,
        folder,
        MachinePaths(sys.executable, str(folder), str(folder)),
    )


@dataclass
class Life:
    """What the processes of a run share. `opened` opens its log."""

    opened: Callable[[], EventLog]
    world: World
    work: Toil
    strategy: Strategy = field(default_factory=Standard)
    terms: StrategyTerms = field(default_factory=terms)
    limits: RunLimits = field(default_factory=RunLimits)
    retries: RetryPolicy = ONCE
    tariff: Tariff = TARIFF

    @property
    def cloud(self) -> FakeProvider:
        return self.world.cloud

    def run(self, death: Death | None = None) -> RunEnded:
        """A process that starts the run, or resumes it where another died."""
        death = death or Death()
        provider = DeadlyProvider(self.cloud, death)
        with self.opened() as log:
            journal = Journal(DeadlyLog(log, death), RUN, self.cloud.now)
            if journal.state.began is None:
                journal.write(RunBegan("job", self.cloud.name, {}, "", 0))
            rules = RunRules(lambda: (self.strategy, self.terms), self.tariff, self.limits)
            runner = Runner(journal, environment(provider), self.work, rules, self.retries)
            return runner.run(self.world.pass_round, lambda: 0)

    def rows(self) -> list[LogRow]:
        with self.opened() as log:
            return log.of_run(RUN)

    def state(self) -> RunState:
        with self.opened() as log:
            return Journal(log, RUN, self.cloud.now).state


def life(
    folder: Path, taken: Mapping[int, tuple[Market, bool]] | None = None, rounds: int = 120
) -> Life:
    world = World(FakeProvider(Replayed.of(PRICES.values()), START), taken or {})
    return Life(lambda: EventLog(folder / "log.sqlite"), world, Toil(world, rounds))
