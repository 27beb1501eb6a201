"""One job replayed under one strategy: what was rented when, what was taken away, and when the work was done.

The engine alone knows the future. It asks the strategy at the start, whenever the strategy wanted to be asked, and
after every eviction or return; in between it adds up work. What it gives back is enough to recompute work and cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from math import ceil, inf

from bidbrain.billing import End, Life
from bidbrain.replay import MarketReplay
from bidbrain.strategies.base import Decision, Holding, Offer, Rent, Situation, Strategy


@dataclass(frozen=True, slots=True)
class Tenure:
    """An allocation from its first to its last moment."""

    rent: Rent
    start: int
    ready: int
    end: int
    ended: End

    @property
    def life(self) -> Life:
        """What billing needs to know of each of its machines."""
        return Life(self.start, self.end, self.ended)


@dataclass(frozen=True, slots=True)
class Overheads:
    """What changes of the footprint cost, in microseconds of no work: start-up of machines, and standstills of all.

    `eviction` is the papers' lambda, `resize` their sigma.
    """

    startup: int
    eviction: int
    resize: int


@dataclass(frozen=True, slots=True)
class Recovery:
    """How work survives an eviction: `speed` is what is left of it by protecting it, `interval` between checkpoints.

    With an interval (of the market that the machines are in), what was done since the last checkpoint is lost.
    """

    speed: float = 1.0
    interval: Callable[[Offer], float] | None = None

    def lost_time(self, rent: Rent, ready: int, evicted: int) -> float:
        """How much run time an eviction throws away, in microseconds."""
        if self.interval is None or evicted <= ready:
            return 0.0
        return (evicted - ready) % self.interval(rent.offer)


AGILE = Recovery()
"""Recovery through an elastic parameter server: nothing is lost, and nothing is paid but the standstill."""


@dataclass(frozen=True, slots=True)
class Job:
    """Work to be done (nu x microseconds), from a start, until it is done or the limit is reached."""

    start: int
    work: float
    limit: int
    offers: tuple[Offer, ...]
    baseline: Rent
    most_nu: float


@dataclass(frozen=True, slots=True)
class Run:
    """What happened to a job. `end` is None if it was not finished by its limit."""

    job: Job
    end: int | None
    tenures: tuple[Tenure, ...]

    @property
    def evictions(self) -> int:
        """How many allocations were taken away."""
        return sum(tenure.ended is End.EVICTED for tenure in self.tenures)


def run_job(
    job: Job, strategy: Strategy, market: MarketReplay, overheads: Overheads, recovery: Recovery = AGILE
) -> Run:
    """Replays a job from its start to its end."""
    state = _State(job, market, overheads, recovery, now=job.start, work_left=job.work)
    while True:
        decision = strategy.decide(state.situation())
        state.carry_out(decision)
        if state.advance(min(state.next_loss(), job.limit, _after(decision.wake_at, state.now))):
            return Run(job, state.now, state.close())
        if state.now >= job.limit:
            return Run(job, None, state.close())
        state.lose()


def _after(wake_at: int | None, now: int) -> float:
    return inf if wake_at is None else max(wake_at, now + 1)


@dataclass(slots=True)
class _Held:
    holding: Holding
    evicted_at: float

    @property
    def gone_at(self) -> float:
        leaves_at = self.holding.leaves_at
        return self.evicted_at if leaves_at is None else min(self.evicted_at, leaves_at)


@dataclass(slots=True)
class _State:
    job: Job
    market: MarketReplay
    overheads: Overheads
    recovery: Recovery
    now: int
    work_left: float
    standstill_until: int = 0
    held: dict[int, _Held] = field(default_factory=dict)
    tenures: list[Tenure] = field(default_factory=list)
    bought: int = 0

    def situation(self) -> Situation:
        now = self.now
        return Situation(
            now=now,
            offers=self.job.offers,
            price=lambda offer: self.market.price(offer.market, now),
            holdings=tuple(held.holding for held in self.held.values()),
            baseline=self.job.baseline,
            most_nu=self.job.most_nu,
            work_left=self.work_left,
        )

    def carry_out(self, decision: Decision) -> None:
        for action in decision.actions:
            if isinstance(action, Rent):
                self._buy(action)
            elif action.at is None or action.at <= self.now:
                self._give_back(self.held[action.allocation])
            else:
                held = self.held[action.allocation]
                held.holding = replace(held.holding, leaves_at=action.at)

    def next_loss(self) -> float:
        """When the next allocation goes: taken away, or given back as planned."""
        return min((held.gone_at for held in self.held.values()), default=inf)

    def advance(self, until: float) -> bool:
        """Works until a moment, or until the work is done: then True, and `now` is that moment."""
        while self.now < until:
            working = self.now >= self.standstill_until
            ready = [held.holding for held in self.held.values() if held.holding.ready <= self.now]
            rate = sum(holding.nu for holding in ready) * self.recovery.speed if working else 0.0
            step_end = int(min(until, *self._changes_of_rate()))
            needed = self.work_left / rate if rate else inf
            if self.now + needed <= step_end:
                self.now, self.work_left = self.now + ceil(needed), 0.0
                return True
            self.work_left -= rate * (step_end - self.now)
            self.now = step_end
            if any(held.holding.ready == self.now for held in self.held.values()):
                self._stand_still(self.overheads.resize if ready else 0)
        return False

    def lose(self) -> None:
        """Ends what is due at this moment; taken away comes before given back, because it costs nothing."""
        due = [held for held in self.held.values() if held.gone_at <= self.now]
        for held in due:
            if held.evicted_at <= self.now:
                self._evict(held.holding)
            else:
                self._give_back(held)

    def close(self) -> tuple[Tenure, ...]:
        for held in self.held.values():
            self._end(held.holding, End.HANDED_ON)
        return tuple(self.tenures)

    def _buy(self, rent: Rent) -> None:
        evicted_at = None if rent.bid is None else self.market.evicted_at(rent.offer.market, rent.bid, self.now)
        holding = Holding(self.bought, rent, self.now, self.now + self.overheads.startup)
        self.held[self.bought] = _Held(holding, inf if evicted_at is None else evicted_at)
        self.bought += 1

    def _evict(self, holding: Holding) -> None:
        del self.held[holding.allocation]
        self._end(holding, End.EVICTED)
        lost = self.recovery.lost_time(holding.rent, holding.ready, self.now)
        self.work_left += lost * holding.nu * self.recovery.speed
        self._stand_still(self.overheads.eviction)

    def _give_back(self, held: _Held) -> None:
        del self.held[held.holding.allocation]
        self._end(held.holding, End.LEFT)
        self._stand_still(self.overheads.resize)

    def _changes_of_rate(self) -> Iterable[float]:
        yield inf
        yield from (held.holding.ready for held in self.held.values() if held.holding.ready > self.now)
        if self.standstill_until > self.now:
            yield self.standstill_until

    def _stand_still(self, span: int) -> None:
        self.standstill_until = max(self.standstill_until, self.now + span)

    def _end(self, holding: Holding, ended: End) -> None:
        self.tenures.append(Tenure(holding.rent, holding.start, holding.ready, self.now, ended))
