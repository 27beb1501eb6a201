"""A small world for runs: prices, a strategy, work that takes so many rounds, and death at any chosen point."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from bidbrain.billing import billing_rule
from bidbrain.strategies.base import Offer, Rent, Strategy
from bidbrain.strategies.standard import Standard
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import DAY, MINUTE, SECOND, parse_time
from spotctl.orchestrator.events import Event, RentIntended, RunBegan, RunEnded
from spotctl.orchestrator.execute import Executor, Journal, Patience
from spotctl.orchestrator.guard import Tariff
from spotctl.orchestrator.log import EventLog, Row
from spotctl.orchestrator.reconcile import Pace, Terms
from spotctl.orchestrator.runner import Brief, Limits, Runner
from spotctl.orchestrator.state import RunState
from spotctl.orchestrator.workload import DONE, Verdict
from spotctl.providers.base import (
    EndReason,
    Machine,
    MachineState,
    Order,
    Payload,
    Resource,
)

T = TypeVar("T")

START = parse_time("2026-01-01T00:00:00Z")
ROUND = 30 * SECOND
MARKETS = tuple(Market("local", "sim-east", zone, "c4.xlarge") for zone in ("a", "b"))
ON_DEMAND = 200_000_000
OFFERS = tuple(Offer(market, 4.0, ON_DEMAND) for market in MARKETS)
PACE = Pace()
ONCE = Patience(attempts=1)
RULE = billing_rule("per-second")


def flat(market: Market, price: int) -> PriceSeries:
    return PriceSeries(market, np.array([START, START + DAY]), np.array([price, price]))


PRICES = {market: flat(market, price) for market, price in zip(MARKETS, (50_000_000, 60_000_000), strict=True)}
TARIFF = Tariff(lambda _: RULE, lambda market, _: PRICES[market])


def terms(reliable: int = 1) -> Terms:
    held = Rent(OFFERS[1], reliable, None) if reliable else None
    return Terms(OFFERS, Rent(OFFERS[0], 3, None), 64.0, 100.0, held)


@dataclass
class Cloud:
    """Machines that are lists. `taken` says, by round, of which market everything is taken, and whether it warns."""

    taken: Mapping[int, tuple[Market, bool]] = field(default_factory=dict)
    name: str = "small"
    speed: float = 1.0
    clock: int = START
    rounds: int = 0
    served: dict[str, tuple[str, ...]] = field(default_factory=dict)
    all: dict[str, Machine] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    fail: Callable[[str], Exception | None] = lambda _: None
    lose_answer: Callable[[str], Exception | None] = lambda _: None

    def now(self) -> int:
        return self.clock

    def prices(self, market: Market, start: int, end: int) -> PriceSeries:
        return PRICES[market].window(start, end)

    def rent(self, order: Order) -> tuple[Machine, ...]:
        def come() -> tuple[Machine, ...]:
            if order.token not in self.served:
                names = tuple(f"m{len(self.all) + i}" for i in range(order.machines))
                for name in names:
                    self.all[name] = Machine(
                        name, order.market, order.bid, MachineState.RUNNING, self.clock, order.lease_until, order.tags
                    )
                self.served[order.token] = names
            return tuple(self.all[name] for name in self.served[order.token])

        return self._called(f"rent {order.market.zone}", come)

    def assign(self, ids: Sequence[str], payload: Payload) -> None:
        raise NotImplementedError

    def machines(self, tags: Mapping[str, str]) -> tuple[Machine, ...]:
        def listed() -> tuple[Machine, ...]:
            return tuple(one for one in self.all.values() if tags.items() <= one.tags.items())

        return self._called("machines", listed)

    def renew(self, ids: Sequence[str], lease_until: int) -> None:
        self._called("renew", lambda: self._change(ids, lease_until=lease_until))

    def give_back(self, ids: Sequence[str]) -> None:
        self._called("give back", lambda: self._end(ids, EndReason.RETURNED))

    def resources(self, tags: Mapping[str, str]) -> tuple[Resource, ...]:
        raise NotImplementedError

    def remove(self, resources: Sequence[Resource]) -> None:
        raise NotImplementedError

    def pass_round(self) -> None:
        """Time passes: machines are warned, taken, and end with their leases."""
        self.rounds += 1
        self.clock += ROUND
        market, warns = self.taken.get(self.rounds, (None, False))
        alive = [one for one in self.all.values() if one.ended is None]
        hit = [one.id for one in alive if one.market == market and one.bid is not None]
        if warns:
            self._change(hit, warned_until=self.clock + 2 * MINUTE)
        else:
            self._end(hit, EndReason.EVICTED)
        self._end([one.id for one in alive if one.warned_until and one.warned_until <= self.clock], EndReason.EVICTED)
        self._end([one.id for one in alive if one.lease_until <= self.clock], EndReason.LEASE_ENDED)

    @property
    def running(self) -> list[Machine]:
        return [one for one in self.all.values() if one.ended is None]

    def _called(self, what: str, do: Callable[[], T]) -> T:
        self.calls.append(what)
        if error := self.fail(what):
            raise error
        done = do()
        if error := self.lose_answer(what):
            raise error
        return done

    def _change(self, ids: Sequence[str], **changes: Any) -> None:  # noqa: ANN401
        for name in ids:
            if self.all[name].ended is None:
                self.all[name] = replace(self.all[name], **changes)

    def _end(self, ids: Sequence[str], reason: EndReason) -> None:
        self._change(ids, state=MachineState.GONE, ended=self.clock, end_reason=reason)


@dataclass
class Toil:
    """Work of so many machine-rounds."""

    cloud: Cloud
    rounds: int = 120
    done: set[tuple[int, str]] = field(default_factory=set)

    def payload(self, order: RentIntended) -> Payload:
        return Payload(f"toil-{order.intent}", ("toil",))

    def secrets(self) -> Mapping[str, str]:
        return {}

    def turn(self, state: RunState, machines: Sequence[Machine], now: int) -> Verdict:  # noqa: ARG002
        # What is done is known by the round: a killed runner does not make the machines work twice.
        self.done |= {(self.cloud.rounds, machine.id) for machine in machines if machine.ended is None}
        return Verdict(outcome=DONE if len(self.done) >= self.rounds else None)

    def facts(self) -> Mapping[str, Any]:
        return {}

    def close(self) -> None:
        """It is of this world, not of a process."""


class Killed(BaseException):
    """The process is gone; nobody catches this."""


@dataclass
class Death:
    """Comes at point number `at`; `met` counts points and names them."""

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


class DeadlyLog(EventLog):
    """A log whose writer may die before and after each write."""

    death: Death

    def append(self, run: str, at: int, event: Event) -> Row:
        with self.death.around(f"write {type(event).__name__}"):
            return super().append(run, at, event)


class DeadlyProvider:
    """A provider whose caller may die before and after each call, which is between an answer and its record."""

    def __init__(self, cloud: Cloud, death: Death) -> None:
        self._cloud, self._death = cloud, death

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        attribute = getattr(self._cloud, name)
        if name not in ("rent", "machines", "renew", "give_back"):
            return attribute

        def call(*arguments: object) -> object:
            with self._death.around(name):
                return attribute(*arguments)

        return call


@dataclass
class Life:
    """What a run's processes share, and outlives them."""

    path: Path
    cloud: Cloud
    work: Toil
    strategy: Strategy = field(default_factory=Standard)
    terms: Terms = field(default_factory=terms)
    limits: Limits = field(default_factory=Limits)
    patience: Patience = ONCE

    def run(self, death: Death | None = None, name: str = "job-1") -> RunEnded:
        """A process that runs the job, from its beginning or from where another died."""
        death = death or Death()
        log = DeadlyLog(self.path)
        log.death = death
        provider = DeadlyProvider(self.cloud, death)
        with log:
            journal = Journal(log, name, self.cloud.now)
            if journal.state.began is None:
                journal.write(RunBegan("job", self.cloud.name, {}, "", 0))
            executor = Executor(journal, provider, self.work, PACE, self.patience)
            brief = Brief(lambda: (self.strategy, self.terms), TARIFF, PACE, self.limits)
            runner = Runner(journal, provider, executor, self.work, brief)
            return runner.run(self.cloud.pass_round, lambda: 0)

    def state(self, name: str = "job-1") -> RunState:
        with EventLog(self.path) as log:
            return Journal(log, name, self.cloud.now).state


def life(folder: Path, taken: Mapping[int, tuple[Market, bool]] | None = None, rounds: int = 120) -> Life:
    cloud = Cloud(taken or {})
    return Life(folder / "log.sqlite", cloud, Toil(cloud, rounds))
